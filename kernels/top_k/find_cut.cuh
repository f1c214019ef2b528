// A cut of a row: a key that at least k of its elements reach, and few more.
#pragma once

#include "common/intrinsics.cuh"
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
