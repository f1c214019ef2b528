// The choice of a row's candidates in registers. A cut of the row is a key that at least k of its elements
// reach, and few more; the candidates are the elements that reach it.
#pragma once

#include "common/intrinsics.cuh"
#include "common/lane_sum.cuh"
#include "common/types.cuh"
#include "top_k/fine_key.cuh"

// 1 if key >= limit, else 0; limit is not 0. The carry of a sum takes less than a comparison.
__device__ __forceinline__ UInt32 reaches(UInt32 key, UInt32 limit) {
  return static_cast<UInt32>((static_cast<UInt64>(key) + (0 - limit)) >> 32);
}
__device__ __forceinline__ UInt32 reaches(UInt64 key, UInt64 limit) { return key >= limit; }

// The keys of the warp's lanes in falling order, one for each lane: a bitonic network.
template <class Key>
__device__ __forceinline__ Key sorted_over_lanes(Key key) {
  // Unrolled, keys of 64 bits would leave too few registers for those of a row.
  constexpr int kUnrolled = sizeof(Key) > 4 ? 1 : 5;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int run = 2; run <= kWarpSize; run *= 2) {
#pragma unroll kUnrolled
    for (int distance = run / 2; distance > 0; distance /= 2) {
      // The first step of a run compares each half with the other one reversed.
      const Key other = __shfl_xor_sync(kFullMask, key, 2 * distance == run ? run - 1 : distance);
      const bool is_first = (lane & distance) == 0;
      if ((other > key) == is_first) key = other;
    }
  }
  return key;
}

// The largest key that k of `length` elements reach, or a lesser key that at most `most` reach; `num_reached`
// becomes the number of elements that reach it. Each lane gives a key of a sample of the row. count_from(key)
// is the number of elements that reach a key, the same for all lanes. pick(low, high, key) returns whether
// the lane has an element with a key from `low` to `high`, and sets `key` to that key; at least one lane has
// one.
//
// A trial takes the sample's key at which the wanted number of elements is expected, between the bounds known
// so far. Between neighbours of the sample, keys are interpolated instead. If these trials do not find the
// cut, a new sample is picked from between the bounds, which moves a bound past the key of an element,
// however the keys are distributed: few distinct keys take few trials.
template <class Word, class CountFrom, class Pick>
__device__ __forceinline__ Wide<Word> find_cut(Wide<Word> sample, UInt32 length, UInt32 k,
                                               UInt32 most, UInt32& num_reached,
                                               CountFrom count_from, Pick pick) {
  using Key = Wide<Word>;
  constexpr Key kStep = Key{1} << kSpareBits<Word>;  // between one key and the next
  constexpr int kSampleTrials = 4;
  constexpr int kTrials = kSampleTrials + 2;
  const UInt32 wanted = (k + most) / 2;
  Key low = 0;              // `num_reached` elements reach it: at least k
  Key high = ~(kStep - 1);  // `num_above` elements reach a greater key: fewer than k
  UInt32 num_above = 0;
  num_reached = length;
  sample = sorted_over_lanes(sample);
  int above = -1;         // the last place in the sample with a key above `high`
  int below = kWarpSize;  // the first place with a key of `low` or less
#pragma unroll 1
  for (int trial = 0; low != high && num_reached > most;) {
    const float part = static_cast<float>(wanted - num_above) *
                       fast_reciprocal(static_cast<float>(num_reached - num_above));
    const bool has_between = below - above > 1 && trial < kSampleTrials;
    int place = above + static_cast<int>(part * static_cast<float>(below - above) + 0.5f);
    place = min(max(place, above + 1), below - 1);
    Key tried = __shfl_sync(kFullMask, sample, place);
    if (!has_between) {
      trial = max(trial, kSampleTrials);
      if (trial == kTrials) {
        Key picked = 0;
        const bool is_picked = pick(low, high, picked);
        sample = sorted_over_lanes(is_picked ? picked : 0);
        above = -1;
        below = __popc(__ballot_sync(kFullMask, is_picked));
        trial = 0;
        continue;
      }
      tried = high - (static_cast<Key>(static_cast<float>(high - low) * part) & ~(kStep - 1));
    }
    tried = min(max(tried, low + kStep), high);
    const UInt32 count = count_from(tried);
    ++trial;
    if (count >= k) {
      low = tried;
      num_reached = count;
      if (has_between) below = place;
    } else {
      high = tried - kStep;
      num_above = count;
      if (has_between) above = place;
    }
  }
  return low;
}

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
