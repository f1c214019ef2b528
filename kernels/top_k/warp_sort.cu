// Computes: the top k of short rows, by sorting each row whole.
// Idea: a bitonic network over (key, index) pairs in registers; lanes exchange by shuffles.
// Ownership: a warp owns a row at a time; its element j * 32 + lane is item j of the lane.
// Requires: rows of at most 32 * kItems elements.
// Chosen when: rows have up to 1024 elements and k is too large to pick the results one by one.
#include "common/intrinsics.cuh"
#include "common/ordering_key.cuh"
#include "common/types.cuh"
#include "top_k/ranked.cuh"
#include "top_k/rows.cuh"

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;

// One step of the network: `lower` is the item of the lower rank position.
template <class Pair>
__device__ __forceinline__ void compare_exchange(Pair& lower, Pair& upper, bool descending) {
  if (upper.is_before(lower) == descending) {
    const Pair kept = lower;
    lower = upper;
    upper = kept;
  }
}

// Sorts the warp's items, the first-ranked to position 0; position j * 32 + lane is item j of the
// lane. `size` is a power of two that no element's position reaches; what lies behind it is left
// alone.
template <class Pair, int kItems>
__device__ __forceinline__ void sort_warp(Pair (&items)[kItems], int lane, int size) {
#pragma unroll 1
  for (int run = 2; run <= size; run *= 2) {
    // Positions whose bit `run` is clear belong to a descending run.
#pragma unroll
    for (int distance = kItems / 2; distance > 0; distance /= 2) {
      if (distance * kWarpSize < run) {
#pragma unroll
        for (int j = 0; j < kItems; ++j) {
          if ((j & distance) == 0) {
            compare_exchange(items[j], items[j | distance], (j * kWarpSize & run) == 0);
          }
        }
      }
    }
#pragma unroll 1
    for (int distance = min(run, kWarpSize) / 2; distance > 0; distance /= 2) {
      const bool is_lower = (lane & distance) == 0;
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        const Pair other = items[j].from_lane_xor(distance);
        const bool descending = ((j * kWarpSize | lane) & run) == 0;
        if (other.is_before(items[j]) == (is_lower == descending)) items[j] = other;
      }
    }
  }
}

template <class Word, int kItems>
__global__ void __launch_bounds__(kThreads, 3)
    top_k_warp_sort(const Word* __restrict__ input, Word* values, void* indices,
                    const __grid_constant__ TopKParams params) {
  using Pair = Ranked<Word>;
  const int lane = threadIdx.x % kWarpSize;
  const UInt32 length = static_cast<UInt32>(params.row_length);
  int size = kWarpSize;
  while (size < static_cast<int>(length)) size *= 2;

  for (Int64 row = static_cast<Int64>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
       row < params.num_rows; row += static_cast<Int64>(gridDim.x) * kWarps) {
    const RowStart start = row_start(params, row);
    Word elements[kItems];
    load_row(input, params, start, static_cast<UInt32>(lane), elements);
    Pair items[kItems];
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      const UInt32 index = j * kWarpSize + lane;
      items[j] = index < length ? Pair::of(ordering_key(elements[j], params), index) : Pair::none();
    }
    sort_warp(items, lane, size);
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      const int rank = j * kWarpSize + lane;
      if (rank < params.k) {
        write_result(input, values, indices, params, start, rank, items[j].index());
      }
    }
  }
}
