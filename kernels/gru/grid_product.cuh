// Shared by the kernels whose blocks multiply states of a round with rows that stay on the chip: the sums.
#pragma once

#include "common/for_constants.cuh"
#include "gru/grid_part.cuh"
#include "gru/product.cuh"

// Adds up the lanes' parts of a warp's sums for kCount states, from sum kFirst on, and stores the results at
// the block's places for sums.
template <int kFirst, int kCount, class Block, int kNumSums>
__device__ __forceinline__ void store_sums(
    const Block& block, float (&sums)[kCount * Block::Weights::kThreadUnits][kNumSums], int row,
    float* target) {
  constexpr int kUnits = Block::Weights::kThreadUnits;
  constexpr int kPairs = kCount * kUnits;
  reduce_rows(sums);
  if (owns_pair<kPairs>()) {
    const int pair = owned_pair<kPairs>();
    const int warp = threadIdx.x / kWarpSize;
    const int unit = Block::Weights::first_unit() + pair % kUnits;
#pragma unroll
    for (int s = 0; s < kNumSums; ++s) {
      target[block.sum_place(warp, kFirst + s, row + pair / kUnits, unit)] = sums[0][s];
    }
  }
}

// The products of an item, from the sums of all warps, for the gates from kFirst on.
template <int kFirst, int kNumProducts, class Block>
__device__ __forceinline__ void add_up(const Block& block, float (&products)[kNumProducts],
                                       const float* sums_of_warps, int row, int unit) {
#pragma unroll
  for (int gate = 0; gate < kNumProducts; ++gate) {
    float sums[kGridWarps];
#pragma unroll
    for (int warp = 0; warp < kGridWarps; ++warp) {
      sums[warp] = sums_of_warps[block.sum_place(warp, kFirst + gate, row, unit)];
    }
    products[gate] =
        ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  }
}

// Calls `multiply(row, number)` for all of `count` states, kBatch of them at once; `number` is a constant.
template <int kBatch, class Multiply>
__device__ __forceinline__ void in_batches(int count, Multiply multiply) {
  int done = 0;
  for (; done + kBatch <= count; done += kBatch) multiply(done, Constant<kBatch>());
  if (kBatch > 2 && done + 2 <= count) {
    multiply(done, Constant<2>());
    done += 2;
  }
  if (done < count) multiply(done, Constant<1>());
}
