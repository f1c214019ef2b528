// Exponential functions of several floats at once, without branches. Tests require an error of at most 3
// units in the last place; results below the smallest normal number may be 0. NaN gives NaN.
#pragma once

#include "common/vectors.cuh"

// e^x = 2^exponent * (1 + excess), which is precise close to 1, too.
struct SplitExponential {
  Ints exponent;
  Floats excess;
};

// |x| is at most 110, or x is NaN.
__device__ __forceinline__ SplitExponential split_exponential(Floats x) {
  // Adding 1.5 * 2^23 rounds to an integer, which is then in the lower bits.
  constexpr float kToInteger = 12582912.0f;
  const Floats shifted = fused(x, broadcast(1.44269504f), broadcast(kToInteger));
  const Floats rounded = shifted - kToInteger;
  // The natural logarithm of 2 in two parts; products with the first one are exact.
  Floats rest = fused(rounded, broadcast(-0.693145752f), x);
  rest = fused(rounded, broadcast(-1.42860677e-6f), rest);
  Floats series = broadcast(1.0f / 5040);
  series = fused(series, rest, broadcast(1.0f / 720));
  series = fused(series, rest, broadcast(1.0f / 120));
  series = fused(series, rest, broadcast(1.0f / 24));
  series = fused(series, rest, broadcast(1.0f / 6));
  series = fused(series, rest, broadcast(0.5f));
  return {as_ints(shifted) - as_ints(broadcast(kToInteger)), fused(series * rest, rest, rest)};
}

// 2^exponent, for -126 to 127.
__device__ __forceinline__ Floats power_of_two(Ints exponent) {
  return as_floats((exponent + 127) << 23);
}

__device__ __forceinline__ Floats exponential(Floats x) {
  // Beyond these, the result is 0 or infinite. Comparisons with NaN are false, so NaN stays.
  x = x < -104.0f ? broadcast(-104.0f) : x;
  x = x > 89.0f ? broadcast(89.0f) : x;
  const SplitExponential split = split_exponential(x);
  // In two factors, because the power itself may be out of range.
  const Ints half = split.exponent >> 1;
  const Floats scaled = fused(split.excess, power_of_two(half), power_of_two(half));
  return scaled * power_of_two(split.exponent - half);
}

__device__ __forceinline__ Floats sigmoid(Floats x) { return 1.0f / (1.0f + exponential(-x)); }

__device__ __forceinline__ Floats hyperbolic_tangent(Floats x) {
  constexpr Int32 kSignBit = static_cast<Int32>(0x80000000u);
  const Ints sign = as_ints(x) & kSignBit;
  Floats size = as_floats(as_ints(x) & ~kSignBit);
  // From about 9 on the result is 1.
  size = size > 10.0f ? broadcast(10.0f) : size;
  const SplitExponential split = split_exponential(2.0f * size);
  const Floats power = power_of_two(split.exponent);
  // (e^2x - 1) / (e^2x + 1); the 1 is subtracted from the power, which is exact.
  const Floats excess = fused(split.excess, power, power - 1.0f);
  return as_floats(as_ints(excess / (excess + 2.0f)) | sign);
}
