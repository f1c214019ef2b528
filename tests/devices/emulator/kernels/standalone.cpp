// Runs a kernel without Python: for another architecture under an emulator of its instructions.

// The language of the kernels comes first: their headers are written in it.
#include "simt.h"
// What a kernel includes, and what the program does.
#include <cstdio>

#include "common/intrinsics.cuh"

struct Params {
  Int32 n;
};

struct Storage {
  Float32 values[128];
};

// Block sums by shared storage, shuffles and a barrier in a loop; floating-point state across switches.
__global__ void sums(const Float32* x, Float32* out, Params params) {
  SHARED_STORAGE(Storage, shared);
  const UInt32 t = threadIdx.x;
  const Float32 kept = static_cast<Float32>(t) * 0.5f;
  shared.values[t] = x[blockIdx.x * blockDim.x + t];
  __syncthreads();  // all values are written
  for (UInt32 step = blockDim.x / 2; step >= 32; step /= 2) {
    if (t < step) shared.values[t] += shared.values[t + step];
    __syncthreads();  // this step's sums are written
  }
  Float32 v = shared.values[t % 32];
  for (int step = 16; step; step /= 2) v += __shfl_xor_sync(kFullMask, v, step);
  out[blockIdx.x * blockDim.x + t] = v + kept;
}

SIMT_EXPORT(sums)

int main() {
  constexpr int kBlocks = 8, kThreads = 128;
  static Float32 x[kBlocks * kThreads], out[kBlocks * kThreads];
  for (int i = 0; i < kBlocks * kThreads; i++) x[i] = static_cast<Float32>(i % 100);
  const Float32* input = x;
  Float32* output = out;
  Params params{0};
  void* arguments[] = {&input, &output, &params};
  for (unsigned order = kOrderFast; order <= kOrderRandom; order++) {
    SimtLaunch launch{};
    launch.grid = {kBlocks, 1, 1};
    launch.block = {kThreads, 1, 1};
    launch.cluster_blocks = 1;
    launch.shared_bytes = sizeof(Storage);
    launch.workers = order == kOrderFast ? 2 : 1;
    launch.order = order;
    launch.time_limit = 60;
    int status = simt_kernel(&launch, arguments);
    while (status == kSimtPaused) status = simt_resume(&launch);
    if (status == kSimtFailed) {
      std::printf("order %u: %s\n", order, simt_error());
      return 1;
    }
    for (int block = 0; block < kBlocks; block++) {
      Float32 sum = 0;
      for (int t = 0; t < kThreads; t++) sum += x[block * kThreads + t];
      for (int t = 0; t < kThreads; t++)
        if (out[block * kThreads + t] != sum + static_cast<Float32>(t) * 0.5f) {
          std::printf("order %u: block %d thread %d is wrong\n", order, block, t);
          return 1;
        }
    }
  }
  std::printf("every order is right\n");
  return 0;
}
