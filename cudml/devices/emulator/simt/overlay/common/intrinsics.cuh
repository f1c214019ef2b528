// The emulator's twin of kernels/common/intrinsics.cuh: the same functions in C++. It comes first on the
// include path; a test compares the two lists of names.
#pragma once

#include "common/types.cuh"

#define SHARED_STORAGE(Type, name) \
  Type& name = simt_shared_storage<Type>(__builtin_FILE(), __builtin_LINE())

template <class T, int kSize>
struct SharedArray {
  T items[kSize];

  template <class Index>
  __device__ __forceinline__ T& operator[](Index index) {
    simt_require_index(static_cast<Int64>(index), kSize);
    return items[index];
  }
  template <class Index>
  __device__ __forceinline__ const T& operator[](Index index) const {
    simt_require_index(static_cast<Int64>(index), kSize);
    return items[index];
  }
};

// ---- 16-byte accesses.

__device__ __forceinline__ uint4 load_16_bytes(const void* address, SIMT_PLACE) {
  return simt_load_aligned_16(address, SIMT_HERE);
}

__device__ __forceinline__ void store_16_bytes(void* address, uint4 v, SIMT_PLACE) {
  simt_store_aligned_16(address, v, SIMT_HERE);
}

// ---- Communication between blocks.

// Other blocks run between the load and the use of its value: if a store to the same word follows where an
// atomic operation is needed, an update is lost.
__device__ __forceinline__ UInt32 load_acquire(const UInt32* address, SIMT_PLACE) {
  const UInt32 value = __atomic_load_n(address, __ATOMIC_ACQUIRE);
  simt_yield(SIMT_HERE);
  return value;
}

__device__ __forceinline__ void store_release(UInt32* address, UInt32 value) {
  __atomic_store_n(address, value, __ATOMIC_RELEASE);
}

__device__ __forceinline__ UInt32 add_release(UInt32* address, UInt32 value) {
  return __atomic_fetch_add(address, value, __ATOMIC_RELEASE);
}

__device__ __forceinline__ UInt32 add_acquire_release(UInt32* address, UInt32 value) {
  return __atomic_fetch_add(address, value, __ATOMIC_ACQ_REL);
}

// ---- Relaxed loads and stores.

__device__ __forceinline__ UInt32 load_relaxed(const UInt32* address) {
  return __atomic_load_n(address, __ATOMIC_RELAXED);
}

__device__ __forceinline__ void store_relaxed(UInt32* address, UInt32 value) {
  __atomic_store_n(address, value, __ATOMIC_RELAXED);
}

__device__ __forceinline__ void store_relaxed(UInt64* address, UInt64 value) {
  __atomic_store_n(address, value, __ATOMIC_RELAXED);
}

struct WordPair {
  UInt64 words[2];
};

__device__ __forceinline__ WordPair load_pair_relaxed(const UInt64* address) {
  return {__atomic_load_n(address, __ATOMIC_RELAXED),
          __atomic_load_n(address + 1, __ATOMIC_RELAXED)};
}

__device__ __forceinline__ uint2 load_pair_relaxed(const UInt32* address) {
  return {__atomic_load_n(address, __ATOMIC_RELAXED),
          __atomic_load_n(address + 1, __ATOMIC_RELAXED)};
}

__device__ __forceinline__ void store_release_system(UInt32* address, UInt32 value) {
  __atomic_store_n(address, value, __ATOMIC_RELEASE);
}

// ---- Copies from global to shared storage, which happen as late as they may.

template <int kCount, bool kMayKeep = true>
struct FloatCopies {
  float* places[kCount] = {};
  const float* sources[kCount];

  __device__ __forceinline__ void start(int i, float* to, const float* from) {
    places[i] = to;
    sources[i] = from;
  }
  __device__ __forceinline__ void wait() {
    for (int i = 0; i < kCount; ++i) {
      if (places[i] != nullptr) *places[i] = *sources[i];
      places[i] = nullptr;
    }
  }
};

// At most kMost copies are late: a further copy completes the first of them.
struct QuadCopies {
  static constexpr int kMost = 64;
  float* places[kMost];
  const float* sources[kMost];
  int count = 0;

  __device__ __forceinline__ void start(float* to, const float* from) {
    if (count >= kMost) complete(count % kMost);
    places[count % kMost] = to;
    sources[count++ % kMost] = from;
  }
  __device__ __forceinline__ void wait() {
    for (int i = count > kMost ? count - kMost : 0; i < count; ++i) complete(i % kMost);
    count = 0;
  }

 private:
  void complete(int i) {
    for (int c = 0; c < 4; ++c) places[i][c] = sources[i][c];
  }
};

__device__ __forceinline__ float fast_exp2(float x) { return exp2f(x); }

__device__ __forceinline__ float fast_reciprocal(float x) { return 1.0f / x; }

__device__ __forceinline__ void give_way(SIMT_PLACE) { simt_yield(SIMT_HERE); }

// Each poll lets every thread that can run take a turn.
constexpr UInt32 kPollsPerLook = 16;

__device__ __forceinline__ UInt64 nanoseconds() { return simt_nanoseconds(); }

// ---- Over the lanes of a warp.

__device__ __forceinline__ UInt32 warp_max(UInt32 value, SIMT_PLACE) {
  return static_cast<UInt32>(simt_warp(kWarpMaxUnsigned, kFullMask, value, 0, SIMT_HERE));
}

