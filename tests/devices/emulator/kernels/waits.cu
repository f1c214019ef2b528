// Kernels that take long, or wait for something outside of them.
// A loop reads a volatile, so that it neither ends early nor gives way to other threads.
// Every thread runs the whole kernel.
// The host passes one buffer and a number.
// No plan picks it: it tests the emulator.
#include "common/intrinsics.cuh"

struct Params {
  UInt32 n;
};

// Two launches that run at the same time end; one alone does not.
__global__ void meet(UInt32* arrived, Params params) {
  if (threadIdx.x != 0) return;
  atomicAdd(arrived, 1u);
  const volatile UInt32* polled = arrived;
  while (*polled < params.n) {
  }
}

// Says that it has begun, then counts.
__global__ void counts(UInt32* counter, Params params) {
  volatile UInt32* counted = counter;
  if (threadIdx.x != 0) return;
  counted[0] = 1;
  for (UInt32 i = 0; i < params.n; ++i) counted[1] = i + 1;
}
