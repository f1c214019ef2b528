// Computes: the top k of short rows for small k.
// Idea: each lane knows its first element; the warp's first is picked, and its lane looks again.
// Ownership: a warp owns a row at a time; its element j * 32 + lane is item j of the lane.
// Requires: rows of at most 32 * kItems elements, and k of at most 32.
// Chosen when: rows have up to 1024 elements and k is small.
#include "common/intrinsics.cuh"
#include "common/ordering_key.cuh"
#include "common/types.cuh"
#include "top_k/ranked.cuh"
#include "top_k/rows.cuh"

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;

// The index of the first-ranked of the lanes' elements; a lane without one has index kFullMask and
// key 0.
template <class Word>
__device__ __forceinline__ UInt32 first_of_warp(Word key, UInt32 index) {
  if constexpr (sizeof(Word) <= 2) {
    return Ranked32{warp_max(index == kFullMask ? 0 : Ranked32::of(key, index).bits)}.index();
  } else if constexpr (sizeof(Word) == 4) {
    return warp_min(key == warp_max(key) ? index : kFullMask);
  } else {
    const UInt32 high = static_cast<UInt32>(key >> 32);
    const UInt32 low = static_cast<UInt32>(key);
    const bool is_highest = high == warp_max(high);
    const UInt32 highest_low = warp_max(is_highest ? low : 0);
    return warp_min(is_highest && low == highest_low ? index : kFullMask);
  }
}

template <class Word, int kItems>
__global__ void __launch_bounds__(kThreads, 4)
    top_k_warp_select(const Word* __restrict__ input, Word* values, void* indices,
                      const __grid_constant__ TopKParams params) {
  const UInt32 lane = threadIdx.x % kWarpSize;
  const UInt32 length = static_cast<UInt32>(params.row_length);
  const UInt32 k = static_cast<UInt32>(params.k);

  for (Int64 row = static_cast<Int64>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
       row < params.num_rows; row += static_cast<Int64>(gridDim.x) * kWarps) {
    const RowStart start = row_start(params, row);
    Word keys[kItems];
    load_row(input, params, start, lane, keys);
    UInt32 left = 0;  // bit j: item j is an element that has not been picked
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      keys[j] = ordering_key(keys[j], params);
      if (j * kWarpSize + lane < length) left |= 1u << j;
    }
    UInt32 result = 0;  // the index of rank `lane`
    Word first_key = 0;
    UInt32 first_index = kFullMask;
    bool look_again = true;
    for (UInt32 rank = 0; rank < k; ++rank) {
      if (look_again) {
        first_key = 0;
        first_index = kFullMask;
        // Ascending indices and a strict comparison: of equal elements the first stays.
#pragma unroll
        for (int j = 0; j < kItems; ++j) {
          if ((left >> j & 1) != 0 && (keys[j] > first_key || first_index == kFullMask)) {
            first_key = keys[j];
            first_index = j * kWarpSize + lane;
          }
        }
      }
      const UInt32 picked = first_of_warp(first_key, first_index);
      look_again = picked % kWarpSize == lane;
      if (look_again) left &= ~(1u << picked / kWarpSize);
      if (rank == lane) result = picked;
    }
    if (lane < k) write_result(input, values, indices, params, start, lane, result);
  }
}
