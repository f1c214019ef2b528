// The parameters of every top-k kernel, the position of a row, and the writing of a result.
#pragma once

#include "common/lengths.cuh"
#include "common/ordering_key.cuh"
#include "common/strided_index.cuh"
#include "common/types.cuh"

// A row is one sequence along the axis; the other dimensions, coalesced, are the outer ones.
constexpr int kMaxOuterDimensions = kMaxDimensions - 1;

// How a list of keys and indices is put in order: digit by digit, or all pairs at once, in block_radix by a
// sorting network and in grid_radix by counting the pairs before each.
enum SortMode : Int32 { kByDigits, kByNetwork, kByCounting };

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
  Int32 sort_mode;       // block_radix and grid_radix: a SortMode
  Int32 blocks_per_row;  // block_filter and grid_radix
  Int32 sample_rank;     // block_filter: the rank in the sample of the expected last result
  Int32 sample_scope;    // block_filter: which elements are sampled
  Int64 list_capacity;   // elements that a list holds; a multiple of 8 except in serial.cu
  UInt64 outer_multipliers[kMaxOuterDimensions];  // divide by the sizes; common/strided_index.cuh
  Int32 outer_shifts[kMaxOuterDimensions];
  Int32 is_wide;  // rows are counted in 64 bits
  Int64 outer_sizes[kMaxOuterDimensions];
  Int64 input_strides[kMaxOuterDimensions];
  Int64 value_strides[kMaxOuterDimensions];
  Int64 index_strides[kMaxOuterDimensions];
  Int64 length_strides[kMaxOuterDimensions];  // these four: for ragged rows
  UInt64 missing;                             // the value of results beyond the row's length
  Int32 length_bytes;
  Int32 length_is_signed;
};

// The offsets, in elements, of a row's first element, its first results and its length.
struct RowStart {
  Int64 input;
  Int64 value;
  Int64 index;
  Int64 length;

  __device__ __forceinline__ void move(const TopKParams& params, int dimension, Int64 coordinate) {
    input += coordinate * params.input_strides[dimension];
    value += coordinate * params.value_strides[dimension];
    index += coordinate * params.index_strides[dimension];
    length += coordinate * params.length_strides[dimension];
  }
};

__device__ __forceinline__ RowStart row_start(const TopKParams& params, Int64 row) {
  RowStart start = {0, 0, 0, 0};
  // Not unrolled: there are rarely more than two.
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
  // The rest is the outermost coordinate; without outer dimensions, row 0 is the only one.
  start.move(params, 0, row);
  return start;
}

// The number of elements of the row that count: all of them, or if rows are ragged, the row's own length. The
// length may change between two reads, so no barrier may depend on it unless one thread has read it for all.
template <bool kIsRagged>
__device__ __forceinline__ Int64 row_length(const void* lengths, const TopKParams& params,
                                            const RowStart& start) {
  if constexpr (kIsRagged) {
    const UInt64 bits = load_length(lengths, start.length, params.length_bytes);
    return clamp_length(bits, params.length_bytes, params.length_is_signed, params.row_length);
  } else {
    return params.row_length;
  }
}

// Writes the element at `index` of the row as the result with this rank. If rows are ragged, an index of the
// row's length or more stands for a missing element.
template <bool kIsRagged, class Word>
__device__ __forceinline__ void write_element(Word element, UInt32 index, UInt32 length,
                                              Word* values, void* indices, const TopKParams& params,
                                              const RowStart& start, Int64 rank) {
  const bool is_missing = kIsRagged && index >= length;
  values[start.value + rank * params.value_axis_stride] =
      is_missing ? static_cast<Word>(params.missing) : element;
  const Int64 offset = start.index + rank * params.index_axis_stride;
  if (params.index_bytes == 8) {
    static_cast<UInt64*>(indices)[offset] = is_missing ? ~UInt64{0} : index;
  } else {
    static_cast<UInt32*>(indices)[offset] = is_missing ? ~UInt32{0} : index;
  }
}

// As `write_element`, but reads the element again: its key does not contain the sign of a zero or the payload
// of a NaN.
template <bool kIsRagged, class Word>
__device__ __forceinline__ void write_result(const Word* __restrict__ input, Word* values,
                                             void* indices, const TopKParams& params,
                                             const RowStart& start, UInt32 length, Int64 rank,
                                             UInt32 index) {
  Word element = 0;
  if (!kIsRagged || index < length) {
    element = input[start.input + static_cast<Int64>(index) * params.input_axis_stride];
  }
  write_element<kIsRagged>(element, index, length, values, indices, params, start, rank);
}
