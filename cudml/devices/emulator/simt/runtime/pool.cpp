#include "pool.h"

#include <pthread.h>
#include <sched.h>

#include <vector>

#include "watchdog.h"

namespace simt {

namespace {

// Without this, the system's scheduler tends to keep a short-lived pair of threads on one CPU.
void pin_beside_caller(pthread_t thread, unsigned number) {
  cpu_set_t allowed, chosen;
  if (sched_getaffinity(0, sizeof allowed, &allowed)) return;
  const int own_cpu = sched_getcpu();
  std::vector<int> others;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &allowed) && cpu != own_cpu) others.push_back(cpu);
  if (others.empty()) return;
  CPU_ZERO(&chosen);
  CPU_SET(others[number % others.size()], &chosen);
  pthread_setaffinity_np(thread, sizeof chosen, &chosen);
}

}  // namespace

bool Pool::start(Launch& launch, unsigned helpers, void (*work)(Launch&)) {
  {
    std::lock_guard lock(mutex_);
    if (launch_) return false;
    launch_ = &launch;
    work_ = work;
    wanted_ = helpers;
    for (; num_threads_ < helpers; num_threads_++)
      pin_beside_caller(
          start_service_thread([](void* self) { static_cast<Pool*>(self)->serve(); }, this),
          num_threads_);
  }
  wake_.notify_all();
  return true;
}

bool Pool::finish_within(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  wanted_ = 0;
  if (!done_.wait_for(lock, time, [this] { return busy_ == 0; })) return false;
  launch_ = nullptr;
  return true;
}

void Pool::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return wanted_ > 0; });
    wanted_--;
    busy_++;
    Launch& launch = *launch_;
    const auto work = work_;
    lock.unlock();
    work(launch);
    lock.lock();
    if (--busy_ == 0) done_.notify_all();
  }
}

}  // namespace simt
