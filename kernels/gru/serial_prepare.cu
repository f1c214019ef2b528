// Computes: the products of a GRU layer's input with its weights, and R in panels if they pay.
// Idea: a tile's weights, some columns at a time, are multiplied with all rows of the input.
// Ownership: a block of one thread owns tiles of a direction, and a buffer for input weights.
// Requires: x, W and R packed; `projection` ordered by time, sequence, direction, tile, gate, unit.
// Chosen when: gru/serial.cu follows.

#include "gru/panels.cuh"

// Rows of the input up to which its weights are read in place: about eight reads of a weight pay for a copy.
constexpr int kRowsInPlace = 8 * kRowsBatch;

struct PrepareParams {
  Int64 num_rows;  // of the input: steps times sequences
  Int32 num_inputs;
  Int32 hidden_size;
  Int32 num_directions;
  Int32 num_blocks;  // per direction; they take its tiles in turn
};

// Copies columns [begin, end), at most kSumColumns from a multiple of kSumColumns on, of the gates kFirst to
// kLast - 1 to the start of `panel`, part after part.
template <int kFirst, int kLast, class Element>
__device__ __forceinline__ void copy_part(float* panel, const MatrixWeights<Element>& weights,
                                          int begin, int end) {
  constexpr int kRows = (kLast - kFirst) * kTileUnits;
  const int num_whole = (end - begin) / kLoadedColumns;
  const int num_left = (end - begin) % kLoadedColumns;
  float buffer[kVectorFloats * kUnitColumns];
  for (int first = 0; first < kRows; first += kVectorFloats) {
    float* to[kLoadedColumns];
    for_constants<kLoadedColumns>([&](auto part) {
      to[part.value] = panel + first + (part.value * num_whole + min(part.value, num_left)) * kRows;
    });
    for (int from = begin; from < end;) {
      const UnitRows units =
          unit_rows(weights, kFirst + first / kTileUnits, first % kTileUnits, from, end, buffer);
      for (; from < units.end; from += kLoadedColumns) {
        Floats loaded[kLoadedColumns];
        load_quads(loaded, units.rows.first + from, units.rows.stride);
        transpose_quads(loaded);
        for_constants<kLoadedColumns>([&](auto part) {
          if (from + part.value < end) store_floats(to[part.value], loaded[part.value]);
          to[part.value] += kRows;
        });
      }
    }
  }
}

template <int kFirst, int kLast, class Element>
__device__ __forceinline__ void copy_rows(float* panel, const MatrixWeights<Element>& weights) {
  for (int begin = 0; begin < weights.num_columns; begin += kSumColumns) {
    copy_part<kFirst, kLast>(panel + static_cast<Int64>(begin) * (kLast - kFirst) * kTileUnits,
                             weights, begin, min(begin + kSumColumns, weights.num_columns));
  }
}

// Columns [begin, end) of kBatch rows of the input.
template <int kBatch>
__device__ __forceinline__ FloatRows input_rows(const float* rows, int num_columns, int, int,
                                                float*) {
  return {rows, num_columns};
}

template <int kBatch>
__device__ __forceinline__ FloatRows input_rows(const Float16* rows, int num_columns, int begin,
                                                int end, float* buffer) {
  return converted_rows<kBatch, kSumColumns>(
      [&](int i) { return rows + static_cast<Int64>(i) * num_columns; }, begin, end, buffer);
}

// Adds a tile's products with the columns [begin, end) of kBatch rows of the input to `out`; the first
// columns overwrite it. Not inlined, so that its local arrays are on the stack only once.
template <int kBatch, class Weights, class Element>
__device__ __noinline__ void project(float* out, Int64 out_stride, const Weights& weights,
                                     const Element* input, int num_inputs, int begin, int end) {
  float buffer[kBatch * kSumColumns];
  const FloatRows rows = input_rows<kBatch>(input, num_inputs, begin, end, buffer);
  TileSums<kUpdate, kNumGates, kBatch> sums;
  const auto for_all = [&](const auto& visit) {
    for (int b = 0; b < kBatch; ++b) {
      for (int v = 0; v < kNumGates * kTileVectors; ++v) {
        visit(sums.values[b][v / kTileVectors][v % kTileVectors],
              out + b * out_stride + v * kVectorFloats);
      }
    }
  };
  for_all([&](Floats& sum, const float* place) {
    sum = begin == 0 ? broadcast(0.0f) : load_floats(place);
  });
  add_products(sums, weights, rows.first, rows.stride, begin, end);
  for_all([&](Floats& sum, float* place) { store_floats(place, sum); });
}

