// Tells by their raw bits which elements may exceed a floor: a few instructions for sixteen bytes, however
// many elements they hold. Elements that may pass are then compared by their keys.
//
// A key is made from bits by one of two flips, for either sign. Bits flipped as those of the floor's sign are
// ordered as keys are, and elements of the other sign come out on the right side of the floor. So one flip
// and one unsigned comparison tell which elements are above it; only a NaN that ranks first, of either sign,
// takes a comparison of its own. Elements of 8 and 16 bits are compared four and two at a time.
#pragma once

#include "common/ordering_key.cuh"
#include "common/types.cuh"
#include "top_k/row_reader.cuh"

// The bound that a key must exceed to be listed.
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

// The least key above a floor that is not shut.
template <class Word, class Order>
__device__ __forceinline__ Wide<Word> least_above(const Floor<Word>& floor, const Order& order) {
  const Wide<Word> least = floor.is_open ? 0 : static_cast<Wide<Word>>(floor.key) + 1;
  // +0 and -0 have one key, and the flipped bits of -0 are next to it.
  const bool is_zero =
      least == static_cast<Wide<Word>>(order.positive_flip) && order.negative_zero != 0;
  return is_zero ? least - 1 : least;
}

// Whether NaNs rank before all numbers.
template <class Word, class Order>
__device__ __forceinline__ bool nan_is_first(const Order& order) {
  return static_cast<Word>(order.nan_key) == static_cast<Word>(~Word{0});
}

// A sieve for elements of 4 and 8 bytes, each a word.
template <class Word, bool kIsPacked = (sizeof(Word) < 4)>
struct Sieve {
  static constexpr UInt32 kNumWords = 16 / sizeof(Word);
  static constexpr Word kSign = Word{1} << (8 * sizeof(Word) - 1);
  static constexpr UInt32 kOnes = 1;

  Word flip;       // turns bits into keys, for the sign of the floor
  Word least;      // the least key that passes
  Word nan_bound;  // a NaN that ranks first exceeds it, sign aside

  template <class Order>
  static __device__ __forceinline__ Sieve of(const Floor<Word>& floor, const Order& order) {
    const Word least = least_above(floor, order);
    const Word positive_flip = static_cast<Word>(order.positive_flip);
    const bool is_negative = ((least ^ positive_flip) & kSign) != 0;
    return {is_negative ? static_cast<Word>(order.negative_flip) : positive_flip, least,
            nan_is_first<Word>(order) ? static_cast<Word>(order.infinity) : kSign - 1};
  }

  // Bit a * kNumWords + i is set if element i of load a may pass.
  template <UInt32 kLoads>
  __device__ __forceinline__ UInt32 passing(const uint4 (&loads)[kLoads]) const {
    static_assert(kLoads * kNumWords <= 32, "a bit for each element");
    UInt32 bits = 0;
#pragma unroll
    for (UInt32 w = 0; w < kLoads * kNumWords; ++w) {
      const Word word = word_of<Word>(loads[w / kNumWords], w % kNumWords);
      if ((word ^ flip) >= least || (word & (kSign - 1)) > nan_bound) bits |= 1u << w;
    }
    return bits;
  }

  // Calls visit(bits, i) for each element i of a load that may pass, by its bits of `passing`.
  template <class Visit>
  static __device__ __forceinline__ void visit_passing(UInt32 of_load, const uint4& bytes,
                                                       Visit visit) {
#pragma unroll
    for (UInt32 i = 0; i < kNumWords; ++i) {
      if ((of_load >> i & 1) != 0) visit(word_of<Word>(bytes, i), i);
    }
  }
};

// A sieve for elements of 1 and 2 bytes, several in a word of 32 bits. The rest of an element, its bits
// without the highest, is compared by an addition: nothing carries into the next element, and the sum's
// highest bit is the result. An element's own highest bit, this result and a bit of the floor decide by
// majority. If keys have other highest bits than elements, the complements of all three decide, and elements
// that do not pass are found: one complement at the end is cheaper than one for each word.
template <class Word>
struct Sieve<Word, true> {
  static constexpr UInt32 kNumWords = 4;
  static constexpr UInt32 kElementBits = 8 * sizeof(Word);
  static constexpr UInt32 kSign = UInt32{1} << (kElementBits - 1);
  static constexpr UInt32 kRest = kSign - 1;
  // The lowest bit of each element of a word.
  static constexpr UInt32 kOnes = ~UInt32{0} / ((UInt32{1} << kElementBits) - 1);

  UInt32 flip;        // turns the rest of the bits into the rest of keys, or of their complements
  UInt32 addend;      // with the rest, reaches the highest bit if the comparison says so
  UInt32 vote;        // the floor's bit in the majority
  UInt32 nan_factor;  // the rest times this plus ...
  UInt32 nan_addend;  // ... this reaches the highest bit for a NaN that ranks first only
  UInt32 inverted;    // all ones if elements that do not pass are found, else zero

