// Computes: a GRU layer of 16-bit floats over a sequence by a cooperative grid, on matrix units.
// Idea: as gru/grid.cu, but R stays in registers as matrix operands; states are sent as 16 bits.
// Ownership: a group of blocks shares the units of 8 sequences at a time; 8 warps split columns.
// Requires: all blocks resident, `exchange` zeroed, and `carried` for the states in float32.
// Chosen when: the type has 16 bits and this is estimated to be the fastest (gru/paths.py).

#include "gru/exchanged_grid.cuh"

// Sequences of a round, the columns of a matrix instruction.
constexpr int kRoundBatch = 8;
// Rows and depth of a matrix instruction.
constexpr int kTileRows = 16;
constexpr int kTileColumns = 16;
// Tiles of rows of each gate that a block has in one pass.
constexpr int kTilesPerGate = 2;
constexpr int kPassTiles = kNumGates * kTilesPerGate;
constexpr int kChunkColumns = kGridWarps * kTileColumns;
// Chunks of the first pass whose weights are in registers.
constexpr int kRegisterChunks = 4;
// Halves of padding after a row of states, so that eight rows start in different banks.
constexpr int kRowPadding = 8;
// Floats from one row of partial sums to the next: an odd number, for the same reason.
constexpr int kSumStride = kRoundBatch + 1;

// What a matrix instruction and an exchange take of a 16-bit type.
template <class Element>
struct MatrixFormat;
template <>
struct MatrixFormat<Float16> : TaggedHalves {
  __device__ __forceinline__ static MatrixSums add(MatrixRows rows, MatrixColumns columns,
                                                   MatrixSums sums) {
    return multiply_add(rows, columns, sums);
  }
};
template <>
struct MatrixFormat<BFloat16> : TaggedBFloats {
  // A template, because architectures that lack the instruction compile this file, too.
  template <class Sums>
  __device__ __forceinline__ static Sums add(MatrixRows rows, MatrixColumns columns, Sums sums) {
    return multiply_add_bfloats(rows, columns, sums);
  }
};

