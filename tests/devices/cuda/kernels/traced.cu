// Kernels whose waits are known: a load, an inlined function, a barrier; copies to shared storage.
#include "common/intrinsics.cuh"

struct TracedParams {
  Int64 num_items;
};

struct TracedStorage {
  Float32 values[256];
};

__device__ __forceinline__ Float32 cubed(Float32 x) {
  return x * x * x;  // waits for the load
}

__global__ void __launch_bounds__(64, 1) traced(const Float32* in, Float32* out, TracedParams p) {
  SHARED_STORAGE(TracedStorage, shared);
  const Float32 loaded = in[threadIdx.x * p.num_items];  // the load
  shared.values[threadIdx.x] = cubed(loaded);
  __syncthreads();  // every value is written before a neighbour reads it
  out[threadIdx.x] = shared.values[63 - threadIdx.x];
}

__global__ void __launch_bounds__(64, 1) copied(const Float32* in, Float32* out, TracedParams p) {
  SHARED_STORAGE(TracedStorage, shared);
  const UInt32 first = 4 * threadIdx.x;
  QuadCopies copies;
  copies.start(shared.values + first, in + first * p.num_items);
  copies.wait();
  out[first] = shared.values[first + 3];
}
