// The rank of each element of a list. In a short list, the elements that come before each one are counted,
// and nothing moves. For a longer one, keys are divided into buckets of equal width between the least and the
// largest key; within a bucket, ranks are found by counting.
#pragma once

#include "common/block_scan.cuh"
#include "common/intrinsics.cuh"
#include "common/ordering_key.cuh"
#include "common/types.cuh"
#include "top_k/list_sort.cuh"
#include "top_k/ranked.cuh"
#include "top_k/threshold.cuh"

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

// Calls write(rank, key, index) for the elements of `own`, a part of a list, that are among the list's first
// k. Every warp has the whole list in `pairs`, up to 256 elements, and compares two of its own at a time with
// them.
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
    if (threadIdx.x % kWarpSize == 0) atomicMax(&largest_of<Word>(), own_largest);
    add_complement<Word>(own_complement);
  }
  // As `add`, for the least key alone.
  template <class Word>
  __device__ __forceinline__ void add_complement(Wide<Word> own_complement) {
    own_complement = warp_largest(own_complement);
    if (threadIdx.x % kWarpSize == 0) atomicMax(&complement_of<Word>(), own_complement);
  }
};

// Binades at either end of a range of floating-point numbers that are told apart. A binade has the numbers
// from a power of two to the next. Near zero there are few of usual data, and most of a range's keys.
constexpr int kBinadesOfEnd = 12;

// The key of zero, and how many keys are told apart at either end of a range that includes it: all keys of
// integers.
template <class Word>
struct ZeroKey {
  Wide<Word> key;
  Wide<Word> keys_of_end;

  // That of a row, which knows its key of zero and its parameters.
  template <class Row>
  static __device__ __forceinline__ ZeroKey of(const Row& row) {
    const auto& order = row.params;
    const Wide<Word> infinity = static_cast<Wide<Word>>(order.infinity);
    const Wide<Word> binade = infinity & (0 - infinity);
    const Wide<Word> all = static_cast<Wide<Word>>(~Wide<Word>{0});
    return {row.zero(), order.negative_zero != 0 ? kBinadesOfEnd * binade : all / 2};
  }
  // Whether there are keys near zero between the ends of a range that are not told apart.
  __device__ __forceinline__ bool divides(Wide<Word> least, Wide<Word> largest) const {
    return least <= key && key <= largest && (largest - least) / 2 > keys_of_end;
  }
};

// For ranges that rarely have both signs: numbers near zero are told apart, too, by fewer instructions.
struct NoZeroKey {};

// Distances below a largest key, in units of one or more keys. If zero is between the least key and that one,
// the numbers near zero share a distance.
struct Distances {
  UInt32 end;     // the distance that the numbers near zero share
  UInt32 middle;  // the distance from the first to the last of them, which is skipped

  // `units` tells the units of a distance of keys.
  template <class Word, class Units>
  static __device__ __forceinline__ Distances between(Wide<Word> least, Wide<Word> largest,
                                                      const ZeroKey<Word>& zero, Units units) {
    if (!zero.divides(least, largest)) return {0, 0};
    const UInt32 end = units(zero.keys_of_end);
    return {end, units(largest - least) - 2 * end};
  }
  template <class Key, class Units>
  static __device__ __forceinline__ Distances between(Key, Key, NoZeroKey, Units) {
    return {0, 0};
  }
  // From a distance that skips nothing.
  __device__ __forceinline__ UInt32 of(UInt32 distance) const {
    if (middle == 0) return distance;
    return max(min(distance, end), max(distance, middle) - middle);
  }
  // The largest distance that skips nothing for which `of` returns this one.
  __device__ __forceinline__ UInt32 last_of(UInt32 distance) const {
    return distance < end ? distance : distance + middle;
  }
};

// Buckets of equal width for the keys from a least to a largest one: bucket 0 has the largest, and those
// above.
template <class Word>
struct EvenBuckets {
  using Key = Wide<Word>;
  // Bits of a word of 64 before those of a key.
  static constexpr int kBitsBefore = 64 - 8 * static_cast<int>(sizeof(Key));

