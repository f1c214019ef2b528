// A row's candidates while it is read: a list in shared storage, and the floor that they exceed.
//
// The floor is at most the k-th key, unless it was guessed from a sample. A guess is never trusted: if it was
// too high, there are fewer than k candidates, and the row is filtered again. If there are too many, the list
// is cut to the first of them, which gives a new floor.
#pragma once

#include "common/ordering_key.cuh"
#include "common/types.cuh"
#include "top_k/list.cuh"
#include "top_k/row_reader.cuh"
#include "top_k/rows.cuh"
#include "top_k/sieve.cuh"
#include "top_k/threshold.cuh"

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
