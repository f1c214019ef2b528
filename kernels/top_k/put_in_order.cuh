// The elements of a row above a threshold and the first equal to it, in order of index.
//
// A block reads the row by tiles. The next tile's loads are in flight while this one's elements get their
// places: sums over the block, over a warp's loads, and over its lanes.
#pragma once

#include "common/block_scan.cuh"
#include "common/intrinsics.cuh"
#include "common/lane_sum.cuh"
#include "common/ordering_key.cuh"
#include "common/types.cuh"
#include "top_k/gather.cuh"
#include "top_k/row_reader.cuh"
#include "top_k/rows.cuh"
#include "top_k/threshold.cuh"

// How many elements above the threshold and how many equal to it lie before a place in the row.
struct Counts {
  UInt32 above;
  UInt32 equal;
};

// Compares elements with a threshold.
template <class Word>
struct BesideThreshold {
  const Threshold<Word>& threshold;
  const TopKParams& params;

  __device__ __forceinline__ Wide<Word> high_part(Word element) const {
    return threshold.high_part(ordering_key(element, params));
  }
  __device__ __forceinline__ bool is_above(Word element) const {
    return high_part(element) > threshold.prefix;
  }
  __device__ __forceinline__ bool is_equal(Word element) const {
    return high_part(element) == threshold.prefix;
  }
};

// Loads of a thread, kDistance elements apart, from `begin` on. Elements past the part's end are zero.
template <UInt32 kDistance, class Word, UInt32 kLoads>
__device__ __forceinline__ void load_apart(const RowPart<Word>& part, UInt64 begin,
                                           uint4 (&bytes)[kLoads]) {
  constexpr UInt32 kPerLoad = RowPart<Word>::kPerLoad;
  const bool is_whole = begin + (kLoads - 1) * kDistance + kPerLoad <= part.length;
  const Word* const first = part.elements + begin;
  if (part.stride == 1 && is_whole && reinterpret_cast<UInt64>(first) % 16 == 0) {
#pragma unroll
    for (UInt32 i = 0; i < kLoads; ++i) bytes[i] = load_16_bytes(first + i * kDistance);
    return;
  }
#pragma unroll
  for (UInt32 i = 0; i < kLoads; ++i) {
    uint4 one[1] = {};
    if (begin + i * kDistance < part.length) {
      part.template load<1>(begin + i * kDistance, one);
    }
    bytes[i] = one[0];
  }
}

// Word i of several loads, for any i.
template <class Word, UInt32 kLoads>
__device__ __forceinline__ Word any_word_of_loads(const uint4 (&bytes)[kLoads], UInt32 i) {
  constexpr UInt32 kPerLoad = 16 / sizeof(Word);
  uint4 chosen = bytes[0];
#pragma unroll
  for (UInt32 load = 1; load < kLoads; ++load) {
    // By masks: a compiler would turn choices into an array in memory.
    const UInt32 mask = i / kPerLoad == load ? kFullMask : 0;
    chosen.x = (bytes[load].x & mask) | (chosen.x & ~mask);
    chosen.y = (bytes[load].y & mask) | (chosen.y & ~mask);
    chosen.z = (bytes[load].z & mask) | (chosen.z & ~mask);
    chosen.w = (bytes[load].w & mask) | (chosen.w & ~mask);
  }
  return any_word_of<Word>(chosen, i % kPerLoad);
}

// A count of 16 bits for each load of a thread.
template <UInt32 kLoads>
struct PerLoad {
  static_assert(kLoads <= 4, "counts of a word");
  using Word = typename WideOf<kLoads <= 2 ? 4 : 8>::Type;
  static constexpr Word kEach = static_cast<Word>(0x0001000100010001);
  Word counts;

  // Counts the set bits of each load, which has one bit for each of its kPerLoad elements.
  template <UInt32 kPerLoad>
  static __device__ __forceinline__ PerLoad of(UInt32 bits) {
    Word counts = 0;
#pragma unroll
    for (UInt32 load = 0; load < kLoads; ++load) {
      const UInt32 of_load = bits >> (load * kPerLoad) & ((1u << kPerLoad) - 1);
      counts |= static_cast<Word>(__popc(of_load)) << (16 * load);
    }
    return {counts};
  }
  // Places in a warp by load, then by lane: the number of elements before each load of this lane.
  __device__ __forceinline__ PerLoad before() const {
    const Word up_to_lane = sum_up_to_lane(counts);
    const Word in_loads = __shfl_sync(kFullMask, up_to_lane, kWarpSize - 1);
    // A product with ones sums up the counts of each load and the loads before it.
    return {in_loads * kEach - in_loads + up_to_lane - counts};
  }
  __device__ __forceinline__ UInt32 operator[](UInt32 load) const {
    return static_cast<UInt32>(counts >> (16 * load)) & 0xffff;
  }
};

