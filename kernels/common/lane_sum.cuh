// Sums over the lanes of a warp, or of each group of kLanes neighbouring lanes.
#pragma once

#include "common/intrinsics.cuh"
#include "common/types.cuh"

// The sum of `value` over the lanes of the group up to this one. Every lane of the warp calls it.
template <int kLanes = kWarpSize, class Count>
__device__ __forceinline__ Count sum_up_to_lane(Count value) {
  const UInt32 lane = threadIdx.x % kLanes;
  Count sum = value;
#pragma unroll
  for (UInt32 distance = 1; distance < kLanes; distance *= 2) {
    const Count before = __shfl_up_sync(kFullMask, sum, distance, kLanes);
    if (lane >= distance) sum += before;
  }
  return sum;
}
