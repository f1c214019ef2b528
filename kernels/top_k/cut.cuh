// A threshold for keys, and for the numbers of keys that tie with it.
#pragma once

#include "common/types.cuh"
#include "top_k/threshold.cuh"

// The least key at or above a threshold.
template <class Word>
__device__ __forceinline__ Word floor_of(const Threshold<Word>& threshold) {
  return static_cast<Word>(threshold.prefix << (threshold.shift % (8 * sizeof(Wide<Word>))));
}

// A search among keys of at most `largest`, whose leading zeros it skips.
template <class Word>
__device__ __forceinline__ Threshold<Word> search_up_to(Wide<Word> largest, UInt32 count,
                                                        UInt32 wanted) {
  auto threshold = Threshold<Word>::start(count, wanted);
  threshold.shift = 64 - __clzll(static_cast<Int64>(UInt64{largest}));
  return threshold;
}

// The first of some keys: those at or above a threshold. Among keys that tie for the last places, the lowest
// numbers come first.
template <class Word>
struct Cut {
  Threshold<Word> threshold;
  Threshold<UInt32> by_number;  // for distances of numbers below `last_number`
  UInt32 last_number;

  // At most `enough` keys pass; their numbers are at most `last_number`. for_each(visit) calls
  // visit(key, number) for this thread's share, and search(threshold, for_each) narrows a threshold by a
  // digit of the keys that for_each visits.
  template <class ForEach, class Search>
  static __device__ __forceinline__ Cut of(Threshold<Word> threshold, UInt32 enough,
                                           UInt32 last_number, ForEach for_each, Search search) {
    Cut cut = by_key(threshold, enough, last_number, for_each, search);
    cut.cut_by_number(enough, for_each, search);
    return cut;
  }
  // As `of`, but all keys that tie for the last places pass.
  template <class ForEach, class Search>
  static __device__ __forceinline__ Cut by_key(Threshold<Word> threshold, UInt32 enough,
                                               UInt32 last_number, ForEach for_each,
                                               Search search) {
    while (!threshold.fits(enough) && !threshold.is_exact()) {
      search(threshold, [&](auto visit) { for_each([&](Word key, UInt32) { visit(key); }); });
    }
    const auto by_number =
        search_up_to<UInt32>(last_number, threshold.num_equal, threshold.num_wanted);
    return {threshold, by_number, last_number};
  }
  template <class ForEach, class Search>
  __device__ __forceinline__ void cut_by_number(UInt32 enough, ForEach for_each, Search search) {
    while (!threshold.fits(enough) && !by_number.is_exact()) {
      search(by_number, [&](auto visit) {
        for_each([&](Word key, UInt32 number) {
          if (threshold.high_part(key) == threshold.prefix) visit(last_number - number);
        });
      });
    }
  }

  __device__ __forceinline__ bool passes(Word key, UInt32 number) const {
    const Wide<Word> high = threshold.high_part(key);
    return high > threshold.prefix ||
           (high == threshold.prefix &&
            by_number.high_part(last_number - number) >= by_number.prefix);
  }
  // A lower bound of the keys that pass.
  __device__ __forceinline__ Word floor() const { return floor_of(threshold); }
};
