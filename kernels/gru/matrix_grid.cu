// A GRU layer of half precision over a whole sequence by a cooperative grid, with matrix instructions.
// As gru/grid.cu, but R stays in registers as matrix operands and states travel and are multiplied as half.
// A group of blocks shares the hidden units of some sequences, eight at a time; 8 warps split the columns.
// All blocks are resident; `exchange` is zeroed; the states themselves are kept in float32 in `carried`.
// Chosen for float16 where it is estimated to be the fastest, see operators/gru_shapes.py.

#include "common/exchange.cuh"
#include "gru/layer.cuh"

constexpr int kMatrixThreads = 256;
constexpr int kMatrixWarps = kMatrixThreads / kWarpSize;
// Sequences of a round, the columns of a matrix instruction.
constexpr int kRoundBatch = 8;
// Rows and depth of a matrix instruction.
constexpr int kTileRows = 16;
constexpr int kTileColumns = 16;
// Hidden units that a block has in one pass, as tiles of rows of each gate.
constexpr int kTilesPerGate = 2;
constexpr int kPassUnits = kTilesPerGate * kTileRows;
constexpr int kPassTiles = kNumGates * kTilesPerGate;
constexpr int kChunkColumns = kMatrixWarps * kTileColumns;
// Chunks of the first pass whose weights are in registers.
constexpr int kRegisterChunks = 4;
// Halves after a row of states, so that eight rows start in different banks.
constexpr int kRowPadding = 8;
// Floats from one row of partial sums to the next: an odd number, for the same reason.
constexpr int kSumStride = kRoundBatch + 1;
constexpr int kLoadsInFlight = 4;

struct alignas(16) SharedWords {
  UInt32 words[4];
};

// What is known of an item, a hidden unit of a sequence, from one step or half step to the next.
struct Carried {
  float update;
  float state;
};

template <bool kStandard, bool kLinearBeforeReset>
struct MatrixBlock {
  Layer<Float16> layer;
  MatrixRows registers[kRegisterChunks][kPassTiles];
  // Chunk, tile, thread: the first num_stored_chunks in shared storage, the others in global memory.
  MatrixRows* stored;
  MatrixRows* overflow;
  UInt16* states;   // sequence of the round, column
  float* partials;  // parity of the pass, warp, gate and unit, sequence
  UInt32* exchange;
  Carried* carried;
  Int64 first_sequence;
  Int64 num_sequences;
  int first_unit;

  __device__ __forceinline__ int hidden() const { return layer.params.hidden_size; }
  __device__ __forceinline__ int num_chunks() const {
    return (hidden() + kChunkColumns - 1) / kChunkColumns;
  }
  __device__ __forceinline__ int num_register_chunks() const {
    return min(kRegisterChunks, num_chunks());
  }
  __device__ __forceinline__ int row_stride() const {
    return num_chunks() * kChunkColumns + kRowPadding;
  }
  __device__ __forceinline__ int quads_per_row() const { return (hidden() + 3) / 4; }

  // The first column of a chunk's tile that the thread's warp has.
  __device__ __forceinline__ static int tile_column(int chunk) {
    return chunk * kChunkColumns + static_cast<int>(threadIdx.x) / kWarpSize * kTileColumns;
  }

  __device__ __forceinline__ MatrixRows* chunk_tiles(int m) const {
    const int in_overflow = m - layer.params.num_stored_chunks;
    MatrixRows* tiles =
        in_overflow < 0 ? stored + m * kPassTiles * kMatrixThreads
                        : overflow + static_cast<Int64>(in_overflow) * kPassTiles * kMatrixThreads;
    return tiles + threadIdx.x;
  }

  __device__ __forceinline__ UInt32 weight_bits(int gate, int unit, int column) const {
    if (unit >= hidden() || column >= hidden()) return 0;
    return layer.recurrence[layer.weight_row(gate, unit) + column].bits;
  }

