// Weights in panels, for threads that compute with a vector register at once: the rows of a few neighbouring
// hidden units side by side, column after column, so that one state meets several rows in one instruction.
//
// A tile is kTileUnits hidden units. Sums start from 0 at every multiple of kSumColumns columns and go
// through the columns in order, so that their bits depend neither on the tile nor on the batch. What lies in
// the places of hidden units past the last is unspecified, finite or not, and never read for a unit that is.
#pragma once

#include "common/vectors.cuh"
#include "gru/layer.cuh"

constexpr int kTileVectors = 2;
constexpr int kTileUnits = kTileVectors * kVectorFloats;
// Sequences that are multiplied together: the sums of three gates leave room for the weights.
constexpr int kPanelBatch = kVectorRegisters >= 32 ? 4 : 2;
constexpr int kSumColumns = 256;

template <int kNumber>
struct Constant {
  static constexpr int value = kNumber;
};

// Calls `visit` with 0 to kEnd - 1 as constants: compilers keep an array's elements in registers for constant
// indices alone.
template <int kEnd, int kBegin = 0, class Visit>
__device__ __forceinline__ void for_constants(const Visit& visit) {
  if constexpr (kBegin < kEnd) {
    visit(Constant<kBegin>());
    for_constants<kEnd, kBegin + 1>(visit);
  }
}

__device__ __forceinline__ int num_tiles(int hidden) {
  return (hidden + kTileUnits - 1) / kTileUnits;
}
__device__ __forceinline__ int padded_units(int hidden) { return num_tiles(hidden) * kTileUnits; }

// Sums of kGates gates for kBatch sequences.
template <int kGates, int kBatch>
struct PanelSums {
  Floats values[kBatch][kGates][kTileVectors];
};

// Adds the products of kBatch rows, `stride` floats apart, with a panel's columns [begin, end); the panel's
// first column is `begin`.
template <int kGates, int kBatch>
__device__ __forceinline__ void add_products(PanelSums<kGates, kBatch>& sums, const float* panel,
                                             const float* rows, Int64 stride, int begin, int end) {
  constexpr int kVectors = kGates * kTileVectors;
  Floats parts[kBatch][kVectors];
  for_constants<kBatch>([&](auto b) {
    for_constants<kVectors>([&](auto v) { parts[b.value][v.value] = broadcast(0.0f); });
  });
  for (int column = begin; column < end; ++column, panel += kVectors * kVectorFloats) {
    Floats weights[kVectors];
    for_constants<kVectors>([&](auto v) {
      weights[v.value] = in_register(load_floats(panel + v.value * kVectorFloats));
    });
    for_constants<kBatch>([&](auto b) {
      const Floats state = broadcast(rows[b.value * stride + column]);
      for_constants<kVectors>([&](auto v) {
        parts[b.value][v.value] = fused(weights[v.value], state, parts[b.value][v.value]);
      });
    });
  }
  for_constants<kBatch>([&](auto b) {
    for_constants<kVectors>([&](auto v) {
      Floats& sum = sums.values[b.value][v.value / kTileVectors][v.value % kTileVectors];
      sum = sum + parts[b.value][v.value];
    });
  });
}

template <int kGates, int kBatch>
__device__ __forceinline__ PanelSums<kGates, kBatch> multiply_panel(const float* panel,
                                                                    const float* rows, Int64 stride,
                                                                    int num_columns) {
  PanelSums<kGates, kBatch> sums;
  for_constants<kBatch>([&](auto b) {
    for_constants<kGates>([&](auto gate) {
      for_constants<kTileVectors>(
          [&](auto v) { sums.values[b.value][gate.value][v.value] = broadcast(0.0f); });
    });
  });
  for (int begin = 0; begin < num_columns; begin += kSumColumns) {
    const int end = min(begin + kSumColumns, num_columns);
    add_products<kGates, kBatch>(sums, panel + static_cast<Int64>(begin) * kGates * kTileUnits,
                                 rows, stride, begin, end);
  }
  return sums;
}

// Calls `visit` with kPanelBatch or fewer rows of [0, num_rows) at a time: the number as a constant, the first.
template <int kBatch = kPanelBatch, class Visit>
__device__ __forceinline__ void for_batches(Int64 begin, Int64 num_rows, const Visit& visit) {
  for (; begin + kBatch <= num_rows; begin += kBatch) visit(Constant<kBatch>(), begin);
  if constexpr (kBatch > 1) for_batches<kBatch / 2>(begin, num_rows, visit);
}
