// The elements of a row in registers that can be among its first k.
#pragma once

#include "common/intrinsics.cuh"
#include "common/lane_sum.cuh"
#include "common/types.cuh"
#include "top_k/find_cut.cuh"
#include "top_k/fine_key.cuh"

// Adds items that equal the last result to `chosen`, the lane's chosen items as bits, in order of item and
// then of lane, until the warp has chosen k. `num_before` items come before them.
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

// One of the lane's items whose bits are set in `items`. Each lane begins the search at a different item.
__device__ __forceinline__ int item_of(UInt32 items) {
  const UInt32 turn = threadIdx.x % kWarpSize;
  const int highest = 31 - __clz(static_cast<int>(__funnelshift_l(items, items, turn)));
  return static_cast<int>((highest - turn) % kWarpSize);
}

// The lane's items that can be among the first k of the warp, as bits. The warp chooses `num_chosen` items,
// at least k and at most kMost; `least` is the coarse key of the last of them. `sample` is a key of the row
// that the lane gives to a sample; key_of_item(j) reads the key of one of its items again, because arrays in
// registers have no variable index.
template <class Word, UInt32 kMost, int kItems, class KeyOfItem>
__device__ __forceinline__ UInt32 choose(const Wide<Word> (&keys)[kItems], Wide<Word> sample,
                                         KeyOfItem key_of_item, UInt32 k, const FineParams& params,
                                         UInt32& num_chosen, Wide<Word>& least) {
  using Key = Wide<Word>;
  const auto count_from = [&](Key tried) {
    UInt32 count = 0;
#pragma unroll
    for (int j = 0; j < kItems; ++j) count += reaches(keys[j], tried);
    return warp_sum(count);
  };
  const auto pick = [&](Key low, Key high, Key& picked) {
    UInt32 inside = 0;
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      inside |= static_cast<UInt32>(keys[j] - low <= high - low) << j;
    }
    if (inside == 0) return false;
    picked = key_of_item(item_of(inside));
    return true;
  };
  const Key kth =
      find_cut<Word>(sample, kItems * kWarpSize, k, kMost, num_chosen, count_from, pick);
  UInt32 chosen = 0;
  least = coarse_key<Word>(kth, params);
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

__device__ __forceinline__ UInt32 warp_min(UInt32 value) { return ~warp_max(~value); }
__device__ __forceinline__ UInt64 warp_min(UInt64 value) {
  const UInt32 high = warp_min(static_cast<UInt32>(value >> 32));
  const bool is_least = static_cast<UInt32>(value >> 32) == high;
  return static_cast<UInt64>(high) << 32 |
         warp_min(is_least ? static_cast<UInt32>(value) : kFullMask);
}

// The number of set bits in the lanes below this one.
__device__ __forceinline__ UInt32 bits_below(UInt32 bits) {
  const UInt32 own = __popc(bits);
  return sum_up_to_lane(own) - own;
}
