// One exchange that puts a list in order: the blocks of a row move their elements to buckets, and each block
// ranks those of neighbouring buckets.
//
// Buckets have equal widths between a floor and about the largest key. The order of the elements that come
// to a bucket does not matter, because ranks depend on keys and indices alone.
#pragma once

#include "common/block_scan.cuh"
#include "common/intrinsics.cuh"
#include "common/ordering_key.cuh"
#include "common/types.cuh"
#include "top_k/list_rank.cuh"
#include "top_k/ranked.cuh"
#include "top_k/rows.cuh"
#include "top_k/threshold.cuh"

template <class Word, int kThreads>
struct Exchange {
  static constexpr int kOwnBuckets = kNumBins / kThreads;  // of a thread, which are neighbours

  SelectStorage<kThreads>& select;  // its bins are what to add to a place in the block's order
  Bins& begins;                     // of buckets, in the block's order; then in the row's
  UInt32 most;  // elements ranked at once; with kSpareRoom, up to kRankedPerThread * kThreads

  // Clears the counts of the block's elements. A barrier has to follow before any is added to.
  __device__ __forceinline__ void clear() const {
    for (int bin = threadIdx.x; bin < kNumBins; bin += kThreads) begins[bin] = 0;
  }

  // Counts an element at a place of the block's list, which gets its key instead.
  __device__ __forceinline__ void count(const EvenBuckets<Word>& buckets,
                                        const PairList<Word>& list, UInt32 place,
                                        const TopKParams& params) const {
    const LongRanked<Word> listed = list.at(place);
    const Word key = ordering_key(listed.key(), params);
    list.put(place, LongRanked<Word>::of(key, listed.index()));
    atomicAdd(&begins[buckets.of(key)], 1);
  }

  // Takes places for the block's elements, which are counted, in the row's buckets; `order` gets their
  // numbers by bucket. Every thread has passed a barrier since the last one was counted.
  __device__ __forceinline__ void take_places(const EvenBuckets<Word>& buckets,
                                              const PairList<Word>& list, UInt32 count,
                                              UInt32* row_buckets, UInt16* order) const {
    UInt32 before[kOwnBuckets];
    UInt32 taken[kOwnBuckets] = {};  // the atomics' results arrive while the order is made
    sum_buckets(
        select, [&](int, int bucket) { return begins[bucket]; },
        [&](int i, int bucket, UInt32 num_own, UInt32 num_before) {
          begins[bucket] = num_before;
          before[i] = num_before;
          if (num_own != 0) taken[i] = atomicAdd(&row_buckets[bucket], num_own);
        });
    __syncthreads();  // buckets have begins before elements follow each other there
#pragma unroll 4
    for (UInt32 i = threadIdx.x; i < count; i += kThreads) {
      order[atomicAdd(&begins[buckets.of(list.at(i).key())], 1)] = static_cast<UInt16>(i);
    }
#pragma unroll
    for (int i = 0; i < kOwnBuckets; ++i) {
      select.bins[threadIdx.x * kOwnBuckets + i] = taken[i] - before[i];
    }
  }

  // The row's counts of a thread's buckets.
  struct RowCounts {
    WordPair pairs[kOwnBuckets / 4];
    __device__ __forceinline__ UInt32 operator[](int i) const {
      return static_cast<UInt32>(pairs[i / 4].words[i % 4 / 2] >> (i % 2 * 32));
    }
  };

  // Loads them, after all blocks have taken places.
  __device__ __forceinline__ RowCounts load_row(const UInt32* row_buckets) const {
    RowCounts counts;
    const auto* own =
        reinterpret_cast<const UInt64*>(row_buckets) + threadIdx.x * (kOwnBuckets / 2);
#pragma unroll
    for (int i = 0; i < kOwnBuckets / 4; ++i) counts.pairs[i] = load_pair_relaxed(own + 2 * i);
    return counts;
  }