template <class Weights, class Element>
__device__ __forceinline__ void project_all(float* out, Int64 out_stride, const Weights& weights,
                                            const Element* input, const PrepareParams& params,
                                            int begin, int end) {
  for_batches<Weights::kBatch>(0, params.num_rows, [&](auto batch, Int64 first) {
    project<batch.value>(out + first * out_stride, out_stride, weights,
                         input + first * params.num_inputs, params.num_inputs, begin, end);
  });
}

template <class Element, bool kLinearBeforeReset, bool kPanels>
struct Preparation {
  const Element* input;
  const Element* weights;
  const Element* recurrence;
  float* projection;
  float* part_of_panel;  // of this block
  float* panels;
  const PrepareParams& params;
  int direction;

  __device__ __forceinline__ MatrixWeights<Element> tile_of(const Element* matrix, int tile,
                                                            int num_columns) const {
    const Int64 rows = static_cast<Int64>(direction) * kNumGates * params.hidden_size;
    return {matrix + rows * num_columns, params.hidden_size, tile, num_columns};
  }

  __device__ __forceinline__ void run(int tile) const {
    const int hidden = params.hidden_size;
    const int tiles = num_tiles(hidden);
    const Int64 number = static_cast<Int64>(direction) * tiles + tile;
    constexpr int kTileRows = kNumGates * kTileUnits;
    if constexpr (kPanels) {
      const MatrixWeights<Element> rows = tile_of(recurrence, tile, hidden);
      float* panel = panels + number * kTileRows * hidden;
      if constexpr (kLinearBeforeReset) {
        copy_rows<kUpdate, kNumGates>(panel, rows);
      } else {
        // The candidate's rows are multiplied later than the others, and have a panel of their own.
        copy_rows<kUpdate, kCandidate>(panel, rows);
        copy_rows<kCandidate, kNumGates>(
            panel + static_cast<Int64>(kCandidate) * kTileUnits * hidden, rows);
      }
    }
    const Int64 out_stride = static_cast<Int64>(params.num_directions) * tiles * kTileRows;
    float* out = projection + number * kTileRows;
    const MatrixWeights<Element> rows = tile_of(weights, tile, params.num_inputs);
    for (int begin = 0; begin < params.num_inputs; begin += kSumColumns) {
      const int end = min(begin + kSumColumns, params.num_inputs);
      // A part of a panel stays in the cache while it is multiplied with several batches of rows.
      if (kPanels && params.num_rows > kRowsInPlace) {
        copy_part<kUpdate, kNumGates>(part_of_panel, rows, begin, end);
        const PanelWeights part = {part_of_panel - static_cast<Int64>(begin) * kTileRows};
        project_all(out, out_stride, part, input, params, begin, end);
      } else {
        project_all(out, out_stride, rows, input, params, begin, end);
      }
    }
  }
};

template <class Element, bool kLinearBeforeReset, bool kPanels>
__global__ void __launch_bounds__(1)
    gru_serial_prepare(const Element* input, const Element* weights, const Element* recurrence,
                       float* projection, float* parts_of_panels, float* panels,
                       PrepareParams params) {
  constexpr Int64 kTileRows = kNumGates * kTileUnits;
  const Int64 part_floats = kTileRows * min(params.num_inputs, kSumColumns);
  const int direction = blockIdx.x / params.num_blocks;
  const Preparation<Element, kLinearBeforeReset, kPanels> preparation = {
      input,
      weights,
      recurrence,
      projection,
      kPanels ? parts_of_panels + blockIdx.x * part_floats : nullptr,
      panels,
      params,
      direction};
  const int tiles = num_tiles(params.hidden_size);
  for (int tile = blockIdx.x % params.num_blocks; tile < tiles; tile += params.num_blocks) {
    preparation.run(tile);
  }
}
