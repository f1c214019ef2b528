// Computes: a GRU layer of 16-bit floats over a sequence by a cooperative grid, on matrix units.
// Idea: R stays on the chip; a warp multiplies states as they come, eight sequences at a time.
// Ownership: a group of blocks shares the units of some sequences; 8 warps of each split columns.
// Requires: all blocks resident, `exchange` zeroed, shared storage for sums, items and chunks.
// Chosen when: the type has 16 bits and this is estimated to be the fastest (gru/paths.py).

#include "common/exchange.cuh"
#include "common/for_constants.cuh"
#include "gru/grid_part.cuh"

// Sequences of a round, the columns of a matrix instruction.
constexpr int kRoundBatch = 8;
// Rows and depth of a matrix instruction.
constexpr int kTileRows = 16;
constexpr int kTileColumns = 16;
constexpr int kChunkColumns = kGridWarps * kTileColumns;
// Tiles of weights that a warp has in registers: of all gates, in the first chunks.
constexpr int kRegisterTiles = 24;
// Chunks whose states are under way at once.
constexpr int kLoadedChunks = 8;
// Floats from one row of partial sums to the next: an odd number, so that eight rows start in different
// banks.
constexpr int kSumStride = kRoundBatch + 1;

// How a matrix instruction and an exchange take a 16-bit type.
template <class Element>
struct MatrixFormat;
template <>
struct MatrixFormat<Float16> : TaggedPairs {
  __device__ __forceinline__ static UInt32 value_of(float number) {
    return half_bits_from_float(number);
  }
  __device__ __forceinline__ static MatrixSums add(MatrixRows rows, MatrixColumns columns,
                                                   MatrixSums sums) {
    return multiply_add(rows, columns, sums);
  }
};
template <>
struct MatrixFormat<BFloat16> : TaggedPairs {
  __device__ __forceinline__ static UInt32 value_of(float number) {
    return bfloat_bits_from_float(number);
  }
  // A template, because architectures that lack the instruction compile this file, too.
  template <class Sums>
  __device__ __forceinline__ static Sums add(MatrixRows rows, MatrixColumns columns, Sums sums) {
    return multiply_add_bfloats(rows, columns, sums);
  }
};

// A block has `kTiles` tiles of rows of each gate, and if kIsAlone, one round of sequences. A step, or
// half a step if the layer is not linear before reset, takes the sequences of the group in rounds of
// eight. The states of a round come from the blocks of the group as words of two, in tiles that have the
// order of a matrix instruction's operand: each warp loads those of its own columns. While a round is
// multiplied, the states of the next are under way.
//
// In every step a thread has the same hidden unit of the same sequence of each round, an item. Sequences
// that have ended go on: the other blocks wait for their states, but nothing that is computed from them is
// stored or reaches another sequence.
template <class Element, bool kStandard, bool kLinearBeforeReset, int kTiles, bool kIsAlone>
struct MatrixBlock {
  using Format = MatrixFormat<Element>;
  using Word = typename Format::Word;
  using Single = TaggedFloats;
  // Bytes of exchanged states: of a sequence's units of a tile, and of a tile of a round.
  static constexpr int kStateBytes = sizeof(Word) / Format::kNumValues;
  static constexpr int kRowBytes = kTileColumns * kStateBytes;
  static constexpr int kTileBytes = kRoundBatch * kRowBytes;
  // Exchanged states from a chunk to the next one.
  static constexpr int kChunkStates = kGridWarps * kTileBytes / kStateBytes;
  static constexpr int kUnits = kTiles * kTileRows;
  static constexpr int kBlockTiles = kNumGates * kTiles;
  static constexpr int kRegisterChunks = kRegisterTiles / kBlockTiles;
  static_assert(kRegisterChunks <= kLoadedChunks, "the first loads have the states of these");
  // Floats of the partial sums of a round, and of a round's items: states, and update gates that a step
  // keeps from its first half.
  static constexpr int kRoundSums = kGridWarps * kBlockTiles * kTileRows * kSumStride;
  static constexpr int kRoundItems = kGridThreads * (kLinearBeforeReset ? 1 : 2);

