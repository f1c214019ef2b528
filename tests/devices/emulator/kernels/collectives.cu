// Every collective: warp exchanges with full and partial masks, block barriers, named barriers,
// clusters. One row of the output per operation, in the order in which the tests list them. Thread
// i owns column i; warp collectives run per warp. The host passes one value per thread. No plan
// picks it: it tests the emulator.
#include "common/intrinsics.cuh"

struct Params {
  UInt32 mask;
  Int32 width, amount;
};

template <typename T>
__global__ void shuffles(const T* x, T* out, Params params) {
  const UInt32 i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
  const T v = x[i];
  out[0 * n + i] =
      __shfl_sync(kFullMask, v, params.amount + static_cast<int>(threadIdx.x), params.width);
  out[1 * n + i] = __shfl_up_sync(kFullMask, v, params.amount, params.width);
  out[2 * n + i] = __shfl_down_sync(kFullMask, v, params.amount, params.width);
  out[3 * n + i] = __shfl_xor_sync(kFullMask, v, params.amount, params.width);
}

// The lanes of the mask and those outside it take part in two collectives at the same time.
__global__ void votes(const Int32* x, Int32* out, Params params) {
  const UInt32 i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
  const UInt32 mask = params.mask >> (i % 32) & 1 ? params.mask : ~params.mask;
  const Int32 v = x[i];
  const UInt32 u = static_cast<UInt32>(v);
  int row = 0;
  out[row++ * n + i] = static_cast<Int32>(__ballot_sync(mask, v & 1));
  out[row++ * n + i] = __all_sync(mask, v & 1);
  out[row++ * n + i] = __any_sync(mask, v & 1);
  out[row++ * n + i] = static_cast<Int32>(__match_any_sync(mask, v));
  int all_equal;
  out[row++ * n + i] = static_cast<Int32>(__match_all_sync(mask, v & 4, &all_equal));
  out[row++ * n + i] = all_equal;
  out[row++ * n + i] = __reduce_add_sync(mask, v);
  out[row++ * n + i] = static_cast<Int32>(__reduce_add_sync(mask, u));
  out[row++ * n + i] = __reduce_min_sync(mask, v);
  out[row++ * n + i] = static_cast<Int32>(__reduce_min_sync(mask, u));
  out[row++ * n + i] = __reduce_max_sync(mask, v);
  out[row++ * n + i] = static_cast<Int32>(__reduce_max_sync(mask, u));
  out[row++ * n + i] = static_cast<Int32>(__reduce_and_sync(mask, u));
  out[row++ * n + i] = static_cast<Int32>(__reduce_or_sync(mask, u));
  out[row++ * n + i] = static_cast<Int32>(__reduce_xor_sync(mask, u));
}

struct Exchange {
  Int32 values[1024];
};

__global__ void barriers(const Int32* x, Int32* out, Params params) {
  SHARED_STORAGE(Exchange, shared);
  const UInt32 t = threadIdx.x, i = blockIdx.x * blockDim.x + t, n = gridDim.x * blockDim.x;
  shared.values[t] = x[i];
  __syncthreads();  // all values are written
  const Int32 mirrored = shared.values[blockDim.x - 1 - t];
  out[0 * n + i] = mirrored;
  out[1 * n + i] = __syncthreads_or(mirrored & 1);
  out[2 * n + i] = __syncthreads_and(mirrored & 1);
  out[3 * n + i] = __syncthreads_count(mirrored & 1);
}

// A named barrier of the first half right after a block-wide vote: neither may see the other's
// result.
__global__ void named_barriers(const Int32* x, Int32* out, Params params) {
  SHARED_STORAGE(Exchange, shared);
  const UInt32 t = threadIdx.x, half = blockDim.x / 2;
  const bool first_half = t < half;
  const int any = __syncthreads_or(t == 0);
  const UInt32 local = first_half ? t : t - half;
  const UInt32 start = first_half ? 0 : half;
  for (int round = 0; round < 3; round++) {
    shared.values[t] = x[t] + round;
    named_barrier(first_half ? 1 : 2, static_cast<int>(half));  // this half's values are written
    out[(1 + round) * blockDim.x + t] = shared.values[start + (local + 1) % half];
    named_barrier(first_half ? 1 : 2, static_cast<int>(half));  // and read
  }
  out[t] = any;
}

__global__ void clusters(const Int32* x, Int32* out, Params params) {
  SHARED_STORAGE(Exchange, shared);
  const UInt32 t = threadIdx.x, i = blockIdx.x * blockDim.x + t, n = gridDim.x * blockDim.x;
  const UInt32 num_blocks = static_cast<UInt32>(params.amount);
  shared.values[t] = x[i];
  cluster_barrier();  // every block of the cluster has written
  out[0 * n + i] = static_cast<Int32>(cluster_rank());
  out[1 * n + i] = map_shared(shared.values, (cluster_rank() + 1) % num_blocks)[t];
  cluster_barrier();  // nobody's shared storage goes away before it is read
}

// A barrier of the whole grid, made of an atomic counter and a polled load.
__global__ void grid_rounds(UInt32* counter, Int32* values, Int32* out, Params params) {
  const UInt32 i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
  for (int round = 0; round < params.amount; round++) {
    values[i] = static_cast<Int32>(i) + round;
    for (int phase = 0; phase < 2; phase++) {
      __syncthreads();  // the whole block has written (phase 0) or read (phase 1)
      if (threadIdx.x == 0) {
        const UInt32 target = gridDim.x * static_cast<UInt32>(2 * round + phase + 1);
        add_acquire_release(counter, 1);
        while (load_acquire(counter) < target) {
        }
      }
      __syncthreads();  // every block has arrived
      if (phase == 0) out[round * n + i] = values[(i + blockDim.x) % n];
    }
  }
}
