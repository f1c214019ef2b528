// The first k elements of a row that a warp has in shared storage, in order: a cut bounds them from below,
// and a bitonic network sorts the elements that reach it.
#pragma once

#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/choose.cuh"
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

// Loops over lanes are unrolled for few items. For many, their code would not stay in the cache.
template <int kItems>
constexpr int kUnrolled = kItems <= 4 ? 8 : 1;

// Sorts the warp's items; each group of `2 * distance` lanes is bitonic before; item j of a lane is at
// position lane * kItems + j.
template <class Pair, int kItems>
__device__ __forceinline__ void merge_warp(Pair (&items)[kItems], int lane, int distance) {
#pragma unroll kUnrolled < kItems>
  for (; distance > 0; distance /= 2) {
    const bool is_left = (lane & distance) == 0;
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      const Pair other = items[j].from_lane_xor(distance);
      items[j].keep(other, is_left);
    }
  }
  merge_items<kItems / 2>(items);
}

// Sorts the warp's items, the first-ranked to position 0. Only the first `num_lanes`, a power of two, have
// items.
template <class Pair, int kItems>
__device__ __forceinline__ void sort_warp(Pair (&items)[kItems], int lane, int num_lanes) {
  sort_items<1, 1>(items);
#pragma unroll kUnrolled < kItems>
  for (int run = 2; run <= kWarpSize; run *= 2) {
    if (run > num_lanes) break;
    // Both halves are sorted; each is compared with the other one reversed, and keeps its own part.
    const bool is_lower = (lane & run / 2) == 0;
#pragma unroll
    for (int j = 0; j < (kItems + 1) / 2; ++j) {
      const int mirrored = kItems - 1 - j;
      const Pair first = items[mirrored].from_lane_xor(run - 1);
      const Pair second = items[j].from_lane_xor(run - 1);
      items[j].keep(first, is_lower);
      items[mirrored].keep(second, is_lower);
    }
    merge_warp(items, lane, run / 4);
  }
}

