// From a threshold to a list of the elements at or above it, and from a long list to a shorter one.
//
// The input is read once for each digit of the threshold and once for the list. If another stream
// changes it in between, there may be more elements than were counted, which are left out, or fewer;
// then missing elements fill the list.
#pragma once

#include "common/block_scan.cuh"
#include "common/ordering_key.cuh"
#include "common/types.cuh"
#include "top_k/list.cuh"
#include "top_k/row_reader.cuh"
#include "top_k/rows.cuh"
#include "top_k/threshold.cuh"

// Fills places [begin, end) of a list with missing elements of a part. They rank behind all others.
template <class Word, int kThreads>
__device__ __forceinline__ void list_missing(const List<Word>& list, const RowPart<Word>& part,
                                             UInt32 begin, UInt32 end) {
  for (UInt64 i = static_cast<UInt64>(begin) + threadIdx.x; i < end; i += kThreads) {
    list.keys[i] = 0;
    // Indices behind the row's end, different from those of other parts.
    list.indices[i] = kFullMask - part.first_index - static_cast<UInt32>(i - begin);
  }
}

// The index of a listed element; for a missing one, some index of the row.
__device__ __forceinline__ UInt32 index_in_row(const TopKParams& params, UInt32 index) {
  return min(index, static_cast<UInt32>(params.row_length - 1));
}

// As `row_length`, but the same for all threads of the block, because barriers may depend on it.
template <bool kIsRagged, int kThreads>
__device__ __forceinline__ Int64 block_row_length(const void* lengths, const TopKParams& params,
                                                  const RowStart& start,
                                                  SelectStorage<kThreads>& shared) {
  if constexpr (kIsRagged) {
    // Stored in the place of a digit, which no thread writes before the next barrier.
    if (threadIdx.x == 0) {
      shared.digit = static_cast<UInt32>(row_length<true>(lengths, params, start));
    }
    __syncthreads();  // thread 0 has read it before the others do
    return shared.digit;
  } else {
    return row_length<false>(lengths, params, start);
  }
}

// Lists every element at or above the threshold, in any order. `expected` of them have been counted.
template <class Word, int kThreads>
__device__ __forceinline__ void list_in_any_order(const RowPart<Word>& row,
                                                  const TopKParams& params,
                                                  const Threshold<Word>& threshold, UInt32 expected,
                                                  const List<Word>& list,
                                                  SelectStorage<kThreads>& shared) {
  if (threadIdx.x == 0) shared.num_listed = 0;
  __syncthreads();  // the counter is clear before anyone appends
  row.template visit<kThreads>(params, threadIdx.x, [&](Word key, UInt32 index) {
    if (threshold.high_part(key) >= threshold.prefix) {
      const UInt32 place = atomicAdd(&shared.num_listed, 1);
      if (place >= expected) return;
      list.keys[place] = key;
      list.indices[place] = index;
    }
  });
  __syncthreads();  // all are listed before they are counted
  list_missing<Word, kThreads>(list, row, shared.num_listed, expected);
  __syncthreads();  // the list is complete before it is read, and counted before the next begins
}

// How many elements above the threshold and how many equal to it lie before a place in the row.
struct Counts {
  UInt32 above;
  UInt32 equal;
};

// Lists, by ascending index, the elements above the threshold and the row's first `num_equal` equal
// to it. `before` and `after` are the counts where the part begins and ends. A thread has kLoads neighbouring
// loads in flight. Whoever reads the list begins with a barrier, as the sorts do.
template <UInt32 kLoads, class Word, int kThreads>
__device__ __forceinline__ void list_in_order(const RowPart<Word>& part, const TopKParams& params,
                                              const Threshold<Word>& threshold, UInt32 num_equal,
                                              Counts before, Counts after, const List<Word>& list,
                                              SelectStorage<kThreads>& shared) {
  const UInt32 end = after.above + min(after.equal, num_equal);
  constexpr UInt32 kPerLoad = RowPart<Word>::kPerLoad;
  constexpr UInt32 kPerThread = kLoads * kPerLoad;
  static_assert(kPerThread <= 64 && kThreads * kPerThread < 1 << 16,
                "bits of a word for a thread, half a word for a tile");
  Counts at_tile = before;
  for (UInt64 tile = 0; tile < part.length; tile += kThreads * kPerThread) {
    if (at_tile.above == after.above && at_tile.equal >= min(num_equal, after.equal)) break;
    const UInt64 first = tile + threadIdx.x * kPerThread;
    uint4 bytes[kLoads];
    part.template load<kLoads>(first, bytes);
    UInt64 above = 0;  // a bit for each element of the thread
    UInt64 equal = 0;
#pragma unroll
    for (UInt32 i = 0; i < kPerThread; ++i) {
      const Word word = word_of<Word>(bytes[i / kPerLoad], i % kPerLoad);
      const Wide<Word> high = threshold.high_part(ordering_key(word, params));
      if (high > threshold.prefix) above |= UInt64{1} << i;
      if (high == threshold.prefix) equal |= UInt64{1} << i;
    }
    if (first + kPerThread > part.length) {
      const UInt64 inside = first < part.length ? (UInt64{1} << (part.length - first)) - 1 : 0;
      above &= inside;
      equal &= inside;
    }
    const UInt32 num_here = __popcll(above) | __popcll(equal) << 16;
    UInt32 in_tile;
    const UInt32 in_tile_before =
        block_exclusive_sum<kThreads, true>(num_here, shared.warp_sums, in_tile);
    Counts now = {at_tile.above + (in_tile_before & 0xffff),
                  at_tile.equal + (in_tile_before >> 16)};
    // A lane takes its next element where others have theirs: seldom more than one of a tile is listed.
#pragma unroll 1
    for (UInt64 left = above | equal; left != 0; left &= left - 1) {
      const UInt32 i = __ffsll(static_cast<Int64>(left)) - 1;
      const bool is_equal = equal >> i & 1;
      if (!is_equal || now.equal < num_equal) {
        const UInt32 place = now.above + min(now.equal, num_equal);
        if (place < end) {
          // Loaded again: a register cannot be chosen by a number.
          const Word word = part.elements[static_cast<Int64>(first + i) * part.stride];
          list.keys[place] = ordering_key(word, params);
          list.indices[place] = part.first_index + static_cast<UInt32>(first) + i;
        }
      }
      now.above += is_equal ? 0 : 1;
      now.equal += is_equal ? 1 : 0;
    }
    at_tile.above += in_tile & 0xffff;
    at_tile.equal += in_tile >> 16;
  }
  list_missing<Word, kThreads>(list, part, at_tile.above + min(at_tile.equal, num_equal), end);
}

// Drops from a list of at most kPerThread elements a thread what is below the k-th key, as far as
// digits tell. Returns how many stay, at least k. After the next barrier they are the first of the
// list.
template <class Word, int kPerThread, int kThreads>
__device__ __forceinline__ UInt32 shorten_list(Threshold<Word> threshold, const RowPart<Word>& row,
                                               const List<Word>& list, UInt32 count, UInt32 k,
                                               UInt32 enough, SelectStorage<kThreads>& shared) {
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
      const UInt32 place = atomicAdd(&shared.num_listed, 1);
      list.keys[place] = keys[j];
      list.indices[place] = indices[j];
    }
  }
  __syncthreads();  // all that stay are listed before they are counted
  const UInt32 num_staying = shared.num_listed;
  list_missing<Word, kThreads>(list, row, num_staying, k);
  return max(num_staying, k);
}
