// Sorts the elements of a row that a warp has in shared storage, as far as the first k need it: the k-th key
// is found bit by bit, by counting; a bitonic network sorts what reaches it.
#pragma once

#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/fine_key.cuh"
#include "top_k/ranked.cuh"

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;

template <class Word, int kItems, int kSorted>
struct Shape {
  static constexpr int kRows = 1;
  static constexpr int kPerVector = 16 / static_cast<int>(sizeof(Word));
  static constexpr UInt32 kLoadsAhead = 4;
  static constexpr int kVectors = kItems > kPerVector ? kItems / kPerVector : 1;
  // A row, and the indices of the chosen elements, which are sorted later.
  struct Row {
    SharedArray<uint4, kVectors * kWarpSize> vectors;
    SharedArray<UInt16, kSorted * kWarpSize> order;
  };
  struct Warp {
    SharedArray<Row, kRows> rows;
  };
  struct Storage {
    SharedArray<Warp, kWarps> warps;
  };
};

template <class Pair>
__device__ __forceinline__ void put_pairs_in_order(Pair& earlier, Pair& later) {
  if (later.is_before(earlier)) {
    const Pair kept = earlier.moved();
    earlier = later.moved();
    later = kept;
  }
}

// Batcher's odd-even merge sort of a lane's items. Steps are template arguments, so that loops unroll.
template <int kRun, int kDistance, class Pair, int kItems>
__device__ __forceinline__ void sort_items(Pair (&items)[kItems]) {
  if constexpr (kRun < kItems) {
#pragma unroll
    for (int i = 0; i < kItems - kDistance; ++i) {
      const int place = i - kDistance % kRun;
      const bool is_left = place >= 0 && place / kDistance % 2 == 0;
      const bool is_one_run = i / (2 * kRun) == (i + kDistance) / (2 * kRun);
      if (is_left && is_one_run) put_pairs_in_order(items[i], items[i + kDistance]);
    }
    if constexpr (kDistance > 1) {
      sort_items<kRun, kDistance / 2>(items);
    } else {
      sort_items<2 * kRun, 2 * kRun>(items);
    }
  }
}
template <int kDistance, class Pair, int kItems>
__device__ __forceinline__ void merge_items(Pair (&items)[kItems]) {
  if constexpr (kDistance > 0) {
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      if ((i & kDistance) == 0) put_pairs_in_order(items[i], items[i | kDistance]);
    }
    merge_items<kDistance / 2>(items);
  }
}

// Sorts the warp's items; each half of `2 * distance` lanes is bitonic before; item j of a lane is at
// position lane * kItems + j.
template <class Pair, int kItems>
__device__ __forceinline__ void merge_warp(Pair (&items)[kItems], int lane, int distance) {
#pragma unroll 1
  for (; distance > 0; distance /= 2) {
    const bool is_left = (lane & distance) == 0;
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      const Pair other = items[j].from_lane_xor(distance);
      if (other.is_before(items[j]) == is_left) items[j] = other;
    }
  }
  merge_items<kItems / 2>(items);
}

// Sorts the warp's items, the first-ranked to position 0. Only the first `num_lanes`, a power of two, have
// items.
template <class Pair, int kItems>
__device__ __forceinline__ void sort_warp(Pair (&items)[kItems], int lane, int num_lanes) {
  sort_items<1, 1>(items);
#pragma unroll 1
  for (int run = 2; run <= num_lanes; run *= 2) {
    // Both halves are sorted; each is compared with the other one reversed, and keeps its own part.
    const bool is_lower = (lane & run / 2) == 0;
#pragma unroll
    for (int j = 0; j < (kItems + 1) / 2; ++j) {
      const int mirrored = kItems - 1 - j;
      const Pair first = items[mirrored].from_lane_xor(run - 1);
      const Pair second = items[j].from_lane_xor(run - 1);
      if (first.is_before(items[j]) == is_lower) items[j] = first;
      if (second.is_before(items[mirrored]) == is_lower) items[mirrored] = second;
    }
    merge_warp(items, lane, run / 4);
  }
}

// The highest bit in which keys of the warp differ; -1 if all are equal.
__device__ __forceinline__ int highest_bit(UInt32 differing) {
  return 31 - __clz(static_cast<int>(warp_max(differing)));
}
__device__ __forceinline__ int highest_bit(UInt64 differing) {
  const int high = highest_bit(static_cast<UInt32>(differing >> 32));
  return high >= 0 ? 32 + high : highest_bit(static_cast<UInt32>(differing));
}

// 1 where key >= limit, which is not 0: the carry of a sum, which takes less than a comparison.
__device__ __forceinline__ UInt32 reaches(UInt32 key, UInt32 limit) {
  return static_cast<UInt32>((static_cast<UInt64>(key) + (0 - limit)) >> 32);
}
__device__ __forceinline__ UInt32 reaches(UInt64 key, UInt64 limit) { return key >= limit; }

