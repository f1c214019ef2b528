// The rank of each element of a list. Keys are divided into buckets of equal width between the least and the
// largest key; within a bucket, ranks are found by counting.
#pragma once

#include "common/block_scan.cuh"
#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/counted_rank.cuh"
#include "top_k/list.cuh"
#include "top_k/network_sort.cuh"
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

// Calls place(bucket, count, count of all buckets before it) for the thread's buckets, neighbours whose
// counts are count_of(bucket). Returns the largest of these.
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
    own[i] = count_of(first_bin + i);
    num_here += own[i];
    fullest = max(fullest, own[i]);
  }
  UInt32 total;
  UInt32 before = block_exclusive_sum<kThreads>(num_here, shared.warp_sums, total);
#pragma unroll
  for (int i = 0; i < kBinsPerThread; ++i) {
    place(first_bin + i, own[i], before);
    before += own[i];
  }
  return fullest;
}

// The longest list, and the fullest bucket, that are ranked by counting.
constexpr UInt32 kMaxCountedList = 128;
constexpr UInt32 kMaxCountedBucket = 64;
// Most elements of a list for each thread.
constexpr UInt32 kRankedPerThread = 8;

// Calls write(rank, key, index) for the first k of `count` elements of `from`, which may be `list`. The list
// is in shared storage, with room for the power of two from `count` on, and gets the elements by bucket.
template <class Word, int kThreads, class Write>
__device__ __forceinline__ void rank_by_buckets(const List<Word>& from, const List<Word>& list,
                                                UInt32 count, UInt32 k,
                                                SelectStorage<kThreads>& shared, KeyBounds& bounds,
                                                Write write) {
  const auto copy = [&] {
    if (from.keys == list.keys) return;
    for (UInt32 i = threadIdx.x; i < count; i += kThreads) {
      list.put(i, from.keys[i], from.indices[i]);
    }
    __syncthreads();  // the list is complete before it is ranked
  };
  // A size that is known when the kernel is built takes fewer instructions.
  if (count <= kMaxCountedList / 2) {
    copy();
    rank_by_counting<Word, kThreads>(list, count, kMaxCountedList / 2, k, write);
    return;
  }
  if (count <= kMaxCountedList) {
    copy();
    rank_by_counting<Word, kThreads>(list, count, kMaxCountedList, k, write);
    return;
  }
  Word keys[kRankedPerThread];
  UInt32 indices[kRankedPerThread];
#pragma unroll
  for (UInt32 j = 0; j < kRankedPerThread; ++j) {
    if (j * kThreads >= count) break;
    const UInt32 i = min(j * kThreads + threadIdx.x, count - 1);
    keys[j] = from.keys[i];
    indices[j] = from.indices[i];
  }
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
    largest = max(largest, static_cast<Wide<Word>>(keys[j]));
    complement = max(complement, static_cast<Wide<Word>>(~static_cast<Wide<Word>>(keys[j])));
  }
  bounds.add<Word>(largest, complement);
  __syncthreads();  // the bounds are those of all keys

  const auto buckets = EvenBuckets<Word>::between(
      static_cast<Wide<Word>>(~bounds.complement_of<Word>()), bounds.largest_of<Word>());
  UInt32 places[kRankedPerThread];
#pragma unroll
  for (UInt32 j = 0; j < kRankedPerThread; ++j) {
    if (j * kThreads >= count) break;
    if (j * kThreads + threadIdx.x < count) places[j] = atomicAdd(&bins[buckets.of(keys[j])], 1);
  }
  __syncthreads();  // every element is counted, and has a place in its bucket
  const UInt32 fullest = sum_buckets(
      shared, [&](int bin) { return bins[bin]; },
      [&](int bin, UInt32, UInt32 before) { bins[bin] = before; });
  if (__syncthreads_or(fullest > kMaxCountedBucket ? 1 : 0) != 0) {  // sums are written before use
    copy();
    sort_by_network<Word, kThreads>(list, count);  // a bucket is too full to count
    for (UInt32 rank = threadIdx.x; rank < min(k, count); rank += kThreads) {
      write(rank, list.keys[rank], list.indices[rank]);
    }
    return;
  }
#pragma unroll
  for (UInt32 j = 0; j < kRankedPerThread; ++j) {
    if (j * kThreads >= count) break;
    if (j * kThreads + threadIdx.x < count) {
      list.put(bins[buckets.of(keys[j])] + places[j], keys[j], indices[j]);
    }
  }
  __syncthreads();  // buckets are complete before they are compared
  for (UInt32 place = threadIdx.x; place < count; place += kThreads) {
    const Word key = list.keys[place];
    const UInt32 index = list.indices[place];
    const UInt32 bucket = buckets.of(key);
    const UInt32 begin = bins[bucket];
    const UInt32 end = bucket + 1 < kNumBins ? bins[bucket + 1] : count;
    if (begin >= k) continue;
    UInt32 rank = begin;
    for (UInt32 other = begin; other < end; ++other) {
      const Word other_key = list.keys[other];
      const bool ties_before = (other_key == key) & (list.indices[other] < index);
      rank += (other_key > key) | ties_before ? 1 : 0;
    }
    if (rank < k) write(rank, key, index);
  }
}