  Layer<Element> layer;
  GridPart part;
  Patience patience;

  // The first chunks; if they alternate, the odd ones of the first kLoadedChunks.
  MatrixRows registers[kRegisterChunks][kBlockTiles];
  // The other chunks, by chunk, tile and thread: the first num_stored_chunks in shared storage, the others in
  // global memory.
  MatrixRows* stored;
  MatrixRows* overflow;
  float* inputs;    // of a thread's item in the next turn: gate, thread
  float* items;     // round, thread
  float* partials;  // parity of the turn, warp, gate and unit, sequence

  // Words of exchanges with even numbers, by group, round, tile of units, sequence and unit; those with odd
  // numbers, buffer_bytes later; then words of single states in the same order. The offsets are for even
  // numbers and the first round: of the word of the first sequence that a lane loads first, and of the state
  // that a thread sends.
  char* exchange;
  UInt32 lane_bytes;
  UInt32 item_bytes;
  UInt32 buffer_bytes;
  UInt32 round_bytes;
  // Chunks in which the warp has a tile of states.
  int num_tiles;
  // Sequences of the group, and the rounds in which the thread has an item.
  int num_sequences;
  int item_rounds;
  GateBiases biases;
  // The item's values if there is one round; else they are in `items`.
  float state;
  float update;

  // States of the next chunks, if they have been asked for, and inputs of the next turn to be finished.
  MatrixColumns loaded[kLoadedChunks];
  bool are_loaded;
  FloatCopies<kNumGates, false> copies;

  // A part of the recurrence: exchange `tag` of the sequences of a round, with a step's first products or the
  // candidate's products in the second half.
  struct Turn {
    UInt32 step;
    UInt32 tag;
    int round;
    bool exists;
  };
  __device__ __forceinline__ static bool is_second_half(const Turn& turn) {
    return !kLinearBeforeReset && turn.tag % 2 == 0;
  }
  // Calls `use` with the first gate of a turn and the one after the last.
  template <class Use>
  __device__ __forceinline__ static void by_gates(const Turn& turn, const Use& use) {
    if constexpr (kLinearBeforeReset) {
      use(Constant<kUpdate>(), Constant<kNumGates>());
    } else if (is_second_half(turn)) {
      use(Constant<kCandidate>(), Constant<kNumGates>());
    } else {
      use(Constant<kUpdate>(), Constant<kCandidate>());
    }
  }
  __device__ __forceinline__ Turn after(const Turn& turn, UInt32 num_steps) const {
    if (!turn.exists) return turn;
    if (turn.round + 1 < num_rounds()) return {turn.step, turn.tag, turn.round + 1, true};
    const UInt32 step = turn.step + (kLinearBeforeReset || is_second_half(turn) ? 1 : 0);
    return {step, turn.tag + 1, 0, step < num_steps};
  }

  __device__ __forceinline__ int hidden() const { return layer.params.hidden_size; }
  // Tiles of exchanged states: whole ones are loaded, so the block with the last unit fills its tile.
  __device__ __forceinline__ int num_unit_tiles() const {
    return (hidden() + kTileColumns - 1) / kTileColumns;
  }
  __device__ __forceinline__ int num_chunks() const {
    return (hidden() + kChunkColumns - 1) / kChunkColumns;
  }
  __device__ __forceinline__ int num_rounds() const {
    return kIsAlone ? 1 : (num_sequences + kRoundBatch - 1) / kRoundBatch;
  }
  // Bytes from the words of the first round to those of another one.
  __device__ __forceinline__ UInt32 bytes_to(UInt32 tag, int round) const {
    return (tag & 1 ? buffer_bytes : 0) + round * round_bytes;
  }
  // The word of a single state, which is at these bytes in a word of two.
  __device__ __forceinline__ Single::Word* single_word(UInt32 bytes) const {
    const Int64 place = bytes / kStateBytes;
    return reinterpret_cast<Single::Word*>(exchange + 2 * static_cast<Int64>(buffer_bytes)) + place;
  }