// Adds to a lane's chosen items, as bits, those of a warp that equal the last result, by item and
// then by lane, until k have been chosen. Before them are `num_before`.
template <int kItems>
__device__ __forceinline__ void add_equals(UInt32& chosen, UInt32 equal, UInt32 num_before,
                                           UInt32 k) {
  const UInt32 lanes_below = (1u << threadIdx.x % kWarpSize) - 1;
#pragma unroll 1
  for (int j = 0; j < kItems; ++j) {
    const bool is_equal = (equal >> j & 1) != 0;
    const UInt32 equals = __ballot_sync(kFullMask, is_equal);
    if (is_equal && num_before + __popc(equals & lanes_below) < k) chosen |= 1u << j;
    num_before += __popc(equals);
  }
}

// The lane's items that can be among the first k of the warp, as bits. The warp chooses `num_chosen` items,
// at least k and at most kMost.
template <class Word, UInt32 kMost, int kItems>
__device__ __forceinline__ UInt32 choose(const Wide<Word> (&keys)[kItems], UInt32 k,
                                         const FineParams& params, UInt32& num_chosen) {
  using Key = Wide<Word>;
  const Key common = __shfl_sync(kFullMask, keys[0], 0);
  Key differing = 0;
#pragma unroll
  for (int j = 0; j < kItems; ++j) differing |= keys[j] ^ common;
  int bit = highest_bit(differing);
  // Finds, bit by bit, the largest number that k keys reach, until at most kMost keys reach it.
  Key kth = bit < 0 ? common : common >> bit >> 1 << bit << 1;
  num_chosen = kFullMask;
#pragma unroll 1
  for (; bit >= kSpareBits<Word> && num_chosen > kMost; --bit) {
    const Key tried = kth | Key{1} << bit;
    UInt32 count = 0;
#pragma unroll
    for (int j = 0; j < kItems; ++j) count += reaches(keys[j], tried);
    count = warp_sum(count);
    if (count >= k) {
      kth = tried;
      num_chosen = count;
    }
  }
  UInt32 chosen = 0;
  const Key least = coarse_key<Word>(kth, params);
  if (num_chosen <= kMost && least == kth) {
#pragma unroll
    for (int j = 0; j < kItems; ++j) chosen |= static_cast<UInt32>(keys[j] >= kth) << j;
    return chosen;
  }
  UInt32 equal = 0;
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const Key key = coarse_key<Word>(keys[j], params);
    chosen |= static_cast<UInt32>(key > least) << j;
    equal |= static_cast<UInt32>(key == least) << j;
  }
  // Among items that tie with the last, those of lower index are chosen.
  const UInt32 num_above = warp_sum(__popc(chosen));
  num_chosen = max(num_above, k);
  add_equals<kItems>(chosen, equal, num_above, k);
  return chosen;
}

// The number of set bits in the lanes below this one.
__device__ __forceinline__ UInt32 bits_below(UInt32 bits) {
  const UInt32 own = __popc(bits);
  UInt32 sum = own;
#pragma unroll
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const UInt32 other = __shfl_up_sync(kFullMask, sum, distance);
    if (threadIdx.x % kWarpSize >= distance) sum += other;
  }
  return sum - own;
}

// A row in shared storage, as the warp that sorts it sees it.
template <class Word, int kItems, int kSorted>
struct SortedRow {
  using Key = Wide<Word>;
  using Pair = Ranked<Word>;

  typename Shape<Word, kItems, kSorted>::Row& row;
  const FineParams& params;

  __device__ __forceinline__ Word word(UInt32 index) const {
    return reinterpret_cast<const Word*>(&row.vectors[0])[index];
  }
  __device__ __forceinline__ Key fine_key_at(UInt32 index) const {
    constexpr Key kElementBits = ~((Key{1} << kSpareBits<Word>)-1);
    const Key bits = static_cast<Key>(word(index)) << kSpareBits<Word>;
    return fine_key<Word>(bits, params) & kElementBits;
  }

  // Gives each lane its share of the first k elements, in order: item j of a lane is at position
  // lane * kSorted + j. pair_of(fine key, index) makes items. Every lane of the warp calls.
  template <class PairOf>
  __device__ __forceinline__ void sort(UInt32 k, Pair (&items)[kSorted], PairOf pair_of) const {
    const UInt32 lane = threadIdx.x % kWarpSize;
    Key keys[kItems];
#pragma unroll
    for (int j = 0; j < kItems; ++j) keys[j] = fine_key_at(j * kWarpSize + lane);
    UInt32 num_lanes = kWarpSize;
    if constexpr (kSorted == kItems) {
#pragma unroll
      for (int j = 0; j < kItems; ++j) items[j] = pair_of(keys[j], j * kWarpSize + lane);
    } else {
      UInt32 num_chosen;
      const UInt32 chosen = choose<Word, kSorted * kWarpSize>(keys, k, params, num_chosen);
      UInt16* next = &row.order[0] + bits_below(chosen);
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        if ((chosen >> j & 1) != 0) *next++ = static_cast<UInt16>(j * kWarpSize + lane);
      }
      __syncwarp();  // the chosen items are listed before other lanes read them
#pragma unroll
      for (int j = 0; j < kSorted; ++j) {
        const UInt32 place = lane * kSorted + j;
        items[j] = Pair::none();
        if (place < num_chosen) {
          const UInt32 index = row.order[place];
          items[j] = pair_of(fine_key_at(index), index);
        }
      }
      num_lanes = 1;
      while (num_lanes * kSorted < num_chosen) num_lanes *= 2;
    }
    sort_warp(items, static_cast<int>(lane), static_cast<int>(num_lanes));
  }
};
