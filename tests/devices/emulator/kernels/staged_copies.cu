// Copies to shared storage in stages of five floats: the storage's contents when two stages may still be late, and
// when none may. No plan picks it: it tests the emulator.

#include "common/matrix_intrinsics.cuh"

constexpr int kMostStages = 8;
constexpr int kStageFloats = 8;
constexpr int kCopiedFloats = 5;

struct Params {
  Int32 num_stages;
};

struct alignas(16) Copied {
  float values[2 * kMostStages * kStageFloats];
};

// Stages of both threads, kStageFloats apart.
__global__ void staged_copies(const float* x, float* early, float* late, Params params) {
  SHARED_STORAGE(Copied, shared);
  float* own = shared.values + threadIdx.x * kMostStages * kStageFloats;
  for (int i = 0; i < kMostStages * kStageFloats; ++i) own[i] = -1;
  const auto store = [&](float* to) {
    for (int stage = 0; stage < params.num_stages; ++stage) {
      for (int i = 0; i < kCopiedFloats; ++i) {
        to[(stage * 2 + threadIdx.x) * kStageFloats + i] = own[stage * kStageFloats + i];
      }
    }
  };
  StagedCopies<2, 4> copies;
  for (int stage = 0; stage < params.num_stages; ++stage) {
    const float* from = x + (stage * 2 + threadIdx.x) * kStageFloats;
    copies.start_quad(own + stage * kStageFloats, from);
    copies.start_one(own + stage * kStageFloats + 4, from + 4);
    copies.end_stage();
    copies.wait<2>();
  }
  store(early);
  copies.wait<0>();
  store(late);
}