template <class Element, bool kStandard, bool kLinearBeforeReset, bool kIsFixed>
struct MatrixBlock
    : ExchangedGrid<MatrixBlock<Element, kStandard, kLinearBeforeReset, kIsFixed>,
                    MatrixFormat<Element>, Element, kStandard, kLinearBeforeReset, kIsFixed> {
  using Format = MatrixFormat<Element>;
  static constexpr int kPassUnits = kTilesPerGate * kTileRows;
  static constexpr bool kIsLayered = false;

  using Grid = typename MatrixBlock::ExchangedGrid;
  using Grid::hidden;
  using Grid::layer;
  using Grid::part;

  MatrixRows registers[kRegisterChunks][kPassTiles];
  // By chunk, tile and thread: the first num_stored_chunks in shared storage, the others in global memory.
  MatrixRows* stored;
  MatrixRows* overflow;
  UInt16* states;
  float* inputs;
  float* partials;  // parity of the pass, warp, gate and unit, sequence

  __device__ __forceinline__ int num_chunks() const {
    return (hidden() + kChunkColumns - 1) / kChunkColumns;
  }
  __device__ __forceinline__ int num_register_chunks() const {
    return min(kRegisterChunks, num_chunks());
  }
  __device__ __forceinline__ int row_stride() const {
    return num_chunks() * kChunkColumns + kRowPadding;
  }
  __device__ __forceinline__ static int round_batch() { return kRoundBatch; }
  __device__ __forceinline__ static int sums_per_pass() {
    return kGridWarps * kPassTiles * kTileRows * kSumStride;
  }
  __device__ __forceinline__ static int sum_place(int warp, int gate, int row, int unit) {
    return ((warp * kNumGates + gate) * kPassUnits + unit) * kSumStride + row;
  }

  // The first column of the warp's tile of a chunk.
  __device__ __forceinline__ static int tile_column(int chunk) {
    return chunk * kChunkColumns + static_cast<int>(threadIdx.x) / kWarpSize * kTileColumns;
  }

  __device__ __forceinline__ MatrixRows* chunk_tiles(int m) const {
    const int in_overflow = m - layer.params.num_stored_chunks;
    MatrixRows* tiles =
        in_overflow < 0 ? stored + m * kPassTiles * kGridThreads
                        : overflow + static_cast<Int64>(in_overflow) * kPassTiles * kGridThreads;
    return tiles + threadIdx.x;
  }

  // Two neighbouring weights of a row, read from R; 0 outside of it.
  template <bool kIsAligned>
  __device__ __forceinline__ UInt32 load_pair(int gate, int unit, int column) const {
    const Element* first = layer.recurrence + (layer.weight_row(gate, unit) + column);
    UInt32 pair = 0;
    if constexpr (kIsAligned) {
      if (unit < hidden() && column < hidden()) pair = *reinterpret_cast<const UInt32*>(first);
    } else {
      if (unit < hidden() && column < hidden()) pair = first[0].bits;
      if (unit < hidden() && column + 1 < hidden()) {
        pair |= static_cast<UInt32>(first[1].bits) << 16;
      }
    }
    return pair;
  }

  template <bool kIsAligned>
  __device__ __forceinline__ MatrixRows load_tile(int tile, int pass_unit, int chunk) const {
    const int lane = threadIdx.x % kWarpSize;
    const int gate = tile / kTilesPerGate;
    MatrixRows rows;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int unit = pass_unit + tile % kTilesPerGate * kTileRows + lane / 4 + i % 2 * 8;
      const int column = tile_column(chunk) + lane % 4 * 2 + i / 2 * 8;
      rows.words[i] = load_pair<kIsAligned>(gate, unit, column);
    }
    return rows;
  }

  __device__ __forceinline__ void load_weights() {
    // Whether the pairs of all rows of R can be loaded as a whole.
    const bool is_aligned =
        hidden() % 2 == 0 && reinterpret_cast<UInt64>(layer.recurrence) % sizeof(UInt32) == 0;
    if (is_aligned) {
      load_tiles<true>();
    } else {
      load_tiles<false>();
    }
  }

  template <bool kIsAligned>
  __device__ __forceinline__ void load_tiles() {
#pragma unroll
    for (int chunk = 0; chunk < kRegisterChunks; ++chunk) {
#pragma unroll
      for (int tile = 0; tile < kPassTiles; ++tile) {
        if (chunk < num_chunks()) {
          registers[chunk][tile] = load_tile<kIsAligned>(tile, part.first_unit, chunk);
        }
      }
    }
    const int num_chunks_left = layer.params.num_passes * num_chunks() - num_register_chunks();
    for (int m = 0; m < num_chunks_left; ++m) {
      const int index = m + num_register_chunks();
      const int pass = index / num_chunks();
      const int unit = part.first_unit + pass * kPassUnits;
      const int chunk = index - pass * num_chunks();
      MatrixRows* kept = chunk_tiles(m);
#pragma unroll 1
      for (int tile = 0; tile < kPassTiles; tile += kTilesPerGate) {
        // All tiles of a gate are in flight before the first is waited for.
        MatrixRows tiles[kTilesPerGate];
#pragma unroll
        for (int t = 0; t < kTilesPerGate; ++t) {
          tiles[t] = load_tile<kIsAligned>(tile + t, unit, chunk);
        }
#pragma unroll
        for (int t = 0; t < kTilesPerGate; ++t) kept[(tile + t) * kGridThreads] = tiles[t];
      }
    }
  }

  // Multiplies all states of the round, independent of their count.
  template <int kFirst, int kLast>
  __device__ __forceinline__ void multiply_round(int pass, int, float* sums_of_pass) const {
    constexpr int kFirstTile = kFirst * kTilesPerGate;
    constexpr int kLastTile = kLast * kTilesPerGate;
    const int lane = threadIdx.x % kWarpSize;
    const UInt16* column = states + lane / 4 * row_stride() + lane % 4 * 2;
    const auto load_columns = [&](int chunk) {
      const UInt16* halves = column + tile_column(chunk);
      return MatrixColumns{
          {*reinterpret_cast<const UInt32*>(halves), *reinterpret_cast<const UInt32*>(halves + 8)}};
    };
    MatrixSums sums[kPassTiles];
#pragma unroll
    for (int tile = kFirstTile; tile < kLastTile; ++tile) sums[tile] = {};
    if (pass == 0) {
#pragma unroll
      for (int chunk = 0; chunk < kRegisterChunks; ++chunk) {
        if (chunk >= num_chunks()) break;
        const MatrixColumns columns = load_columns(chunk);
#pragma unroll
        for (int tile = kFirstTile; tile < kLastTile; ++tile) {
          sums[tile] = Format::add(registers[chunk][tile], columns, sums[tile]);
        }
      }
    }
    int chunk = pass == 0 ? kRegisterChunks : 0;
    int m = pass == 0 ? 0 : pass * num_chunks() - num_register_chunks();
    const auto add_chunk = [&](const MatrixRows* tiles) {
      const MatrixColumns columns = load_columns(chunk);
#pragma unroll
      for (int tile = kFirstTile; tile < kLastTile; ++tile) {
        sums[tile] = Format::add(tiles[tile * kGridThreads], columns, sums[tile]);
      }
    };
    const int num_stored = layer.params.num_stored_chunks;
    // Two loops, so that each knows the kind of storage that it reads.
#pragma unroll(kIsFixed ? 2 : 1)
    for (; chunk < num_chunks() && m < num_stored; ++chunk, ++m) {
      add_chunk(stored + m * kPassTiles * kGridThreads + threadIdx.x);
    }
#pragma unroll 1
    for (; chunk < num_chunks(); ++chunk, ++m) {
      add_chunk(overflow + static_cast<Int64>(m - num_stored) * kPassTiles * kGridThreads +
                threadIdx.x);
    }
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
#pragma unroll
    for (int tile = kFirstTile; tile < kLastTile; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int unit = tile % kTilesPerGate * kTileRows + lane / 4 + i / 2 * 8;
        sums_of_pass[sum_place(warp, tile / kTilesPerGate, lane % 4 * 2 + i % 2, unit)] =
            sums[tile].values[i];
      }
    }
  }
};

