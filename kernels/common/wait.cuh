// Waits for other blocks of a running grid, but not forever: a thread that has waited for longer than the
// host allows gives up, reports it to the host and never waits again, so that the grid ends. Its results are
// unspecified from then on; indices that depend on them must stay in bounds.
#pragma once

#include "common/intrinsics.cuh"
#include "common/types.cuh"

// In memory that host and device share; `cudml/devices/waits.py` has the same members in the same order.
struct WaitReport {
  UInt32* any;  // one word for all kernels of the device: not 0 once one of them has given up
  UInt32 limit_ticks;  // in units of 1 << kTickShift ns; read only after many polls
  UInt32 wait;         // number of the wait that was given up, from 1; 0 if none was
  UInt32 block;        // the block that gave up
  UInt32 unused;
};

// A tick is 2^10 ns.
constexpr int kTickShift = 10;
// Between two looks at the clock, at most this much counts as waiting, 0.1 s: the process may have been
// suspended, or the GPU may have worked for another process.
constexpr UInt32 kMaxTicksPerLook = 100000000u >> kTickShift;

// The state of a thread's waits.
struct Patience {
  WaitReport* report;
  bool has_ended = false;

  // Calls `look` until `has_come`; returns false if the thread has given up.
  template <class HasCome, class Look>
  __device__ __forceinline__ bool wait(UInt32 number, HasCome has_come, Look look) {
    UInt32 polls = 0;
    UInt32 last_look = 0;
    UInt32 waited = 0;
    while (!has_come()) {
      if (has_ended) return false;
      give_way();
      look();
      if (++polls % kPollsPerLook != 0) continue;
      const UInt32 now = static_cast<UInt32>(nanoseconds() >> kTickShift);
      if (polls != kPollsPerLook) waited += min(now - last_look, kMaxTicksPerLook);
      last_look = now;
      // Once one thread has given up, the others need not wait any longer.
      if (load_relaxed(&report->wait) != 0) has_ended = true;
      if (waited > report->limit_ticks) end(number);
    }
    return !has_ended;
  }

 private:
  __device__ __forceinline__ void end(UInt32 number) {
    has_ended = true;
    store_relaxed(&report->block, blockIdx.x);
    store_relaxed(&report->wait, number);
    // A host that sees this word sees the others, too.
    store_release_system(report->any, 1);
  }
};
