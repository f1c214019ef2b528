// Stands in for CUDA's cuda_fp16.h. Arithmetic converts to float, computes, and rounds once.
#pragma once

struct __half {
  unsigned short bits_;

  __half() = default;
  __half(float value) : bits_(simt_half_from_float(value)) {}
  operator float() const { return simt_float_from_half(bits_); }
};
struct __attribute__((aligned(4))) __half2 {
  __half x, y;
};
using half = __half;
using half2 = __half2;

inline __half __ushort_as_half(unsigned short bits) {
  __half h;
  h.bits_ = bits;
  return h;
}
inline unsigned short __half_as_ushort(__half h) { return h.bits_; }

inline __half __float2half(float v) { return __half(v); }
inline __half __float2half_rn(float v) { return __half(v); }
inline float __half2float(__half h) { return h; }

// float has more than twice half's precision, so rounding to float first changes no result of + - * /.
inline __half __hadd(__half a, __half b) { return __half(float(a) + float(b)); }
inline __half __hsub(__half a, __half b) { return __half(float(a) - float(b)); }
inline __half __hmul(__half a, __half b) { return __half(float(a) * float(b)); }
inline __half __hdiv(__half a, __half b) { return __half(float(a) / float(b)); }
inline __half __hneg(__half a) { return __ushort_as_half(a.bits_ ^ 0x8000); }
inline __half __habs(__half a) { return __ushort_as_half(a.bits_ & 0x7fff); }
inline bool __hisnan(__half a) { return (a.bits_ & 0x7fff) > 0x7c00; }
inline bool __heq(__half a, __half b) { return float(a) == float(b); }
inline bool __hlt(__half a, __half b) { return float(a) < float(b); }
inline bool __hgt(__half a, __half b) { return float(a) > float(b); }

// The exact sum of a product and an addend may not fit a double. Rounded to odd instead of to nearest, it is
// still on the right side of every tie of a narrower format, so that the result is rounded only once.
inline double simt_add_to_odd(double a, double b) {
  const double sum = a + b, b_part = sum - a, error = (a - (sum - b_part)) + (b - b_part);
  const long long bits = simt_bits<long long>(sum);
  if (error == 0 || error != error || bits & 1) return sum;
  return simt_bits<double>((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}
inline float simt_float_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const int bits = simt_bits<int>(nearest);
  const double error = value - nearest;
  if (error == 0 || error != error || bits & 1) return nearest;
  return simt_bits<float>((error > 0) == (nearest > 0) ? bits + 1 : bits - 1);
}
inline __half __hfma(__half a, __half b, __half c) {
  return __half(simt_float_to_odd(simt_add_to_odd(double(float(a)) * float(b), float(c))));
}

inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
inline float2 __half22float2(__half2 v) { return {float(v.x), float(v.y)}; }
inline __half __low2half(__half2 v) { return v.x; }
inline __half __high2half(__half2 v) { return v.y; }
inline float __low2float(__half2 v) { return v.x; }
inline float __high2float(__half2 v) { return v.y; }
inline __half2 __hadd2(__half2 a, __half2 b) { return {__hadd(a.x, b.x), __hadd(a.y, b.y)}; }
inline __half2 __hmul2(__half2 a, __half2 b) { return {__hmul(a.x, b.x), __hmul(a.y, b.y)}; }
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