// Exchanges neighbouring items of the warp that are out of order. Returns whether all are in order after a
// few rounds.
template <class Pair, int kItems>
__device__ __forceinline__ bool settle(Pair (&items)[kItems], int lane) {
  constexpr int kRounds = 3;
  Pair& first = items[0];
  Pair& last = items[kItems - 1];
#pragma unroll 1
  for (int round = 0;; ++round) {
    const Pair next = first.from_lane(lane + 1);
    bool is_wrong = lane < kWarpSize - 1 && next.is_before(last);
#pragma unroll
    for (int j = 1; j < kItems; ++j) is_wrong = is_wrong || items[j].is_before(items[j - 1]);
    if (!__any_sync(kFullMask, is_wrong)) return true;
    if (round == kRounds) return false;
    const Pair before = last.from_lane(lane - 1);
    if (lane < kWarpSize - 1 && next.is_before(last)) last = next;
    if (lane > 0 && first.is_before(before)) first = before;
#pragma unroll
    for (int j = 1; j < kItems; j += 2) put_pairs_in_order(items[j - 1], items[j]);
#pragma unroll
    for (int j = 2; j < kItems; j += 2) put_pairs_in_order(items[j - 1], items[j]);
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

// A row in shared storage, as the warp that sorts it sees it.
template <class Word, int kItems, int kSorted>
struct SortedRow {
  using Key = Wide<Word>;
  using Pair = Ranked<Word>;
  static constexpr UInt32 kIndices = kItems * kWarpSize;
  // Keys and indices have more than 32 bits.
  static constexpr bool kIsWide = sizeof(Word) >= 4;

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

  // The key just below the coarse keys of the warp's items. Padding, with key 0, is left out, so that it
  // takes no room from other keys.
  __device__ __forceinline__ Key key_below(const Key (&keys)[kItems]) const {
    Key least = ~Key{0};
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      const Key key = coarse_key<Word>(keys[j], params);
      if (key != 0) least = min(least, key);
    }
    return warp_min(least) - 1;
  }

  // Sorts elements by 32 bits: the highest bits of the distance of a key from `base`, as far as they fit, and
  // the index. Returns whether the first `num_sorted` are in order then; if not, few are out of order.
  __device__ __forceinline__ bool sort_by_words(Key base, UInt32 num_sorted, UInt32 num_lanes,
                                                UInt32 (&indices)[kSorted]) const {
    constexpr int kKeyBits = kItems == 2 ? 26 : kItems == 8 ? 24 : 22;
    static_assert(kIndices == 1u << (32 - kKeyBits), "a word has room for every index");
    const UInt32 place = threadIdx.x % kWarpSize * kSorted;
    Key above[kSorted];
    Key any = 0;
#pragma unroll
    for (int j = 0; j < kSorted; ++j) {
      above[j] = 0;
      if (place + j < num_sorted) {
        above[j] = max(coarse_key<Word>(fine_key_at(indices[j]), params), base) - base;
      }
      any |= above[j];
    }
    const int left_out = max(highest_bit(any) + 1 - kKeyBits, 0);
    Ranked32 words[kSorted];
#pragma unroll
    for (int j = 0; j < kSorted; ++j) {
      const UInt32 upper = static_cast<UInt32>(above[j] >> left_out);
      words[j].bits = upper * kIndices + (kIndices - 1 - indices[j]);
    }
    sort_warp(words, static_cast<int>(place / kSorted), static_cast<int>(num_lanes));
#pragma unroll
    for (int j = 0; j < kSorted; ++j) indices[j] = kIndices - 1 - words[j].bits % kIndices;
    if (left_out == 0) return true;
    // Neighbours whose words differ in the index alone may differ in the bits that were left out.
    const UInt32 first = __shfl_down_sync(kFullMask, words[0].bits, 1);
    bool is_near = false;
#pragma unroll
    for (int j = 0; j < kSorted; ++j) {
      const UInt32 next = j + 1 < kSorted ? words[(j + 1) % kSorted].bits : first;
      is_near = is_near || (place + j + 1 < num_sorted && (words[j].bits ^ next) < kIndices);
    }
    return !__any_sync(kFullMask, is_near);
  }

  // Gives each lane its share of the first k elements, in order: item j of a lane is at position
  // lane * kSorted + j. pair_of(fine key, index) makes items. Every lane of the warp calls.
  template <class PairOf>
  __device__ __forceinline__ void sort(UInt32 k, Pair (&items)[kSorted], PairOf pair_of) const {
    const UInt32 lane = threadIdx.x % kWarpSize;
    Key keys[kItems];
#pragma unroll
    for (int j = 0; j < kItems; ++j) keys[j] = fine_key_at(j * kWarpSize + lane);
    UInt32 num_sorted = kIndices;
    UInt32 num_lanes = kWarpSize;
    UInt32 indices[kSorted];
    Key base = 0;
    if constexpr (kSorted == kItems) {
#pragma unroll
      for (int j = 0; j < kItems; ++j) indices[j] = j * kWarpSize + lane;
      if constexpr (kIsWide) base = key_below(keys);
    } else {
      // An element of each lane's share of the row, all in different banks.
      const Key sample = fine_key_at(lane * kItems + lane % kItems);
      const auto key_of_item = [&](int j) { return fine_key_at(j * kWarpSize + lane); };
      const UInt32 chosen =
          choose<Word, kSorted * kWarpSize>(keys, sample, key_of_item, k, params, num_sorted, base);
      UInt16* next = &row.order[0] + bits_below(chosen);
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        if ((chosen >> j & 1) != 0) *next++ = static_cast<UInt16>(j * kWarpSize + lane);
      }
      __syncwarp();  // the chosen items are listed before other lanes read them
      num_lanes = 1;
      while (num_lanes * kSorted < num_sorted) num_lanes *= 2;
#pragma unroll
      for (int j = 0; j < kSorted; ++j) {
        const UInt32 place = lane * kSorted + j;
        indices[j] = kIndices - 1;
        if (place < num_sorted) indices[j] = row.order[place];
      }
    }
    bool is_sorted = false;
    if constexpr (kIsWide) is_sorted = sort_by_words(base, num_sorted, num_lanes, indices);
#pragma unroll
    for (int j = 0; j < kSorted; ++j) {
      items[j] = Pair::none();
      if (lane * kSorted + j < num_sorted) {
        items[j] = pair_of(fine_key_at(indices[j]), indices[j]);
      }
    }
    if constexpr (kIsWide) {
      if (is_sorted || settle(items, static_cast<int>(lane))) return;
    }
    sort_warp(items, static_cast<int>(lane), static_cast<int>(num_lanes));
  }
};
