// Rows in parts, one part for each of several warps of a block.
#pragma once

#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/fine_key.cuh"
#include "top_k/row_sort.cuh"
#include "top_k/rows.cuh"

// Items of a lane, and elements of a part.
constexpr int kPartItems = 32;
constexpr UInt32 kPartSlots = kPartItems * kWarpSize;

struct PartParams : FineParams {
  Int32 num_parts;
  Int32 part_length;  // the last part may be shorter
};

// The length of the row whose part `part` the warp has.
template <bool kIsRagged, int kWarpsOfBlock>
__device__ __forceinline__ UInt32 shared_row_length(const void* lengths, const PartParams& params,
                                                    const RowStart& start, UInt32 part,
                                                    SharedArray<UInt32, kWarpsOfBlock>& shared) {
  UInt32 length = static_cast<UInt32>(row_length<kIsRagged>(lengths, params, start));
  if constexpr (kIsRagged) {
    UInt32& own = shared[threadIdx.x / kWarpSize - part];
    if (part == 0 && threadIdx.x % kWarpSize == 0) own = length;
    __syncthreads();  // the length is written before the row's other threads read it
    length = own;     // it may have changed between two reads, and all must agree
  }
  return length;
}
