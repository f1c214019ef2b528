// Copies of four floats to shared storage: the storage's contents before and after the thread waits for them.
// A thread starts up to kQuads, more than the emulator keeps back. No plan picks it: it tests the emulator.

#include "common/intrinsics.cuh"

constexpr int kQuads = 70;

struct Params {
  Int64 num_floats;  // of a thread
};

struct alignas(16) Copied {
  float values[4 * kQuads * 2];
};

__global__ void quad_copies(const float* x, float* early, float* late, Params params) {
  SHARED_STORAGE(Copied, shared);
  const Int64 first = threadIdx.x * params.num_floats;
  for (Int64 i = 0; i < params.num_floats; ++i) shared.values[first + i] = -1;
  QuadCopies copies;
  for (int round = 0; round < 2; ++round) {
    for (Int64 i = 0; i < params.num_floats; i += 4) {
      copies.start(shared.values + first + i, x + round * 2 * params.num_floats + first + i);
    }
    for (Int64 i = 0; i < params.num_floats; ++i) {
      early[(round * 2 + threadIdx.x) * params.num_floats + i] = shared.values[first + i];
    }
    copies.wait();
    for (Int64 i = 0; i < params.num_floats; ++i) {
      late[(round * 2 + threadIdx.x) * params.num_floats + i] = shared.values[first + i];
    }
  }
}
