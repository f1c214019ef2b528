// One pass over a row that drops what k elements seen before it already rank in front of.
//
// Elements go to a list in shared storage; when the next ones might not fit, the list is cut down to its
// first k, and from then on only what ranks before the last of those is listed. On the way nothing is
// guessed, so the list always holds the first k of what has been seen.
#pragma once

#include "common/ordering_key.cuh"
#include "common/types.cuh"
#include "top_k/list.cuh"
#include "top_k/row_reader.cuh"
#include "top_k/rows.cuh"
#include "top_k/threshold.cuh"

// What a key must exceed to be of interest.
template <class Word>
struct Floor {
  Word key;
  bool is_open;  // everything is

  __device__ __forceinline__ bool passes(Word other) const { return is_open || other > key; }
};

// Cuts a list of `count` > k elements down to its first k, by key and then by index. Returns the floor
// for elements of higher indices; where `keeps_equal` also for others, which may tie.
template <class Word, int kThreads>
__device__ __forceinline__ Floor<Word> keep_first(const List<Word>& list, UInt32 count, UInt32 k,
                                                  bool keeps_equal,
                                                  SelectStorage<kThreads>& shared) {
  auto threshold = Threshold<Word>::start(count, k);
  while (!threshold.is_exact()) {
    search_digit(threshold, shared, [&](auto visit) {
      for (UInt32 i = threadIdx.x; i < count; i += kThreads) visit(list.keys[i]);
    });
  }
  // Of those that tie for the last places the lowest indices stay: the highest complements.
  auto index_threshold = Threshold<UInt32>::start(threshold.num_equal, threshold.num_wanted);
  while (!index_threshold.is_exact()) {
    search_digit(index_threshold, shared, [&](auto visit) {
      for (UInt32 i = threadIdx.x; i < count; i += kThreads) {
        if (threshold.high_part(list.keys[i]) == threshold.prefix) visit(~list.indices[i]);
      }
    });
  }
  if (threadIdx.x == 0) shared.num_listed = 0;
  // As many at a time as there are threads: places are never ahead of what has been read.
  for (UInt32 first = 0; first < count; first += kThreads) {
    const UInt32 i = first + threadIdx.x;
    const Word key = i < count ? list.keys[i] : Word{0};
    const UInt32 index = i < count ? list.indices[i] : 0;
    __syncthreads();  // these elements are read, and the counter is clear, before places are taken
    const Wide<Word> high = threshold.high_part(key);
    const bool stays =
        high > threshold.prefix ||
        (high == threshold.prefix && index_threshold.high_part(~index) >= index_threshold.prefix);
    if (i < count && stays) {
      const UInt32 place = atomicAdd(&shared.num_listed, 1);
      list.keys[place] = key;
      list.indices[place] = index;
    }
  }
  __syncthreads();  // the list is short before it is read or appended to
  // The k-th key, or less if it was found before its last digit.
  const Wide<Word> lowest = threshold.prefix << threshold.shift;
  if (!keeps_equal) return {static_cast<Word>(lowest), false};
  return {static_cast<Word>(lowest - 1), lowest == 0};
}

// A row's candidates while it is filtered.
template <class Word, int kThreads>
struct Filter {
  static constexpr UInt32 kLoadsAhead = sizeof(Word) == 1 ? 1 : 4;
  // Elements that are looked at between two looks at the length of the list.
  static constexpr UInt32 kTile = kThreads * RowPart<Word>::kPerLoad * kLoadsAhead;

  List<Word> list;
  UInt32 capacity;  // at least k + kTile
  UInt32 k;
  bool keeps_equal;  // elements do not come in the order of their indices
  SelectStorage<kThreads>& shared;
  Floor<Word> floor = {0, true};
  UInt32 num_cuts = 0;

  // Before the first tile; `make_room` and `finish` have the barrier behind it.
  __device__ __forceinline__ void start() {
    if (threadIdx.x == 0) shared.num_listed = 0;
  }

  // Makes room for a tile.
  __device__ __forceinline__ void make_room() {
    __syncthreads();  // all has been appended, or the counter is clear and the last list read, by now
    const UInt32 count = shared.num_listed;
    __syncthreads();  // every thread has the same count before it grows
    if (count + kTile <= capacity) return;
    floor = keep_first(list, count, k, keeps_equal, shared);
    ++num_cuts;
  }

  __device__ __forceinline__ void append(Word key, UInt32 index) {
    if (!floor.passes(key)) return;
    const UInt32 place = atomicAdd(&shared.num_listed, 1);
    list.keys[place] = key;
    list.indices[place] = index;
  }

  // Looks at all elements of a part of at most kTile.
  __device__ __forceinline__ void append_tile(const RowPart<Word>& tile, const TopKParams& params) {
    // Seldom does a load hold anything of interest: one branch for all of its words.
    const auto append_words = [&](const uint4& bytes, UInt32 index) {
      UInt32 passing = 0;
#pragma unroll
      for (int i = 0; i < static_cast<int>(RowPart<Word>::kPerLoad); ++i) {
        const bool passes = floor.passes(ordering_key(word_of<Word>(bytes, i), params));
        passing |= passes ? 1u << i : 0u;
      }
      while (passing != 0) {
        const UInt32 i = __ffs(passing) - 1;
        passing &= passing - 1;
        append(ordering_key(any_word_of<Word>(bytes, i), params), index + i);
      }
    };
    tile.template visit_loads<kThreads, kLoadsAhead>(
        params, threadIdx.x, append_words, [&](Word key, UInt32 index) { append(key, index); });
  }

  // The first k, or all if there are fewer; how many. There is a barrier before the counter changes again.
  __device__ __forceinline__ UInt32 finish() {
    __syncthreads();  // all has been appended before it is counted
    const UInt32 count = shared.num_listed;
    if (count <= k) return count;
    keep_first(list, count, k, keeps_equal, shared);
    return k;
  }
};
