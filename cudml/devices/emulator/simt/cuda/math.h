// Floating-point functions that <math.h> lacks. The fast variants are exact here. A test must not rely on
// that, so compare with the device's error bounds.
#pragma once

// glibc declares some of these names itself, hence macros.
#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __powf(x, y) powf(x, y)
#define __tanhf(x) tanhf(x)

inline float rsqrtf(float v) { return 1.0f / sqrtf(v); }
inline double rsqrt(double v) { return 1.0 / sqrt(v); }
inline float __saturatef(float v) { return v > 0.0f ? (v < 1.0f ? v : 1.0f) : 0.0f; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float v) { return 1.0f / v; }
inline float __frsqrt_rn(float v) { return static_cast<float>(1.0 / sqrt(static_cast<double>(v))); }
inline float __fsqrt_rn(float v) { return sqrtf(v); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }

// Conversions saturate and turn NaN into 0, like the hardware's; a plain C++ cast would be undefined.
template <class To>
__forceinline__ To simt_saturating(double v, double lowest, double past_highest, To low, To high) {
  return v != v ? To(0) : v < lowest ? low : v >= past_highest ? high : static_cast<To>(v);
}
inline int simt_to_int(double v) {
  return simt_saturating<int>(v, -0x1p31, 0x1p31, -2147483647 - 1, 2147483647);
}
inline unsigned simt_to_uint(double v) {
  return simt_saturating<unsigned>(v, 0.0, 0x1p32, 0u, ~0u);
}
inline int __float2int_rn(float v) { return simt_to_int(nearbyint(v)); }
inline int __float2int_rz(float v) { return simt_to_int(trunc(v)); }
inline int __float2int_rd(float v) { return simt_to_int(floor(v)); }
inline int __float2int_ru(float v) { return simt_to_int(ceil(v)); }
inline unsigned __float2uint_rn(float v) { return simt_to_uint(nearbyint(v)); }
inline unsigned __float2uint_rz(float v) { return simt_to_uint(trunc(v)); }
inline unsigned __float2uint_rd(float v) { return simt_to_uint(floor(v)); }
inline unsigned __float2uint_ru(float v) { return simt_to_uint(ceil(v)); }
inline float __int2float_rn(int v) { return static_cast<float>(v); }
inline float __uint2float_rn(unsigned v) { return static_cast<float>(v); }
inline float __ll2float_rn(long long v) { return static_cast<float>(v); }
inline float __ull2float_rn(unsigned long long v) { return static_cast<float>(v); }
inline float __double2float_rn(double v) { return static_cast<float>(v); }

// CUDA's min and max take mixed arithmetic types; of a floating-point number and NaN they return the number.
template <class A, class B>
__forceinline__ constexpr auto min(A a, B b) -> decltype(a + b) {
  using T = decltype(a + b);
  const T x = static_cast<T>(a), y = static_cast<T>(b);
  return y < x || x != x ? y : x;
}
template <class A, class B>
__forceinline__ constexpr auto max(A a, B b) -> decltype(a + b) {
  using T = decltype(a + b);
  const T x = static_cast<T>(a), y = static_cast<T>(b);
  return x < y || x != x ? y : x;
}
