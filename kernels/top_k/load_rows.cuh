// Loads the rows of a warp into shared storage, as vectors of 16 bytes or, if rows are not aligned, by
// element. `Of` describes them: kRows rows, each a Row whose `vectors` hold kVectors loads of kPerVector
// elements by each of its lanes, kAhead of them in flight at a time.
#pragma once

#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/fine_key.cuh"
#include "top_k/rows.cuh"

// Fills rows with padding. What stays past the end of a row has the smallest key, and larger indices.
template <class Of>
__device__ __forceinline__ void fill_rows(const FineParams& params,
                                          SharedArray<typename Of::Row, Of::kRows>& rows) {
  constexpr UInt32 kLanes = kWarpSize / Of::kRows;
  const UInt32 low = static_cast<UInt32>(params.padding);
  const UInt32 high = static_cast<UInt32>(params.padding >> 32);
  auto& vectors = rows[threadIdx.x % kWarpSize / kLanes].vectors;
#pragma unroll
  for (UInt32 v = 0; v < Of::kVectors; ++v) {
    vectors[v * kLanes + threadIdx.x % kLanes] = make_uint4(low, high, low, high);
  }
}

// Loads the warp's rows, from `first_row` on; `start` and `length` are those of the lane's own row.
template <class Of, bool kIsRagged, class Word>
__device__ __forceinline__ void load_rows(const Word* __restrict__ input, const FineParams& params,
                                          Int64 first_row, const RowStart& start, UInt32 length,
                                          SharedArray<typename Of::Row, Of::kRows>& rows) {
  constexpr UInt32 kLanes = kWarpSize / Of::kRows;
  const UInt32 warp_lane = threadIdx.x % kWarpSize;
  if constexpr (kIsRagged) {
    fill_rows<Of>(params, rows);  // clears the rest of a longer row
    __syncwarp();                 // the padding is written before the row
  }
  if (params.vector_rows != 0 && reinterpret_cast<UInt64>(input) % 16 == 0) {
    constexpr UInt32 kVectors = Of::kVectors;
    constexpr UInt32 kAhead = kVectors < Of::kAhead ? kVectors : Of::kAhead;
    const UInt32 lane = warp_lane % kLanes;
    const bool is_row = first_row + warp_lane / kLanes < params.num_rows;
    const UInt32 end = is_row ? length / Of::kPerVector : 0;
    const Word* from = input + start.input + lane * Of::kPerVector;
    uint4* to = &rows[warp_lane / kLanes].vectors[lane];
#pragma unroll 1
    for (UInt32 begin = 0; begin < kLanes * kVectors; begin += kAhead * kLanes) {
      uint4 ahead[kAhead];
#pragma unroll
      for (UInt32 a = 0; a < kAhead; ++a) {
        const UInt32 place = begin + a * kLanes;
        if (place + lane < end) ahead[a] = load_16_bytes(from + place * Of::kPerVector);
      }
#pragma unroll
      for (UInt32 a = 0; a < kAhead; ++a) {
        const UInt32 place = begin + a * kLanes;
        if (place + lane < end) to[place] = ahead[a];
      }
    }
    if constexpr (kIsRagged) {
      Word* words = reinterpret_cast<Word*>(&rows[warp_lane / kLanes].vectors[0]);
      for (UInt32 index = end * Of::kPerVector + lane; is_row && index < length; index += kLanes) {
        words[index] = input[start.input + index];
      }
    }
  } else {
    // Neighbouring lanes load neighbouring elements, of one row or of neighbouring rows.
    const bool by_rows = params.loads_by_rows != 0;
    const UInt32 slot = by_rows ? warp_lane % Of::kRows : warp_lane / kLanes;
    const UInt32 first = by_rows ? warp_lane / Of::kRows : warp_lane % kLanes;
    const UInt32 own_length = kIsRagged ? __shfl_sync(kFullMask, length, slot * kLanes) : length;
    const UInt32 end = first_row + slot < params.num_rows ? own_length : 0;
    const Word* from = input + __shfl_sync(kFullMask, start.input, slot * kLanes);
    Word* to = reinterpret_cast<Word*>(&rows[slot].vectors[0]);
    constexpr UInt32 kAhead = Of::kAhead;
#pragma unroll 1
    for (UInt32 begin = first; begin < end; begin += kAhead * kLanes) {
      Word ahead[kAhead];
#pragma unroll
      for (UInt32 a = 0; a < kAhead; ++a) {
        const UInt32 index = begin + a * kLanes;
        ahead[a] = 0;
        if (index < end) ahead[a] = from[index * params.input_axis_stride];
      }
#pragma unroll
      for (UInt32 a = 0; a < kAhead; ++a) {
        const UInt32 index = begin + a * kLanes;
        if (index < end) to[index] = ahead[a];
      }
    }
  }
  __syncwarp();  // the rows are complete before other lanes read them
}
