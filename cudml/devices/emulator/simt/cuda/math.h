// Floating-point functions. The fast variants are exact here. A test must not rely on that, so
// compare with the device's error bounds.
#pragma once

// The C library's functions, with CUDA's overloads for float: declared here, because <math.h>
// would cost every module a fifth of a second of compile time.
#define SIMT_FUNCTION_OF_1(name)              \
  extern "C" double name(double v) noexcept;  \
  extern "C" float name##f(float v) noexcept; \
  __forceinline__ float name(float v) { return name##f(v); }
#define SIMT_FUNCTION_OF_2(name)                       \
  extern "C" double name(double a, double b) noexcept; \
  extern "C" float name##f(float a, float b) noexcept; \
  __forceinline__ float name(float a, float b) { return name##f(a, b); }
SIMT_FUNCTION_OF_1(acos)
SIMT_FUNCTION_OF_1(acosh)
SIMT_FUNCTION_OF_1(asin)
SIMT_FUNCTION_OF_1(asinh)
SIMT_FUNCTION_OF_1(atan)
SIMT_FUNCTION_OF_1(atanh)
SIMT_FUNCTION_OF_1(cbrt)
SIMT_FUNCTION_OF_1(ceil)
SIMT_FUNCTION_OF_1(cos)
SIMT_FUNCTION_OF_1(cosh)
SIMT_FUNCTION_OF_1(erf)
SIMT_FUNCTION_OF_1(erfc)
SIMT_FUNCTION_OF_1(exp)
SIMT_FUNCTION_OF_1(exp2)
SIMT_FUNCTION_OF_1(exp10)
SIMT_FUNCTION_OF_1(expm1)
SIMT_FUNCTION_OF_1(fabs)
SIMT_FUNCTION_OF_1(floor)
SIMT_FUNCTION_OF_1(lgamma)
SIMT_FUNCTION_OF_1(log)
SIMT_FUNCTION_OF_1(log10)
SIMT_FUNCTION_OF_1(log1p)
SIMT_FUNCTION_OF_1(log2)
SIMT_FUNCTION_OF_1(logb)
SIMT_FUNCTION_OF_1(nearbyint)
SIMT_FUNCTION_OF_1(rint)
SIMT_FUNCTION_OF_1(round)
SIMT_FUNCTION_OF_1(sin)
SIMT_FUNCTION_OF_1(sinh)
SIMT_FUNCTION_OF_1(sqrt)
SIMT_FUNCTION_OF_1(tan)
SIMT_FUNCTION_OF_1(tanh)
SIMT_FUNCTION_OF_1(tgamma)
SIMT_FUNCTION_OF_1(trunc)
SIMT_FUNCTION_OF_2(atan2)
SIMT_FUNCTION_OF_2(copysign)
SIMT_FUNCTION_OF_2(fdim)
SIMT_FUNCTION_OF_2(fmax)
SIMT_FUNCTION_OF_2(fmin)
SIMT_FUNCTION_OF_2(fmod)
SIMT_FUNCTION_OF_2(hypot)
SIMT_FUNCTION_OF_2(nextafter)
SIMT_FUNCTION_OF_2(pow)
SIMT_FUNCTION_OF_2(remainder)
#undef SIMT_FUNCTION_OF_1
#undef SIMT_FUNCTION_OF_2

extern "C" double fma(double a, double b, double c) noexcept;
extern "C" float fmaf(float a, float b, float c) noexcept;
__forceinline__ float fma(float a, float b, float c) { return fmaf(a, b, c); }
extern "C" double ldexp(double v, int exponent) noexcept;
extern "C" float ldexpf(float v, int exponent) noexcept;
__forceinline__ float ldexp(float v, int exponent) { return ldexpf(v, exponent); }
extern "C" int abs(int v) noexcept;
__forceinline__ long long abs(long long v) { return v < 0 ? -v : v; }
__forceinline__ float abs(float v) { return fabsf(v); }
__forceinline__ double abs(double v) { return fabs(v); }
template <class T>
__forceinline__ bool isnan(T v) {
  return __builtin_isnan(v);
}
template <class T>
__forceinline__ bool isinf(T v) {
  return __builtin_isinf(v);
}
template <class T>
__forceinline__ bool isfinite(T v) {
  return __builtin_isfinite(v);
}
template <class T>
__forceinline__ bool signbit(T v) {
  return __builtin_signbit(v);
}

__forceinline__ float __expf(float v) { return expf(v); }
__forceinline__ float __exp10f(float v) { return exp10f(v); }
__forceinline__ float __logf(float v) { return logf(v); }
__forceinline__ float __log2f(float v) { return log2f(v); }
__forceinline__ float __log10f(float v) { return log10f(v); }
__forceinline__ float __sinf(float v) { return sinf(v); }
__forceinline__ float __cosf(float v) { return cosf(v); }
__forceinline__ float __tanf(float v) { return tanf(v); }
__forceinline__ float __powf(float base, float exponent) { return powf(base, exponent); }
__forceinline__ float __tanhf(float v) { return tanhf(v); }

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
