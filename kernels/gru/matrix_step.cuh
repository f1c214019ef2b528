// A step of a GRU layer of float32, or half of one, by matrices of TF32: the products with the states and the
// gates, in one launch. Products are of operands in two parts each, or of rounded ones.
#pragma once

#include "common/matrix_intrinsics.cuh"
#include "gru/layer.cuh"
#include "gru/phases.cuh"
#include "gru/rounded_row.cuh"

constexpr int kSplitThreads = 256;
constexpr int kSplitBatch = 64;
constexpr int kQuad = 4;
// Columns that a warp multiplies at once, in two matrix instructions.
constexpr int kPanelColumns = 16;
constexpr int kPanelQuads = kPanelColumns / kQuad;
// A warp has two tiles of sequences, and one tile of units of each gate.
constexpr int kTileRows = 16;
constexpr int kTileUnits = 8;
constexpr int kRowTiles = 2;
constexpr int kTileItems = 4;

// Columns of a chunk that is copied for a block with a number of hidden units, two panels for each warp; and
// chunks in shared storage.
template <int kUnits>
struct SplitChunks {
  static constexpr int kColumns = 1024 / kUnits;
  static constexpr int kStages = kUnits < 32 ? 3 : 4;
};

// The same of rounded rows, with any number of hidden units.
struct RoundedChunks {
  static constexpr int kColumns = 64;
  static constexpr int kStages = 4;
};

// Rows by direction and sequence, of `stride` columns, zeros past the hidden size: of float32, or rounded.
struct StepRows {
  float* states;
  // Unless linear before reset, the states multiplied by the reset gate; else the states of odd steps.
  float* operands;
  float* updates;  // between the halves of a step; packed
  UInt32* counts;  // steps done, by block
  int stride;
  // Only beside rounded rows: the states as they are, packed, and the rounded rows of the weights.
  float* carried;
  float* weights;
};

// Four columns of a row of float32.
struct FloatQuad {
  float4 numbers;

  // The upper part is rounded to nearest, so that the lower part is small and of either sign: the product of
  // two lower parts is left out. Matrix instructions ignore the bits below those of TF32. The lower part of
  // infinity is NaN, and so are its products.
  __device__ __forceinline__ Parts parts(int column) const {
    const float values[kQuad] = {numbers.x, numbers.y, numbers.z, numbers.w};
    const float value = values[column];
    const UInt32 high = __float_as_uint(value) + kHalfUnit;
    return {high, __float_as_uint(value - __uint_as_float(high & kTf32Bits))};
  }
};

template <bool kRounds>
struct QuadOf {
  using Type = FloatQuad;
};
template <>
struct QuadOf<true> {
  using Type = RoundedQuad;
};

// A block's part of a step. kRounds says that operands are rounded to TF32: one product stands for one of
// float32, not three, and rows have three quarters of the bytes, because the L2 cache bounds these steps.
template <class Element, bool kStandard, bool kLinearBeforeReset, int kPhase, int kUnits,
          bool kRounds>
