// The rank of each element of a list. Keys are divided into buckets of equal width between the least and the
// largest key; within a bucket, ranks are found by counting.
#pragma once

#include "common/block_scan.cuh"
#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/counted_rank.cuh"
#include "top_k/list.cuh"
#include "top_k/network_sort.cuh"
#include "top_k/ranked.cuh"
#include "top_k/threshold.cuh"

// The largest of the lanes' keys, for words of any size.
template <class Key>
__device__ __forceinline__ Key warp_largest(Key key) {
  if constexpr (sizeof(Key) <= 4) return warp_max(key);
#pragma unroll
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
    key = max(key, __shfl_xor_sync(kFullMask, key, lanes));
  }
  return key;
}

// The largest and the least key of a list, for words of any size.
struct KeyBounds {
  UInt64 largest;
  UInt64 largest_complement;  // the complement of the least

  template <class Word>
  __device__ __forceinline__ Wide<Word>& largest_of() {
    return reinterpret_cast<Wide<Word>&>(largest);
  }
  template <class Word>
  __device__ __forceinline__ Wide<Word>& complement_of() {
    return reinterpret_cast<Wide<Word>&>(largest_complement);
  }

  // Includes the bounds that each lane of a warp has found. Both members are 0 at first.
  template <class Word>
  __device__ __forceinline__ void add(Wide<Word> own_largest, Wide<Word> own_complement) {
    own_largest = warp_largest(own_largest);
    own_complement = warp_largest(own_complement);
    if (threadIdx.x % kWarpSize == 0) {
      atomicMax(&largest_of<Word>(), own_largest);
      atomicMax(&complement_of<Word>(), own_complement);
    }
  }
};

// Buckets of equal width for the keys from a least to a largest one: bucket 0 has the largest, and those
// above.
template <class Word>
struct EvenBuckets {
  Wide<Word> top;
  int shift;      // fills the highest bits of 64 with the distance of the least key from the top
  UInt32 factor;  // buckets for a distance of 2^32, after the shift

  static __device__ __forceinline__ EvenBuckets between(Wide<Word> least, Wide<Word> largest) {
    const UInt64 range = largest > least ? largest - least : 1;
    const int shift = __clzll(static_cast<Int64>(range));
    // Rounded, so that the least keys may come beyond the last bucket.
    const float width = static_cast<float>(static_cast<UInt32>(range << shift >> 32));
    return {largest, shift, static_cast<UInt32>(kNumBins * 4294967296.0f / width)};
  }
  __device__ __forceinline__ UInt32 of(Word key) const {
    const UInt64 distance = key < top ? top - key : 0;
    return min(__umulhi(static_cast<UInt32>(distance << shift >> 32), factor),
               UInt32{kNumBins - 1});
  }
};

// Calls place(i, bucket, count, count of all buckets before it) for each bucket i of the thread, neighbours
// whose counts are count_of(i, bucket). Returns the largest of these.
template <int kThreads, class CountOf, class Place>
__device__ __forceinline__ UInt32 sum_buckets(SelectStorage<kThreads>& shared, CountOf count_of,
                                              Place place) {
  constexpr int kBinsPerThread = kNumBins / kThreads;
  const int first_bin = static_cast<int>(threadIdx.x) * kBinsPerThread;
  UInt32 own[kBinsPerThread];
  UInt32 num_here = 0;
  UInt32 fullest = 0;
#pragma unroll
  for (int i = 0; i < kBinsPerThread; ++i) {
    own[i] = count_of(i, first_bin + i);
    num_here += own[i];
    fullest = max(fullest, own[i]);
  }
  UInt32 total;
  UInt32 before = block_exclusive_sum<kThreads>(num_here, shared.warp_sums, total);
#pragma unroll
  for (int i = 0; i < kBinsPerThread; ++i) {
    place(i, first_bin + i, own[i], before);
    before += own[i];
  }
  return fullest;
}

// The longest list that is ranked by counting.
constexpr UInt32 kMaxCountedList = 128;
// The fullest bucket that is ranked by counting, at least, and as a part of a list; a network sorts a list
// with a fuller one. Predicted for 2048 of 65536 float32 of 1000 values: 22 us by counting, 56 by a network.
constexpr UInt32 kMaxCountedBucket = 64;
constexpr UInt32 kMaxCountedPart = 8;
// Most elements of a list for each thread.
constexpr UInt32 kRankedPerThread = 8;

// Loads the thread's pairs of a list of `count`; beyond the end, the last pair again.
template <int kThreads, class From, class Pair>
__device__ __forceinline__ void load_pairs(const From& from, UInt32 count,
                                           Pair (&pairs)[kRankedPerThread]) {
#pragma unroll
  for (UInt32 j = 0; j < kRankedPerThread; ++j) {
    if (j * kThreads >= count) break;
    pairs[j] = from.at(min(j * kThreads + threadIdx.x, count - 1));
  }
}