  // Sums up the row's buckets. Returns whether each can be ranked.
  __device__ __forceinline__ bool sum_row(const RowCounts& counts) const {
    const UInt32 fullest = sum_buckets(
        select, [&](int i, int) { return counts[i]; },
        [&](int, int bucket, UInt32, UInt32 before) {
          begins[bucket] = before;
          select.bins[bucket] += before;
        });
    return __syncthreads_or(fullest > most ? 1 : 0) == 0;  // sums are written before use
  }

  // Moves the block's elements to the row's list: neighbours are of one bucket, and are neighbours there.
  __device__ __forceinline__ void move(const EvenBuckets<Word>& buckets, const PairList<Word>& list,
                                       UInt32 count, const UInt16* order,
                                       const PairList<Word>& row_list) const {
#pragma unroll 4
    for (UInt32 place = threadIdx.x; place < count; place += kThreads) {
      const LongRanked<Word> pair = list.at(order[place]);
      row_list.put(select.bins[buckets.of(pair.key())] + place, pair);
    }
  }

  // The last place up to `limit` where a bucket begins, or the list of `count` elements ends. Every thread
  // has passed a barrier since `sum_row`.
  __device__ __forceinline__ UInt32 bound_up_to(UInt32 limit, UInt32 count) const {
    if (limit >= count) return count;
    // Begins rise from 0 on. They are compared at a distance, one by each lane.
    const UInt32 lane = threadIdx.x % kWarpSize;
    const auto last_up_to = [&](UInt32 first, UInt32 step) {
      const UInt32 begin = begins[first + lane * step];
      return first + (__popc(__ballot_sync(kFullMask, begin <= limit)) - 1) * step;
    };
    static_assert(kNumBins == 2 * kWarpSize * kWarpSize, "two steps, and one of two begins");
    const UInt32 bucket = last_up_to(last_up_to(0, 2 * kWarpSize), 2);
    return begins[begins[bucket + 1] <= limit ? bucket + 1 : bucket];
  }

  // Ranks the elements of this block's buckets, some buckets at a time, after all blocks have moved theirs.
  // `storage` has room for `most` elements and kSpareRoom. Calls write(rank, key, index) for the first k.
  template <class Write>
  __device__ __forceinline__ void rank(const PairList<Word>& row_list, UInt32 count, UInt32 k,
                                       UInt32 block, UInt32 num_blocks, UInt8* storage,
                                       KeyBounds& bounds, Write write) const {
    const List<Word> near = List<Word>::in(storage, most + kSpareRoom, 0);
    const UInt32 share = count / num_blocks + 1;
    const UInt32 end = bound_up_to((block + 1) * share, count);
    UInt32 begin = bound_up_to(block * share, count);
    UInt32 next = bound_up_to(begin + most, end);
    LongRanked<Word> pairs[kRankedPerThread];
    load_pairs<kThreads>(row_list.from(begin), next - begin, pairs);
    // No bucket is too full, which `sum_row` excludes, so that there is progress.
    while (begin < min(next, k)) {
      const UInt32 num_near = next - begin;
      const auto write_near = [&](UInt32 rank, Word key, UInt32 index) {
        write(begin + rank, key, index);
      };
      const UInt32 after = bound_up_to(next + most, end);
      const auto load_next = [&] {
        load_pairs<kThreads>(row_list.from(next), after - next, pairs);
      };
      if (num_near <= kMaxCountedList) {
        if (threadIdx.x < num_near) near.put(threadIdx.x, pairs[0]);
        load_next();
        __syncthreads();  // the list is complete before it is ranked
        rank_short_list<Word, kThreads>(near, num_near, near, num_near, k - begin, write_near);
      } else {
        rank_by_buckets<Word, kThreads>(pairs, near, num_near, k - begin, NoZeroKey(), select,
                                        bounds, write_near, load_next);
      }
      __syncthreads();  // all are ranked before the next ones take their room
      begin = next;
      next = after;
    }
  }
};