  __device__ __forceinline__ MatrixRows load_tile(int tile, int pass_unit, int chunk) const {
    const int lane = threadIdx.x % kWarpSize;
    const int gate = tile / kTilesPerGate;
    MatrixRows rows;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int unit = pass_unit + tile % kTilesPerGate * kTileRows + lane / 4 + i % 2 * 8;
      const int column = tile_column(chunk) + lane % 4 * 2 + i / 2 * 8;
      rows.words[i] = weight_bits(gate, unit, column) | weight_bits(gate, unit, column + 1) << 16;
    }
    return rows;
  }

  __device__ __forceinline__ void load_weights() {
#pragma unroll
    for (int chunk = 0; chunk < kRegisterChunks; ++chunk) {
#pragma unroll
      for (int tile = 0; tile < kPassTiles; ++tile) {
        if (chunk < num_chunks()) registers[chunk][tile] = load_tile(tile, first_unit, chunk);
      }
    }
    const int num_chunks_left = layer.params.num_passes * num_chunks() - num_register_chunks();
    for (int m = 0; m < num_chunks_left; ++m) {
      const int index = m + num_register_chunks();
      const int pass = index / num_chunks();
      MatrixRows* tiles = chunk_tiles(m);
#pragma unroll 1
      for (int tile = 0; tile < kPassTiles; ++tile) {
        tiles[tile * kMatrixThreads] =
            load_tile(tile, first_unit + pass * kPassUnits, index - pass * num_chunks());
      }
    }
  }

  // The words of sequence n in the buffer that an exchange uses: a half, and the exchange's lower 16 bits.
  __device__ __forceinline__ UInt32* exchanged(UInt32 tag, Int64 n) const {
    const Int64 rows = layer.params.num_directions * layer.params.batch_size;
    const Int64 row = (tag & 1) * rows + layer.direction * layer.params.batch_size + n;
    return exchange + row * (4 * quads_per_row());
  }

  __device__ __forceinline__ void send(UInt32 tag, Int64 n, int unit, float value) const {
    store_relaxed(exchanged(tag, n) + unit, tag << 16 | half_bits_from_float(value));
  }

  // Whether every word of a quad that belongs to the hidden size has come.
  __device__ __forceinline__ bool has_come(const WordQuad& quad, int num_words, UInt32 tag) const {
    bool all = true;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      all = all && (i >= num_words || quad.words[i] >> 16 == (tag & 0xffff));
    return all;
  }

  // Brings the states of the sequences [first, first + count) that take this step into shared storage.
  // Rows of the others keep what they had; nothing that is computed from them is used.
  __device__ __forceinline__ void gather(UInt32 step, UInt32 tag, Int64 first, int count) const {
    const int num_quads = quads_per_row();
    int row = 0;
    int quad = threadIdx.x;
    while (quad >= num_quads) {
      quad -= num_quads;
      ++row;
    }
    while (row < count) {
      WordQuad quads[kLoadsInFlight];
      const UInt32* sources[kLoadsInFlight];
      int targets[kLoadsInFlight];
      int num_words[kLoadsInFlight];
#pragma unroll
      for (int i = 0; i < kLoadsInFlight; ++i) {
        sources[i] = nullptr;
        if (row < count && step < layer.length(first + row)) {
          sources[i] = exchanged(tag, first + row) + 4 * quad;
          targets[i] = row * row_stride() + 4 * quad;
          num_words[i] = hidden() - 4 * quad;
          quads[i] = load_quad_relaxed(sources[i]);
        }
        quad += kMatrixThreads;
        while (quad >= num_quads) {
          quad -= num_quads;
          ++row;
        }
      }
#pragma unroll
      for (int i = 0; i < kLoadsInFlight; ++i) {
        if (sources[i] == nullptr) continue;
        while (!has_come(quads[i], num_words[i], tag)) {
          give_way();
          quads[i] = load_quad_relaxed(sources[i]);
        }
        // Zeros past the hidden size stay: words there are never sent, so they are zeros too.
        const UInt32* words = quads[i].words;
        uint2 halves;
        halves.x = (words[0] & 0xffff) | words[1] << 16;
        halves.y = (words[2] & 0xffff) | words[3] << 16;
        *reinterpret_cast<uint2*>(states + targets[i]) = halves;
      }
    }
  }

  __device__ __forceinline__ void gather_initial(Int64 first, int count) const {
    for (int row = 0; row < count; ++row) {
      for (int unit = threadIdx.x; unit < hidden(); unit += kMatrixThreads) {
        states[row * row_stride() + unit] =
            half_bits_from_float(layer.initial_state(first + row, unit));
      }
    }
  }

  // The warp's part of the products of all states of the round, for gates kFirst to kLast - 1.
  template <int kFirst, int kLast>
  __device__ __forceinline__ void multiply(int pass, float* sums_of_pass) const {
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
          sums[tile] = multiply_add(registers[chunk][tile], columns, sums[tile]);
        }
      }
    }
    int chunk = pass == 0 ? kRegisterChunks : 0;
    int m = pass == 0 ? 0 : pass * num_chunks() - num_register_chunks();
