// Ranks in a short list, by counting the elements that come before each one. Nothing moves, so no barrier
// is needed.
#pragma once

#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/list.cuh"
#include "top_k/ranked.cuh"

// Calls write(rank, key, index) for the first k of `count` <= `size` elements; `size` is a power of two, 32
// or more. If there are more threads than elements, neighbouring lanes share an element.
template <class Word, int kThreads, class Write>
__device__ __forceinline__ void rank_by_counting(const List<Word>& list, UInt32 count, UInt32 size,
                                                 UInt32 k, Write write) {
  int log_shares = 0;
  while (log_shares < 5 && (size << log_shares) < kThreads) ++log_shares;
  const UInt32 num_shares = 1u << log_shares;
  const UInt32 share = threadIdx.x & (num_shares - 1);
  // Every lane takes part in each round, because of the sums over lanes.
  for (UInt32 first = 0; first < count; first += kThreads >> log_shares) {
    const UInt32 i = first + (threadIdx.x >> log_shares);
    const UInt32 own = min(i, count - 1);
    const Word key = list.keys[own];
    const UInt32 index = list.indices[own];
    UInt32 rank = 0;
#pragma unroll 8
    for (UInt32 other = share; other < count; other += num_shares) {
      // Both loads are issued before either is used.
      const Word other_key = list.keys[other];
      const UInt32 other_index = list.indices[other];
      const bool ties_before = (other_key == key) & (other_index < index);
      rank += (other_key > key) | ties_before ? 1 : 0;
    }
    for (UInt32 lanes = num_shares / 2; lanes > 0; lanes /= 2) {
      rank += __shfl_xor_sync(kFullMask, rank, lanes);
    }
    if (i < count && share == 0 && rank < k) write(rank, key, index);
  }
}

// Calls write(rank, key, index) for the elements of `own`, a part of a list, that are among the first k of the
// list. Every warp has the whole list in `pairs`, up to 256 elements, and compares two of its own at a time
// with them.
template <class Word, int kThreads, UInt32 kPerLane, class Write>
__device__ __forceinline__ void rank_by_warps(const LongRanked<Word> (&pairs)[kPerLane],
                                              const List<Word>& own, UInt32 num_own, UInt32 k,
                                              Write write) {
  constexpr UInt32 kNumWarps = kThreads / kWarpSize;
  constexpr UInt32 kTogether = 2;
  static_assert(kPerLane * kWarpSize <= kThreads, "a lane writes one element");
  static_assert(kPerLane * kWarpSize <= 256, "a byte counts the elements before another one");
  const UInt32 lane = threadIdx.x % kWarpSize;
  const UInt32 warp = threadIdx.x / kWarpSize;
  // Lane i gets the rank of the warp's element i, so that all are written at once.
  UInt32 rank = 0;
#pragma unroll 1
  for (UInt32 first = 0; first * kNumWarps + warp < num_own; first += kTogether) {
    UInt32 before = 0;  // a byte for each of the elements
#pragma unroll
    for (UInt32 i = 0; i < kTogether; ++i) {
      const LongRanked<Word> pair = own.at(min((first + i) * kNumWarps + warp, num_own - 1));
#pragma unroll
      for (UInt32 j = 0; j < kPerLane; ++j) before += one_if_before(pairs[j], pair) << (8 * i);
    }
    const UInt32 ranks = warp_sum(before);
    if (lane - first < kTogether) rank = ranks >> (8 * (lane - first)) & 0xff;
  }
  const UInt32 i = lane * kNumWarps + warp;
  if (i >= num_own || rank >= k) return;
  const LongRanked<Word> pair = own.at(i);
  write(rank, pair.key(), pair.index());
}

// The longest list that is ranked so.
constexpr UInt32 kMaxCountedList = 128;

// The same for an own part of a list of `count` <= kMaxCountedList elements.
template <class Word, int kThreads, class Write>
__device__ __forceinline__ void rank_short_list(const List<Word>& list, UInt32 count,
                                                const List<Word>& own, UInt32 num_own, UInt32 k,
                                                Write write) {
  LongRanked<Word> pairs[kMaxCountedList / kWarpSize];
#pragma unroll
  for (UInt32 j = 0; j < kMaxCountedList / kWarpSize; ++j) {
    const UInt32 i = j * kWarpSize + threadIdx.x % kWarpSize;
    pairs[j] = i < count ? list.at(i) : LongRanked<Word>::none();
  }
  rank_by_warps<Word, kThreads>(pairs, own, num_own, k, write);
}
