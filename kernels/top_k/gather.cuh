// From a threshold to a list of the elements at or above it, and from a long list to a shorter one.
#pragma once

#include "common/block_scan.cuh"
#include "common/ordering_key.cuh"
#include "common/types.cuh"
#include "top_k/list.cuh"
#include "top_k/row_reader.cuh"
#include "top_k/rows.cuh"
#include "top_k/threshold.cuh"

// Appends to the list every element at or above the threshold, in any order.
template <class Word, int kThreads, int kLanes>
__device__ __forceinline__ void list_in_any_order(const RowPart<Word>& row,
                                                  const TopKParams& params,
                                                  const Threshold<Word>& threshold,
                                                  const List<Word>& list,
                                                  SelectStorage<kThreads, kLanes>& shared) {
  if (threadIdx.x == 0) shared.num_listed = 0;
  __syncthreads();  // the counter is clear before anyone appends
  row.template visit<kThreads>(params, threadIdx.x, [&](Word key, UInt32 index) {
    if (threshold.high_part(key) >= threshold.prefix) {
      const UInt32 place = take_place<kThreads>(shared.num_listed);
      list.keys[place] = key;
      list.indices[place] = index;
    }
  });
  __syncthreads();  // the list is complete before it is read
}

// How many elements above the threshold and how many equal to it lie before a place in the row.
struct Counts {
  UInt32 above;
  UInt32 equal;
};

// Lists, by ascending index, the elements above the threshold and the row's first `num_equal` equal
// to it. `before` and `after` are the counts where the part begins and ends.
template <class Word, int kThreads, int kLanes>
__device__ __forceinline__ void list_in_order(const RowPart<Word>& part, const TopKParams& params,
                                              const Threshold<Word>& threshold, UInt32 num_equal,
                                              Counts before, Counts after, const List<Word>& list,
                                              SelectStorage<kThreads, kLanes>& shared) {
  if constexpr (kThreads == 1) {
    Counts now = before;
    for (UInt32 i = 0; now.above < after.above || now.equal < min(num_equal, after.equal); ++i) {
      const Word key = ordering_key(part.elements[i * part.stride], params);
      const Wide<Word> high = threshold.high_part(key);
      if (high < threshold.prefix) continue;
      const bool is_equal = high == threshold.prefix;
      if (!is_equal || now.equal < num_equal) {
        const UInt32 place = now.above + min(now.equal, num_equal);
        list.keys[place] = key;
        list.indices[place] = part.first_index + i;
      }
      now.above += is_equal ? 0 : 1;
      now.equal += is_equal ? 1 : 0;
    }
  } else {
    constexpr UInt32 kPerThread = RowPart<Word>::kPerLoad;
    Counts at_tile = before;
    for (UInt64 tile = 0; tile < part.length; tile += kThreads * kPerThread) {
      if (at_tile.above == after.above && at_tile.equal >= min(num_equal, after.equal)) break;
      const UInt64 first = tile + threadIdx.x * kPerThread;
      UInt32 num_here = 0;  // above in the low half, equal in the high half
      uint4 bytes = make_uint4(0, 0, 0, 0);
      if (first < part.length) {
        bytes = part.load(static_cast<UInt32>(first));
#pragma unroll
        for (int i = 0; i < static_cast<int>(kPerThread); ++i) {
          const Wide<Word> high =
              threshold.high_part(ordering_key(word_of<Word>(bytes, i), params));
          if (first + i < part.length) {
            num_here += high > threshold.prefix ? 1u : high == threshold.prefix ? 1u << 16 : 0u;
          }
        }
      }
      UInt32 in_tile;
      const UInt32 in_tile_before =
          block_exclusive_sum<kThreads, kLanes>(num_here, shared.warp_sums, in_tile);
      Counts now = {at_tile.above + (in_tile_before & 0xffff),
                    at_tile.equal + (in_tile_before >> 16)};
      if (num_here != 0) {
#pragma unroll
        for (int i = 0; i < static_cast<int>(kPerThread); ++i) {
          const Word key = ordering_key(word_of<Word>(bytes, i), params);
          const Wide<Word> high = threshold.high_part(key);
          if (first + i >= part.length || high < threshold.prefix) continue;
          const bool is_equal = high == threshold.prefix;
          if (!is_equal || now.equal < num_equal) {
            const UInt32 place = now.above + min(now.equal, num_equal);
            list.keys[place] = key;
            list.indices[place] = part.first_index + static_cast<UInt32>(first) + i;
          }
          now.above += is_equal ? 0 : 1;
          now.equal += is_equal ? 1 : 0;
        }
      }
      at_tile.above += in_tile & 0xffff;
      at_tile.equal += in_tile >> 16;
    }
    __syncthreads();  // the list is complete before it is read
  }
}

// Drops from the list, of at most kPerThread elements a thread, what is below the k-th key as far
// as digits tell. Returns how many stay; after the next barrier they are the first of the list.
template <class Word, int kPerThread, int kThreads, int kLanes>
__device__ __forceinline__ UInt32 shorten_list(Threshold<Word> threshold, const List<Word>& list,
                                               UInt32 count, UInt32 enough,
                                               SelectStorage<kThreads, kLanes>& shared) {
  Word keys[kPerThread];
  UInt32 indices[kPerThread];
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const UInt32 i = j * kThreads + threadIdx.x;
    keys[j] = i < count ? list.keys[i] : Word{0};
    indices[j] = i < count ? list.indices[i] : kFullMask;
  }
  while (threshold.num_above + threshold.num_equal > enough && !threshold.is_exact()) {
    search_digit(threshold, shared, [&](auto visit) {
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) {
        if (indices[j] != kFullMask) visit(keys[j]);
      }
    });
  }
  if (threadIdx.x == 0) shared.num_listed = 0;
  __syncthreads();  // the counter is clear, and every thread has its elements in registers
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    if (indices[j] != kFullMask && threshold.high_part(keys[j]) >= threshold.prefix) {
      const UInt32 place = take_place<kThreads>(shared.num_listed);
      list.keys[place] = keys[j];
      list.indices[place] = indices[j];
    }
  }
  return threshold.num_above + threshold.num_equal;
}

// Lists the first k of a part by radix, in order of index unless `any_order`; how many are listed, which
// is more than k where the rest of the capacity saves telling them apart. `threshold` is where the
// search ended.
template <class Word, int kThreads, int kLanes>
__device__ __forceinline__ UInt32 list_by_radix(const RowPart<Word>& part, const TopKParams& params,
                                                UInt32 k, bool any_order, const List<Word>& list,
                                                Int64 capacity, Threshold<Word>& threshold,
                                                SelectStorage<kThreads, kLanes>& shared) {
  threshold = Threshold<Word>::start(part.length, k);
  while (threshold.num_above + threshold.num_equal > capacity && !threshold.is_exact()) {
    search_digit(threshold, shared, [&](auto visit) {
      part.template visit<kThreads>(params, threadIdx.x, [&](Word key, UInt32) { visit(key); });
    });
  }
  const bool all_fit = threshold.num_above + threshold.num_equal <= capacity;
  const UInt32 num_equal = all_fit ? threshold.num_equal : threshold.num_wanted;
  if (all_fit && any_order) {
    list_in_any_order(part, params, threshold, list, shared);
  } else {
    list_in_order(part, params, threshold, num_equal, {0, 0},
                  {threshold.num_above, threshold.num_equal}, list, shared);
  }
  return threshold.num_above + num_equal;
}
