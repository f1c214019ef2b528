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

// Asked for by name, because the flags keep the compiler from joining a product and a sum.
__device__ __forceinline__ Floats fused(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__) && !defined(__clang__)
  constexpr int kCurrentRounding = 4;
  return __builtin_ia32_vfmaddps512_mask(a, b, c, static_cast<UInt16>(-1), kCurrentRounding);
#elif defined(__AVX__) && defined(__FMA__) && !defined(__clang__)
  return __builtin_ia32_vfmaddps256(a, b, c);
#else
  // clang joins the lanes, and its names for the instructions change.
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

// Swaps the lanes of `first` that have bit kBit of their number set with those of `second` that have not.
template <int kBit, size_t... kLanes>
__device__ __forceinline__ void swap_lanes(Floats& first, Floats& second, SimtIndices<kLanes...>) {
  constexpr int kNum = kVectorFloats;
  const Floats a = first, b = second;
#if defined(__clang__)
  first = __builtin_shufflevector(a, b, (kLanes & kBit ? kNum + kLanes - kBit : kLanes)...);
  second = __builtin_shufflevector(a, b, (kLanes & kBit ? kNum + kLanes : kLanes + kBit)...);
#else
  first =
      __builtin_shuffle(a, b, Ints{(kLanes & kBit ? kNum + int(kLanes) - kBit : int(kLanes))...});
  second =
      __builtin_shuffle(a, b, Ints{(kLanes & kBit ? kNum + int(kLanes) : int(kLanes) + kBit)...});
#endif
}

// Rows and lanes whose numbers differ in a bit change places, bit by bit.
template <int kBit = kVectorFloats / 2>
__device__ __forceinline__ void transpose(Floats (&rows)[kVectorFloats]) {
  if constexpr (kBit > 0) {
#pragma GCC unroll 16
    for (int i = 0; i < kVectorFloats; ++i) {
      if (!(i & kBit)) {
        swap_lanes<kBit>(rows[i], rows[i + kBit], typename SimtMakeIndices<kVectorFloats>::type{});
      }
    }
    transpose<kBit / 2>(rows);
  }
}