// Calls put(place, key, index), by ascending index, for the elements above a threshold and the row's first
// `num_equal` equal to it, as far as their places are below `end`; `beside` tells whether an element is above
// or equal. `before` are the counts at the begin of the part. Returns the counts at its end, or where no
// place is left. A thread has kLoads loads in flight while it places the elements of as many others. A
// barrier has to follow before a list that `put` writes is read; the sorts begin with one. kInTurn is passed
// to `block_exclusive_sum`.
template <UInt32 kLoads, bool kInTurn, class Word, int kThreads, class Beside, class Put>
__device__ __forceinline__ Counts put_in_order(const RowPart<Word>& part, const TopKParams& params,
                                               const Beside& beside, UInt32 num_equal,
                                               Counts before, UInt32 end,
                                               SelectStorage<kThreads>& shared, Put put) {
  constexpr UInt32 kPerLoad = RowPart<Word>::kPerLoad;
  constexpr UInt32 kPerThread = kLoads * kPerLoad;
  constexpr UInt32 kPerTile = kThreads * kPerThread;
  // Loads of neighbouring lanes are neighbours, and a warp's loads follow each other.
  constexpr UInt32 kLoadDistance = kWarpSize * kPerLoad;
  static_assert(kPerThread <= 32 && kPerTile < 1 << 16,
                "bits of a word for a thread, half a word for a tile");
  const UInt32 own_first =
      threadIdx.x / kWarpSize * kLoads * kLoadDistance + threadIdx.x % kWarpSize * kPerLoad;
  Counts at_tile = before;
  uint4 next[kLoads];
  load_apart<kLoadDistance>(part, own_first, next);
  for (UInt64 tile = 0; tile < part.length; tile += kPerTile) {
    if (at_tile.above + min(at_tile.equal, num_equal) >= end) break;
    const UInt64 first = tile + own_first;
    uint4 bytes[kLoads];
#pragma unroll
    for (UInt32 load = 0; load < kLoads; ++load) bytes[load] = next[load];
    UInt32 above = 0;  // a bit for each element of the thread
    UInt32 equal = 0;
#pragma unroll
    for (UInt32 i = 0; i < kPerThread; ++i) {
      const Word element = word_of<Word>(bytes[i / kPerLoad], i % kPerLoad);
      if (beside.is_above(element)) above |= 1u << i;
      if (beside.is_equal(element)) equal |= 1u << i;
    }
    // After the last use of this tile's loads: a wait for these would also be a wait for the next tile's
    // loads.
    load_apart<kLoadDistance>(part, first + kPerTile, next);
    if (tile + kPerTile > part.length) {
      UInt32 inside = 0;
#pragma unroll
      for (UInt32 i = 0; i < kPerThread; ++i) {
        const UInt64 place = first + i / kPerLoad * kLoadDistance + i % kPerLoad;
        if (place < part.length) inside |= 1u << i;
      }
      above &= inside;
      equal &= inside;
    }
    const auto above_before = PerLoad<kLoads>::template of<kPerLoad>(above).before();
    const auto equal_before = PerLoad<kLoads>::template of<kPerLoad>(equal).before();
    const UInt32 num_here = __popc(above) | __popc(equal) << 16;
    UInt32 in_tile;
    const UInt32 before_thread =
        block_exclusive_sum<kThreads, kInTurn>(num_here, shared.warp_sums, in_tile);
    const UInt32 before_warp = __shfl_sync(kFullMask, before_thread, 0);
    const Counts at_warp = {at_tile.above + (before_warp & 0xffff),
                            at_tile.equal + (before_warp >> 16)};
    // Every lane takes its own next element in each round, because few elements of a tile are put.
#pragma unroll 1
    for (UInt32 left = above | equal; left != 0; left &= left - 1) {
      const UInt32 i = __ffs(static_cast<int>(left)) - 1;
      const UInt32 load = i / kPerLoad;
      const UInt32 earlier = (1u << i) - (1u << load * kPerLoad);  // elements of this load
      const UInt32 num_above = at_warp.above + above_before[load] + __popc(above & earlier);
      const UInt32 num_equal_before = at_warp.equal + equal_before[load] + __popc(equal & earlier);
      const UInt32 place = num_above + min(num_equal_before, num_equal);
      if (((above >> i & 1) != 0 || num_equal_before < num_equal) && place < end) {
        const Word key = ordering_key(any_word_of_loads<Word>(bytes, i), params);
        const UInt32 index = static_cast<UInt32>(first) + load * kLoadDistance + i % kPerLoad;
        put(place, key, part.first_index + index);
      }
    }
    at_tile.above += in_tile & 0xffff;
    at_tile.equal += in_tile >> 16;
  }
  return at_tile;
}

// As `put_in_order`, by a threshold, up to the place where the counts are `after`; missing elements take the
// places that are left.
template <UInt32 kLoads, bool kInTurn, class Word, int kThreads, class Put>
__device__ __forceinline__ void put_all_in_order(const RowPart<Word>& part,
                                                 const TopKParams& params,
                                                 const Threshold<Word>& threshold, UInt32 num_equal,
                                                 Counts before, Counts after,
                                                 SelectStorage<kThreads>& shared, Put put) {
  const UInt32 end = after.above + min(after.equal, num_equal);
  const BesideThreshold<Word> beside = {threshold, params};
  const Counts reached =
      put_in_order<kLoads, kInTurn>(part, params, beside, num_equal, before, end, shared, put);
  put_missing<Word, kThreads>(part, reached.above + min(reached.equal, num_equal), end, put);
}