// Ranks a short list in shared storage by counting.
template <class Word, int kThreads, class Write>
__device__ __forceinline__ void rank_short_list(const List<Word>& list, UInt32 count, UInt32 k,
                                                Write write) {
  // A size that is known when the kernel is built takes fewer instructions.
  if (count <= kMaxCountedList / 2) {
    rank_by_counting<Word, kThreads>(list, count, kMaxCountedList / 2, k, write);
  } else {
    rank_by_counting<Word, kThreads>(list, count, kMaxCountedList, k, write);
  }
}

// Elements that are compared with one of their bucket before the next branch, and the room of a list beyond
// its elements: comparisons may go on behind a bucket, because elements there have less than its keys.
constexpr UInt32 kComparedAtOnce = 4;
constexpr UInt32 kSpareRoom = 8;
static_assert(kComparedAtOnce - 1 <= kSpareRoom, "the last bucket ends with the list");

// Calls write(rank, key, index) for the first k of `count` elements, which the threads have loaded by
// `load_pairs`. `list` is storage that was made by `List::in` in shared storage, with room for `count` and
// kSpareRoom elements and for the power of two from `count` on. Calls load_next() when `pairs` are free and
// the threads still compare elements.
template <class Word, int kThreads, class Write, class LoadNext>
__device__ __forceinline__ void rank_by_buckets(LongRanked<Word> (&pairs)[kRankedPerThread],
                                                const List<Word>& list, UInt32 count, UInt32 k,
                                                SelectStorage<kThreads>& shared, KeyBounds& bounds,
                                                Write write, LoadNext load_next) {
  Bins& bins = shared.bins;
  for (int bin = threadIdx.x; bin < kNumBins; bin += kThreads) bins[bin] = 0;
  if (threadIdx.x == 0) bounds = {0, 0};
  __syncthreads();  // bins and bounds are clear before they are changed
  Wide<Word> largest = 0;
  Wide<Word> complement = 0;
#pragma unroll
  for (UInt32 j = 0; j < kRankedPerThread; ++j) {
    if (j * kThreads >= count) break;
    // Beyond the end, these are the last element again.
    const Wide<Word> key = pairs[j].key();
    largest = max(largest, key);
    complement = max(complement, static_cast<Wide<Word>>(~key));
  }
  bounds.add<Word>(largest, complement);
  __syncthreads();  // the bounds are those of all keys

  const auto buckets = EvenBuckets<Word>::between(
      static_cast<Wide<Word>>(~bounds.complement_of<Word>()), bounds.largest_of<Word>());
  UInt32 places[kRankedPerThread];
#pragma unroll
  for (UInt32 j = 0; j < kRankedPerThread; ++j) {
    if (j * kThreads >= count) break;
    if (j * kThreads + threadIdx.x < count) {
      places[j] = atomicAdd(&bins[buckets.of(pairs[j].key())], 1);
    }
  }
  __syncthreads();  // every element is counted, and has a place in its bucket
  const UInt32 fullest = sum_buckets(
      shared, [&](int, int bin) { return bins[bin]; },
      [&](int, int bin, UInt32, UInt32 before) { bins[bin] = before; });
  const bool is_too_full = fullest > max(kMaxCountedBucket, count / kMaxCountedPart);
  if (__syncthreads_or(is_too_full ? 1 : 0) != 0) {  // sums are written before use
#pragma unroll
    for (UInt32 j = 0; j < kRankedPerThread; ++j) {
      const UInt32 place = j * kThreads + threadIdx.x;
      if (place < count) list.put(place, pairs[j]);
    }
    load_next();
    sort_by_network<Word, kThreads>(list, count);  // begins with a barrier
    for (UInt32 rank = threadIdx.x; rank < min(k, count); rank += kThreads) {
      write(rank, list.keys[rank], list.indices[rank]);
    }
    return;
  }
  const auto by_bucket = PairList<Word>::in(list);
#pragma unroll
  for (UInt32 j = 0; j < kRankedPerThread; ++j) {
    if (j * kThreads >= count) break;
    if (j * kThreads + threadIdx.x < count) {
      by_bucket.put(bins[buckets.of(pairs[j].key())] + places[j], pairs[j]);
    }
  }
  // Pairs behind the list that come before no element.
  if (threadIdx.x < kSpareRoom) by_bucket.put(count + threadIdx.x, LongRanked<Word>::none());
  load_next();
  __syncthreads();  // buckets are complete before they are compared
  for (UInt32 place = threadIdx.x; place < count; place += kThreads) {
    const LongRanked<Word> pair = by_bucket.at(place);
    const UInt32 bucket = buckets.of(pair.key());
    const UInt32 begin = bins[bucket];
    const UInt32 end = bucket + 1 < kNumBins ? bins[bucket + 1] : count;
    if (begin >= k) continue;
    UInt32 rank = begin;
    UInt32 compared = begin;
#pragma unroll 1
    do {
#pragma unroll
      for (UInt32 i = 0; i < kComparedAtOnce; ++i) {
        rank += one_if_before(by_bucket.at(compared + i), pair);
      }
      compared += kComparedAtOnce;
    } while (compared < end);
    if (rank < k) write(rank, pair.key(), pair.index());
  }
}
