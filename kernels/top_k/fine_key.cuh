// Fine keys: order keys in three instructions, for kernels that compute one for every element of a row.
//
// A fine key depends on all bits of an element, so it distinguishes +0 from -0 and one NaN from another.
// Otherwise it follows the rank: an element that ranks earlier has a larger key. Elements of equal rank have
// neighbouring keys, which `coarse_key` makes equal. The constants come from the plan:
//
//                floating point                            integers
//   magnitude    all ones but the sign: negative numbers   0
//                have larger bits the smaller they are
//   offset       puts all NaNs on the side they rank on    the sign bit of a signed type, else 0
//   factor       1, or -1 where the smallest ranks first (the offset is complemented then)
//   zero         the larger of the keys of +0 and -0       0
//   other_zero   the smaller one                           0
//   first_nan    the least key of a NaN, if NaNs rank      all ones
//                before numbers, else all ones
//   end_nan      the least key of a number, if NaNs rank   0
//                behind them, else 0
//   padding      the element with key 0, repeated to fill 64 bits
//
// Words of 8 and 16 bits are in the upper bits of 32, and so are the constants except the padding. The lower
// bits may be anything, and never affect the upper bits.
#pragma once

#include "common/intrinsics.cuh"
#include "common/ordering_key.cuh"
#include "common/types.cuh"
#include "top_k/rows.cuh"

struct FineParams : TopKParams {
  UInt64 magnitude;
  UInt64 offset;
  UInt64 factor;
  UInt64 zero;
  UInt64 other_zero;
  UInt64 first_nan;
  UInt64 end_nan;
  UInt64 padding;
  Int32
      vector_rows;  // rows are contiguous, and their lengths and distances are multiples of 16 bytes
  Int32 loads_by_rows;  // neighbouring rows are closer in memory than neighbouring elements
};

// The number of lower bits of a fine key that are not the element's.
template <class Word>
constexpr int kSpareBits = sizeof(Word) < 4 ? 32 - 8 * static_cast<int>(sizeof(Word)) : 0;

// The bits of an element, which are in the upper bits, as a two's complement number that rises with it.
template <class Word>
__device__ __forceinline__ Wide<Word> risen(Wide<Word> bits, const FineParams& params) {
  using Key = Wide<Word>;
  Key negative;  // all ones where the sign is set
  if constexpr (sizeof(Key) == 8) {
    negative = static_cast<Key>(static_cast<Int64>(bits) >> 63);
  } else {
    negative = static_cast<Key>(static_cast<Int32>(bits) >> 31);
  }
  return bits ^ (negative & static_cast<Key>(params.magnitude));
}

// The fine key of an element, whose bits are in the upper bits.
template <class Word>
__device__ __forceinline__ Wide<Word> fine_key(Wide<Word> bits, const FineParams& params) {
  using Key = Wide<Word>;
  return risen<Word>(bits, params) * static_cast<Key>(params.factor) +
         static_cast<Key>(params.offset);
}

// The fine keys of words of 16 bits, two in a word of 32 at a time.
struct PairedKeys {
  UInt32 magnitude;
  UInt32 factor;
  UInt32 flip;
  UInt32 offset;

  __device__ __forceinline__ explicit PairedKeys(const FineParams& params) {
    magnitude = in_both(static_cast<UInt32>(params.magnitude));
    // A product with -1 would carry from the lower half into the upper one, so that ~x = -x - 1 takes its
    // place, and the offset is larger by 1. As `x * -1 - 1`, it is computed on another pipe than the rest.
    factor = static_cast<UInt32>(params.factor);
    flip = static_cast<UInt32>(static_cast<Int32>(factor) >> 31);
    offset = in_both(static_cast<UInt32>(params.offset) - (flip << 16));
  }

  // The larger of a key and an element's key, in each half.
  __device__ __forceinline__ UInt32 max_with(UInt32 keys, UInt32 elements) const {
    const UInt32 numbers = elements ^ (signs_of_halves(elements) & magnitude);
    return max_of_sum_of_halves(numbers * factor + flip, offset, keys);
  }
  __device__ __forceinline__ UInt32 of(UInt32 elements) const { return max_with(0, elements); }

 private:
  static __device__ __forceinline__ UInt32 in_both(UInt32 upper) {
    return __byte_perm(upper, upper, 0x3232);
  }
};

// The smallest fine key of elements with the same rank.
template <class Word>
__device__ __forceinline__ Wide<Word> coarse_key(Wide<Word> fine, const FineParams& params) {
  using Key = Wide<Word>;
  Key key = fine == static_cast<Key>(params.zero) ? static_cast<Key>(params.other_zero) : fine;
  if (key < static_cast<Key>(params.end_nan)) key = 0;
  return min(key, static_cast<Key>(params.first_nan));
}

// The smallest fine key of elements that rank before those with a coarse key, if there are any.
template <class Word>
__device__ __forceinline__ Wide<Word> fine_key_above(Wide<Word> coarse, const FineParams& params) {
  using Key = Wide<Word>;
  if (coarse < static_cast<Key>(params.end_nan)) return static_cast<Key>(params.end_nan);
  const bool is_zero = coarse == static_cast<Key>(params.other_zero);
  const Key last = is_zero ? static_cast<Key>(params.zero) : coarse;
  return last + (Key{1} << kSpareBits<Word>);
}

// Word i of sixteen bytes, in the upper bits; the lower bits may be those of other words.
template <class Word>
__device__ __forceinline__ Wide<Word> upper_word(const uint4& bytes, int i) {
  constexpr int kPerPart = sizeof(Word) < 4 ? 4 / static_cast<int>(sizeof(Word)) : 1;
  const UInt32 parts[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
  if constexpr (sizeof(Word) == 8) {
    return static_cast<UInt64>(parts[2 * i + 1]) << 32 | parts[2 * i];
  } else {
    const int below = 8 * static_cast<int>(sizeof(Word)) * (kPerPart - 1 - i % kPerPart);
    return parts[i / kPerPart] << below;
  }
}

// The element of a coarse key, in the upper bits. If the element may be a zero or a NaN, the key does not
// tell which one: `is_told` is false then.
template <class Word>
__device__ __forceinline__ Wide<Word> bits_of(Wide<Word> key, const FineParams& params,
                                              bool& is_told) {
  using Key = Wide<Word>;
  is_told = key != 0 && key != static_cast<Key>(params.other_zero) &&
            key < static_cast<Key>(params.first_nan);
  const Key number = (key - static_cast<Key>(params.offset)) * static_cast<Key>(params.factor);
  constexpr int kBits = 8 * static_cast<int>(sizeof(Key));
  const Key negative = static_cast<Key>(0) - (number >> (kBits - 1));
  return number ^ (negative & static_cast<Key>(params.magnitude));
}
