// Sums over the threads of a block of kThreads / 32 warps.
#pragma once

#include "common/intrinsics.cuh"
#include "common/lane_sum.cuh"
#include "common/types.cuh"

// The sum of `value` over the threads before this one; `total` becomes the sum over all. `warp_sums` may be
// reused right after the return. With kInTurn, the warps' sums are added one by one: otherwise, architectures
// without an instruction for a warp's sum would spill registers where these are few.
template <int kThreads, bool kInTurn = false>
__device__ __forceinline__ UInt32 block_exclusive_sum(
    UInt32 value, SharedArray<UInt32, kThreads / kWarpSize>& warp_sums, UInt32& total) {
  constexpr int kWarps = kThreads / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  const int warp = threadIdx.x / kWarpSize;
  const UInt32 sum = sum_up_to_lane(value);
  if (lane == kWarpSize - 1) warp_sums[warp] = sum;
  __syncthreads();  // every warp's sum is written before any is read
  UInt32 warps_before = 0;
  if constexpr (kInTurn) {
    total = 0;
#pragma unroll 1
    for (int w = 0; w < kWarps; ++w) {
      if (w == warp) warps_before = total;
      total += warp_sums[w];
    }
  } else {
    const UInt32 of_lane = lane < kWarps ? warp_sums[lane % kWarps] : 0;
    total = warp_sum(of_lane);
    warps_before = warp_sum(lane < warp ? of_lane : 0);
  }
  __syncthreads();  // every sum is read before the next call writes one
  return warps_before + sum - value;
}

// The sum of `value` over all threads. `warp_sums` may be reused right after the return.
template <int kThreads>
__device__ __forceinline__ UInt32 block_sum(UInt32 value,
                                            SharedArray<UInt32, kThreads / kWarpSize>& warp_sums) {
  constexpr int kWarps = kThreads / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  const UInt32 of_warp = warp_sum(value);
  if (lane == 0) warp_sums[threadIdx.x / kWarpSize] = of_warp;
  __syncthreads();  // every warp's sum is written before any is read
  const UInt32 of_lane = lane < kWarps ? warp_sums[lane % kWarps] : 0;
  __syncthreads();  // every sum is read before the next call writes one
  return warp_sum(of_lane);
}
