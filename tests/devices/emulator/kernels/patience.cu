// A wait of common/wait.cuh with a clock of its own, which advances by a step between two looks, and once by
// a jump.
#include "common/intrinsics.cuh"
#include "common/types.cuh"

struct PatienceParams {
  UInt64 start_ns;
  UInt64 step_ns;
  UInt64 jump_ns;
  UInt32 jump_at;
  UInt32 num_looks;  // until the awaited event comes
  UInt32 limit_ticks;
};

static PatienceParams clock_params;
static UInt32 num_looks;

inline UInt64 fake_nanoseconds() {
  ++num_looks;
  const UInt64 jump = num_looks >= clock_params.jump_at ? clock_params.jump_ns : 0;
  return clock_params.start_ns + num_looks * clock_params.step_ns + jump;
}

#define nanoseconds fake_nanoseconds
#include "common/wait.cuh"

// Whether the event came, the number of looks at the clock, and the content of the report.
__global__ void waits_for_a_clock(UInt32* out, PatienceParams params) {
  clock_params = params;
  num_looks = 0;
  UInt32 any = 0;
  WaitReport report = {&any, params.limit_ticks, 0, 0, 0};
  Patience patience = {&report};
  out[0] = patience.wait(7, [&] { return num_looks >= params.num_looks; }, [] {});
  out[1] = num_looks;
  out[2] = report.wait;
  out[3] = any;
}