struct MatrixStep {
  using StepLayer = Layer<Element>;
  static constexpr int kBlockUnits = kUnits;
  static constexpr bool kIsSecondHalf = kPhase == kFinish && !kLinearBeforeReset;
  static constexpr int kFirstGate = kIsSecondHalf ? kCandidate : kUpdate;
  static constexpr int kLastGate = kLinearBeforeReset || kPhase == kFinish ? kNumGates : kCandidate;
  static constexpr int kGates = kLastGate - kFirstGate;
  static constexpr int kChunkColumns =
      kRounds ? RoundedChunks::kColumns : SplitChunks<kUnits>::kColumns;
  static constexpr int kStages = kRounds ? RoundedChunks::kStages : SplitChunks<kUnits>::kStages;
  // Words of a chunk of a row in memory and, with a gap against bank conflicts, in shared storage.
  static constexpr int kChunkWords = kRounds ? rounded_words(kChunkColumns) : kChunkColumns;
  static constexpr int kStageStride = kChunkWords + (kRounds ? kRoundedGap : 0);
  static constexpr int kChunkQuads = kChunkWords / kQuad;
  static constexpr int kWeightRows = kGates * kUnits;
  static constexpr int kRows = kSplitBatch + kWeightRows;
  static constexpr int kStageFloats = kRows * kStageStride;
  static constexpr int kCopies = (kRows * kChunkQuads + kSplitThreads - 1) / kSplitThreads;
  // Warps that divide the sequences, the units and the panels of a chunk.
  static constexpr int kRowWarps = kSplitBatch / (kRowTiles * kTileRows);
  static constexpr int kUnitWarps = kUnits / kTileUnits;
  static constexpr int kPanelWarps = kSplitThreads / kWarpSize / (kRowWarps * kUnitWarps);
  static constexpr int kPartSums = 2 / kPanelWarps;
  static constexpr int kPanels = kChunkColumns / kPanelColumns / kPanelWarps;
  static constexpr int kItems = kSplitBatch * kUnits / kSplitThreads;

  // All launches of a layer have the storage of the one with the most gates.
  static constexpr int kMostGates = kLinearBeforeReset ? kNumGates : kCandidate;
  struct Storage {
    float floats[kStages * (kSplitBatch + kMostGates * kUnits) * kStageStride];
  };

  using Quad = typename QuadOf<kRounds>::Type;
  struct Panel {
    Quad rows[kRowTiles][2];
    Quad columns[kGates];
  };
  struct SplitPanel {
    MatrixRows row_highs[kRowTiles][2], row_lows[kRowTiles][2];
    MatrixColumns highs[kGates][2], lows[kGates][2];
  };

  Layer<Element> layer;
  StepRows rows;
  float* shared;
  int first_unit;
  Int64 first_sequence;
  int num_sequences;
  // Of the block's sequences, in the buffer that the launch multiplies.
  const float* source;

  const float* from[kCopies];
  int num_quad_columns;  // of weights, where quads are at multiples of 16 bytes
  StagedCopies<kQuad * kCopies, kStages> copies;
  // Of even panels and of odd ones in all shapes, so that sums have the same order. Two warps may have one of
  // these each.
  MatrixSums sums[kPartSums][kRowTiles][kGates];

