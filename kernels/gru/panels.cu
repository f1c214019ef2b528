// Computes: weights of a GRU layer in panels, as gru/serial_prepare.cu and gru/serial.cu read them.
// Idea: transposes a register of hidden units with some columns at a time.
// Ownership: a block of one thread owns tiles of a direction.
// Requires: the matrix packed; panels ordered by direction, tile, and gates that are read together.
// Chosen when: the weights are multiplied often on a CPU, or kept by a planned layer.

#include "gru/panels.cuh"

struct PanelParams {
  Int32 num_columns;
  Int32 hidden_size;
  Int32 num_blocks;  // per direction; they take its tiles in turn
};

// The candidate's rows have a panel of their own (kIsSplit) if they are multiplied later than the others.
template <class Element, bool kIsSplit>
__global__ void __launch_bounds__(1)
    gru_panels(const Element* matrix, float* panels, PanelParams params) {
  const int direction = blockIdx.x / params.num_blocks;
  const int tiles = num_tiles(params.hidden_size);
  for (int tile = blockIdx.x % params.num_blocks; tile < tiles; tile += params.num_blocks) {
    const MatrixWeights<Element> rows =
        tile_of(matrix, direction, tile, params.hidden_size, params.num_columns);
    const Int64 number = static_cast<Int64>(direction) * tiles + tile;
    float* panel = panels + number * kNumGates * kTileUnits * params.num_columns;
    if constexpr (kIsSplit) {
      copy_rows<kUpdate, kCandidate>(panel, rows);
      copy_rows<kCandidate, kNumGates>(
          panel + static_cast<Int64>(kCandidate) * kTileUnits * params.num_columns, rows);
    } else {
      copy_rows<kUpdate, kNumGates>(panel, rows);
    }
  }
}
