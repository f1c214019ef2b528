// Numbers as unsigned keys: of two elements, the one with the larger key ranks first. One formula serves
// every type. Its five constants come from the plan, in the kernel's parameter struct:
//
//                  floating point                      integers
//   negative_zero  the sign bit: -0 becomes +0         0, which changes nothing
//   negative_flip  all ones                            the sign bit of a signed type, else 0
//   positive_flip  the sign bit                        as negative_flip
//   infinity       the bits of +inf                    all ones except the sign: nothing is above it
//   nan_key        the key of every NaN                unused
//
// Both flips are complemented if the smallest element ranks first. A floating-point number's key is neither 0
// nor all ones, so that either may be nan_key.
#pragma once

#include "common/types.cuh"

// The type for arithmetic on a word.
template <int kBytes>
struct WideOf {
  using Type = UInt32;
};
template <>
struct WideOf<8> {
  using Type = UInt64;
};
template <class Word>
using Wide = typename WideOf<sizeof(Word)>::Type;

template <class Word, class Order>
__device__ __forceinline__ Word ordering_key(Word element, const Order& order) {
  using Bits = Wide<Word>;
  constexpr Bits kSign = Bits{1} << (8 * sizeof(Word) - 1);
  Bits bits = element;
  const bool is_nan = (bits & (kSign - 1)) > static_cast<Bits>(order.infinity);
  if (bits == static_cast<Bits>(order.negative_zero)) bits = 0;
  const Bits key =
      bits ^ static_cast<Bits>((bits & kSign) != 0 ? order.negative_flip : order.positive_flip);
  return static_cast<Word>(is_nan ? static_cast<Bits>(order.nan_key) : key);
}

// The element with a key. Returns false if several elements have it: zeros of both signs, or any NaN.
template <class Word, class Order>
__device__ __forceinline__ bool element_of_key(Word& element, Word key, const Order& order) {
  using Bits = Wide<Word>;
  constexpr Bits kSign = Bits{1} << (8 * sizeof(Word) - 1);
  // Both flips change the sign alike, so it tells which of them made the key.
  Bits bits = key ^ static_cast<Bits>(order.positive_flip);
  if ((bits & kSign) != 0) bits = key ^ static_cast<Bits>(order.negative_flip);
  element = static_cast<Word>(bits);
  const bool is_zero = element == 0 && order.negative_zero != 0;
  return !is_zero && (element & (kSign - 1)) <= static_cast<Bits>(order.infinity);
}

// A digit of kBits bits of a key's complement: the first-ranked key has the lowest digit.
template <int kBits, class Word>
__device__ __forceinline__ UInt32 falling_digit(Word key, int shift) {
  return static_cast<UInt32>(~static_cast<Wide<Word>>(key) >> shift) & ((1 << kBits) - 1);
}
