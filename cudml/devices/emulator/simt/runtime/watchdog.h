// Interrupts kernels, which may run for long without returning to the scheduler.
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

// How often workers in a launch are interrupted.
constexpr std::chrono::milliseconds kWatchInterval{100};

// The watchdog's knowledge of a worker.
struct Watched {
  pthread_t thread{};
  std::atomic<uint64_t> phase{0};  // odd while a launch runs; every launch has its own number

  // Only the worker's own thread uses these, in the interruption.
  uint64_t seen_phase = 0, seen_progress = 0;
  double progress_time = 0;       // by the thread's CPU time
  volatile bool overdue = false;  // has made no progress for the time limit
  // An interruption came when the kernel could not be left. The function that returns to the kernel's code
  // calls `attend` instead.
  volatile bool due = false;
};

// Seconds of CPU time that this thread has used; the clock of a stopped or waiting process does not advance.
double thread_seconds();

// Handles an interruption, on the stack of a kernel's thread: leaves the kernel for good if the launch was
// aborted or is overdue, and pauses the launch of a worker that may pause.
// `interrupted` is the instruction, if it is known.
void attend(Worker& worker, const void* interrupted = nullptr);

// A thread that interrupts every worker in a launch ten times a second. The worker itself then leaves a
// launch that was aborted elsewhere or has made no progress for its time limit, and returns to its caller for
// a moment. A timer per worker would need no thread but two system calls per launch, which is more than a
// small launch takes.
class Watchdog {
 public:
  void add(Worker& worker);
  void remove(Worker& worker);

  void launch_begins(Watched& watched) {
    watched.phase.store(watched.phase.load(std::memory_order_relaxed) + 1);
    if (asleep_.load()) wake();
  }
  // Interrupts now, not at the next turn.
  void hurry();

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

// Starts a thread that lives as long as the process. Signals sent to the process are for its other threads;
// this thread handles only signals sent to itself.
pthread_t start_service_thread(void (*function)(void*), void* argument);

}  // namespace simt
