// One exchange that puts a list in order: the blocks of a row move their elements to buckets, and each block
// ranks those of neighbouring buckets.
//
// Buckets have equal widths between a floor and about the largest key. The order of the elements that come
// to a bucket does not matter, because ranks depend on keys and indices alone.
#pragma once

#include "common/block_scan.cuh"
#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/bucket_rank.cuh"
#include "top_k/list.cuh"
#include "top_k/threshold.cuh"

template <class Word, int kThreads>
struct Exchange {
  SelectStorage<kThreads>& select;  // its bins are what to add to a place in the block's order
  Bins& begins;                     // of buckets, in the block's order; then in the row's
  UInt32 most;                      // elements ranked at once, up to kRankedPerThread * kThreads

  // Takes places for the block's elements in the row's buckets; `order` gets their numbers by bucket.
  __device__ __forceinline__ void take_places(const EvenBuckets<Word>& buckets,
                                              const List<Word>& list, UInt32 count,
                                              UInt32* row_buckets, UInt16* order) const {
    for (int bin = threadIdx.x; bin < kNumBins; bin += kThreads) begins[bin] = 0;
    __syncthreads();  // the counts are clear before any is added to
#pragma unroll 4
    for (UInt32 i = threadIdx.x; i < count; i += kThreads) {
      atomicAdd(&begins[buckets.of(list.keys[i])], 1);
    }
    __syncthreads();  // every element is counted before the counts are summed
    sum_buckets(
        select, [&](int bucket) { return begins[bucket]; },
        [&](int bucket, UInt32 num_own, UInt32 before) {
          begins[bucket] = before;
          if (num_own == 0) return;
          select.bins[bucket] = atomicAdd(&row_buckets[bucket], num_own) - before;
        });
    __syncthreads();  // buckets have begins before elements follow each other there
#pragma unroll 4
    for (UInt32 i = threadIdx.x; i < count; i += kThreads) {
      order[atomicAdd(&begins[buckets.of(list.keys[i])], 1)] = static_cast<UInt16>(i);
    }
  }

  // Sums up the row's buckets, after all blocks have taken places. Returns whether each can be ranked.
  __device__ __forceinline__ bool sum_row(const UInt32* row_buckets) const {
    const UInt32 fullest = sum_buckets(
        select, [&](int bucket) { return load_relaxed(&row_buckets[bucket]); },
        [&](int bucket, UInt32, UInt32 before) {
          begins[bucket] = before;
          select.bins[bucket] += before;
        });
    return __syncthreads_or(fullest > most ? 1 : 0) == 0;  // sums are written before use
  }

  // Moves the block's elements to the row's list: neighbours are of one bucket, and are neighbours there.
  __device__ __forceinline__ void move(const EvenBuckets<Word>& buckets, const List<Word>& list,
                                       UInt32 count, const UInt16* order,
                                       const List<Word>& row_list) const {
#pragma unroll 4
    for (UInt32 place = threadIdx.x; place < count; place += kThreads) {
      const UInt32 i = order[place];
      const Word key = list.keys[i];
      row_list.put(select.bins[buckets.of(key)] + place, key, list.indices[i]);
    }
  }

  // The last place up to `limit` where a bucket begins, or the list of `count` elements ends. Every thread
  // has passed a barrier since `sum_row`.
  __device__ __forceinline__ UInt32 bound_up_to(UInt32 limit, UInt32 count) const {
    if (limit >= count) return count;
    UInt32 bucket = 0;
#pragma unroll 1
    for (UInt32 step = kNumBins / 2; step > 0; step /= 2) {
      if (begins[bucket + step] <= limit) bucket += step;
    }
    return begins[bucket];
  }

  // Ranks the elements of this block's buckets, some buckets at a time, after all blocks have moved theirs.
  // `storage` has room for `most` elements. Calls write(rank, key, index) for the first k.
  template <class Write>
  __device__ __forceinline__ void rank(const List<Word>& row_list, UInt32 count, UInt32 k,
                                       UInt32 block, UInt32 num_blocks, UInt8* storage,
                                       KeyBounds& bounds, Write write) const {
    const List<Word> near = List<Word>::in(storage, most, 0);
    const UInt32 share = count / num_blocks + 1;
    const UInt32 end = bound_up_to((block + 1) * share, count);
    UInt32 begin = bound_up_to(block * share, count);
    while (begin < min(end, k)) {
      const UInt32 next = bound_up_to(begin + most, end);
      if (next <= begin) return;  // a bucket is too full, which `sum_row` excludes
      const List<Word> own = {row_list.keys + begin, row_list.indices + begin};
      rank_by_buckets<Word, kThreads>(
          own, near, next - begin, k - begin, select, bounds,
          [&](UInt32 rank, Word key, UInt32 index) { write(begin + rank, key, index); });
      __syncthreads();  // all are ranked before the next ones take their room
      begin = next;
    }
  }
};
