// Tells by their raw bits which elements may exceed a floor: a few instructions for sixteen bytes, however
// many elements they hold. Elements that may pass are then compared by their keys.
//
// A key is made from bits by one of two flips, for either sign. Bits flipped as those of the floor's sign
// are ordered as keys are, and elements of the other sign come out on the right side of the floor. So one
// flip and one unsigned comparison tell what is above it; only a NaN that ranks first, of either sign,
// takes a comparison of its own. Elements of 8 and 16 bits are compared four and two at a time: their
// highest bits are left out of the subtraction, so that it borrows nothing from the next element, and are
// decided by a majority of three bits.
#pragma once

#include "common/ordering_key.cuh"
#include "common/types.cuh"
#include "top_k/row_reader.cuh"

// What a key must exceed to be listed.
template <class Word>
struct Floor {
  Word key;
  bool is_open;  // every key is listed

  __device__ __forceinline__ bool passes(Word other) const { return is_open || other > key; }
  // Whether no key can pass.
  __device__ __forceinline__ bool is_shut() const {
    return !is_open && key == static_cast<Word>(~Word{0});
  }
};

template <class Word>
struct Sieve {
  using Bits = Wide<Word>;
  static constexpr bool kIsPacked = sizeof(Word) < 4;
  static constexpr int kPerWord = sizeof(Bits) / sizeof(Word);
  static constexpr int kNumWords = 16 / sizeof(Bits);
  static constexpr Bits kSign = Bits{1} << (8 * sizeof(Word) - 1);
  // The lowest bit of each element of a word.
  static constexpr Bits kOnes = sizeof(Word) == 1   ? Bits{0x01010101}
                                : sizeof(Word) == 2 ? Bits{0x00010001}
                                                    : Bits{1};
  static constexpr Bits kSigns = static_cast<Bits>(kSign * kOnes);

  Bits flip;    // turns bits into keys, for the sign of the floor
  Bits least;   // the least key that passes; packed: without its highest bit
  Bits is_low;  // packed: the highest bits if that of `least` is zero
  Bits
      nan_bound;  // a NaN that ranks first exceeds it, sign aside; packed: what carries into its highest bit

  // For a floor that is not shut.
  template <class Order>
  static __device__ __forceinline__ Sieve of(const Floor<Word>& floor, const Order& order) {
    const Bits positive_flip = static_cast<Bits>(order.positive_flip);
    const Bits negative_flip = static_cast<Bits>(order.negative_flip);
    Bits least = floor.is_open ? 0 : static_cast<Bits>(floor.key) + 1;
    // The key of +0 is that of -0 too, whose bits are next to it.
    if (least == positive_flip && order.negative_zero != 0) --least;
    const bool is_negative = ((least ^ positive_flip) & kSign) != 0;
    const Bits flip = is_negative ? negative_flip : positive_flip;
    const bool nan_first = static_cast<Bits>(order.nan_key) == static_cast<Word>(~Word{0});
    const Bits infinity = nan_first ? static_cast<Bits>(order.infinity) : kSign - 1;
    if constexpr (kIsPacked) {
      return {flip * kOnes, (least & (kSign - 1)) * kOnes, (least & kSign) != 0 ? 0 : kSigns,
              (kSign - 1 - infinity) * kOnes};
    }
    return {flip, least, 0, infinity};
  }

  static __device__ __forceinline__ Bits word_at(const uint4& bytes, int i) {
    return word_of<Bits>(bytes, i);
  }

  // Sets the highest bit of each element that may pass; other bits mean nothing.
  __device__ __forceinline__ Bits packed_hits(Bits word) const {
    const Bits key = word ^ flip;
    const Bits difference = (key | kSigns) - least;
    const Bits is_above = (key & difference) | ((key | difference) & is_low);
    if constexpr (sizeof(Word) == 1) return is_above;  // no NaN is so short
    return is_above | ((word & ~kSigns) + nan_bound);
  }
  __device__ __forceinline__ bool passes(Bits word) const {
    return (word ^ flip) >= least || (word & (kSign - 1)) > nan_bound;
  }

  // One bit for each element that may pass: bit i for element i. Packed, word w sets bit w of each element's
  // bits.
  __device__ __forceinline__ UInt32 passing(const uint4& bytes) const {
    UInt32 bits = 0;
#pragma unroll
    for (int w = 0; w < kNumWords; ++w) {
      const Bits word = word_at(bytes, w);
      if constexpr (kIsPacked) {
        bits |= (packed_hits(word) & kSigns) >> (8 * sizeof(Word) - 1 - w);
      } else if (passes(word)) {
        bits |= 1u << w;
      }
    }
    return bits;
  }

  // Calls visit(bits, i) for each element i of those that may pass.
  template <class Visit>
  static __device__ __forceinline__ void visit_passing(UInt32 passing, const uint4& bytes,
                                                       Visit visit) {
    if constexpr (kIsPacked) {
      constexpr UInt32 kBits = 8 * sizeof(Word);
      for (; passing != 0; passing &= passing - 1) {
        const UInt32 bit = __ffs(passing) - 1;
        const UInt32 element = bit % kBits * kPerWord + bit / kBits;
        visit(any_word_of<Word>(bytes, element), element);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kNumWords; ++i) {
        if ((passing >> i & 1) != 0) visit(word_at(bytes, i), i);
      }
    }
  }
};