template <bool kStandard, bool kLinearBeforeReset, bool kIsFixed, class Element = Float16>
__global__ void __launch_bounds__(kGridThreads, 1)
    gru_matrix_grid(const float* projection, const Element* recurrence, const Element* bias,
                    const Element* initial, const UInt32* lengths, Element* sequence,
                    Element* single, UInt32* exchange, float* carried, UInt32* overflow,
                    WaitReport* report, GruParams params) {
  SHARED_STORAGE(SharedWords, shared);
  using Block = MatrixBlock<Element, kStandard, kLinearBeforeReset, kIsFixed>;
  const GridPart part = GridPart::of_block(params, Block::kPassUnits);
  const Layer<Element> layer = {projection, recurrence, bias,   initial,       lengths,
                                sequence,   single,     params, part.direction};
  Block block = {{layer, part, exchange, reinterpret_cast<Carried*>(carried), {report}},
                 {},
                 nullptr,
                 nullptr,
                 nullptr,
                 reinterpret_cast<float*>(shared.words),
                 nullptr};
  block.partials = block.inputs + (kIsFixed ? kNumGates * kGridThreads : 0);
  const int num_halves = params.num_passes > 1 ? 2 : 1;
  block.stored = reinterpret_cast<MatrixRows*>(block.partials + num_halves * block.sums_per_pass());
  block.states = reinterpret_cast<UInt16*>(block.stored +
                                           params.num_stored_chunks * kPassTiles * kGridThreads);
  block.overflow = reinterpret_cast<MatrixRows*>(overflow) + blockIdx.x * params.overflow_pieces;
  block.run();
}
