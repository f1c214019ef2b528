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

// The kFirst-th key of kLanes lanes. Each lane has kCount keys in falling order; groups of kDistance lanes
// have the same keys.
template <int kFirst, int kDistance, int kLanes, class Key, int kCount>
__device__ __forceinline__ Key kth_of_sorted(const Key (&keys)[kCount]) {
  constexpr bool kIsLast = 2 * kDistance == kLanes;
  Key others[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) others[i] = __shfl_xor_sync(kFullMask, keys[i], kDistance);
  if constexpr (2 * kCount <= kFirst && !kIsLast) {
    Key both[2 * kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      both[i] = keys[i];
      both[2 * kCount - 1 - i] = others[i];
    }
    merge_keys(both);
    return kth_of_sorted<kFirst, 2 * kDistance, kLanes>(both);
  } else if constexpr (2 * kCount == kFirst) {
    const Key own = keys[kCount - 1];
    const Key other = others[kCount - 1];
    return own < other ? own : other;
  } else {
    static_assert(kCount == kFirst, "lists grow up to k, and there are k keys");
    Key first[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) first[i] = keys[i];
    keep_first(first, others);
    if constexpr (kIsLast) {
      Key kth = first[0];
#pragma unroll
      for (int i = 1; i < kCount; ++i) kth = first[i] < kth ? first[i] : kth;
      return kth;
    } else {
      merge_keys(first);
      return kth_of_sorted<kFirst, 2 * kDistance, kLanes>(first);
    }
  }
}

// The kFirst-th key of kLanes neighbouring lanes with kCount keys each, returned to every lane. Every lane of
// the warp calls it.
template <int kFirst, int kLanes, class Key, int kCount>
__device__ __forceinline__ Key kth_of_lanes(const Key (&keys)[kCount]) {
  constexpr int kList = kCount < kFirst ? kCount : kFirst;
  Key list[kList];
#pragma unroll
  for (int i = 0; i < kList; ++i) list[i] = keys[i];
  sort_keys(list);
#pragma unroll
  for (int begin = kList; begin < kCount; begin += kList) {
    Key more[kList];
#pragma unroll
    for (int i = 0; i < kList; ++i) more[i] = keys[begin + i];
    sort_keys(more);
    keep_first(list, more);
    merge_keys(list);
  }
  return kth_of_sorted<kFirst, 1, kLanes>(list);
}
