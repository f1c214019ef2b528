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
#include "top_k/ranked.cuh"
#include "top_k/row_reader.cuh"
#include "top_k/rows.cuh"
#include "top_k/threshold.cuh"

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

// A row's candidates while it is read: a list in shared storage, and the floor that they exceed.
//
// The floor is at most the k-th key, unless it was guessed from a sample. A guess is never trusted: if it was
// too high, there are fewer than k candidates, and the row is filtered again. If there are too many, the list
// is cut to the first of them, which gives a new floor.
template <class Word, int kThreads>
struct Filter {
  static constexpr UInt32 kPerLoad = RowPart<Word>::kPerLoad;
  // Loads of a thread that are compared together, while as many are in flight.
  static constexpr UInt32 kLoadsAhead = sizeof(Word) == 1 ? 2 : 4;
  // Elements that are compared between two places where the length of the list may be checked.
  static constexpr UInt32 kTile = kThreads * kPerLoad * kLoadsAhead;
  // The same for elements that are not contiguous, or come from a list.
  static constexpr UInt32 kPerSparseTile = 8;
  static constexpr UInt32 kSparseTile = kThreads * kPerSparseTile;
  // Whether only every other tile may be followed by a check, at which warps wait for each other: predicted
  // 596 us rather than 646 for 2^28 int64 and k = 1000; no gain for narrower elements.
  static constexpr bool kMaySkipChecks = sizeof(Word) == 8;

  List<Word> list;
  UInt32 room;  // length at which the next tile may not fit
  const TopKParams& params;
  SelectStorage<kThreads>& shared;
  Floor<Word> floor = {0, true};
  bool is_full = false;  // as far as this thread knows

  // The word is a key, or bits that `make_keys` will turn into a key.
  __device__ __forceinline__ void append(Word word, UInt32 index) {
    const UInt32 place = atomicAdd(&shared.num_listed, 1);
    list.put(place, word, index);
    is_full = is_full || place >= room;
  }

  // Lists the bits of the elements that may pass, of a thread's first `num_loads` loads of a tile. The first
  // load begins at element `index`, and loads are kThreads loads apart.
  __device__ __forceinline__ void append_loads(const Sieve<Word>& sieve,
                                               const uint4 (&loads)[kLoadsAhead], UInt32 num_loads,
                                               UInt32 index) {
    // The same bits for each load: Sieve::kNumWords, at each of kOnes.
    constexpr UInt32 kWords = Sieve<Word>::kNumWords;
    const auto bits_of = [](UInt32 n) { return ((1u << n * kWords) - 1) * Sieve<Word>::kOnes; };
    const UInt32 passing = sieve.passing(loads) & bits_of(min(num_loads, kLoadsAhead));
    if (passing == 0) return;
    const UInt32 count = __popc(passing);
    const UInt32 place = atomicAdd(&shared.num_listed, count);
    is_full = is_full || place + count > room;
    Word* key = list.keys + place;
    UInt32* key_index = list.indices + place;
#pragma unroll
    for (UInt32 a = 0; a < kLoadsAhead; ++a) {
      const UInt32 of_load = passing >> a * kWords & bits_of(1);
      sieve.visit_passing(of_load, loads[a], [&](Word word, UInt32 i) {
        *key++ = word;
        *key_index++ = index + a * kThreads * kPerLoad + i;
      });
    }
  }

  // Turns the bits of the listed elements [begin, end) into keys.
  __device__ __forceinline__ void make_keys(UInt32 begin, UInt32 end) {
    for (UInt32 i = begin + threadIdx.x; i < end; i += kThreads) {
      list.keys[i] = ordering_key(list.keys[i], params);
    }
  }

  // Stores the keys of a sample of `num_loads` loads from place `begin` on, for `search`.
  __device__ __forceinline__ void list_sample(const uint4 (&loads)[kLoadsAhead], UInt32 num_loads,
                                              UInt32 begin) {
#pragma unroll
    for (UInt32 a = 0; a < kLoadsAhead; ++a) {
      const UInt32 number = a * kThreads + threadIdx.x;
      if (number >= num_loads) continue;
#pragma unroll
      for (UInt32 i = 0; i < kPerLoad; ++i) {
        list.keys[begin + i * num_loads + number] =
            ordering_key(word_of<Word>(loads[a], i), params);
      }
    }
  }

  // The threshold of the `wanted`-th of `count` keys from place `begin` on: as many digits as leave at most
  // `enough` of the keys at or above it, or all digits.
  __device__ __forceinline__ Threshold<Word> search(UInt32 begin, UInt32 count, UInt32 wanted,
                                                    UInt32 enough) {
    auto threshold = Threshold<Word>::start(count, wanted);
    while (!threshold.fits(enough) && !threshold.is_exact()) {
      search_digit(threshold, shared, [&](auto visit) {
        for (UInt32 i = threadIdx.x; i < count; i += kThreads) visit(list.keys[begin + i]);
      });
    }
    return threshold;
  }

  // At least k elements are at or above the threshold. Elements that tie with it may be results, so they
  // pass.
  __device__ __forceinline__ void raise_floor(const Threshold<Word>& threshold) {
    const Wide<Word> lowest = threshold.prefix << threshold.shift;
    if (lowest != 0 && floor.passes(static_cast<Word>(lowest))) {
      floor = {static_cast<Word>(lowest - 1), false};
    }
  }

  // Drops elements below the threshold from the list. If more than `enough` would be left, it also drops
  // elements equal to the threshold, those of the highest indices.
  __device__ __forceinline__ void shorten(const Threshold<Word>& threshold, UInt32 count,
                                          UInt32 enough) {
    auto by_index = Threshold<UInt32>::start(threshold.num_equal, threshold.num_wanted);
    // Among elements that tie for the last places, those with the lowest indices stay.
    while (!threshold.fits(enough) && !by_index.is_exact()) {
      search_digit(by_index, shared, [&](auto visit) {
        for (UInt32 i = threadIdx.x; i < count; i += kThreads) {
          if (threshold.high_part(list.keys[i]) == threshold.prefix) visit(~list.indices[i]);
        }
      });
    }
    constexpr UInt32 kPerThread = 4;
    if (threadIdx.x == 0) shared.num_listed = 0;
    // In steps: places that are written have always been read.
    for (UInt32 first = 0; first < count; first += kPerThread * kThreads) {
      Word keys[kPerThread];
      UInt32 indices[kPerThread];
#pragma unroll
      for (UInt32 j = 0; j < kPerThread; ++j) {
        const UInt32 i = min(first + j * kThreads + threadIdx.x, count - 1);
        keys[j] = list.keys[i];
        indices[j] = list.indices[i];
      }
      __syncthreads();  // these elements are read, and the counter is clear, before places are taken
#pragma unroll
      for (UInt32 j = 0; j < kPerThread; ++j) {
        if (first + j * kThreads + threadIdx.x >= count) continue;
        const Wide<Word> high = threshold.high_part(keys[j]);
        if (high > threshold.prefix ||
            (high == threshold.prefix && by_index.high_part(~indices[j]) >= by_index.prefix)) {
          const UInt32 place = atomicAdd(&shared.num_listed, 1);
          list.put(place, keys[j], indices[j]);
        }
      }
    }
    is_full = false;
    __syncthreads();  // the list is short before it is read or appended to
  }
};
