// Computes: the products of a GRU layer's input with its weights.
// Idea: a tile's weights, some columns at a time, are multiplied with all rows of the input.
// Ownership: a block of one thread owns tiles of a direction, and a buffer for input weights.
// Requires: x and W packed, or W in panels; `projection` by time, sequence, direction, tile, gate.
// Chosen when: gru/serial.cu follows.

#include "gru/panels.cuh"

// Most rows of the input for which weights are read in place: about eight reads of a weight pay for a copy.
constexpr int kRowsInPlace = 8 * kRowsBatch;

struct PrepareParams {
  Int64 num_rows;  // of the input: steps times sequences
  Int32 num_inputs;
  Int32 hidden_size;
  Int32 num_directions;
  Int32 num_blocks;  // per direction; they take its tiles in turn
};

// Columns [begin, end) of kBatch rows of the input.
template <int kBatch>
__device__ __forceinline__ FloatRows input_rows(const float* rows, int num_columns, int, int,
                                                float*) {
  return {rows, num_columns};
}

template <int kBatch, class Element>
__device__ __forceinline__ FloatRows input_rows(const Element* rows, int num_columns, int begin,
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

template <class Element, bool kPanels>
struct Preparation {
  const Element* input;
  const Element* weights;      // null if they are in panels
  const float* weight_panels;  // null if they are not
  float* projection;
  float* part_of_panel;  // of this block
  const PrepareParams& params;
  int direction;

  __device__ __forceinline__ void run(int tile) const {
    const int tiles = num_tiles(params.hidden_size);
    const Int64 number = static_cast<Int64>(direction) * tiles + tile;
    constexpr int kTileRows = kNumGates * kTileUnits;
    const Int64 out_stride = static_cast<Int64>(params.num_directions) * tiles * kTileRows;
    float* out = projection + number * kTileRows;
    for (int begin = 0; begin < params.num_inputs; begin += kSumColumns) {
      const int end = min(begin + kSumColumns, params.num_inputs);
      const auto project_with = [&](const auto& rows) {
        project_all(out, out_stride, rows, input, params, begin, end);
      };
      if (kPanels && weight_panels != nullptr) {
        project_with(PanelWeights{weight_panels + number * kTileRows * params.num_inputs});
        continue;
      }
      const MatrixWeights<Element> rows =
          tile_of(weights, direction, tile, params.hidden_size, params.num_inputs);
      // A part of a panel stays in the cache while it is multiplied with several batches of rows.
      if (kPanels && params.num_rows > kRowsInPlace) {
        copy_part<kUpdate, kNumGates>(part_of_panel, rows, begin, end);
        project_with(PanelWeights{part_of_panel - static_cast<Int64>(begin) * kTileRows});
      } else {
        project_with(rows);
      }
    }
  }
};

template <class Element, bool kPanels>
__global__ void __launch_bounds__(1)
    gru_serial_prepare(const Element* input, const Element* weights, const float* weight_panels,
                       float* projection, float* parts_of_panels, PrepareParams params) {
  constexpr Int64 kTileRows = kNumGates * kTileUnits;
  const Int64 part_floats = kTileRows * min(params.num_inputs, kSumColumns);
  const int direction = blockIdx.x / params.num_blocks;
  const bool copies = kPanels && weight_panels == nullptr;
  const Preparation<Element, kPanels> preparation = {
      input,
      weights,
      weight_panels,
      projection,
      copies ? parts_of_panels + blockIdx.x * part_floats : nullptr,
      params,
      direction};
  const int tiles = num_tiles(params.hidden_size);
  for (int tile = blockIdx.x % params.num_blocks; tile < tiles; tile += params.num_blocks) {
    preparation.run(tile);
  }
}