  // The first of four neighbouring columns that a lane has of its warp's tile of a chunk. A matrix
  // instruction may take columns in any order, if weights and states have the same order.
  __device__ __forceinline__ static int lane_column(int chunk) {
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    return chunk * kChunkColumns + warp * kTileColumns + lane % 4 * 4;
  }

  // ---- Weights.

  // Four neighbouring weights of a row, read from R; 0 outside of it.
  template <bool kIsAligned>
  __device__ __forceinline__ uint2 load_quad(int gate, int unit, int column) const {
    uint2 quad = {0, 0};
    if (unit >= hidden() || column >= hidden()) return quad;
    const Element* first = layer.recurrence + (layer.weight_row(gate, unit) + column);
    if constexpr (kIsAligned) {
      quad = *reinterpret_cast<const uint2*>(first);
    } else {
      UInt32 halves[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) halves[i] = column + i < hidden() ? first[i].bits : 0;
      quad = {halves[0] | halves[1] << 16, halves[2] | halves[3] << 16};
    }
    return quad;
  }

  template <bool kIsAligned>
  __device__ __forceinline__ MatrixRows load_tile(int tile, int chunk) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int unit = part.first_unit + tile % kTiles * kTileRows + lane / 4;
    const int column = lane_column(chunk);
    const uint2 upper = load_quad<kIsAligned>(tile / kTiles, unit, column);
    const uint2 lower = load_quad<kIsAligned>(tile / kTiles, unit + kTileRows / 2, column);
    return {{upper.x, lower.x, upper.y, lower.y}};
  }

  // Whether the first chunks of weights are in shared storage and in registers by turns, so that one is read
  // while the one before it is multiplied. Products are added in the order of the chunks in any case.
  __device__ __forceinline__ bool alternate() const {
    return kLoadedChunks == 2 * kRegisterChunks && num_chunks() >= kLoadedChunks;
  }
  __device__ __forceinline__ int register_chunk(int i) const { return alternate() ? 2 * i + 1 : i; }
  __device__ __forceinline__ int stored_chunk(int i) const {
    return alternate() && i < kRegisterChunks ? 2 * i : kRegisterChunks + i;
  }

  __device__ __forceinline__ void load_weights() {
    // Whether four weights of all rows of R can be loaded as a whole.
    const bool is_aligned =
        hidden() % 4 == 0 && reinterpret_cast<UInt64>(layer.recurrence) % sizeof(uint2) == 0;
    if (is_aligned) {
      load_tiles<true>();
    } else {
      load_tiles<false>();
    }
  }

  template <bool kIsAligned>
  __device__ __forceinline__ void load_tiles() {
#pragma unroll
    for (int i = 0; i < kRegisterChunks; ++i) {
      const int chunk = register_chunk(i);
#pragma unroll
      for (int tile = 0; tile < kBlockTiles; ++tile) {
        if (chunk < num_chunks()) registers[i][tile] = load_tile<kIsAligned>(tile, chunk);
      }
    }
    for (int m = 0; m < num_chunks() - kRegisterChunks; ++m) {
      const int in_overflow = m - layer.params.num_stored_chunks;
      MatrixRows* kept =
          in_overflow < 0 ? stored + m * kBlockTiles * kGridThreads
                          : overflow + static_cast<Int64>(in_overflow) * kBlockTiles * kGridThreads;
      MatrixRows tiles[kBlockTiles];
      // All tiles are in flight before the first is waited for.
#pragma unroll
      for (int tile = 0; tile < kBlockTiles; ++tile) {
        tiles[tile] = load_tile<kIsAligned>(tile, stored_chunk(m));
      }
#pragma unroll
      for (int tile = 0; tile < kBlockTiles; ++tile) {
        kept[tile * kGridThreads + threadIdx.x] = tiles[tile];
      }
    }
  }

  // ---- States.

  // A lane's words of a turn, in the first chunk. A lane whose column of the operand has no sequence takes
  // the last one's; its products are not used.
  struct Source {
    UInt32 bytes;
    UInt32 tag;
  };

  __device__ __forceinline__ Source source_of(const Turn& turn) const {
    const int row = static_cast<int>(threadIdx.x) % kWarpSize / 4;
    const int last_row = num_sequences - 1 - turn.round * kRoundBatch;
    return {lane_bytes + bytes_to(turn.tag, turn.round) + min(row, last_row) * kRowBytes, turn.tag};
  }
  __device__ __forceinline__ MatrixColumns load_chunk(const Source& from, int chunk) const {
    const char* address = exchange + from.bytes + chunk * (kChunkStates * kStateBytes);
    const uint2 words = load_pair_relaxed(reinterpret_cast<const Word*>(address));
    return {{words.x, words.y}};
  }

  // Calls use(exists), where exists(i) is whether chunk `chunk` + i is loaded; for 512 and 1024 columns, this
  // is a constant.
  template <class Use>
  __device__ __forceinline__ void by_count(int chunk, const Use& use) {
    const int left = num_tiles - chunk;
    if (left >= kLoadedChunks) {
      use([](int) { return true; });
    } else if (left == kLoadedChunks / 2) {
      use([](int i) { return i < kLoadedChunks / 2; });
    } else {
      use([left](int i) { return i < left; });
    }
  }

  __device__ __forceinline__ void load(const Source& from, int chunk) {
    by_count(chunk, [&](auto exists) {
#pragma unroll
      for (int i = 0; i < kLoadedChunks; ++i) {
        if (!exists(i)) break;
        loaded[i] = load_chunk(from, chunk + i);
      }
    });
  }

  // Waits until the words from a chunk on have come; `columns` are their states.
  // Matrix instructions wait for all lanes.
  __device__ __forceinline__ void receive(MatrixColumns (&columns)[kLoadedChunks],
                                          const Source& from, int chunk) {
    const UInt32 tag_bits = Format::tag_bits(from.tag);
    const auto values = [&](int i, int word) { return loaded[i].words[word] ^ tag_bits; };
    UInt32 any;  // bits of all words without their tags
    by_count(chunk, [&](auto exists) {
      // If the thread has given up, the states are unspecified.
      patience.wait(
          kWaitForStates,
          [&] {
            any = 0;
#pragma unroll
            for (int i = 0; i < kLoadedChunks; ++i) {
              if (!exists(i)) break;
              any |= values(i, 0) | values(i, 1);
            }
            return (any & Format::kIsMissing) == 0;
          },
          [&] {
#pragma unroll
            for (int i = 0; i < kLoadedChunks; ++i) {
              if (!exists(i)) break;
              if (((values(i, 0) | values(i, 1)) & Format::kIsMissing) != 0) {
                loaded[i] = load_chunk(from, chunk + i);
              }
            }
          });
#pragma unroll
      for (int i = 0; i < kLoadedChunks; ++i) {
        if (!exists(i)) break;
        columns[i] = {{values(i, 0), values(i, 1)}};
      }
    });
    if ((any & Format::kIsElsewhere) != 0) receive_singles(columns, from, chunk);
  }

  // Takes the states above 2 or NaN, and their neighbours, in the chunks from `chunk` on: they have words of
  // their own.
  __device__ __forceinline__ void receive_singles(MatrixColumns (&columns)[kLoadedChunks],
                                                  const Source& from, int chunk) {
    const Single::Word* address = single_word(from.bytes) + chunk * kChunkStates;
    UInt32 left = 0;  // a bit for each chunk with such states
#pragma unroll
    for (int i = 0; i < kLoadedChunks; ++i) {
      if (chunk + i >= num_tiles) break;
      if (!Format::fits(columns[i].words[0] | columns[i].words[1])) left |= 1u << i;
    }
    const auto take = [&] {
#pragma unroll
      for (int i = 0; i < kLoadedChunks; ++i) {
        if ((left >> i & 1) == 0) continue;
        UInt32 missing = 0;
        UInt32 values[2];
#pragma unroll
        for (int word = 0; word < 2; ++word) {
          values[word] = columns[i].words[word];
          if (Format::fits(values[word])) continue;
          const Single::Words words =
              Single::load(address + i * kChunkStates + word * Single::kNumWords);
          missing |= differences<Single>(words, Single::kNumWords, from.tag);
          float2 states;
          Single::unpack(words, &states.x);
          values[word] = Format::value_of(states.x) | Format::value_of(states.y) << 16;
        }
        if (missing != 0) continue;
        columns[i] = {{values[0], values[1]}};
        left ^= 1u << i;
      }
    };
    patience.wait(
        kWaitForStates,
        [&] {
          take();
          return left == 0;
        },
        [] {});
  }

  // The gates kFirst to kLast - 1 of a turn: the warp's part of the products with its columns. If the next
  // turn's states are sent already, they are under way afterwards.
  template <int kFirst, int kLast>
  __device__ __forceinline__ void multiply(const Turn& turn, const Turn& next, bool is_sent,
                                           float* sums_of_turn) {
    if (num_tiles <= 0) return;
    constexpr int kFirstTile = kFirst * kTiles;
    constexpr int kLastTile = kLast * kTiles;
    MatrixSums sums[kBlockTiles];
#pragma unroll
    for (int tile = kFirstTile; tile < kLastTile; ++tile) sums[tile] = {};

    const Source from = source_of(turn);
    MatrixColumns columns[kLoadedChunks];
    const auto receive_chunks = [&](int chunk) {
      receive(columns, from, chunk);
      // A wait for a load may also wait for later ones, so these begin after it.
      if (chunk + kLoadedChunks < num_tiles) {
        load(from, chunk + kLoadedChunks);
      } else if (is_sent) {
        load(source_of(next), 0);
      }
    };
    // The products of loaded chunk `i`.
    const auto add = [&](const MatrixRows& rows, int i, int tile) {
      sums[tile] = Format::add(rows, columns[i], sums[tile]);
    };
    const auto add_rows = [&](const MatrixRows(&rows)[kBlockTiles], int i) {
#pragma unroll
      for (int tile = kFirstTile; tile < kLastTile; ++tile) add(rows[tile], i, tile);
    };
    // The products of the loaded chunks from number `begin` on, with weights from `kept` on. In each call,
    // and so in each access, it is known whether the weights are in shared storage.
    const auto add_kept = [&](const MatrixRows* kept, auto begin, auto exists) {
#pragma unroll
      for (int i = begin.value; i < kLoadedChunks; ++i) {
        if (!exists(i)) break;
#pragma unroll
        for (int tile = kFirstTile; tile < kLastTile; ++tile) {
          add(kept[((i - begin.value) * kBlockTiles + tile) * kGridThreads + threadIdx.x], i, tile);
        }
      }
    };

    if (!are_loaded) load(from, 0);
    if (alternate()) {
      MatrixRows next_rows[kBlockTiles];
      const auto load_rows = [&](int i) {
#pragma unroll
        for (int tile = kFirstTile; tile < kLastTile; ++tile) {
          next_rows[tile] = stored[(i * kBlockTiles + tile) * kGridThreads + threadIdx.x];
        }
      };
      // The first weights come while the states are waited for.
      load_rows(0);
      receive_chunks(0);
#pragma unroll
      for (int i = 0; i < kRegisterChunks; ++i) {
        add_rows(next_rows, 2 * i);
        if (i + 1 < kRegisterChunks) load_rows(i + 1);
        // A warp lacks at most the last chunk.
        if (i + 1 < kRegisterChunks || 2 * i + 1 < num_tiles) add_rows(registers[i], 2 * i + 1);
      }
    } else {
      receive_chunks(0);
      by_count(0, [&](auto exists) {
#pragma unroll
        for (int i = 0; i < kRegisterChunks; ++i) {
          if (!exists(i)) break;
          add_rows(registers[i], i);
        }
        add_kept(stored, Constant<kRegisterChunks>(), exists);
      });
    }
#pragma unroll 1
    for (int chunk = kLoadedChunks; chunk < num_tiles; chunk += kLoadedChunks) {
      receive_chunks(chunk);
      const auto exists = [&](int i) { return chunk + i < num_tiles; };
      const int m = chunk - kRegisterChunks;
      const int num_stored = layer.params.num_stored_chunks;
      if (m < num_stored) {
        add_kept(stored + m * kBlockTiles * kGridThreads, Constant<0>(), exists);
      } else {
        add_kept(overflow + static_cast<Int64>(m - num_stored) * kBlockTiles * kGridThreads,
                 Constant<0>(), exists);
      }
    }
    are_loaded = is_sent;

    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
    for (int tile = kFirstTile; tile < kLastTile; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int unit = tile % kTiles * kTileRows + lane / 4 + i / 2 * 8;
        sums_of_turn[sum_place(warp, tile / kTiles, lane % 4 * 2 + i % 2, unit)] =
            sums[tile].values[i];
      }
    }
  }

  // The sums of a warp without columns stay 0.
  __device__ __forceinline__ void clear_sums() {
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    for (int parity = 0; parity < 2; ++parity) {
      for (int i = lane; i < sum_place(1, 0, 0, 0); i += kWarpSize) {
        partials[parity * kRoundSums + sum_place(warp, 0, 0, 0) + i] = 0.0f;
      }
    }
  }

  __device__ __forceinline__ static int sum_place(int warp, int gate, int row, int unit) {
    return ((warp * kNumGates + gate) * kUnits + unit) * kSumStride + row;
  }

  // ---- Items.

  // A thread has an item in the first item_rounds rounds. Items past the hidden size, in the last tile of
  // words, are sent as 0.
  __device__ __forceinline__ static int item_row() {
    return static_cast<int>(threadIdx.x) / kUnits;
  }
  __device__ __forceinline__ int item_unit() const {
    return part.first_unit + static_cast<int>(threadIdx.x) % kUnits;
  }
  __device__ __forceinline__ Int64 sequence_of(int round) const {
    return part.first_sequence + (round * kRoundBatch + item_row());
  }

  // Sends the state of the thread's item of a round, if it `exists`. All threads of the warp call this,
  // because the thread of an even unit sends a word for the next one, too; both have an item, or neither.
  __device__ __forceinline__ void send(UInt32 tag, int round, float state, bool exists) const {
    const UInt32 value = Format::value_of(state);
    const UInt32 values = value | __shfl_xor_sync(kFullMask, value, 1) << 16;
    if (!exists) return;
    const UInt32 bytes = item_bytes + bytes_to(tag, round);
    if (threadIdx.x % 2 == 0) {
      store_relaxed(reinterpret_cast<Word*>(exchange + bytes), Format::word(values, tag));
    }
    if (!Format::fits(values)) store_relaxed(single_word(bytes), Single::word(state, tag));
  }

  __device__ __forceinline__ float& state_of(int round) {
    return kIsAlone ? state : items[round * kRoundItems + threadIdx.x];
  }
  __device__ __forceinline__ float& update_of(int round) {
    return kIsAlone ? update : items[round * kRoundItems + kGridThreads + threadIdx.x];
  }

  __device__ __forceinline__ void start_items() {
#pragma unroll
    for (int gate = 0; gate < kNumGates; ++gate) inputs[gate * kGridThreads + threadIdx.x] = 0.0f;
    for (int round = 0; round < num_rounds(); ++round) {
      const bool exists = round < item_rounds;
      const int unit = item_unit();
      const float first =
          exists && unit < hidden() ? layer.initial_state(sequence_of(round), unit) : 0.0f;
      state_of(round) = first;
      send(1, round, first, exists);
    }
  }

  // Copies the inputs of the thread's item in a turn to shared storage.
  __device__ __forceinline__ void fetch_inputs(const Turn& turn) {
    const Int64 n = sequence_of(turn.round);
    const UInt32 length = layer.length(n);
    if (turn.step >= length) return;
    const float* from = layer.inputs_of(layer.time(turn.step, length), n, item_unit());
    by_gates(turn, [&](auto first, auto last) {
#pragma unroll
      for (int gate = first.value; gate < last.value; ++gate) {
        copies.start(gate, inputs + gate * kGridThreads + threadIdx.x,
                     from + gate * static_cast<Int64>(hidden()));
      }
    });
  }

  __device__ __forceinline__ GateInputs fetched_inputs() {
    copies.wait();
    const float* slots = inputs + threadIdx.x;
    return {slots[0], slots[kGridThreads], slots[2 * kGridThreads]};
  }

  // The gates kFirst to kLast - 1 of the thread's item in a turn, from the sums of all warps; returns what
  // the other blocks multiply next.
  template <int kFirst, int kLast>
  __device__ __forceinline__ float finish_item(const Turn& turn, const GateInputs& input,
                                               const float* sums_of_turn) {
    float products[kLast - kFirst];
#pragma unroll
    for (int gate = kFirst; gate < kLast; ++gate) {
      float sums[kGridWarps];
#pragma unroll
      for (int warp = 0; warp < kGridWarps; ++warp) {
        const int unit = static_cast<int>(threadIdx.x) % kUnits;
        sums[warp] = sums_of_turn[sum_place(warp, gate, item_row(), unit)];
      }
      products[gate - kFirst] =
          ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    }
    const Activations activations = layer.activations();
    float& state_now = state_of(turn.round);
    if constexpr (!kLinearBeforeReset && kFirst == kUpdate) {
      const UpdateAndReset gates = step_gates<kStandard>(activations, input, biases, products);
      update_of(turn.round) = gates.update;
      return gates.reset * state_now;
    } else {
      if constexpr (kLinearBeforeReset) {
        state_now =
            step_linear_before_reset<kStandard>(activations, input, biases, products, state_now);
      } else {
        state_now = step_candidate<kStandard>(activations, input, biases, products[0],
                                              update_of(turn.round), state_now);
      }
      return state_now;
    }
  }

  // Whether the thread has an item in a turn, with a unit of the layer.
  __device__ __forceinline__ bool has_item(const Turn& turn) const {
    return turn.exists && turn.round < item_rounds && item_unit() < hidden();
  }

  // Computes and sends the state of the thread's item in a turn.
  __device__ __forceinline__ void finish(const Turn& turn, const float* sums_of_turn,
                                         UInt32 num_steps) {
    const GateInputs input = fetched_inputs();
    float state = 0.0f;
    if (has_item(turn)) {
      by_gates(turn, [&](auto first, auto last) {
        state = finish_item<first.value, last.value>(turn, input, sums_of_turn);
      });
    }
    const bool is_last = turn.step + 1 == num_steps && (kLinearBeforeReset || is_second_half(turn));
    send(turn.tag + 1, turn.round, state, turn.round < item_rounds && !is_last);
  }

  // Stores the state of a turn that is finished: no other thread waits for this.
  __device__ __forceinline__ void store_state(const Turn& turn) {
    if (!has_item(turn) || !(kLinearBeforeReset || is_second_half(turn))) return;
    const Int64 n = sequence_of(turn.round);
    const UInt32 length = layer.length(n);
    if (turn.step < length) {
      layer.store_state(turn.step, length, n, item_unit(), state_of(turn.round));
    }
  }

  // In each turn, the block multiplies for this turn and finishes the turn before. Rounds do not depend on
  // each other. With three or more rounds, the states of a turn have come when the turn before it begins, and
  // half of the warps multiply while the others finish. With two rounds, the states are on their way when the
  // turn begins, and with one round, they are sent in the turn.
  __device__ __forceinline__ void run_steps(UInt32 num_steps) {
    const bool are_early = num_rounds() > 2;
    const bool multiplies_first = are_early && threadIdx.x >= kGridThreads / 2;
    float* sums = partials;
    float* sums_before = partials + kRoundSums;
    Turn before = {};
    Turn turn = {0, 1, 0, num_steps > 0};
    if (has_item(turn)) fetch_inputs(turn);
#pragma unroll 1
    while (turn.exists || before.exists) {
      const Turn next = after(turn, num_steps);
      if (num_rounds() == 2) load_states(turn);
      if (before.exists && !multiplies_first) {
        finish(before, sums_before, num_steps);
        if (has_item(turn)) fetch_inputs(turn);
        if (num_rounds() == 1) load_states(turn);
        store_state(before);
      }
      if (turn.exists) {
        by_gates(turn, [&](auto first, auto last) {
          multiply<first.value, last.value>(turn, next, are_early && next.exists, sums);
        });
      }
      if (before.exists && multiplies_first) {
        finish(before, sums_before, num_steps);
        if (has_item(turn)) fetch_inputs(turn);
        store_state(before);
      }
      // All warps' sums of this turn are complete before they are added up, and those of the turn before are
      // read before the next turn's replace them.
      __syncthreads();
      before = turn;
      turn = next;
      float* const others = sums_before;
      sums_before = sums;
      sums = others;
    }
  }

  __device__ __forceinline__ void load_states(const Turn& turn) {
    if (!turn.exists) return;
    load(source_of(turn), 0);
    are_loaded = true;
  }

  __device__ __forceinline__ void run() {
    num_tiles = (num_unit_tiles() - static_cast<int>(threadIdx.x) / kWarpSize + kGridWarps - 1) /
                kGridWarps;
    num_sequences = static_cast<int>(part.num_sequences);
    const int left = num_sequences - item_row();
    const bool has_items =
        item_row() < kRoundBatch && left > 0 && item_unit() < num_unit_tiles() * kTileColumns;
    item_rounds = has_items ? (left + kRoundBatch - 1) / kRoundBatch : 0;
    const GruParams& params = layer.params;
    const UInt32 group_rounds =
        static_cast<UInt32>((params.group_batch + kRoundBatch - 1) / kRoundBatch);
    round_bytes = num_unit_tiles() * kTileBytes;
    const UInt32 group_bytes = group_rounds * round_bytes;
    const UInt32 first_byte = blockIdx.x / params.num_shards * group_bytes;
    buffer_bytes = params.num_directions * params.num_groups * group_bytes;
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    lane_bytes = first_byte + warp * kTileBytes + lane_column(0) % kTileColumns * kStateBytes;
    item_bytes = first_byte + item_unit() / kTileColumns * kTileBytes + item_row() * kRowBytes +
                 item_unit() % kTileColumns * kStateBytes;

    const int end_unit = min(part.first_unit + kUnits, hidden());
    layer.store_padding(part.first_sequence, part.num_sequences, part.first_unit, end_unit,
                        threadIdx.x, kGridThreads);
    start_items();
    biases = item_unit() < hidden() ? layer.load_biases(item_unit()) : GateBiases();
    load_weights();
    if (num_tiles <= 0) clear_sums();
    run_steps(layer.longest(part.first_sequence, part.num_sequences));
  }
};

