// Reads, writes, copies and filters an array with 16-byte accesses.
// A block takes tiles of kLoads vectors a thread, so kLoads independent loads are in flight.
// Blocks stride over the tiles; each vector is touched once.
// The host passes arrays that are 16-byte aligned and a count of vectors that the tile divides.
// Used by bandwidth.py.
#include "common/intrinsics.cuh"

template <int kLoads, typename Use>
__device__ __forceinline__ void for_each_tile(Int64 count, Use use) {
  const Int64 tile = (Int64)blockDim.x * kLoads;
  for (Int64 start = blockIdx.x * tile; start < count; start += gridDim.x * tile)
    use(start + threadIdx.x);
}

template <int kLoads>
__device__ __forceinline__ void load_tile(uint4 (&v)[kLoads], const uint4* source, Int64 first) {
#pragma unroll
  for (int i = 0; i < kLoads; ++i) v[i] = load_16_bytes(source + first + i * blockDim.x);
}

template <int kLoads>
__global__ void read_vectors(const uint4* source, Int64 count, UInt32* never) {
  UInt32 mixed = 0;
  for_each_tile<kLoads>(count, [&](Int64 first) {
    uint4 v[kLoads];
    load_tile(v, source, first);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) mixed += v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
  });
  if (mixed == 0x9e3779b9u) *never = mixed;
}

template <int kLoads>
__global__ void copy_vectors(const uint4* source, uint4* target, Int64 count) {
  for_each_tile<kLoads>(count, [&](Int64 first) {
    uint4 v[kLoads];
    load_tile(v, source, first);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) store_16_bytes(target + first + i * blockDim.x, v[i]);
  });
}

// Whether any element of a word is above the threshold, a word that repeats one element. Each
// struct is one way to compare; those of floats let a NaN pass, as a kernel that ranks NaN first
// needs.
struct Float32AsKey {
  static __device__ __forceinline__ bool any_above(UInt32 word, UInt32 threshold) {
    const UInt32 key = word ^ ((UInt32)((Int32)word >> 31) | 0x80000000u);
    return key > threshold;
  }
};
struct Float32AsFloat {
  static __device__ __forceinline__ bool any_above(UInt32 word, UInt32 threshold) {
    return !(__uint_as_float(word) <= __uint_as_float(threshold));
  }
};
struct Float16AsKey {
  static __device__ __forceinline__ bool any_above(UInt32 word, UInt32 threshold) {
    const UInt32 signs = (word & 0x80008000u) >> 15;
    const UInt32 keys = word ^ (signs * 0x7fffu | 0x80008000u);
    return (keys >> 16) > (threshold >> 16) || (keys & 0xffffu) > (threshold & 0xffffu);
  }
};
struct Float16AsPair {
  static __device__ __forceinline__ bool any_above(UInt32 word, UInt32 threshold) {
    UInt32 ones;
    asm("set.gtu.f16x2.f16x2 %0, %1, %2;" : "=r"(ones) : "r"(word), "r"(threshold));
    return ones != 0;
  }
};
struct Int8AsQuad {
  static __device__ __forceinline__ bool any_above(UInt32 word, UInt32 threshold) {
    return __vcmpgts4(word, threshold) != 0;
  }
};

// Appends the vectors that hold an element above the threshold: the pure pass of a threshold
// filter.
template <typename Compare, int kLoads>
__global__ void filter_vectors(const uint4* source, Int64 count, UInt32 threshold, UInt32* num_kept,
                               Int64* kept, UInt32 capacity) {
  for_each_tile<kLoads>(count, [&](Int64 first) {
    uint4 v[kLoads];
    load_tile(v, source, first);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const bool above =
          Compare::any_above(v[i].x, threshold) | Compare::any_above(v[i].y, threshold) |
          Compare::any_above(v[i].z, threshold) | Compare::any_above(v[i].w, threshold);
      if (above) {
        const UInt32 place = atomicAdd(num_kept, 1u);
        if (place < capacity) kept[place] = first + i * blockDim.x;
      }
    }
  });
}
