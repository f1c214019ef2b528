// The rank of each element of a list in shared storage. Keys are divided into buckets of equal width between
// the least and the largest key; within a bucket, ranks are found by counting.
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

// The longest list, and the fullest bucket, that are ranked by counting.
constexpr UInt32 kMaxCountedList = 128;
constexpr UInt32 kMaxCountedBucket = 64;
// Most elements of a list for each thread.
constexpr int kRankedPerThread = 8;

// Calls write(rank, key, index) for the first k of `count` elements. `places` has room for `count`, and the
// list for the next power of two.
template <class Word, int kThreads, class Write>
__device__ __forceinline__ void rank_by_buckets(const List<Word>& list, UInt32* places,
                                                UInt32 count, UInt32 k,
                                                SelectStorage<kThreads>& shared, KeyBounds& bounds,
                                                Write write) {
  // A size that is known when the kernel is built takes fewer instructions.
  if (count <= kMaxCountedList / 2) {
    rank_by_counting<Word, kThreads>(list, count, kMaxCountedList / 2, k, write);
    return;
  }
  if (count <= kMaxCountedList) {
    rank_by_counting<Word, kThreads>(list, count, kMaxCountedList, k, write);
    return;
  }
  Bins& bins = shared.bins;
  for (int bin = threadIdx.x; bin < kNumBins; bin += kThreads) bins[bin] = 0;
  if (threadIdx.x == 0) bounds = {0, 0};
  __syncthreads();  // bins and bounds are clear before they are changed
  Wide<Word> largest = 0;
  Wide<Word> complement = 0;
  for (UInt32 i = threadIdx.x; i < count; i += kThreads) {
    largest = max(largest, static_cast<Wide<Word>>(list.keys[i]));
    complement = max(complement, static_cast<Wide<Word>>(~static_cast<Wide<Word>>(list.keys[i])));
  }
  bounds.add<Word>(largest, complement);
  __syncthreads();  // the bounds are those of all keys

  // Bucket 0 has the largest keys.
  const Wide<Word> top = bounds.largest_of<Word>();
  const UInt64 range = top - static_cast<Wide<Word>>(~bounds.complement_of<Word>());
  const int shift = max(0, 64 - __clzll(static_cast<Int64>(range)) - kDigitBits);
  const auto bucket_of = [&](Word key) { return static_cast<UInt32>((top - key) >> shift); };
  for (UInt32 i = threadIdx.x; i < count; i += kThreads) {
    places[i] = atomicAdd(&bins[bucket_of(list.keys[i])], 1);
  }
  __syncthreads();  // every element is counted, and has a place in its bucket
  constexpr int kBinsPerThread = kNumBins / kThreads;
  const int first_bin = threadIdx.x * kBinsPerThread;
  UInt32 own[kBinsPerThread];
  UInt32 num_here = 0;
  UInt32 fullest = 0;
#pragma unroll
  for (int i = 0; i < kBinsPerThread; ++i) {
    own[i] = bins[first_bin + i];
    num_here += own[i];
    fullest = max(fullest, own[i]);
  }
  UInt32 total;
  UInt32 before = block_exclusive_sum<kThreads>(num_here, shared.warp_sums, total);
#pragma unroll
  for (int i = 0; i < kBinsPerThread; ++i) {
    bins[first_bin + i] = before;
    before += own[i];
  }
  if (__syncthreads_or(fullest > kMaxCountedBucket ? 1 : 0) != 0) {  // sums are written before use
    sort_by_network<Word, kThreads>(list, count);  // a bucket is too full to count
    for (UInt32 rank = threadIdx.x; rank < k; rank += kThreads) {
      write(rank, list.keys[rank], list.indices[rank]);
    }
    return;
  }
  // Order the elements by bucket: the bucket's begin plus the place within it.
  UInt32 own_places[kRankedPerThread];
#pragma unroll
  for (int j = 0; j < kRankedPerThread; ++j) {
    const UInt32 i = j * kThreads + threadIdx.x;
    own_places[j] = i < count ? places[i] + bins[bucket_of(list.keys[i])] : 0;
  }
  __syncthreads();  // places in buckets are read before places in the list take their room
#pragma unroll
  for (int j = 0; j < kRankedPerThread; ++j) {
    const UInt32 i = j * kThreads + threadIdx.x;
    if (i < count) places[own_places[j]] = i;
  }
  __syncthreads();  // buckets are complete before they are compared
  for (UInt32 place = threadIdx.x; place < count; place += kThreads) {
    const UInt32 i = places[place];
    const Word key = list.keys[i];
    const UInt32 index = list.indices[i];
    const UInt32 bucket = bucket_of(key);
    const UInt32 begin = bins[bucket];
    const UInt32 end = bucket + 1 < kNumBins ? bins[bucket + 1] : count;
    if (begin >= k) continue;
    UInt32 rank = begin;
    for (UInt32 other = begin; other < end; ++other) {
      const UInt32 o = places[other];
      const Word other_key = list.keys[o];
      const bool ties_before = (other_key == key) & (list.indices[o] < index);
      rank += (other_key > key) | ties_before ? 1 : 0;
    }
    if (rank < k) write(rank, key, index);
  }
}
