// Rates of a histogram in shared storage and of an arg-max over a warp.
// Both are inner loops of top-k: the first at the speed of reading, the second timed by the clock.
// A block has one histogram; a warp has its own chain of arg-maxima, each input made from the
// result before. The host passes 16-byte aligned keys and 2**kDigitBits zeroed bins. Used by
// selection.py.
#include "common/intrinsics.cuh"

struct KeyOfFloat32 {
  static constexpr int kBits = 32;
  static __device__ __forceinline__ UInt32 of(UInt32 bits) {
    return bits ^ ((UInt32)((Int32)bits >> 31) | 0x80000000u);
  }
};
struct KeyOfFloat16 {
  static constexpr int kBits = 16;
  static __device__ __forceinline__ UInt32 of(UInt32 bits) {
    return bits ^ ((bits & 0x8000u) ? 0xffffu : 0x8000u);
  }
};
struct KeyOfInt8 {
  static constexpr int kBits = 8;
  static __device__ __forceinline__ UInt32 of(UInt32 bits) { return bits ^ 0x80u; }
};

template <typename Key, int kDigitBits>
__device__ __forceinline__ void count_word(UInt32* bins, UInt32 word) {
  constexpr UInt32 kElement = 0xffffffffu >> (32 - Key::kBits);
#pragma unroll
  for (int bit = 0; bit < 32; bit += Key::kBits) {
    const UInt32 key = Key::of(word >> bit & kElement);
    atomicAdd(bins + (key >> (Key::kBits - kDigitBits)), 1u);
  }
}

template <typename Key, int kDigitBits>
__global__ void histogram(const uint4* keys, Int64 count, UInt32* totals) {
  struct Storage {
    UInt32 bins[1 << kDigitBits];
  };
  SHARED_STORAGE(Storage, shared);
  for (int bin = threadIdx.x; bin < 1 << kDigitBits; bin += blockDim.x) shared.bins[bin] = 0;
  __syncthreads();  // All bins are 0 before the first is counted.

  constexpr int kLoads = 4;
  const Int64 tile = (Int64)blockDim.x * kLoads;
  for (Int64 start = blockIdx.x * tile; start < count; start += gridDim.x * tile) {
    uint4 v[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      v[i] = load_16_bytes(keys + start + i * blockDim.x + threadIdx.x);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      count_word<Key, kDigitBits>(shared.bins, v[i].x);
      count_word<Key, kDigitBits>(shared.bins, v[i].y);
      count_word<Key, kDigitBits>(shared.bins, v[i].z);
      count_word<Key, kDigitBits>(shared.bins, v[i].w);
    }
  }
  __syncthreads();  // All keys are counted before the bins are read.
  for (int bin = threadIdx.x; bin < 1 << kDigitBits; bin += blockDim.x) {
    if (shared.bins[bin]) atomicAdd(totals + bin, shared.bins[bin]);
  }
}

// One word holds value and index.
struct ReduxOnce {
  static __device__ __forceinline__ UInt64 arg_max(UInt64 composite) {
    return __reduce_max_sync(kFullMask, (UInt32)composite);
  }
};
// The largest value, then the lowest index among the lanes that have it.
struct ReduxTwice {
  static __device__ __forceinline__ UInt64 arg_max(UInt64 composite) {
    const UInt32 value = composite >> 32, index = composite;
    const UInt32 largest = __reduce_max_sync(kFullMask, value);
    const UInt32 first = __reduce_min_sync(kFullMask, value == largest ? index : 0xffffffffu);
    return (UInt64)largest << 32 | first;
  }
};
template <typename Word>
struct Shuffles {
  static __device__ __forceinline__ UInt64 arg_max(UInt64 composite) {
    Word best = composite;
#pragma unroll
    for (int distance = 16; distance; distance /= 2) {
      const Word other = __shfl_xor_sync(kFullMask, best, distance);
      best = other > best ? other : best;
    }
    return best;
  }
};

template <typename Method>
__global__ void arg_max(Int32 num_rounds, Int64* clocks, UInt64* never) {
  UInt64 composite = (UInt64)(threadIdx.x * 2654435761u) << 32 | threadIdx.x;
  __syncthreads();  // All warps start together.
  const Int64 start = clock64();
  for (Int32 round = 0; round < num_rounds; ++round) {
    composite ^= Method::arg_max(composite) + round;
  }
  __syncthreads();  // All warps are done before the clock is read.
  if (threadIdx.x == 0) clocks[blockIdx.x] = clock64() - start;
  if (composite == 0x9e3779b97f4a7c15ull) *never = composite;
}
