// Half precision as 16-bit patterns: conversions without branches, so that loops over them
// vectorise.
#pragma once

#include "integers.h"

inline float simt_float_from_half(unsigned short bits) {
  const unsigned magnitude = static_cast<unsigned>(bits & 0x7fffu) << 13;
  // The exponents' biases differ by 112; multiplying also normalises half's subnormals.
  const unsigned finite = __float_as_uint(__uint_as_float(magnitude) * 0x1p112f);
  const unsigned special = magnitude | 0x7f800000u;
  const unsigned sign = static_cast<unsigned>(bits & 0x8000u) << 16;
  return __uint_as_float(sign | ((bits & 0x7c00u) == 0x7c00u ? special : finite));
}

// Rounds to nearest even; NaN becomes the hardware's 0x7fff.
inline unsigned short simt_half_from_float(float value) {
  const unsigned bits = __float_as_uint(value), magnitude = bits & 0x7fffffffu;
  // Normal results: rebias, then round the 13 dropped bits; a carry moves into the exponent by
  // itself.
  const unsigned normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1)) >> 13;
  // Subnormal results: adding 0.5 lets the float adder round to multiples of 2^-24.
  const unsigned subnormal = __float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u;
  unsigned result = magnitude < 0x38800000u ? subnormal : normal;
  result = magnitude >= 0x477ff000u ? 0x7c00u : result;
  result = magnitude > 0x7f800000u ? 0x7fffu : result | (bits >> 16 & 0x8000u);
  return static_cast<unsigned short>(result);
}