__device__ __forceinline__ UInt32 warp_sum(UInt32 value, SIMT_PLACE) {
  return static_cast<UInt32>(simt_warp(kWarpAdd, kFullMask, value, 0, SIMT_HERE));
}

// ---- A value that is kept in a register rather than computed again wherever it is used.

__device__ __forceinline__ UInt32 computed_once(UInt32 value) { return value; }

// ---- Words of two halves.

constexpr bool kHasHalves = true;

__device__ __forceinline__ UInt32 signs_of_halves(UInt32 halves) {
  return (halves >> 15 & 0x10001u) * 0xffffu;
}

__device__ __forceinline__ UInt32 max_of_sum_of_halves(UInt32 a, UInt32 b, UInt32 c) {
  const UInt32 lower = max((a + b) & 0xffffu, c & 0xffffu);
  const UInt32 upper = max(((a >> 16) + (b >> 16)) & 0xffffu, c >> 16);
  return upper << 16 | lower;
}

// ---- The bits of a float32 after adding +0, with the NaN of a GPU.

__device__ __forceinline__ UInt32 plus_zero(UInt32 bits) {
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffffffu;
  return bits == 0x80000000u ? 0u : bits;
}

// ---- Half precision as bits.

__device__ __forceinline__ float float_from_half_bits(UInt16 bits) {
  return simt_float_from_half(bits);
}

__device__ __forceinline__ UInt16 half_bits_from_float(float value) {
  return simt_half_from_float(value);
}

__device__ __forceinline__ UInt16 bfloat_bits_from_float(float value) {
  const UInt32 bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<UInt16>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

// ---- Matrices of half precision. Halves of other lanes arrive two words at a time.

struct alignas(16) MatrixRows {
  UInt32 words[4];
};

struct MatrixColumns {
  UInt32 words[2];
};

struct MatrixSums {
  float values[4];
};

// `number(half)` is the value of sixteen bits.
template <class Number>
inline MatrixSums simt_multiply_add(MatrixRows rows, MatrixColumns columns, MatrixSums sums,
                                    const Number& number, SIMT_PLACE) {
  const auto pair = [](UInt32 low, UInt32 high) { return static_cast<UInt64>(high) << 32 | low; };
  const auto half = [&](UInt64 words, int i) {
    return number(static_cast<UInt16>(words >> 16 * i));
  };
  const auto from = [&](UInt64 value, unsigned lane) {
    return simt_warp(kWarpShuffle, kFullMask, value, lane, SIMT_HERE);
  };
  const unsigned lane = simt_lane(), g = lane / 4, t = lane % 4;
  for (unsigned s = 0; s < 4; ++s) {
    // Halves 0 and 1 are at columns 2s and 2s + 1, halves 2 and 3 at 2s + 8 and 2s + 9.
    const UInt64 upper = from(pair(rows.words[0], rows.words[2]), 4 * g + s);
    const UInt64 lower = from(pair(rows.words[1], rows.words[3]), 4 * g + s);
    const UInt64 left = from(pair(columns.words[0], columns.words[1]), 4 * (2 * t) + s);
    const UInt64 right = from(pair(columns.words[0], columns.words[1]), 4 * (2 * t + 1) + s);
    for (int i = 0; i < 4; ++i) {
      sums.values[0] = fmaf(half(upper, i), half(left, i), sums.values[0]);
      sums.values[1] = fmaf(half(upper, i), half(right, i), sums.values[1]);
      sums.values[2] = fmaf(half(lower, i), half(left, i), sums.values[2]);
      sums.values[3] = fmaf(half(lower, i), half(right, i), sums.values[3]);
    }
  }
  return sums;
}

__device__ __forceinline__ MatrixSums multiply_add(MatrixRows rows, MatrixColumns columns,
                                                   MatrixSums sums, SIMT_PLACE) {
  return simt_multiply_add(
      rows, columns, sums, [](UInt16 half) { return simt_float_from_half(half); }, SIMT_HERE);
}

__device__ __forceinline__ MatrixSums multiply_add_bfloats(MatrixRows rows, MatrixColumns columns,
                                                           MatrixSums sums, SIMT_PLACE) {
  return simt_multiply_add(
      rows, columns, sums,
      [](UInt16 half) { return __uint_as_float(static_cast<UInt32>(half) << 16); }, SIMT_HERE);
}

// ---- Barriers that CUDA C++ has no function for.

__device__ __forceinline__ void named_barrier(int id, int num_threads, SIMT_PLACE) {
  simt_barrier(static_cast<unsigned>(id), static_cast<unsigned>(num_threads), kBarrierPlain, 0,
               SIMT_HERE);
}

// ---- Clusters. The blocks of a cluster run on one worker, so a mapped address is a plain one.

__device__ __forceinline__ void cluster_barrier(SIMT_PLACE) { simt_cluster_barrier(SIMT_HERE); }

__device__ __forceinline__ UInt32 cluster_rank() { return simt_cluster_rank(); }

template <typename T>
__device__ __forceinline__ T* map_shared(T* address, UInt32 rank, SIMT_PLACE) {
  return static_cast<T*>(simt_map_shared(address, rank, SIMT_HERE));
}