#pragma unroll 1
    for (; chunk < num_chunks(); ++chunk, ++m) {
      const MatrixColumns columns = load_columns(chunk);
      const MatrixRows* tiles = chunk_tiles(m);
#pragma unroll
      for (int tile = kFirstTile; tile < kLastTile; ++tile) {
        sums[tile] = multiply_add(tiles[tile * kMatrixThreads], columns, sums[tile]);
      }
    }
    float* of_warp = sums_of_pass + static_cast<int>(threadIdx.x) / kWarpSize * kPassTiles *
                                        kTileRows * kSumStride;
#pragma unroll
    for (int tile = kFirstTile; tile < kLastTile; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = tile * kTileRows + lane / 4 + i / 2 * 8;
        of_warp[row * kSumStride + lane % 4 * 2 + i % 2] = sums[tile].values[i];
      }
    }
  }

  // The gates kFirst to kLast - 1 of the sequences [first, first + count) at one step.
  template <int kFirst, int kLast>
  __device__ __forceinline__ void process_round(UInt32 step, Int64 first, int count) const {
    constexpr bool kIsSecondHalf = kFirst == kCandidate;
    // Exchanges are numbered by what they carry: the state after `step` steps, or step's reset state.
    const UInt32 tag = kLinearBeforeReset ? step : 2 * step + (kIsSecondHalf ? 1 : 0);

    // A warp has the units of one sequence.
    const int row = threadIdx.x / kPassUnits;
    const Int64 n = first + row;
    const UInt32 length = row < count ? layer.length(n) : 0;
    const Int64 time = layer.time(step, length);
    const Activations activations = layer.activations();
    const int num_passes = layer.params.num_passes;
    GateInputs inputs = {};
    GateBiases biases = {};
    Carried before = {};
    const auto load_pass = [&](int pass) {
      const int unit = first_unit + pass * kPassUnits + static_cast<int>(threadIdx.x) % kPassUnits;
      if (step >= length || unit >= hidden()) return;
      inputs = layer.load_inputs(time, n, unit);
      biases = layer.load_biases(unit);
      before = step == 0 && !kIsSecondHalf ? Carried{0.0f, layer.initial_state(n, unit)}
                                           : *carried_of(n, unit);
    };

    // What does not depend on other blocks is on its way while they are waited for.
    load_pass(0);
    if (tag == 0) {
      gather_initial(first, count);
    } else {
      gather(step, tag, first, count);
    }
    // The states of the round are complete before any warp multiplies with them.
    __syncthreads();

    for (int pass = 0; pass < num_passes; ++pass) {
      const int unit = first_unit + pass * kPassUnits + static_cast<int>(threadIdx.x) % kPassUnits;
      float* sums_of_pass =
          partials + (pass & 1) * kMatrixWarps * kPassTiles * kTileRows * kSumStride;
      multiply<kFirst, kLast>(pass, sums_of_pass);
      // All warps' sums of this pass are complete before they are added. The next pass writes the other
      // half of `partials`; the one after it comes after another barrier. States may be replaced.
      __syncthreads();

      if (step < length && unit < hidden()) {
        float products[kLast - kFirst];
#pragma unroll
        for (int gate = 0; gate < kLast - kFirst; ++gate) {
          const int sum_row =
              (kFirst + gate) * kPassUnits + static_cast<int>(threadIdx.x) % kPassUnits;
          float sums[kMatrixWarps];
#pragma unroll
          for (int warp = 0; warp < kMatrixWarps; ++warp) {
            sums[warp] = sums_of_pass[(warp * kPassTiles * kTileRows + sum_row) * kSumStride + row];
          }
          products[gate] = ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
                           ((sums[4] + sums[5]) + (sums[6] + sums[7]));
        }
        finish<kFirst, kLast>(activations, inputs, biases, products, before, step, length, n, unit);
      }
      if (pass + 1 < num_passes) load_pass(pass + 1);
    }
  }

  __device__ __forceinline__ Carried* carried_of(Int64 n, int unit) const {
    return carried + (layer.direction * layer.params.batch_size + n) * hidden() + unit;
  }

  // The gates of one item, from the complete products.
  template <int kFirst, int kLast>
  __device__ __forceinline__ void finish(const Activations& activations, const GateInputs& inputs,
                                         const GateBiases& biases,
                                         const float (&products)[kLast - kFirst], Carried before,
                                         UInt32 step, UInt32 length, Int64 n, int unit) const {
    float next;
    if constexpr (kLinearBeforeReset) {
      next =
          step_linear_before_reset<kStandard>(activations, inputs, biases, products, before.state);
    } else if constexpr (kFirst == kUpdate) {
      const UpdateAndReset gates = step_gates<kStandard>(activations, inputs, biases, products);
      send(2 * step + 1, n, unit, gates.reset * before.state);
      *carried_of(n, unit) = {gates.update, before.state};
      return;
    } else {
      next = step_candidate<kStandard>(activations, inputs, biases, products[0], before.update,
                                       before.state);
    }
    if (step + 1 < length) {
      send(kLinearBeforeReset ? step + 1 : 2 * step + 2, n, unit, next);
      *carried_of(n, unit) = {0.0f, next};
    }
    layer.store_state(step, length, n, unit, next);
  }

  template <int kFirst, int kLast>
  __device__ __forceinline__ void process(UInt32 step) const {
    for (Int64 done = 0; done < num_sequences; done += kRoundBatch) {
      const Int64 left = num_sequences - done;
      process_round<kFirst, kLast>(step, first_sequence + done,
                                   left < kRoundBatch ? static_cast<int>(left) : kRoundBatch);
    }
  }

  // The longest sequence of the group; the same in every thread.
  __device__ __forceinline__ UInt32 num_steps() const {
    if (layer.lengths == nullptr) return layer.params.num_steps;
    UInt32 longest = 0;
#pragma unroll 1
    for (Int64 n = first_sequence; n < first_sequence + num_sequences; ++n) {
      longest = max(longest, layer.length(n));
    }
    return longest;
  }

  __device__ __forceinline__ void run() {
    const int end_unit = min(first_unit + layer.params.num_passes * kPassUnits, hidden());
    layer.store_padding(first_sequence, num_sequences, first_unit, end_unit, threadIdx.x,
                        kMatrixThreads);
    load_weights();
    // Columns past the hidden size and rows past the batch stay 0: no infinity meets a weight of 0.
    for (int i = threadIdx.x; i < kRoundBatch * row_stride(); i += kMatrixThreads) states[i] = 0;
    // The zeros are written before states overwrite them.
    __syncthreads();

    const UInt32 steps = num_steps();
    for (UInt32 step = 0; step < steps; ++step) {
      if constexpr (kLinearBeforeReset) {
        process<kUpdate, kNumGates>(step);
      } else {
        process<kUpdate, kCandidate>(step);
        process<kCandidate, kNumGates>(step);
      }
    }
  }
};