  template <class Order>
  static __device__ __forceinline__ Sieve of(const Floor<Word>& floor, const Order& order) {
    const UInt32 least = least_above(floor, order);
    const UInt32 positive_flip = static_cast<UInt32>(order.positive_flip);
    const bool is_negative = ((least ^ positive_flip) & kSign) != 0;
    const UInt32 key_flip = is_negative ? static_cast<UInt32>(order.negative_flip) : positive_flip;
    // Both flips have the same highest bit.
    const bool inverts = (positive_flip & kSign) != 0;
    const UInt32 rest_flip = (inverts ? ~key_flip : key_flip) & kRest;
    Sieve sieve = {rest_flip * kOnes, 0, 0, 0, 0, 0};
    sieve.addend = (inverts ? least & kRest : kSign - (least & kRest)) * kOnes;
    sieve.vote = ((least & kSign) == 0) != inverts ? kSign * kOnes : 0;
    sieve.inverted = inverts ? ~UInt32{0} : 0;
    // Where NaNs rank first, keys have other highest bits than elements. The rest of a NaN's bits is above
    // that of infinity, or flipped below it.
    if (nan_is_first<Word>(order)) {
      const UInt32 num_nans = kRest - static_cast<UInt32>(order.infinity);
      sieve.nan_factor = rest_flip == 0 ? 1 : ~UInt32{0};
      sieve.nan_addend = (rest_flip == 0 ? num_nans : kSign + num_nans - 1) * kOnes;
    }
    return sieve;
  }

  // The highest bit of each element says whether it may pass, or if `inverted` that it does not; other bits
  // mean nothing.
  __device__ __forceinline__ UInt32 found(UInt32 word) const {
    const UInt32 rest = (word ^ flip) & (kRest * kOnes);
    const UInt32 sum = rest + addend;
    const UInt32 majority = (word & sum) | ((word | sum) & vote);
    if constexpr (sizeof(Word) == 1) return majority;  // no NaN is so short
    return majority & ~(rest * nan_factor + nan_addend);
  }

  // Bit a * kNumWords + w of an element's bits is set if the element there, of word w of load a, may pass.
  template <UInt32 kLoads>
  __device__ __forceinline__ UInt32 passing(const uint4 (&loads)[kLoads]) const {
    static_assert(kLoads * kNumWords <= kElementBits, "a bit for each element");
    UInt32 bits = 0;
#pragma unroll
    for (UInt32 w = 0; w < kLoads * kNumWords; ++w) {
      const UInt32 word = word_of<UInt32>(loads[w / kNumWords], w % kNumWords);
      bits |= (found(word) & (kSign * kOnes)) >> (kElementBits - 1 - w);
    }
    return bits ^ inverted;
  }

  // Calls visit(bits, i) for each element i of a load that may pass, by its bits of `passing`.
  template <class Visit>
  static __device__ __forceinline__ void visit_passing(UInt32 of_load, const uint4& bytes,
                                                       Visit visit) {
    constexpr UInt32 kPerWord = 4 / sizeof(Word);
    for (; of_load != 0; of_load &= of_load - 1) {
      const UInt32 bit = __ffs(of_load) - 1;
      const UInt32 element = bit % kElementBits * kPerWord + bit / kElementBits;
      visit(any_word_of<Word>(bytes, element), element);
    }
  }
};

// Words that follow each other: `count` of them, from `begin` on.
template <class Word>
struct WordRange {
  Wide<Word> begin;
  Wide<Word> count;

  __device__ __forceinline__ bool contains(Word element) const {
    return static_cast<Wide<Word>>(element) - begin < count;
  }
};

// Tells by raw bits which elements are at or above a key, exactly for NaN. The numbers of either sign that
// are at or above a key are a range, and so are those below it. NaNs are in none of these ranges: if they
// are above the key, the elements that are not below it are found, else those at or above it.
template <class Word>
struct AtOrAbove {
  WordRange<Word> first;
  WordRange<Word> second;
  bool inverts;

  template <class Order>
  static __device__ __forceinline__ AtOrAbove of(Word key, const Order& order) {
    using Bits = Wide<Word>;
    constexpr Bits kSign = Bits{1} << (8 * sizeof(Word) - 1);
    const Bits least = least_above(Floor<Word>{static_cast<Word>(key - 1), key == 0}, order);
    const Bits positive_flip = static_cast<Word>(order.positive_flip);
    const Bits sign = (least ^ positive_flip) & kSign;
    const Bits flip = sign != 0 ? static_cast<Word>(order.negative_flip) : positive_flip;
    const bool nan_passes = static_cast<Word>(order.nan_key) >= key;
    const bool keys_rise = (flip & 1) == 0;  // as numbers go away from zero
    const bool sign_ranks_first = (least & kSign) != 0;
    const Bits num_numbers = static_cast<Bits>(order.infinity) + 1;  // of a sign
    const Bits bound = min(((least ^ flip) & (kSign - 1)) + (keys_rise ? 0 : 1), num_numbers);
    const bool is_low = keys_rise == nan_passes;
    return {{sign | (is_low ? 0 : bound), is_low ? bound : num_numbers - bound},
            {sign ^ kSign, sign_ranks_first == nan_passes ? num_numbers : 0},
            nan_passes};
  }
  __device__ __forceinline__ bool in_ranges(Word element) const {
    return first.contains(element) || second.contains(element);
  }
  __device__ __forceinline__ bool is_above(Word element) const {
    return in_ranges(element) != inverts;
  }
  __device__ __forceinline__ bool is_equal(Word) const { return false; }
};
