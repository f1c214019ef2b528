// Computes: the weights of a GRU layer in panels, and the products of the input with its weights.
// Idea: copy the rows of a tile's hidden units column by column, then process the input.
// Ownership: a block of one thread owns tiles of a direction; only it reads their input panels.
// Requires: x, W and R packed; `projection` is by time, sequence, direction, tile, gate and unit.
// Chosen when: gru/panels.cu follows.

#include "gru/panels.cuh"

struct PrepareParams {
  Int64 num_rows;  // of the input: steps times sequences
  Int32 num_inputs;
  Int32 hidden_size;
  Int32 num_directions;
  Int32 num_blocks;  // of a direction; they take its tiles in turn
};

__device__ __forceinline__ Floats load_row(const float* from) { return load_floats(from); }

__device__ __forceinline__ Floats load_row(const Float16* from) {
  float values[kVectorFloats];
  for (int i = 0; i < kVectorFloats; ++i) values[i] = to_float(from[i]);
  return load_floats(values);
}

// Copies rows of the gates kFirst to kLast - 1; a row past the last hidden unit is that of the last.
template <int kFirst, int kLast, class Element>
__device__ __forceinline__ void copy_rows(float* panel, const Element* matrix, int direction,
                                          int tile, int hidden, int num_columns) {
  constexpr int kRows = (kLast - kFirst) * kTileUnits;
  for (int first = 0; first < kRows; first += kVectorFloats) {
    const Element* rows[kVectorFloats];
    for (int i = 0; i < kVectorFloats; ++i) {
      const int unit = min(tile * kTileUnits + (first + i) % kTileUnits, hidden - 1);
      const int gate = kFirst + first / kTileUnits;
      rows[i] =
          matrix + (static_cast<Int64>(direction * kNumGates + gate) * hidden + unit) * num_columns;
    }
    float* to = panel + first;
    int column = 0;
    for (; column + kVectorFloats <= num_columns; column += kVectorFloats) {
      Floats square[kVectorFloats];
      for_constants<kVectorFloats>(
          [&](auto i) { square[i.value] = load_row(rows[i.value] + column); });
      transpose(square);
      for_constants<kVectorFloats>([&](auto i) {
        store_floats(to + static_cast<Int64>(column + i.value) * kRows, square[i.value]);
      });
    }
    for (; column < num_columns; ++column) {
      for (int i = 0; i < kVectorFloats; ++i) {
        to[static_cast<Int64>(column) * kRows + i] = to_float(rows[i][column]);
      }
    }
  }
}

// Columns [begin, end) of kBatch rows as floats, `stride` apart: as they lie, or converted into `buffer`.
struct FloatRows {
  const float* rows;
  Int64 stride;
};

template <int kBatch>
__device__ __forceinline__ FloatRows float_rows(const float* rows, Int64 stride, int, int, float*) {
  return {rows, stride};
}

template <int kBatch>
__device__ __forceinline__ FloatRows float_rows(const Float16* rows, Int64 stride, int begin,
                                                int end, float* buffer) {
  for (int b = 0; b < kBatch; ++b) {
    for (int column = begin; column < end; ++column) {
      buffer[b * kSumColumns + column - begin] = to_float(rows[b * stride + column]);
    }
  }
  return {buffer - begin, kSumColumns};
}

// The tile's panels, and its products with all rows of the input.
template <class Element, bool kLinearBeforeReset>
__device__ __forceinline__ void prepare_tile(const Element* input, const Element* weights,
                                             const Element* recurrence, float* projection,
                                             float* weight_panels, float* recurrence_panels,
                                             const PrepareParams& params, int direction, int tile) {
  const int hidden = params.hidden_size;
  const int num_inputs = params.num_inputs;
  const int tiles = num_tiles(hidden);
  const Int64 number = static_cast<Int64>(direction) * tiles + tile;
  constexpr int kTileRows = kNumGates * kTileUnits;

  float* states = recurrence_panels + number * kTileRows * hidden;
  if constexpr (kLinearBeforeReset) {
    copy_rows<kUpdate, kNumGates>(states, recurrence, direction, tile, hidden, hidden);
  } else {
    // The candidate's rows are multiplied later than the others, and stand for themselves.
    copy_rows<kUpdate, kCandidate>(states, recurrence, direction, tile, hidden, hidden);
    copy_rows<kCandidate, kNumGates>(states + static_cast<Int64>(kCandidate) * kTileUnits * hidden,
                                     recurrence, direction, tile, hidden, hidden);
  }

  float* panel = weight_panels + number * kTileRows * num_inputs;
  copy_rows<kUpdate, kNumGates>(panel, weights, direction, tile, hidden, num_inputs);

  // A part of the panel stays in the cache while it meets all rows.
  const Int64 out_stride = static_cast<Int64>(params.num_directions) * tiles * kTileRows;
  float* out = projection + number * kTileRows;
  float buffer[kPanelBatch * kSumColumns];
  for (int begin = 0; begin < num_inputs; begin += kSumColumns) {
    const int end = min(begin + kSumColumns, num_inputs);
    const float* part = panel + static_cast<Int64>(begin) * kTileRows;
    for_batches(0, params.num_rows, [&](auto batch, Int64 row) {
      constexpr int kBatch = batch.value;
      const FloatRows rows =
          float_rows<kBatch>(input + row * num_inputs, num_inputs, begin, end, buffer);
      PanelSums<kNumGates, kBatch> sums;
      for_constants<kBatch * kNumGates * kTileVectors>([&](auto i) {
        constexpr int b = i.value / (kNumGates * kTileVectors);
        constexpr int v = i.value % (kNumGates * kTileVectors);
        sums.values[b][v / kTileVectors][v % kTileVectors] =
            begin == 0 ? broadcast(0.0f)
                       : load_floats(out + (row + b) * out_stride + v * kVectorFloats);
      });
      add_products<kNumGates, kBatch>(sums, part, rows.rows, rows.stride, begin, end);
      for_constants<kBatch * kNumGates * kTileVectors>([&](auto i) {
        constexpr int b = i.value / (kNumGates * kTileVectors);
        constexpr int v = i.value % (kNumGates * kTileVectors);
        store_floats(out + (row + b) * out_stride + v * kVectorFloats,
                     sums.values[b][v / kTileVectors][v % kTileVectors]);
      });
    });
  }
}

template <class Element, bool kLinearBeforeReset>
__global__ void __launch_bounds__(1)
    gru_panels_prepare(const Element* input, const Element* weights, const Element* recurrence,
                       float* projection, float* weight_panels, float* recurrence_panels,
                       PrepareParams params) {
  const int direction = blockIdx.x / params.num_blocks;
  const int tiles = num_tiles(params.hidden_size);
  for (int tile = blockIdx.x % params.num_blocks; tile < tiles; tile += params.num_blocks) {
    prepare_tile<Element, kLinearBeforeReset>(input, weights, recurrence, projection, weight_panels,
                                              recurrence_panels, params, direction, tile);
  }
}
