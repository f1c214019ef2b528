// Threads that help the caller of a launch with its blocks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "state.h"

namespace simt {

// Serves one launch at a time. Its threads are created when they are first needed, and never end.
class Pool {
 public:
  // Lets up to `helpers` threads do `work` for the launch. Returns false if another launch has the threads.
  bool start(Launch& launch, unsigned helpers, void (*work)(Launch&));

  // Lets no further thread begin, and waits until none works on the launch; returns false if that takes
  // longer than the given time.
  bool finish_within(std::chrono::milliseconds time);

 private:
  void serve();

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  Launch* launch_ = nullptr;
  void (*work_)(Launch&) = nullptr;
  unsigned num_threads_ = 0, wanted_ = 0, busy_ = 0;
};

}  // namespace simt
