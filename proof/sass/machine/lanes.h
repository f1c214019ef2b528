// A value for each of the 32 lanes of a warp, as vectors that the host's compiler turns into its own.
// Vectors of floating point are compared lane by lane (`where`): clang 14 fails on a comparison of so wide a
// vector under -frounding-math.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

constexpr int kLanes = 32;
using Mask = uint32_t;  // bit n is lane n
constexpr Mask kAll = 0xffffffffu;

using U32 = uint32_t __attribute__((vector_size(4 * kLanes)));
using S32 = int32_t __attribute__((vector_size(4 * kLanes)));
using F32 = float __attribute__((vector_size(4 * kLanes)));
using U64 = uint64_t __attribute__((vector_size(8 * kLanes)));
using S64 = int64_t __attribute__((vector_size(8 * kLanes)));

inline U32 splat(uint32_t value) { return U32{} + value; }
inline U64 splat64(uint64_t value) { return U64{} + value; }
inline U64 wide(U32 value) { return __builtin_convertvector(value, U64); }
inline U64 wide_signed(U32 value) { return (U64) __builtin_convertvector((S32)value, S64); }
inline U32 low(U64 value) { return __builtin_convertvector(value, U32); }
inline U32 high(U64 value) { return low(value >> 32); }
inline U64 pair(U32 low_word, U32 high_word) { return wide(low_word) | wide(high_word) << 32; }

// Calls a function for each lane of a mask.
template <typename Function>
inline void each_lane(Mask mask, Function function) {
  for (; mask; mask &= mask - 1) function(__builtin_ctz(mask));
}
// A function of values for each lane; `Out` is the vector of the results.
template <typename Out, typename Function, typename... In>
inline Out each(Function function, In... values) {
  Out found;
  for (int lane = 0; lane < kLanes; ++lane) found[lane] = function(values[lane]...);
  return found;
}
// The lanes for whose values a function holds.
template <typename Function, typename... In>
inline Mask where(Function function, In... values) {
  Mask found = 0;
  for (int lane = 0; lane < kLanes; ++lane) found |= (Mask)(bool)function(values[lane]...) << lane;
  return found;
}
// The lanes whose value is not 0.
template <typename Vector>
inline Mask mask_of(Vector value) {
  return where([](auto x) { return x != 0; }, value);
}
// All bits of the lanes of a mask.
inline U32 bits_of(Mask mask) {
  U32 found;
  for (int lane = 0; lane < kLanes; ++lane) found[lane] = mask >> lane & 1 ? kAll : 0;
  return found;
}
inline U32 choose(Mask mask, U32 yes, U32 no) {
  const U32 bits = bits_of(mask);
  return (yes & bits) | (no & ~bits);
}
inline Mask choose(Mask mask, Mask yes, Mask no) { return (yes & mask) | (no & ~mask); }

// Bits, and which of them were written, for instructions that only pass them on.
template <typename Value>
struct Known {
  Value value, defined;
};
using Bits = Known<U32>;    // of a register
using Flags = Known<Mask>;  // of a predicate
template <typename Value>
Known<Value> choose(Mask mask, Known<Value> yes, Known<Value> no) {
  return {choose(mask, yes.value, no.value), choose(mask, yes.defined, no.defined)};
}

template <typename To, typename From>
inline To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To found;
  memcpy(&found, &value, sizeof found);
  return found;
}
// The NaN that instructions of single precision make. Source: PTX ISA, floating-point instructions.
constexpr uint32_t kNan = 0x7fffffffu;
// A subnormal number becomes a zero of its sign.
inline float flushed(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}
