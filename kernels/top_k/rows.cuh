// What every top-k kernel is told, where a row lies, and how a result is written.
#pragma once

#include "common/ordering_key.cuh"
#include "common/strided_index.cuh"
#include "common/types.cuh"

// A row is one sequence along the axis; the other dimensions, coalesced, are the outer ones.
constexpr int kMaxOuterDimensions = kMaxDimensions - 1;

struct TopKParams {
  Int64 num_rows;
  Int64 row_length;  // below 2^32
  Int64 k;
  Int64 input_axis_stride;
  Int64 value_axis_stride;
  Int64 index_axis_stride;
  UInt64 negative_zero;  // these five: common/ordering_key.cuh
  UInt64 negative_flip;
  UInt64 positive_flip;
  UInt64 infinity;
  UInt64 nan_key;
  Int32 num_outer_dimensions;
  Int32 index_bytes;     // 4 or 8
  Int32 sorts_pairs;     // block_radix and grid_radix: order pairs at once, not digit by digit
  Int32 blocks_per_row;  // block_filter and grid_radix
  Int32 sample_rank;     // block_filter: of the element of the sample that may be the last result
  Int32 sample_scope;    // block_filter: what is sampled
  Int64 list_capacity;   // elements that a list holds; a multiple of 8 but in serial
  UInt64 outer_multipliers[kMaxOuterDimensions];  // divide by their sizes; common/strided_index.cuh
  Int32 outer_shifts[kMaxOuterDimensions];
  Int32 is_wide;  // rows are counted in 64 bits
  Int64 outer_sizes[kMaxOuterDimensions];
  Int64 input_strides[kMaxOuterDimensions];
  Int64 value_strides[kMaxOuterDimensions];
  Int64 index_strides[kMaxOuterDimensions];
};

// Offsets in elements of a row's first element and first results.
struct RowStart {
  Int64 input;
  Int64 value;
  Int64 index;

  __device__ __forceinline__ void move(const TopKParams& params, int dimension, Int64 coordinate) {
    input += coordinate * params.input_strides[dimension];
    value += coordinate * params.value_strides[dimension];
    index += coordinate * params.index_strides[dimension];
  }
};

__device__ __forceinline__ RowStart row_start(const TopKParams& params, Int64 row) {
  RowStart start = {0, 0, 0};
  // Not unrolled: seldom are there more than two.
#pragma unroll 1
  for (int d = params.num_outer_dimensions - 1; d > 0; --d) {
    const UInt64 multiplier = params.outer_multipliers[d];
    const Int32 shift = params.outer_shifts[d];
    const Int64 quotient =
        params.is_wide ? static_cast<Int64>(divide(static_cast<UInt64>(row), multiplier, shift))
                       : divide(static_cast<UInt32>(row), static_cast<UInt32>(multiplier), shift);
    start.move(params, d, row - quotient * params.outer_sizes[d]);
    row = quotient;
  }
  // The outermost coordinate is what is left; without dimensions there is row 0 alone.
  start.move(params, 0, row);
  return start;
}

// The element at `index` of the row is the result of rank `rank`.
template <class Word>
__device__ __forceinline__ void write_element(Word element, UInt32 index, Word* values,
                                              void* indices, const TopKParams& params,
                                              const RowStart& start, Int64 rank) {
  values[start.value + rank * params.value_axis_stride] = element;
  const Int64 offset = start.index + rank * params.index_axis_stride;
  if (params.index_bytes == 8) {
    static_cast<UInt64*>(indices)[offset] = index;
  } else {
    static_cast<UInt32*>(indices)[offset] = index;
  }
}

// The same. The element's bits are read again rather than made from the key: a zero keeps its sign and a NaN
// its payload.
template <class Word>
__device__ __forceinline__ void write_result(const Word* __restrict__ input, Word* values,
                                             void* indices, const TopKParams& params,
                                             const RowStart& start, Int64 rank, UInt32 index) {
  const Word element = input[start.input + static_cast<Int64>(index) * params.input_axis_stride];
  write_element(element, index, values, indices, params, start, rank);
}
