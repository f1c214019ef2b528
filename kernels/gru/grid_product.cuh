// Shared by the kernels whose blocks multiply states of a round with rows that stay on the chip: the sums.
#pragma once

#include "gru/product.cuh"

// Hidden units of a thread. With more, each load of a state would serve more units, but their sums do not fit
// in registers next to the weights.
constexpr int kGridUnits = 2;

// The place of an item's sum, by warp, gate, sequence and unit; a round has `num_items`.
template <class Weights>
__device__ __forceinline__ int grid_sum_place(int warp, int gate, int row, int unit,
                                              int num_items) {
  return (warp * kNumGates + gate) * num_items + row * Weights::kUnitsPerWarp + unit;
}

// The warp's part of the products of kCount states from `row` on.
template <int kFirst, int kLast, int kCount, class Weights>
__device__ __forceinline__ void multiply_some_states(const Weights& weights, const float* states,
                                                     int row_stride, int row, int pass,
                                                     int num_items, float* sums_of_pass) {
  constexpr int kPairs = kCount * kGridUnits;
  float sums[kPairs][kLast - kFirst];
  weights.template multiply<kFirst, kLast, kCount>(sums, states + row * row_stride, row_stride,
                                                   pass);
  reduce_rows(sums);
  if (owns_pair<kPairs>()) {
    const int pair = owned_pair<kPairs>();
    const int warp = threadIdx.x / kWarpSize;
    const int unit = weights.first_unit() + pair % kGridUnits;
#pragma unroll
    for (int gate = kFirst; gate < kLast; ++gate) {
      sums_of_pass[grid_sum_place<Weights>(warp, gate, row + pair / kGridUnits, unit, num_items)] =
          sums[0][gate - kFirst];
    }
  }
}

// Each warp's part of the products of `count` states, `row_stride` apart, kBatch of them at once.
template <int kFirst, int kLast, int kBatch, class Weights>
__device__ __forceinline__ void multiply_states(const Weights& weights, const float* states,
                                                int row_stride, int count, int pass, int num_items,
                                                float* sums_of_pass) {
  int done = 0;
  for (; done + kBatch <= count; done += kBatch) {
    multiply_some_states<kFirst, kLast, kBatch>(weights, states, row_stride, done, pass, num_items,
                                                sums_of_pass);
  }
  if (kBatch > 2 && done + 2 <= count) {
    multiply_some_states<kFirst, kLast, 2>(weights, states, row_stride, done, pass, num_items,
                                           sums_of_pass);
    done += 2;
  }
  if (done < count) {
    multiply_some_states<kFirst, kLast, 1>(weights, states, row_stride, done, pass, num_items,
                                           sums_of_pass);
  }
}