template <bool kStandard, bool kLinearBeforeReset>
__global__ void __launch_bounds__(kMatrixThreads, 1)
    gru_matrix_grid(const float* projection, const Float16* recurrence, const Float16* bias,
                    const Float16* initial, const UInt32* lengths, Float16* sequence,
                    Float16* single, UInt32* exchange, float* carried, UInt32* overflow,
                    GruParams params) {
  SHARED_STORAGE(SharedWords, shared);
  // Blocks in order of direction, group and shard.
  const int shard = blockIdx.x % params.num_shards;
  const int group = blockIdx.x / params.num_shards % params.num_groups;
  const int direction = blockIdx.x / params.num_shards / params.num_groups;

  const Layer<Float16> layer = {projection, recurrence, bias,   initial,  lengths,
                                sequence,   single,     params, direction};
  const Int64 first_sequence = group * params.group_batch;
  MatrixBlock<kStandard, kLinearBeforeReset> block = {
      layer,
      {},
      nullptr,
      nullptr,
      nullptr,
      nullptr,
      exchange,
      reinterpret_cast<Carried*>(carried),
      first_sequence,
      min(params.group_batch, params.batch_size - first_sequence),
      shard * params.num_passes * kPassUnits};
  const int num_halves = params.num_passes > 1 ? 2 : 1;
  block.partials = reinterpret_cast<float*>(shared.words);
  block.stored = reinterpret_cast<MatrixRows*>(
      block.partials + num_halves * kMatrixWarps * kPassTiles * kTileRows * kSumStride);
  block.states = reinterpret_cast<UInt16*>(block.stored +
                                           params.num_stored_chunks * kPassTiles * kMatrixThreads);
  block.overflow = reinterpret_cast<MatrixRows*>(overflow) + blockIdx.x * params.overflow_pieces;
  block.run();
}
