#include "watchdog.h"

#include <dlfcn.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "errors.h"
#include "state.h"

namespace simt {

namespace {

constexpr std::chrono::milliseconds kInterval{100};

// Without a launch for as many intervals, the watchdog sleeps until there is one.
constexpr unsigned kQuietIntervals = 10;

// Real-time signals have no meaning of their own.
int watchdog_signal() { return SIGRTMIN + 7; }

const void* interrupted_at(void* context) {
  const auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return reinterpret_cast<const void*>(registers.gregs[REG_RIP]);
#else
  return reinterpret_cast<const void*>(registers.pc);
#endif
}

bool in_same_module(const void* a, const void* b) {
  Dl_info of_a{}, of_b{};
  return dladdr(a, &of_a) && dladdr(b, &of_b) && of_a.dli_fbase == of_b.dli_fbase;
}

bool is_in_launch(uint64_t phase) { return phase % 2 != 0; }

// Changes whenever a thread ends or polls, a collective completes, or the plain loop goes on to another thread.
uint64_t progress_of(const Worker& worker) {
  uint64_t mixed = worker.num_progress + worker.idle_rounds;
  for (const unsigned n :
       {blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z})
    mixed = mixed * 0x9e3779b97f4a7c15u + n;
  return mixed;
}

// The interruption of the running thread's worker.
void look_after_worker(void* context) {
  Worker* worker = current_worker;
  if (!worker) return;
  Watched& watched = worker->watched;
  const uint64_t phase = watched.phase.load(std::memory_order_relaxed);
  // It may have come late, after the launch that it was about.
  if (!is_in_launch(phase)) return;
  const uint64_t progress = progress_of(*worker);
  const auto now = std::chrono::steady_clock::now();
  if (phase != watched.seen_phase || progress != watched.seen_progress) {
    watched.seen_phase = phase;
    watched.seen_progress = progress;
    watched.progress_time = now;
    return;
  }
  const double limit = worker->launch->spec->time_limit;
  if (std::chrono::duration<double>(now - watched.progress_time).count() < limit) return;
  // Only the kernel's own code may be left where it stands: the runtime or the C library could hold a
  // lock. The next interruption will find the kernel's, or the check mode look at `overdue`.
  watched.overdue = true;
  if (in_same_module(interrupted_at(context), reinterpret_cast<const void*>(worker->launch->entry)))
    fail(Place{}, overdue_text(*worker->launch));
}

// The signal carries the function to call, because each loaded runtime has its own workers, and there is
// one handler in the process.
void handle(int, siginfo_t* info, void* context) {
  if (info->si_code == SI_QUEUE && info->si_pid == getpid())
    reinterpret_cast<void (*)(void*)>(info->si_value.sival_ptr)(context);
}

void install_handler() {
  struct sigaction action{};
  action.sa_sigaction = handle;
  // Not blocked while it runs, because `fail` does not return from it.
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
  sigaction(watchdog_signal(), &action, nullptr);
}

}  // namespace

void Watchdog::add(Worker& worker) {
  std::lock_guard lock(mutex_);
  worker.watched.thread = pthread_self();
  workers_.push_back(&worker);
  phases_.push_back(0);
  if (is_running_) return;
  is_running_ = true;
  install_handler();
  start_service_thread([](void* self) { static_cast<Watchdog*>(self)->watch(); }, this);
}

void Watchdog::remove(Worker& worker) {
  std::lock_guard lock(mutex_);
  const auto found = std::find(workers_.begin(), workers_.end(), &worker);
  phases_.erase(phases_.begin() + (found - workers_.begin()));
  workers_.erase(found);
}

// Returns whether there was any launch since the last time.
bool Watchdog::interrupt_all() {
  bool any = false;
  for (size_t i = 0; i < workers_.size(); i++) {
    const Watched& watched = workers_[i]->watched;
    const uint64_t phase = watched.phase.load();
    any |= is_in_launch(phase) || phase != phases_[i];
    phases_[i] = phase;
    if (!is_in_launch(phase)) continue;
    sigval function;
    function.sival_ptr = reinterpret_cast<void*>(&look_after_worker);
    pthread_sigqueue(watched.thread, watchdog_signal(), function);
  }
  return any;
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  for (unsigned quiet = 0;;) {
    wake_.wait_for(lock, kInterval);
    quiet = interrupt_all() ? 0 : quiet + 1;
    if (quiet < kQuietIntervals) continue;
    // A launch stores its phase, then looks whether to wake; here it is the other way round, so one of
    // both sees the other.
    asleep_.store(true);
    if (!interrupt_all()) wake_.wait(lock, [this] { return !asleep_.load(); });
    asleep_.store(false);
    quiet = 0;
  }
}

void Watchdog::wake() {
  {
    std::lock_guard lock(mutex_);
    asleep_.store(false);
  }
  wake_.notify_one();
}

pthread_t start_service_thread(void (*function)(void*), void* argument) {
  sigset_t others, before;
  sigfillset(&others);
  sigdelset(&others, watchdog_signal());
  pthread_sigmask(SIG_SETMASK, &others, &before);
  std::thread thread(function, argument);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  const pthread_t handle = thread.native_handle();
  thread.detach();
  return handle;
}

}  // namespace simt
