// The search for the k-th key of a row, digit by digit from the top, by histograms in shared storage. A cut
// goes on with the numbers of keys that tie.
#pragma once

#include "common/block_scan.cuh"
#include "common/intrinsics.cuh"
#include "common/ordering_key.cuh"
#include "common/types.cuh"

constexpr int kDigitBits = 11;
constexpr int kNumBins = 1 << kDigitBits;
using Bins = SharedArray<UInt32, kNumBins>;

// The state of a search: an element is among the first k if the high part of its key, all but `shift` bits,
// is above `prefix`; of the `num_equal` elements whose high part equals `prefix`, `num_wanted` are.
template <class Word>
struct Threshold {
  Wide<Word> prefix;
  int shift;
  UInt32 num_above;
  UInt32 num_equal;
  UInt32 num_wanted;

  static __device__ __forceinline__ Threshold start(UInt32 num_elements, UInt32 k) {
    return {0, 8 * static_cast<int>(sizeof(Word)), 0, num_elements, k};
  }
  __device__ __forceinline__ Wide<Word> high_part(Word key) const {
    // Shifting a whole word out at once is undefined.
    return shift == 8 * static_cast<int>(sizeof(Word)) ? 0 : static_cast<Wide<Word>>(key) >> shift;
  }
  // Whether nothing is left to find: all equal elements are wanted, or their keys are equal in full.
  __device__ __forceinline__ bool is_exact() const { return shift == 0 || num_equal == num_wanted; }
  // Whether a list of `capacity` >= k holds all that may be among the first k. Counts of an input that
  // changes between two reads may add up to more than 32 bits.
  __device__ __forceinline__ bool fits(Int64 capacity) const {
    return static_cast<Int64>(num_above) + num_equal <= capacity;
  }
  // Whether a key is counted for the next digit.
  __device__ __forceinline__ bool equals(Word key) const { return high_part(key) == prefix; }
  // Takes over the next bits of the prefix as far as they are alike in all keys that equal it: only one, or
  // only zero.
  __device__ __forceinline__ void skip_alike(UInt64 ones, UInt64 zeros) {
    while (shift > 0 && ((ones & zeros) >> (shift - 1)) % 2 == 0) {
      --shift;
      prefix = prefix << 1 | static_cast<Wide<Word>>(ones >> shift & 1);
    }
  }
};

template <int kThreads>
struct SelectStorage {
  Bins bins;
  SharedArray<UInt32, kThreads / kWarpSize> warp_sums;
  UInt32 digit;
  UInt32 num_above;
  UInt32 num_equal;
  UInt32 num_listed;
  UInt64 ones;
  UInt64 zeros;
};

// Whether digits may skip bits that all keys left share: two digits find all of a short word anyway.
template <class Word>
constexpr bool kMaySkipBits = sizeof(Word) >= 4;

// The bits that are one, and those that are zero, in some of a thread's keys.
template <class Word>
struct BitsSeen {
  Wide<Word> ones = 0;
  Wide<Word> zeros = 0;

  __device__ __forceinline__ void add(Word key) {
    ones |= key;
    zeros |= static_cast<Word>(~key);
  }
  // Adds what the block's threads have seen to `shared`, which all may read after the next barrier.
  template <int kThreads>
  __device__ __forceinline__ void share(SelectStorage<kThreads>& shared) {
#pragma unroll
    for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
      ones |= __shfl_xor_sync(kFullMask, ones, lanes);
      zeros |= __shfl_xor_sync(kFullMask, zeros, lanes);
    }
    if (threadIdx.x % kWarpSize == 0) {
      atomicOr(&shared.ones, ones);
      atomicOr(&shared.zeros, zeros);
    }
  }
};

// Adds the next digit of the elements that are equal to the threshold so far to `bins`. `for_each(visit)`
// calls visit(key) for this thread's share of all elements that may be equal. Every thread has passed a
// barrier since the bins were cleared. The counts are complete on return.
template <class Word, class ForEach>
__device__ __forceinline__ void add_digits(const Threshold<Word>& threshold, Bins& bins,
                                           ForEach for_each) {
  const int shift = threshold.shift - min(threshold.shift, kDigitBits);
  for_each([&](Word key) {
    if (threshold.equals(key)) {
      const UInt32 bin =
          static_cast<UInt32>(static_cast<Wide<Word>>(key) >> shift) & (kNumBins - 1);
      // Lanes that add the same constant to one bin are counted first, and do not take turns.
      atomicAdd(&bins[bin], 1);
    }
  });
  __syncthreads();  // every count is in before the bins are read
}

// As `add_digits`, but clears the bins first.
template <class Word, int kThreads, class ForEach>
__device__ __forceinline__ void count_digits(const Threshold<Word>& threshold, Bins& bins,
                                             ForEach for_each) {
  for (int bin = threadIdx.x; bin < kNumBins; bin += kThreads) bins[bin] = 0;
  __syncthreads();  // bins are clear before any thread counts
  add_digits(threshold, bins, for_each);
}

// Narrows the threshold by the digit whose counts of equal elements are in `bins`. Every thread has
// passed a barrier since the last count; all leave with the same threshold and `bins` may be
// changed.
template <class Word, int kThreads>
__device__ __forceinline__ void narrow(Threshold<Word>& threshold, const Bins& bins,
                                       SelectStorage<kThreads>& shared) {
  constexpr int kBinsPerThread = kNumBins / kThreads;
  // Thread 0 has the highest bins.
  const int first_bin = kNumBins - 1 - static_cast<int>(threadIdx.x) * kBinsPerThread;
  UInt32 own[kBinsPerThread];
  UInt32 num_here = 0;
#pragma unroll
  for (int i = 0; i < kBinsPerThread; ++i) {
    own[i] = bins[first_bin - i];
    num_here += own[i];
  }
  UInt32 total;
  UInt32 above = block_exclusive_sum<kThreads>(num_here, shared.warp_sums, total);
  // If the input has changed since the last digit, too few elements may be left: then the lowest bin is
  // taken.
  const bool is_last = threadIdx.x == kThreads - 1;
  if (above < threshold.num_wanted && (threshold.num_wanted <= above + num_here || is_last)) {
    int place = 0;
    UInt32 num_equal = own[0];
    bool goes_on = true;
#pragma unroll
    for (int i = 0; i < kBinsPerThread - 1; ++i) {
      goes_on = goes_on && above + own[i] < threshold.num_wanted;
      if (goes_on) {
        above += own[i];
        place = i + 1;
        num_equal = own[i + 1];
      }
    }
    shared.digit = first_bin - place;
    shared.num_above = above;
    shared.num_equal = num_equal;
  }
  __syncthreads();  // the one thread that met the k-th element has written before all read
  const int width = min(threshold.shift, kDigitBits);
  threshold.prefix = threshold.prefix << (width % (8 * sizeof(Wide<Word>))) | shared.digit;
  threshold.shift -= width;
  threshold.num_above += shared.num_above;
  threshold.num_wanted -= shared.num_above;
  threshold.num_equal = shared.num_equal;
}

// Finds one more digit of the block's elements; `for_each` is as for `add_digits`.
template <class Word, int kThreads, class ForEach>
__device__ __forceinline__ void search_digit(Threshold<Word>& threshold,
                                             SelectStorage<kThreads>& shared, ForEach for_each) {
  count_digits<Word, kThreads>(threshold, shared.bins, for_each);
  narrow(threshold, shared.bins, shared);
}

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
