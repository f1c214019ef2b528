// Stops a kernel that spins without polling: such a thread never returns to the scheduler.
#pragma once

#include <csignal>
#include <ctime>

namespace simt {

// One per worker. While a launch runs, a timer interrupts the worker ten times a second; a launch that
// has made no progress for its time limit is stopped from within the interruption.
class Watchdog {
 public:
  ~Watchdog();
  void start();
  void stop();

 private:
  bool set(long nanoseconds);

  timer_t timer_{};
  bool has_timer_ = false;
};

}  // namespace simt
