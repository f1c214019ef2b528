// Sorting networks for keys in registers, and the k-th key of neighbouring lanes.
#pragma once

#include "common/intrinsics.cuh"
#include "common/types.cuh"

template <class Key>
__device__ __forceinline__ void put_in_order(Key& larger, Key& smaller) {
  const Key a = larger;
  const Key b = smaller;
  larger = a > b ? a : b;
  smaller = a > b ? b : a;
}

// Sorts a bitonic sequence in falling order. Steps are template arguments, because nested loops over arrays
// in registers are not always unrolled.
template <int kDistance, class Key, int kCount>
__device__ __forceinline__ void merge_steps(Key (&keys)[kCount]) {
  if constexpr (kDistance > 0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if ((i & kDistance) == 0) put_in_order(keys[i], keys[i | kDistance]);
    }
    merge_steps<kDistance / 2>(keys);
  }
}
template <class Key, int kCount>
__device__ __forceinline__ void merge_keys(Key (&keys)[kCount]) {
  merge_steps<kCount / 2>(keys);
}

// Sorts any keys in falling order: Batcher's odd-even merge sort.
template <int kRun, int kDistance, class Key, int kCount>
__device__ __forceinline__ void sort_steps(Key (&keys)[kCount]) {
  if constexpr (kRun < kCount) {
#pragma unroll
    for (int i = 0; i < kCount - kDistance; ++i) {
      const int place = i - kDistance % kRun;
      const bool is_left = place >= 0 && place / kDistance % 2 == 0;
      const bool is_one_run = i / (2 * kRun) == (i + kDistance) / (2 * kRun);
      if (is_left && is_one_run) put_in_order(keys[i], keys[i + kDistance]);
    }
    if constexpr (kDistance > 1) {
      sort_steps<kRun, kDistance / 2>(keys);
    } else {
      sort_steps<2 * kRun, 2 * kRun>(keys);
    }
  }
}
template <class Key, int kCount>
__device__ __forceinline__ void sort_keys(Key (&keys)[kCount]) {
  sort_steps<1, 1>(keys);
}

// Keeps the first kCount of `keys` and `others`, both in falling order; the result is bitonic.
template <class Key, int kCount>
__device__ __forceinline__ void keep_first(Key (&keys)[kCount], const Key (&others)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const Key other = others[kCount - 1 - i];
    keys[i] = keys[i] > other ? keys[i] : other;
  }
}

// Compares keys with those of the lane whose number differs in the bits `kMask`, in backward order if
// `kIsMirrored`. The lane without `kBit` keeps the larger key of each two, the other lane the smaller.
template <int kMask, int kBit, bool kIsMirrored, class Key, int kCount>
__device__ __forceinline__ void exchange(Key (&keys)[kCount]) {
  const bool is_first = (threadIdx.x & kBit) == 0;
  Key others[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) others[i] = __shfl_xor_sync(kFullMask, keys[i], kMask);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const Key other = others[kIsMirrored ? kCount - 1 - i : i];
    keys[i] = (keys[i] > other) == is_first ? keys[i] : other;
  }
}

// Sorts the bitonic sequence of kSpan neighbouring lanes in falling order; each lane has kCount keys of it.
template <int kSpan, class Key, int kCount>
__device__ __forceinline__ void merge_span(Key (&keys)[kCount]) {
  if constexpr (kSpan > 1) {
    exchange<kSpan / 2, kSpan / 2, false>(keys);
    merge_span<kSpan / 2>(keys);
  } else {
    merge_keys(keys);
  }
}

// The kFirst-th key of kLanes lanes. Groups of kDistance lanes have the first keys of the group, up to kFirst
// of them, in falling order: as a list over kSpan lanes, with kCount keys in each, and once more in every
// other kSpan lanes of the group. So a list takes as few registers as a lane's own keys, and lanes do not all
// merge the same keys.
template <int kFirst, int kDistance, int kSpan, int kLanes, class Key, int kCount>
__device__ __forceinline__ Key kth_of_sorted(Key (&keys)[kCount]) {
  static_assert(kSpan * kCount <= kFirst);
  if constexpr (kSpan * kCount < kFirst) {
    // Two groups become one, whose list spans the lanes of both; its first half is in the lower lanes.
    static_assert(kSpan == kDistance && 2 * kDistance < kLanes);
    exchange<2 * kSpan - 1, kSpan, true>(keys);
    merge_span<kSpan>(keys);
    return kth_of_sorted<kFirst, 2 * kDistance, 2 * kSpan, kLanes>(keys);
  } else {
    Key others[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      others[i] = __shfl_xor_sync(kFullMask, keys[i], kDistance | (kSpan - 1));
    }
    keep_first(keys, others);
    if constexpr (2 * kDistance < kLanes) {
      merge_span<kSpan>(keys);
      return kth_of_sorted<kFirst, 2 * kDistance, kSpan, kLanes>(keys);
    } else {
      Key kth = keys[0];
#pragma unroll
      for (int i = 1; i < kCount; ++i) kth = keys[i] < kth ? keys[i] : kth;
#pragma unroll
      for (int lanes = 1; lanes < kSpan; lanes *= 2) {
        const Key other = __shfl_xor_sync(kFullMask, kth, lanes);
        kth = other < kth ? other : kth;
      }
      return kth;
    }
  }
}

// The kFirst-th key of kLanes neighbouring lanes with kCount keys each, returned to every lane. Every lane of
// the warp calls it.
template <int kFirst, int kLanes, class Key, int kCount>
__device__ __forceinline__ Key kth_of_lanes(const Key (&keys)[kCount]) {
  // Networks sort powers of two. Zeros take the places that have no key: no key is smaller, and the compiler
  // leaves out comparisons with zero.
  constexpr int kList = 2 * kCount > kFirst ? kFirst : 4 * kCount > kFirst ? kFirst / 2 : kCount;
  static_assert((kList & (kList - 1)) == 0);
  Key list[kList];
#pragma unroll
  for (int i = 0; i < kList; ++i) list[i] = i < kCount ? keys[i] : 0;
  sort_keys(list);
#pragma unroll
  for (int begin = kList; begin < kCount; begin += kList) {
    Key more[kList];
#pragma unroll
    for (int i = 0; i < kList; ++i) more[i] = begin + i < kCount ? keys[begin + i] : 0;
    sort_keys(more);
    keep_first(list, more);
    merge_keys(list);
  }
  return kth_of_sorted<kFirst, 1, 1, kLanes>(list);
}