template <class Element, bool kStandard, bool kLinearBeforeReset, int kTiles, bool kIsAlone>
__global__ void __launch_bounds__(kGridThreads, 1)
    gru_matrix_grid(const float* projection, const Element* recurrence, const Element* bias,
                    const Element* initial, const UInt32* lengths, Element* sequence,
                    Element* single, UInt32* exchange, UInt32* overflow, WaitReport* report,
                    GruParams params) {
  SHARED_STORAGE(SharedWords, shared);
  using Block = MatrixBlock<Element, kStandard, kLinearBeforeReset, kTiles, kIsAlone>;
  const GridPart part = GridPart::of_block(params, Block::kUnits);
  const Layer<Element> layer = {projection, recurrence, bias,   initial,       lengths,
                                sequence,   single,     params, part.direction};
  Block block = {layer, part, {report}};
  block.stored = reinterpret_cast<MatrixRows*>(shared.words);
  block.partials = reinterpret_cast<float*>(block.stored + params.num_stored_chunks *
                                                               Block::kBlockTiles * kGridThreads);
  block.inputs = block.partials + 2 * Block::kRoundSums;
  block.items = block.inputs + kNumGates * kGridThreads;
  block.overflow = reinterpret_cast<MatrixRows*>(overflow) + blockIdx.x * params.overflow_pieces;
  block.are_loaded = false;
  block.exchange = reinterpret_cast<char*>(exchange);
  block.run();
}
