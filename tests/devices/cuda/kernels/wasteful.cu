// Kernels with machine code that no kernel of the project may have, and one with permitted code.
#include "common/intrinsics.cuh"

struct WastefulParams {
  Int64 num_items;
  Int32 start;
};

// An array that is indexed by data cannot live in registers.
__global__ void __launch_bounds__(128)
    local_array(const Float32* in, Float32* out, WastefulParams p) {
  Float32 kept[40];
  for (int i = 0; i < 40; ++i) kept[i] = in[i * p.num_items];
  for (int i = 0; i < 40; ++i) out[i] = kept[(p.start + i * i) % 40];
}

// Keeps more values alive than the registers that the bound leaves to a thread.
__global__ void __launch_bounds__(1024, 2)
    spilling(const Float32* in, Float32* out, WastefulParams p) {
  Float32 kept[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) kept[i] = in[i * p.num_items];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 96; ++i) out[i * p.num_items] = kept[i] * kept[(i * 37 + 11) % 96];
}

struct ExchangeStorage {
  Float32 values[256];
};

// Sixteen bytes a thread in and out, by way of shared storage.
__global__ void __launch_bounds__(64, 1) wide(const uint4* in, uint4* out, WastefulParams p) {
  SHARED_STORAGE(ExchangeStorage, shared);
  uint4 v = load_16_bytes(in + threadIdx.x);
  shared.values[4 * threadIdx.x] = __uint_as_float(v.x);
  __syncthreads();  // every value is written before a neighbour reads it
  v.y = __float_as_uint(shared.values[4 * ((threadIdx.x + p.start) % 64)]);
  store_16_bytes(out + threadIdx.x, v);
}
