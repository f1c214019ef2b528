// The emulator's twin of kernels/common/vectors.cuh: a vector register of the CPU.
#pragma once

#include "common/types.cuh"

#if defined(__AVX512F__)
constexpr int kVectorFloats = 16;
constexpr int kVectorRegisters = 32;
#elif defined(__AVX__)
constexpr int kVectorFloats = 8;
constexpr int kVectorRegisters = 16;
#else
constexpr int kVectorFloats = 4;
constexpr int kVectorRegisters = 16;
#endif

using Floats = float __attribute__((vector_size(4 * kVectorFloats)));
using Ints = Int32 __attribute__((vector_size(4 * kVectorFloats)));

// The address may be any multiple of 4.
__device__ __forceinline__ Floats load_floats(const float* address) {
  Floats v;
  __builtin_memcpy(&v, address, sizeof(v));
  return v;
}
__device__ __forceinline__ void store_floats(float* address, Floats v) {
  __builtin_memcpy(address, &v, sizeof(v));
}
__device__ __forceinline__ Floats broadcast(float value) { return value - Floats{}; }

// Called explicitly, because the flags keep the compiler from fusing a product and a sum.
__device__ __forceinline__ Floats fused(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__) && !defined(__clang__)
  constexpr int kCurrentRounding = 4;
  return __builtin_ia32_vfmaddps512_mask(a, b, c, static_cast<UInt16>(-1), kCurrentRounding);
#elif defined(__AVX__) && defined(__FMA__) && !defined(__clang__)
  return __builtin_ia32_vfmaddps256(a, b, c);
#else
  // clang vectorises the loop over lanes, and its names for the instructions change.
  for (int i = 0; i < kVectorFloats; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
#endif
}

__device__ __forceinline__ Ints as_ints(Floats v) { return reinterpret_cast<Ints>(v); }
__device__ __forceinline__ Floats as_floats(Ints v) { return reinterpret_cast<Floats>(v); }

__device__ __forceinline__ Floats in_register(Floats v) {
#if defined(__x86_64__)
  __asm__("" : "+v"(v));
#endif
  return v;
}

using Quad = float __attribute__((vector_size(16)));

__device__ __forceinline__ Quad load_quad(const float* address) {
  Quad v;
  __builtin_memcpy(&v, address, sizeof(v));
  return v;
}

// Four floats of every fourth row, one after another; rows are `stride` floats apart.
__device__ __forceinline__ Floats load_every_fourth(const float* rows, Int64 stride) {
#if defined(__AVX__)
  using Pair = float __attribute__((vector_size(32)));
  const auto pair = [&](int row) {
    const Quad low = load_quad(rows + row * stride);
    const Quad high = load_quad(rows + (row + 4) * stride);
#if defined(__clang__)
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
#else
    return Pair(__builtin_ia32_vinsertf128_ps256(__builtin_ia32_ps256_ps(low), high, 1));
#endif
  };
#if defined(__AVX512F__)
  const Pair low = pair(0), high = pair(8);
#if defined(__clang__)
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#else
  using Doubles = double __attribute__((vector_size(64)));
  using HalfDoubles = double __attribute__((vector_size(32)));
  const Doubles wide = reinterpret_cast<Doubles>(__builtin_ia32_ps512_256ps(low));
  return reinterpret_cast<Floats>(__builtin_ia32_insertf64x4_mask(
      wide, reinterpret_cast<HalfDoubles>(high), 1, wide, static_cast<UInt8>(-1)));
#endif
#else
  return pair(0);
#endif
#else
  return load_quad(rows);
#endif
}

// In every quad, the lanes that four numbers select: below 4 from `a`, from 4 on from `b`.
template <int kFirst, int kSecond, int kThird, int kFourth, size_t... kLanes>
__device__ __forceinline__ Floats from_quads(Floats a, Floats b, SimtIndices<kLanes...>) {
  constexpr int kNumbers[] = {kFirst, kSecond, kThird, kFourth};
#define CUDML_LANE \
  (int(kLanes) / 4 * 4 + kNumbers[kLanes % 4] % 4 + kNumbers[kLanes % 4] / 4 * kVectorFloats)
#if defined(__clang__)
  return __builtin_shufflevector(a, b, CUDML_LANE...);
#else
  return __builtin_shuffle(a, b, Ints{CUDML_LANE...});
#endif
#undef CUDML_LANE
}

constexpr int kLoadedColumns = 4;

__device__ __forceinline__ void load_quads(Floats (&quads)[kLoadedColumns], const float* rows,
                                           Int64 stride) {
#pragma GCC unroll 4
  for (int i = 0; i < kLoadedColumns; ++i) {
    quads[i] = load_every_fourth(rows + i * stride, stride);
  }
}

__device__ __forceinline__ Floats broadcast_quad(const float* address) {
  const Quad quad = load_quad(address);
#if defined(__AVX512F__) && !defined(__clang__)
  return __builtin_ia32_broadcastf32x4_512(quad, Floats{}, static_cast<UInt16>(-1));
#elif defined(__AVX__) && !defined(__clang__)
  return __builtin_ia32_vbroadcastf128_ps256(&quad);
#else
  Floats quads;
  for (int i = 0; i < kVectorFloats; ++i) quads[i] = quad[i % 4];
  return quads;
#endif
}

__device__ __forceinline__ void transpose_quads(Floats (&quads)[kLoadedColumns]) {
  const typename SimtMakeIndices<kVectorFloats>::type lanes;
  const Floats ab_low = from_quads<0, 4, 1, 5>(quads[0], quads[1], lanes);
  const Floats ab_high = from_quads<2, 6, 3, 7>(quads[0], quads[1], lanes);
  const Floats cd_low = from_quads<0, 4, 1, 5>(quads[2], quads[3], lanes);
  const Floats cd_high = from_quads<2, 6, 3, 7>(quads[2], quads[3], lanes);
  quads[0] = from_quads<0, 1, 4, 5>(ab_low, cd_low, lanes);
  quads[1] = from_quads<2, 3, 6, 7>(ab_low, cd_low, lanes);
  quads[2] = from_quads<0, 1, 4, 5>(ab_high, cd_high, lanes);
  quads[3] = from_quads<2, 3, 6, 7>(ab_high, cd_high, lanes);
}

// Prefetches a line of memory that may be read soon; the address need not be valid.
__device__ __forceinline__ void prefetch(const void* address) { __builtin_prefetch(address); }
