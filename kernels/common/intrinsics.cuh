// Functions that CUDA C++ lacks without headers; the only file with inline PTX. The CPU emulator has a file
// of the same name with the same functions in C++, which its compiler finds first. A function added here must
// be added there, with a test. No kernel file depends on the device, except for this one and the others that
// the emulator replaces.
#pragma once

#include "common/types.cuh"

// A kernel's dynamic shared storage as one struct; the launch passes at least sizeof(Type) bytes.
#define SHARED_STORAGE(Type, name)                                 \
  extern __shared__ __align__(16) unsigned char shared_storage_[]; \
  Type& name = *reinterpret_cast<Type*>(shared_storage_)

// An array in a shared struct. The emulator's check mode reports an index outside of it, which would
// otherwise be in the struct's next member.
template <class T, int kSize>
struct SharedArray {
  T items[kSize];

  template <class Index>
  __device__ __forceinline__ T& operator[](Index index) {
    return items[index];
  }
  template <class Index>
  __device__ __forceinline__ const T& operator[](Index index) const {
    return items[index];
  }
};

// ---- 16-byte accesses; the pointers are 16-byte aligned.

// The memory is read-only for the whole launch. A guarded uint4 load would be split on sm_100 and sm_120.
__device__ __forceinline__ uint4 load_16_bytes(const void* address) {
  uint4 v;
  asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(address));
  return v;
}

__device__ __forceinline__ void store_16_bytes(void* address, uint4 v) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}

// ---- Communication between blocks. Waiting loops poll with acquire loads, too.

__device__ __forceinline__ UInt32 load_acquire(const UInt32* address) {
  UInt32 v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(address) : "memory");
  return v;
}

__device__ __forceinline__ void store_release(UInt32* address, UInt32 value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

__device__ __forceinline__ UInt32 add_release(UInt32* address, UInt32 value) {
  UInt32 old;
  asm volatile("atom.add.release.gpu.global.u32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(address), "r"(value)
               : "memory");
  return old;
}

__device__ __forceinline__ UInt32 add_acquire_release(UInt32* address, UInt32 value) {
  UInt32 old;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(address), "r"(value)
               : "memory");
  return old;
}

// ---- Relaxed loads and stores of data that another block writes or polls during the launch.

__device__ __forceinline__ UInt32 load_relaxed(const UInt32* address) {
  UInt32 v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(address) : "memory");
  return v;
}

__device__ __forceinline__ void store_relaxed(UInt32* address, UInt32 value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

__device__ __forceinline__ void store_relaxed(UInt64* address, UInt64 value) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

struct WordPair {
  UInt64 words[2];
};

// Two neighbouring words at a multiple of 16 bytes, each as if loaded on its own.
__device__ __forceinline__ WordPair load_pair_relaxed(const UInt64* address) {
  WordPair v;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(v.words[0]), "=l"(v.words[1])
               : "l"(address)
               : "memory");
  return v;
}

// As for words of 64 bits, at a multiple of 8 bytes.
__device__ __forceinline__ uint2 load_pair_relaxed(const UInt32* address) {
  uint2 v;
  asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
               : "=r"(v.x), "=r"(v.y)
               : "l"(address)
               : "memory");
  return v;
}

// Makes earlier writes visible to the host, too, in memory that it shares.
__device__ __forceinline__ void store_release_system(UInt32* address, UInt32 value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

// ---- Copies of floats from global to shared storage that occupy no register and that nothing waits for
// until wait(), which the thread calls before it reads them. Other threads need a barrier as well.

// Architectures that cannot copy without registers keep the floats in registers until wait() if kMayKeep,
// else they wait for the floats at once.
template <int kCount, bool kMayKeep = true>
struct FloatCopies {
  float* places[kCount] = {};
  float values[kCount];

  __device__ __forceinline__ void start(int i, float* to, const float* from) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(
                     static_cast<UInt32>(__cvta_generic_to_shared(to))),
                 "l"(from)
                 : "memory");
#else
    if (kMayKeep) {
      places[i] = to;
      values[i] = *from;
    } else {
      *to = *from;
    }
#endif
  }
  __device__ __forceinline__ void wait() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#else
#pragma unroll
    for (int i = 0; kMayKeep && i < kCount; ++i) {
      if (places[i] != nullptr) *places[i] = values[i];
      places[i] = nullptr;
    }
#endif
  }
};

// Copies of four floats that another block may have written, past the L1 cache. They are complete after
// wait(), which the thread calls before it reads them; other threads need a barrier as well.
struct QuadCopies {
  __device__ __forceinline__ void start(float* to, const float* from) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     static_cast<UInt32>(__cvta_generic_to_shared(to))),
                 "l"(from)
                 : "memory");
#else
    float4 v;
    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(from)
                 : "memory");
    *reinterpret_cast<float4*>(to) = v;
#endif
  }
  __device__ __forceinline__ void wait() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
  }
};

// ---- Functions of the device's hardware: relative errors up to 2^-22 (PTX ISA, ex2 and rcp), denormal
// results are 0.

__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 0 for infinity.
__device__ __forceinline__ float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// To be called in a loop that waits for a write of another block.
__device__ __forceinline__ void give_way() {}

// Number of polls of a waiting loop between two looks at the clock: about a millisecond.
constexpr UInt32 kPollsPerLook = 2048;

// The time of a clock that all multiprocessors share.
__device__ __forceinline__ UInt64 nanoseconds() {
  UInt64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// ---- The largest value of the 32 lanes of a warp, all of which call, and their sum.

__device__ __forceinline__ UInt32 warp_max(UInt32 value) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(kFullMask, value);
#else
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
    value = max(value, __shfl_xor_sync(kFullMask, value, lanes));
  }
  return value;
