// Stops a kernel that spins without polling: such a thread never returns to the scheduler.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

namespace simt {

struct Worker;

// What the watchdog knows of a worker.
struct Watched {
  pthread_t thread{};
  std::atomic<uint64_t> phase{0};  // odd while a launch runs; every launch has a number of its own

  // Only the worker's own thread uses these, in the interruption.
  uint64_t seen_phase = 0, seen_progress = 0;
  std::chrono::steady_clock::time_point progress_time;
  volatile bool overdue = false;  // has made no progress for the time limit
};

// A thread that interrupts every worker in a launch ten times a second. The worker itself then sees whether
// it has made progress, and stops a launch that has made none for its time limit. A timer for each worker
// would need no thread, but two system calls a launch, which is more than a small launch takes.
class Watchdog {
 public:
  void add(Worker& worker);
  void remove(Worker& worker);

  void launch_begins(Watched& watched) {
    watched.phase.store(watched.phase.load(std::memory_order_relaxed) + 1);
    if (asleep_.load()) wake();
  }
  static void launch_ends(Watched& watched) {
    watched.phase.store(watched.phase.load(std::memory_order_relaxed) + 1,
                        std::memory_order_release);
  }

 private:
  void watch();
  bool interrupt_all();
  void wake();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Worker*> workers_;
  std::vector<uint64_t> phases_;  // by worker, as last seen
  std::atomic<bool> asleep_{false};
  bool is_running_ = false;
};

// Starts a thread that lives as long as the process. Signals sent to the process are for the threads that
// were there before: this one takes none but those sent to it.
pthread_t start_service_thread(void (*function)(void*), void* argument);

}  // namespace simt
