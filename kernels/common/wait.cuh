// Waits for other blocks of a running grid, with an end in any case: a thread that has waited for longer
// than the host allows gives up, reports it to the host and never waits again, so that the grid ends. What
// it computes from then on is unspecified; indices that depend on it must stay in bounds.
#pragma once

#include "common/intrinsics.cuh"
#include "common/types.cuh"

// In memory that host and device share; `cudml/devices/waits.py` has the same members in the same order.
struct WaitReport {
  UInt32* any;         // one word for all kernels of the device: not 0 once any of them gave up
  UInt32 limit_ticks;  // of kTickShift; read after many polls only
  UInt32 wait;         // number of the wait that was given up, from 1; 0 while none was
  UInt32 block;        // that gave it up
  UInt32 unused;
};

// A tick is 2^10 ns.
constexpr int kTickShift = 10;
// The most that the time between two looks at the clock counts, 0.1 s: a process that is suspended, or a
// GPU that works for somebody else, is not what the wait is for.
constexpr UInt32 kMaxTicksPerLook = 100000000u >> kTickShift;

// What a thread knows of its waits.
struct Patience {
  WaitReport* report;
  bool has_ended = false;

  // Calls `look` until `has_come`; false where the thread has given up.
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
      // Whoever gives up first spares the others the rest of their time.
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
    // The host that sees this word sees the others too.
    store_release_system(report->any, 1);
  }
};