#endif
}

__device__ __forceinline__ UInt32 warp_sum(UInt32 value) {
#if __CUDA_ARCH__ >= 800
  return __reduce_add_sync(kFullMask, value);
#else
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
    value += __shfl_xor_sync(kFullMask, value, lanes);
  }
  return value;
#endif
}

// ---- A value that is kept in a register rather than computed again wherever it is used.

__device__ __forceinline__ UInt32 computed_once(UInt32 value) {
  asm volatile("" : "+r"(value));
  return value;
}

// ---- Words of two halves, each a number of 16 bits.

// Whether an instruction or two compute with both halves. Where it takes more, the functions below are slower
// than computing with one half after the other.
#if __CUDA_ARCH__ >= 900
constexpr bool kHasHalves = true;
#else
constexpr bool kHasHalves = false;
#endif

// All ones in the halves whose uppermost bit is set, else 0.
__device__ __forceinline__ UInt32 signs_of_halves(UInt32 halves) {
  UInt32 signs;
  asm("prmt.b32 %0, %1, %1, 0xbb99;" : "=r"(signs) : "r"(halves));
  return signs;
}

// max(a + b, c) of each half. The sum has 16 bits; numbers are unsigned.
__device__ __forceinline__ UInt32 max_of_sum_of_halves(UInt32 a, UInt32 b, UInt32 c) {
  return __viaddmax_u16x2(a, b, c);
}

// ---- The bits of a float32 after adding +0: -0 becomes +0, and all NaNs become the same NaN.

__device__ __forceinline__ UInt32 plus_zero(UInt32 bits) {
  UInt32 sum;
  asm("add.rn.f32 %0, %1, 0f00000000;" : "=r"(sum) : "r"(bits));
  return sum;
}

// ---- Half precision as bits, so that no kernel needs cuda_fp16.h.

__device__ __forceinline__ float float_from_half_bits(UInt16 bits) {
  float v;
  asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
  return v;
}

// Rounds to nearest even.
__device__ __forceinline__ UInt16 half_bits_from_float(float value) {
  UInt16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

// The bits of a bfloat16, the upper half of a float32. Rounds to nearest even; every NaN becomes 0x7fff.
__device__ __forceinline__ UInt16 bfloat_bits_from_float(float value) {
#if __CUDA_ARCH__ >= 800
  UInt16 bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  const UInt32 bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<UInt16>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
#endif
}

// ---- Matrices of half precision, multiplied by a whole warp and summed in float32.
//
// With g = lane / 4 and t = lane % 4, and a word holding two neighbouring halves, the lower one first:
// rows have the words of (row g, columns 2t), (g + 8, 2t), (g, 2t + 8) and (g + 8, 2t + 8); columns those
// of (rows 2t, column g) and (2t + 8, g); sums are (g, 2t), (g, 2t + 1), (g + 8, 2t) and (g + 8, 2t + 1).

// Aligned, so that a lane's part moves in a single access.
struct alignas(16) MatrixRows {  // 16 x 16
  UInt32 words[4];
};

struct MatrixColumns {  // 16 x 8
  UInt32 words[2];
};

struct MatrixSums {  // 16 x 8
  float values[4];
};

// rows * columns + sums.
__device__ __forceinline__ MatrixSums multiply_add(MatrixRows rows, MatrixColumns columns,
                                                   MatrixSums sums) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums.values[0]), "+f"(sums.values[1]), "+f"(sums.values[2]), "+f"(sums.values[3])
      : "r"(rows.words[0]), "r"(rows.words[1]), "r"(rows.words[2]), "r"(rows.words[3]),
        "r"(columns.words[0]), "r"(columns.words[1]));
#else
  for (int half = 0; half < 2; ++half) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums.values[0]), "+f"(sums.values[1]), "+f"(sums.values[2]), "+f"(sums.values[3])
        : "r"(rows.words[2 * half]), "r"(rows.words[2 * half + 1]), "r"(columns.words[half]));
  }
#endif
  return sums;
}

// As `multiply_add`, for words of two bfloat16. Only sm_80 and later have such matrices.
#if __CUDA_ARCH__ >= 800
__device__ __forceinline__ MatrixSums multiply_add_bfloats(MatrixRows rows, MatrixColumns columns,
                                                           MatrixSums sums) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums.values[0]), "+f"(sums.values[1]), "+f"(sums.values[2]), "+f"(sums.values[3])
      : "r"(rows.words[0]), "r"(rows.words[1]), "r"(rows.words[2]), "r"(rows.words[3]),
        "r"(columns.words[0]), "r"(columns.words[1]));
  return sums;
}
#endif

// ---- Barriers that CUDA C++ has no function for.

// Waits until `num_threads` threads of the block, whole warps, have reached barrier `id` (1 to 15).
__device__ __forceinline__ void named_barrier(int id, int num_threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(num_threads) : "memory");
}

// ---- Clusters (sm_90 and later), along x only.

// Waits for every thread of the cluster; afterwards, all threads see the shared storage written before.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}

// The number of this block in its cluster.
__device__ __forceinline__ UInt32 cluster_rank() {
  UInt32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// The address in block `rank` of the cluster that corresponds to `address` in this block's shared storage.
template <typename T>
__device__ __forceinline__ T* map_shared(T* address, UInt32 rank) {
  UInt64 mapped;
  asm("mapa.u64 %0, %1, %2;" : "=l"(mapped) : "l"(address), "r"(rank));
  return reinterpret_cast<T*>(mapped);
}