  __device__ __forceinline__ int hidden() const { return layer.params.hidden_size; }
  __device__ __forceinline__ int num_chunks() const { return rows.stride / kChunkColumns; }
  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x) % kWarpSize; }
  __device__ __forceinline__ static int warp() { return static_cast<int>(threadIdx.x) / kWarpSize; }
  __device__ __forceinline__ static int row_warp() { return warp() % kRowWarps; }
  __device__ __forceinline__ static int unit_warp() { return warp() / kRowWarps % kUnitWarps; }
  __device__ __forceinline__ static int panel_warp() { return warp() / (kRowWarps * kUnitWarps); }
  // The block's rows start behind those of other directions and sequences.
  __device__ __forceinline__ Int64 first_row() const {
    return layer.direction * layer.params.batch_size + first_sequence;
  }

  // ---- Copies.

  // Odd rows of float32 have their panels in another order, so that two rows of a panel are in different
  // banks.
  __device__ __forceinline__ static int place(int row, int quad) {
    const int swap = kRounds ? 0 : row % 2 * kPanelQuads;
    return row * kStageStride + (quad ^ swap) * kQuad;
  }
  __device__ __forceinline__ int row_words() const {
    return kRounds ? rounded_words(rows.stride) : rows.stride;
  }

  // Where a row of the states, or then of the weights, starts in memory. Rows past the last sequence or unit
  // are copies of the last.
  __device__ __forceinline__ const float* start_of(int row) const {
    if (row < kSplitBatch) return source + min(row, num_sequences - 1) * row_words();
    const int unit = min(first_unit + (row - kSplitBatch) % kUnits, hidden() - 1);
    const int gate = min(kFirstGate + (row - kSplitBatch) / kUnits, kNumGates - 1);
    if constexpr (kRounds) return rounded_weights(gate, unit);
    return layer.recurrence + layer.weight_row(gate, unit);
  }
  __device__ __forceinline__ float* rounded_weights(int gate, int unit) const {
    const Int64 row = (layer.direction * kNumGates + gate) * static_cast<Int64>(hidden()) + unit;
    return rows.weights + row * row_words();
  }

  __device__ __forceinline__ void find_rows() {
    num_quad_columns =
        hidden() % kQuad == 0 && reinterpret_cast<UInt64>(layer.recurrence) % sizeof(float4) == 0
            ? hidden()
            : 0;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int number = i * kSplitThreads + static_cast<int>(threadIdx.x);
      from[i] = start_of(number / kChunkQuads) + number % kChunkQuads * kQuad;
    }
  }

  // Copies columns below the hidden size, or rounded ones, from a word of each row on; all quads are at
  // multiples of 16 bytes.
  __device__ __forceinline__ void copy_whole(float* stage, int word) {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int number = i * kSplitThreads + static_cast<int>(threadIdx.x);
      const int row = number / kChunkQuads;
      if (row >= kRows) continue;
      copies.start_quad(stage + place(row, number % kChunkQuads), from[i] + word);
    }
  }

  // Copies any columns; weights past the hidden size are zeros, like the states there.
  __device__ __forceinline__ void copy_part(float* stage, int column) {
#pragma unroll 1
    for (int number = threadIdx.x; number < kRows * kChunkQuads; number += kSplitThreads) {
      const int row = number / kChunkQuads;
      const int quad = number % kChunkQuads;
      const int first = column + quad * kQuad;
      float* to = stage + place(row, quad);
      const float* start = start_of(row) + first;
      if (row < kSplitBatch || first < num_quad_columns) {
        copies.start_quad(to, start);
        continue;
      }
      for (int c = 0; c < kQuad; ++c) {
        if (first + c < hidden()) {
          copies.start_one(to + c, start + c);
        } else {
          to[c] = 0.0f;
        }
      }
    }
  }

  __device__ __forceinline__ void copy_chunk(int chunk) {
    float* stage = shared + chunk % kStages * kStageFloats;
    const int column = chunk * kChunkColumns;
    if constexpr (kRounds) {
      if (chunk < num_chunks()) copy_whole(stage, chunk * kChunkWords);
    } else if (column + kChunkColumns <= num_quad_columns) {
      copy_whole(stage, column);
    } else if (chunk < num_chunks()) {
      copy_part(stage, column);
    }
    copies.end_stage();
  }

  // ---- Products.

  __device__ __forceinline__ Panel load_panel(int chunk, int panel) const {
    const float* stage = shared + chunk % kStages * kStageFloats;
    const auto quad_of = [&](int first) -> Quad {
      const int row = first + lane() / 4;
      if constexpr (kRounds) {
        return rounded_quad(stage + row * kStageStride, panel, lane() % 4);
      } else {
        const int quad = panel * kPanelQuads + lane() % 4;
        return {*reinterpret_cast<const float4*>(stage + place(row, quad))};
      }
    };
    Panel loaded;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      const int row = (row_warp() * kRowTiles + i) * kTileRows;
      loaded.rows[i][0] = quad_of(row);
      loaded.rows[i][1] = quad_of(row + kTileRows / 2);
    }
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      loaded.columns[gate] = quad_of(kSplitBatch + gate * kUnits + unit_warp() * kTileUnits);
    }
    return loaded;
  }

  // A matrix instruction may take columns in any order, if both operands have the same order: its columns t
  // and t + 4 are the first two of a quad, and in a second instruction the last two.
  __device__ __forceinline__ static SplitPanel split(const Panel& panel) {
    SplitPanel found;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int c = 0; c < kQuad; ++c) {
          const Parts parts = panel.rows[i][half].parts(c);
          found.row_highs[i][c / 2].words[c % 2 * 2 + half] = parts.high;
          found.row_lows[i][c / 2].words[c % 2 * 2 + half] = parts.low;
        }
      }
    }
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
#pragma unroll
      for (int c = 0; c < kQuad; ++c) {
        const Parts parts = panel.columns[gate].parts(c);
        found.highs[gate][c / 2].words[c % 2] = parts.high;
        found.lows[gate][c / 2].words[c % 2] = parts.low;
      }
    }
    return found;
  }

  // The sums of a panel start from zero, because a matrix instruction may cut off what it adds, always
  // towards zero; float32 adds them up. Products of lower parts come first, while these sums are small.
  __device__ __forceinline__ void multiply(const SplitPanel& panel, int number) {
    MatrixSums found[kRowTiles][kGates] = {};
    const auto add = [&](const MatrixRows(&of_rows)[kRowTiles][2],
                         const MatrixColumns(&of_columns)[kGates][2], int k) {
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
        for (int gate = 0; gate < kGates; ++gate) {
          found[i][gate] = multiply_add_tf32(of_rows[i][k], of_columns[gate][k], found[i][gate]);
        }
      }
    };
    if constexpr (!kRounds) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        add(panel.row_lows, panel.highs, k);
        add(panel.row_highs, panel.lows, k);
      }
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) add(panel.row_highs, panel.highs, k);
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
#pragma unroll
        for (int c = 0; c < kTileItems; ++c) {
          sums[number % kPartSums][i][gate].values[c] += found[i][gate].values[c];
        }
      }
    }
  }

  // A warp that is late multiplies the last panel of a chunk after the next barrier.
  template <bool kIsLate>
  __device__ __forceinline__ void multiply_chunks() {
    SplitPanel panel = {};
#pragma unroll 1
    for (int chunk = 0; chunk < num_chunks(); ++chunk) {
      copies.template wait<kStages - 2>();
      // The chunk has come for all threads, and all have read the one before it, which is replaced.
      __syncthreads();
      if (kIsLate) multiply(panel, kPanels - 1);
#pragma unroll
      for (int i = 0; i < kPanels; ++i) {
        panel = split(load_panel(chunk, i * kPanelWarps + panel_warp()));
        if (!kIsLate || i + 1 < kPanels) multiply(panel, i);
        if (i == 0) copy_chunk(chunk + kStages - 1);
      }
    }
    if (kIsLate) multiply(panel, kPanels - 1);
  }

  __device__ __forceinline__ void multiply_all() {
#pragma unroll
    for (int p = 0; p < kPartSums; ++p) {
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
        for (int gate = 0; gate < kGates; ++gate) sums[p][i][gate] = {};
      }
    }
    // Two warps share a tensor core. One of them multiplies a panel while the other one splits one.
    if (warp() < kSplitThreads / kWarpSize / 2) {
      multiply_chunks<false>();
    } else {
      multiply_chunks<true>();
    }
  }

  // ---- Items: hidden units of a sequence. A warp has neighbouring units.

  __device__ __forceinline__ static int item_row(int item) {
    return (item * kSplitThreads + static_cast<int>(threadIdx.x)) / kUnits;
  }
  __device__ __forceinline__ int item_unit() const { return first_unit + threadIdx.x % kUnits; }

  // The steps of an item's sequence; 0 if there is no such item.
  __device__ __forceinline__ UInt32 item_length(int item) const {
    const int row = item_row(item);
    const bool exists = row < num_sequences && item_unit() < hidden();
    return exists ? layer.length(first_sequence + row) : 0;
  }
  __device__ __forceinline__ float& update_of(int item) const {
    return rows.updates[first_row() * hidden() + item_row(item) * hidden() + item_unit()];
  }
  // The state before a step: among the block's rows of float32, or beside rounded ones.
  __device__ __forceinline__ float state_of(int item, const float* states) const {
    if constexpr (kRounds) return rows.carried[carried_place(item)];
    return states[item_row(item) * rows.stride + item_unit()];
  }
  __device__ __forceinline__ Int64 carried_place(int item) const {
    return (first_row() + item_row(item)) * hidden() + item_unit();
  }

  // Writes what later launches multiply.
  __device__ __forceinline__ void store_operand(float* target, int item, float value) const {
    float* const row = target + item_row(item) * row_words();
    if constexpr (kRounds) {
      store_rounded(row, item_unit(), value);
    } else {
      row[item_unit()] = value;
    }
  }

  // What an item needs besides its products.
  struct Operands {
    GateInputs inputs;
    float state;
    float update;
  };

  __device__ __forceinline__ Operands load_operands(UInt32 step, int item,
                                                    const float* states) const {
    const UInt32 length = item_length(item);
    if (step >= length) return {};
    const Int64 n = first_sequence + item_row(item);
    return {layer.load_inputs(layer.time(step, length), n, item_unit()), state_of(item, states),
            kIsSecondHalf ? update_of(item) : 0.0f};
  }

  // Sums in shared storage: by warps of panels, row, gate and unit. Eight rows of a tile are in different
  // banks.
  static constexpr int kSumStride = (kGates * kUnits + 31) / 32 * 32 + 8;
  static constexpr int kSums = kPanelWarps * kSplitBatch * kSumStride;
  static_assert(kSums * sizeof(float) + kItems * kSplitThreads * sizeof(Operands) <=
                    sizeof(Storage),
                "sums and operands replace the chunks");

  __device__ __forceinline__ void store_sums() {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = (panel_warp() * kRowWarps + row_warp()) * kRowTiles * kTileRows +
                          i * kTileRows + half * (kTileRows / 2) + lane() / 4;
          const int unit = unit_warp() * kTileUnits + lane() % 4 * 2;
          const float* values = sums[0][i][gate].values + 2 * half;
          float2 pair = {values[0], values[1]};
#pragma unroll
          for (int p = 1; p < kPartSums; ++p) {
            pair.x += sums[p][i][gate].values[2 * half];
            pair.y += sums[p][i][gate].values[2 * half + 1];
          }
          *reinterpret_cast<float2*>(shared + row * kSumStride + gate * kUnits + unit) = pair;
        }
      }
    }
  }

  __device__ __forceinline__ void finish(UInt32 step, int item, const Operands& operands,
                                         float* target) const {
    const UInt32 length = item_length(item);
    if (step >= length) return;
    float products[kGates];
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      const float* sum =
          shared + item_row(item) * kSumStride + gate * kUnits + threadIdx.x % kUnits;
      products[gate] = sum[0];
#pragma unroll
      for (int warp = 1; warp < kPanelWarps; ++warp) {
        products[gate] += sum[warp * kSplitBatch * kSumStride];
      }
    }
    const Activations activations = layer.activations();
    const GateBiases biases = layer.load_biases(item_unit());
    float next;
    if constexpr (kPhase == kHalf) {
      const UpdateAndReset gates =
          step_gates<kStandard>(activations, operands.inputs, biases, products);
      update_of(item) = gates.update;
      store_operand(target, item, gates.reset * operands.state);
      return;
    } else if constexpr (kLinearBeforeReset) {
      next = step_linear_before_reset<kStandard>(activations, operands.inputs, biases, products,
                                                 operands.state);
    } else {
      next = step_candidate<kStandard>(activations, operands.inputs, biases, products[0],
                                       operands.update, operands.state);
    }
    store_operand(target, item, next);
    if constexpr (kRounds) rows.carried[carried_place(item)] = next;
    layer.store_state(step, length, first_sequence + item_row(item), item_unit(), next);
  }

  // ---- The launch.

  __device__ __forceinline__ void start() {
    if (threadIdx.x == 0) rows.counts[blockIdx.x] = 0;
    const int end_unit = min(first_unit + kUnits, hidden());
    layer.store_padding(first_sequence, num_sequences, first_unit, end_unit, threadIdx.x,
                        kSplitThreads);
    // The block with the last unit has the columns behind it, too.
    const int num_columns = (end_unit == hidden() ? rows.stride : end_unit) - first_unit;
    for (int i = threadIdx.x; i < num_sequences * num_columns; i += kSplitThreads) {
      const int row = i / num_columns;
      const int unit = first_unit + i % num_columns;
      const float state = unit < hidden() ? layer.initial_state(first_sequence + row, unit) : 0.0f;
      const Int64 place = (first_row() + row) * row_words();
      if constexpr (kRounds) {
        store_rounded(rows.states + place, unit, state);
        store_rounded(rows.operands + place, unit, 0.0f);
        if (unit < hidden()) rows.carried[(first_row() + row) * hidden() + unit] = state;
      } else {
        rows.states[place + unit] = state;
        rows.operands[place + unit] = 0.0f;
      }
    }
    if constexpr (kRounds) round_weights();
  }

  // Rounds the weights of the block's units; blocks with the same units and other sequences share the rows.
  __device__ __forceinline__ void round_weights() const {
    const int num_groups = layer.params.num_groups;
    const int group = static_cast<int>(first_sequence / kSplitBatch);
#pragma unroll 1
    for (int row = group; row < kNumGates * kUnits; row += num_groups) {
      const int unit = first_unit + row % kUnits;
      if (unit >= hidden()) continue;
      const float* const weights = layer.recurrence + layer.weight_row(row / kUnits, unit);
      float* const to = rounded_weights(row / kUnits, unit);
      for (int column = threadIdx.x; column < rows.stride; column += kSplitThreads) {
        store_rounded(to, column, column < hidden() ? weights[column] : 0.0f);
      }
    }
  }

  __device__ __forceinline__ void run_phase() {
    if constexpr (kPhase == kStart) {
      start();
    } else {
      run();
    }
  }

  __device__ __forceinline__ void run() {
    const UInt32 step = rows.counts[blockIdx.x];
    const bool is_odd = kLinearBeforeReset && step % 2 == 1;
    const Int64 first = first_row() * row_words();
    const float* const states = (is_odd ? rows.operands : rows.states) + first;
    source = kIsSecondHalf ? rows.operands + first : states;
    float* const target = (is_odd || kIsSecondHalf ? rows.states : rows.operands) + first;
    find_rows();
#pragma unroll 1
    for (int chunk = 0; chunk < kStages - 1; ++chunk) copy_chunk(chunk);
    // On their way while the products are computed.
    Operands operands[kItems];
#pragma unroll
    for (int item = 0; item < kItems; ++item) operands[item] = load_operands(step, item, states);
    multiply_all();
    // No chunk is read or copied any more when sums and operands replace them.
    __syncthreads();
    store_sums();
    Operands* const stored = reinterpret_cast<Operands*>(shared + kSums);
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      stored[item * kSplitThreads + threadIdx.x] = operands[item];
    }
    // All sums are there before items take them.
    __syncthreads();
    if (kPhase == kFinish && threadIdx.x == 0) rows.counts[blockIdx.x] = step + 1;
#pragma unroll 1
    for (int item = 0; item < kItems; ++item) {
      finish(step, item, stored[item * kSplitThreads + threadIdx.x], target);
    }
  }
};

// A block's part of a launch. Blocks are in order of direction, group of sequences and units.
template <class Block>
__device__ __forceinline__ void launch_step(float* shared, StepRows rows,
                                            typename Block::StepLayer layer) {
  constexpr int kColumns = Block::kChunkColumns;
  const GruParams& params = layer.params;
  rows.stride = (params.hidden_size + kColumns - 1) / kColumns * kColumns;
  const UInt32 shard = blockIdx.x % params.num_shards;
  const UInt32 group = blockIdx.x / params.num_shards % params.num_groups;
  layer.direction = blockIdx.x / params.num_shards / params.num_groups;
  Block block = {layer, rows, shared};
  block.first_unit = shard * Block::kBlockUnits;
  block.first_sequence = static_cast<Int64>(group) * kSplitBatch;
  block.num_sequences = static_cast<int>(
      min(static_cast<Int64>(kSplitBatch), params.batch_size - block.first_sequence));
  block.run_phase();
}