  Key top;
  int shift;  // fills the highest bits with the distance of the least key from the top
  Distances distances;
  UInt32 factor;  // buckets for 2^32 units

  // The highest 32 bits of a shifted distance.
  static __device__ __forceinline__ UInt32 units(Key distance, int shift) {
    return static_cast<UInt32>(distance << shift >> (32 - kBitsBefore));
  }
  template <class Zero>
  static __device__ __forceinline__ EvenBuckets between(Key least, Key largest, const Zero& zero) {
    const Key range = largest > least ? largest - least : 1;
    const int shift = __clzll(static_cast<Int64>(UInt64{range})) - kBitsBefore;
    const auto distances =
        Distances::between(least, largest, zero, [&](Key keys) { return units(keys, shift); });
    // Rounded, so that the least keys may come beyond the last bucket.
    const float width = static_cast<float>(units(range, shift) - distances.middle);
    return {largest, shift, distances, static_cast<UInt32>(kNumBins * 4294967296.0f / width)};
  }
  __device__ __forceinline__ UInt32 of(Word key) const {
    const Key distance = key < top ? top - key : 0;
    const UInt32 bucket = __umulhi(distances.of(units(distance, shift)), factor);
    return min(bucket, UInt32{kNumBins - 1});
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

// Elements that are compared with one of their bucket before the next branch, and the room of a list beyond
// its elements: comparisons may go on behind a bucket, because elements there have less than its keys.
constexpr UInt32 kComparedAtOnce = 4;
constexpr UInt32 kSpareRoom = 8;
static_assert(kComparedAtOnce - 1 <= kSpareRoom, "the last bucket ends with the list");

// Ends a list of `count` elements that are ranked by buckets, by pairs that come before no element.
template <class Word>
__device__ __forceinline__ void end_list(const PairList<Word>& by_bucket, UInt32 count) {
  if (threadIdx.x < kSpareRoom) by_bucket.put(count + threadIdx.x, LongRanked<Word>::none());
}

// The rank of a pair in a list by buckets: its bucket's places begin at `begin`, and end at `end`.
template <class Word>
__device__ __forceinline__ UInt32 rank_in_bucket(const PairList<Word>& by_bucket,
                                                 const LongRanked<Word>& pair, UInt32 begin,
                                                 UInt32 end) {
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
  return rank;
}

// Calls write(rank, key, index) for the first k of `count` elements, which the threads have loaded by
// `load_pairs`. `list` is storage that was made by `List::in` in shared storage, with room for `count` and
// kSpareRoom elements and for the power of two from `count` on. Calls load_next() when `pairs` are free and
// the threads still compare elements.
template <class Word, int kThreads, class Zero, class Write, class LoadNext>
__device__ __forceinline__ void rank_by_buckets(LongRanked<Word> (&pairs)[kRankedPerThread],
                                                const List<Word>& list, UInt32 count, UInt32 k,
                                                const Zero& zero, SelectStorage<kThreads>& shared,
                                                KeyBounds& bounds, Write write,
                                                LoadNext load_next) {
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
      static_cast<Wide<Word>>(~bounds.complement_of<Word>()), bounds.largest_of<Word>(), zero);
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
  end_list(by_bucket, count);
  load_next();
  __syncthreads();  // buckets are complete before they are compared
  for (UInt32 place = threadIdx.x; place < count; place += kThreads) {
    const LongRanked<Word> pair = by_bucket.at(place);
    const UInt32 bucket = buckets.of(pair.key());
    const UInt32 begin = bins[bucket];
    const UInt32 end = bucket + 1 < kNumBins ? bins[bucket + 1] : count;
    if (begin >= k) continue;
    const UInt32 rank = rank_in_bucket(by_bucket, pair, begin, end);
    if (rank < k) write(rank, pair.key(), pair.index());
  }
}
