// Ranks in a short list, by counting the elements that come before each one. Nothing moves, so no barrier
// is needed.
#pragma once

#include "common/types.cuh"
#include "top_k/list.cuh"

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
