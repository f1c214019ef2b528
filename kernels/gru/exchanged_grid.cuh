// Shared by the kernels whose blocks exchange states: a cooperative grid runs a layer's steps.
//
// A group of blocks has some of the sequences, and each of its blocks (a shard) some hidden units of all of
// them. A step, or half a step if the layer is not linear before reset, processes sequences in rounds: it
// brings their states into shared storage and multiplies them with the block's rows of R. Then one thread
// finishes each item, a hidden unit of a sequence, and sends its state to the other blocks.
#pragma once

#include "common/exchange.cuh"
#include "common/wait.cuh"
#include "gru/fixed_item.cuh"
#include "gru/layer.cuh"

constexpr int kGridThreads = 256;
constexpr int kGridWarps = kGridThreads / kWarpSize;
// Loads that a thread has in flight.
constexpr int kLoadsInFlight = 4;

// Numbers of the waits; `cudml/operators/gru/paths.py` has their names.
constexpr UInt32 kWaitForStates = 1;
constexpr UInt32 kWaitForLayers = 2;

struct alignas(16) SharedWords {
  UInt32 words[4];
};

// The values of an item that are kept from one step or half step to the next.
struct Carried {
  float update;
  float state;
};

// A block's part of a layer; blocks are ordered by direction, group and shard.
struct GridPart {
  int direction;
  Int64 first_sequence;
  Int64 num_sequences;
  int first_unit;

  __device__ __forceinline__ static GridPart of_block(const GruParams& params, int pass_units) {
    const int shard = blockIdx.x % params.num_shards;
    const int group = blockIdx.x / params.num_shards % params.num_groups;
    const int direction = blockIdx.x / params.num_shards / params.num_groups;
    const Int64 first = group * params.group_batch;
    return {direction, first, min(params.group_batch, params.batch_size - first),
            shard * params.num_passes * pass_units};
  }
};

// `Block` derives from this and has
//   kPassUnits: hidden units of a pass; the block has a thread for each of them in each sequence of a round;
//   states: shared floats by sequence of the round and column, rows row_stride() apart;
//   partials: shared, sums_per_pass() floats for each of two passes in turn, or for the only one;
//   round_batch(): sequences of a round;
//   load_weights(), before the first step;
//   multiply_round<kFirst, kLast>(pass, count, sums): each warp's part of the products of `count` states for
//     the gates kFirst to kLast - 1;
//   sum_place(warp, gate, row, unit): the place of an item's sum among those.
//   inputs: shared, kNumGates * kGridThreads floats, if items are fixed.
//   kIsLayered: whether the layer may be one of several in the grid, with fixed items. Then also, in a
//     step: gather_both(tag, loads, step), its own states and those of the layer below;
//     inputs_of<kFirst, kLast>(item), the inputs of an item once sums are complete;
//     pass_on(item, step), when its state is known.
//
// Items are fixed (kIsFixed) if the block has one pass and its sequences one round.
template <class Block, class Element, bool kStandard, bool kLinearBeforeReset, bool kIsFixed>
struct ExchangedGrid {
  using Format = TaggedFloats;
  using Word = Format::Word;

  Layer<Element> layer;
  GridPart part;
  Word* exchange;
  Carried* carried;
  Patience patience;

  __device__ __forceinline__ const Block& block() const { return static_cast<const Block&>(*this); }
  __device__ __forceinline__ int hidden() const { return layer.params.hidden_size; }
  // Number of loads of a row of states.
  __device__ __forceinline__ int loads_per_row() const {
    return (hidden() + Format::kNumWords - 1) / Format::kNumWords;
  }
  __device__ __forceinline__ Int64 row_of(Int64 n) const {
    return layer.direction * layer.params.batch_size + n;
  }

  // The words of sequence n in the buffer that an exchange uses.
  __device__ __forceinline__ Word* exchanged(UInt32 tag, Int64 n) const {
    const Int64 num_rows = layer.params.num_directions * layer.params.batch_size;
    return exchange + ((tag & 1) * num_rows + row_of(n)) * (Format::kNumWords * loads_per_row());
  }

  __device__ __forceinline__ void send(UInt32 tag, Int64 n, int unit, float value) const {
    store_relaxed(exchanged(tag, n) + unit, Format::word(value, tag));
  }

  __device__ __forceinline__ Carried* carried_of(Int64 n, int unit) const {
    return carried + row_of(n) * hidden() + unit;
  }

  // Brings the states of the sequences [first, first + count) that take this step into shared storage. Rows
  // of the others stay unchanged; results computed from them are not used.
  __device__ __forceinline__ void gather(UInt32 step, UInt32 tag, Int64 first, int count) {
    const int num_loads = loads_per_row();
    int row = 0;
    int load = threadIdx.x;
    const auto settle = [&] {
      while (load >= num_loads) {
        load -= num_loads;
        ++row;
      }
    };
    settle();
    while (row < count) {
      Format::Words words[kLoadsInFlight];
      const Word* sources[kLoadsInFlight];
      int targets[kLoadsInFlight];
      int num_words[kLoadsInFlight];
#pragma unroll
      for (int i = 0; i < kLoadsInFlight; ++i) {
        sources[i] = nullptr;
        if (row < count && step < layer.length(first + row)) {
          const int column = Format::kNumWords * load;
          sources[i] = exchanged(tag, first + row) + column;
          targets[i] = row * block().row_stride() + column;
          num_words[i] = hidden() - column;
          words[i] = Format::load(sources[i]);
        }
        load += kGridThreads;
        settle();
      }
#pragma unroll
      for (int i = 0; i < kLoadsInFlight; ++i) {
        if (sources[i] == nullptr) continue;
        // If the thread has given up, the states are unspecified.
        patience.wait(
            kWaitForStates, [&] { return differences<Format>(words[i], num_words[i], tag) == 0; },
            [&] { words[i] = Format::load(sources[i]); });
        // Columns past the hidden size stay 0: words there are never sent, so they are 0, too.
        Format::unpack(words[i], block().states + targets[i]);
      }
    }
  }

  __device__ __forceinline__ void gather_initial(Int64 first, int count) const {
    for (int row = 0; row < count; ++row) {
      for (int unit = threadIdx.x; unit < hidden(); unit += kGridThreads) {
        block().states[row * block().row_stride() + unit] = layer.initial_state(first + row, unit);
      }
    }
  }

  // The products of an item, from the sums of all warps, for the gates from kFirst on.
  template <int kFirst, int kNumProducts>
  __device__ __forceinline__ void add_up(float (&products)[kNumProducts], const float* sums_of_pass,
                                         int row, int pass_unit) const {
#pragma unroll
    for (int gate = 0; gate < kNumProducts; ++gate) {
      float sums[kGridWarps];
#pragma unroll
      for (int warp = 0; warp < kGridWarps; ++warp) {
        sums[warp] = sums_of_pass[block().sum_place(warp, kFirst + gate, row, pass_unit)];
      }
      products[gate] =
          ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    }
  }

  // The gates kFirst to kLast - 1 of the sequences [first, first + count) at one step.
  template <int kFirst, int kLast>
  __device__ __forceinline__ void process_round(UInt32 step, Int64 first, int count) {
    constexpr bool kIsSecondHalf = kFirst == kCandidate;
    // Exchanges are numbered by their content: the state after `step` steps, or the step's reset state.
    const UInt32 tag = kLinearBeforeReset ? step : 2 * step + (kIsSecondHalf ? 1 : 0);

    const int row = threadIdx.x / Block::kPassUnits;
    const int pass_unit = threadIdx.x % Block::kPassUnits;
    const Int64 n = first + row;
    const UInt32 length = row < count ? layer.length(n) : 0;
    const Int64 time = layer.time(step, length);
    const Activations activations = layer.activations();
    const int num_passes = layer.params.num_passes;
    GateInputs inputs = {};
    GateBiases biases = {};
    Carried before = {};
    const auto load_pass = [&](int pass) {
      const int unit = part.first_unit + pass * Block::kPassUnits + pass_unit;
      if (step >= length || unit >= hidden()) return;
      inputs = layer.load_inputs(time, n, unit);
      biases = layer.load_biases(unit);
      if constexpr (kIsSecondHalf) before = *carried_of(n, unit);
    };

    // Loads that do not depend on other blocks are in flight while the thread waits for those blocks.
    load_pass(0);
    if (tag == 0) {
      gather_initial(first, count);
    } else {
      gather(step, tag, first, count);
    }
    // The states of the round are complete before any thread multiplies them.
    __syncthreads();

    for (int pass = 0; pass < num_passes; ++pass) {
      const int unit = part.first_unit + pass * Block::kPassUnits + pass_unit;
      const bool is_mine = step < length && unit < hidden();
      if constexpr (!kIsSecondHalf) {
        // Read before the barrier: after the last one of a round its states may be replaced.
        if (is_mine) before.state = block().states[row * block().row_stride() + unit];
      }
      float* sums_of_pass = block().partials + (pass & 1) * block().sums_per_pass();
      block().template multiply_round<kFirst, kLast>(pass, count, sums_of_pass);
      // All warps' sums of this pass are complete before they are added up. The next pass writes the other
      // half of `partials`; the one after that follows another barrier. From here on, states may be replaced.
      __syncthreads();

      if (is_mine) {
        float products[kLast - kFirst];
        add_up<kFirst>(products, sums_of_pass, row, pass_unit);
        finish<kFirst, kLast>(activations, inputs, biases, products, before, step, length, n, unit);
      }
      if (pass + 1 < num_passes) load_pass(pass + 1);
    }
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
    }
    layer.store_state(step, length, n, unit, next);
  }

  template <int kFirst, int kLast>
  __device__ __forceinline__ void process(UInt32 step) {
    const int round_batch = block().round_batch();
    for (Int64 done = 0; done < part.num_sequences; done += round_batch) {
      const Int64 left = part.num_sequences - done;
      process_round<kFirst, kLast>(step, part.first_sequence + done,
                                   left < round_batch ? static_cast<int>(left) : round_batch);
    }
  }

  // The loads of a thread that bring an exchange into shared storage: every `ahead` words of one row, so that
  // places in memory and in shared storage are as far apart.
  struct Loads {
    const Word* first;  // of exchanges with even numbers
    Int64 words_per_buffer;
    int target;  // in `states`
    int ahead;
    int count;
  };

  __device__ __forceinline__ Loads loads_of_thread() const {
    const int per_row = loads_per_row();
    const int num_rows = static_cast<int>(part.num_sequences);
    int threads_per_row = kGridThreads;
    while (threads_per_row * num_rows > kGridThreads) threads_per_row /= 2;
    const int thread = threadIdx.x;
    const int row = thread / threads_per_row;
    const int load = thread % threads_per_row;
    Loads loads;
    loads.first = exchanged(0, part.first_sequence + row) + load * Format::kNumWords;
    loads.words_per_buffer =
        layer.params.num_directions * layer.params.batch_size * (Format::kNumWords * per_row);
    loads.target = row * block().row_stride() + load * Format::kNumWords;
    loads.ahead = threads_per_row * Format::kNumWords;
    loads.count = row < num_rows && load < per_row
                      ? (per_row - load + threads_per_row - 1) / threads_per_row
                      : 0;
    return loads;
  }

  // What a thread brings to shared storage: words with a tag.
  struct Stream {
    UInt32 tag;
    const Word* source;
    float* target;
  };

  // The thread's next kNumLoads loads of each stream, or if they are not all there, `left` of them. Words of
  // the last load past the hidden size are never sent.
  template <int kNumLoads, bool kAreAllThere, bool kIsWhole, int kNumStreams>
  __device__ __forceinline__ void gather_some(const Stream (&streams)[kNumStreams], int ahead,
                                              int left, int num_last_words, UInt32 wait) {
    Format::Words words[kNumStreams][kNumLoads];
    const auto is_there = [&](int i) { return kAreAllThere || i < left; };
    const auto load = [&](int s, int i) {
      words[s][i] = Format::load(streams[s].source + i * ahead);
    };
#pragma unroll
    for (int s = 0; s < kNumStreams; ++s) {
#pragma unroll
      for (int i = 0; i < kNumLoads; ++i) {
        if constexpr (!kAreAllThere) words[s][i] = {};
        if (is_there(i)) load(s, i);
      }
    }
    const auto missing = [&](int s, int i) {
      const int num_words = kIsWhole || i + 1 < left ? Format::kNumWords : num_last_words;
      return is_there(i) ? differences<Format>(words[s][i], num_words, streams[s].tag) : 0;
    };
    // If the thread has given up, the states are unspecified.
    patience.wait(
        wait,
        [&] {
          UInt32 any = 0;
#pragma unroll
          for (int s = 0; s < kNumStreams; ++s) {
#pragma unroll
            for (int i = 0; i < kNumLoads; ++i) any |= missing(s, i);
          }
          return any == 0;
        },
        [&] {
#pragma unroll
          for (int s = 0; s < kNumStreams; ++s) {
#pragma unroll
            for (int i = 0; i < kNumLoads; ++i) {
              if (missing(s, i) != 0) load(s, i);
            }
          }
        });
#pragma unroll
    for (int s = 0; s < kNumStreams; ++s) {
#pragma unroll
      for (int i = 0; i < kNumLoads; ++i) {
        if (is_there(i)) Format::unpack(words[s][i], streams[s].target + i * ahead);
      }
    }
  }

  // The words of a thread's loads in each stream.
  template <int kNumStreams>
  __device__ __forceinline__ void gather_streams(Stream (&streams)[kNumStreams], const Loads& loads,
                                                 UInt32 wait) {
    constexpr int kMost = kLoadsInFlight / kNumStreams;
    const int ahead = loads.ahead;
    int left = loads.count;
    const auto advance = [&](int words) {
#pragma unroll
      for (int s = 0; s < kNumStreams; ++s) {
        streams[s].source += words;
        streams[s].target += words;
      }
    };
    if (hidden() % Format::kNumWords != 0) {
      const int first_word = static_cast<int>(threadIdx.x) * Format::kNumWords % ahead;
      const int num_last_words = hidden() - first_word - (left - 1) * ahead;
#pragma unroll 1
      for (; left > 0; --left, advance(ahead)) {
        gather_some<1, true, false>(streams, ahead, left, num_last_words, wait);
      }
      return;
    }
#pragma unroll 1
    for (; left >= kMost; left -= kMost, advance(kMost * ahead)) {
      gather_some<kMost, true, true>(streams, ahead, kMost, 0, wait);
    }
    if (kMost > 2 && left > 1) {
      gather_some<kMost - 1, false, true>(streams, ahead, left, 0, wait);
    } else if (left > 0) {
      gather_some<1, true, true>(streams, ahead, 1, 0, wait);
    }
  }

  __device__ __forceinline__ Stream stream_of(UInt32 tag, const Loads& loads) const {
    return {tag, loads.first + (tag & 1) * loads.words_per_buffer, block().states + loads.target};
  }

  // All sequences send in every step.
  __device__ __forceinline__ void gather_all(UInt32 tag, const Loads& loads) {
    Stream streams[] = {stream_of(tag, loads)};
    gather_streams(streams, loads, kWaitForStates);
  }

  // The gates kFirst to kLast - 1 of a step, for an item that the thread has in every step.
  template <int kFirst, int kLast, class Item>
  __device__ __forceinline__ void process_fixed(Item& item, const Loads& loads, Word* sent,
                                                UInt32 step, UInt32 num_steps) {
    constexpr bool kIsSecondHalf = kFirst == kCandidate;
    const UInt32 tag = kLinearBeforeReset ? step : 2 * step + (kIsSecondHalf ? 1 : 0);
    if constexpr (Block::kIsLayered && kFirst == kUpdate) {
      static_cast<Block&>(*this).gather_both(tag, loads, step);
    } else if (tag > 0) {
      gather_all(tag, loads);
    }
    // The states are complete before any thread multiplies them.
    __syncthreads();
    block().template multiply_round<kFirst, kLast>(0, static_cast<int>(part.num_sequences),
                                                   block().partials);
    // All warps' sums are complete before they are added up, and all states read before the next ones
    // replace them. The next sums are written after another barrier.
    __syncthreads();
    if (!item.exists) return;

    float products[kLast - kFirst];
    add_up<kFirst>(products, block().partials, threadIdx.x / Block::kPassUnits,
                   threadIdx.x % Block::kPassUnits);
    GateInputs inputs;
    if constexpr (Block::kIsLayered) {
      inputs = block().template inputs_of<kFirst, kLast>(item);
    } else {
      inputs = item.fetched_inputs();
    }
    const Activations activations = layer.activations();
    const auto send_next = [&](float value) {
      store_relaxed(sent + ((tag + 1) & 1) * loads.words_per_buffer,
                    Format::word(Format::value_of(value), tag + 1));
    };
    if constexpr (kLinearBeforeReset) {
      item.state = step_linear_before_reset<kStandard>(activations, inputs, item.biases, products,
                                                       item.state);
    } else if constexpr (kFirst == kUpdate) {
      const UpdateAndReset gates =
          step_gates<kStandard>(activations, inputs, item.biases, products);
      item.update = gates.update;
      send_next(gates.reset * item.state);
      return;
    } else {
      item.state = step_candidate<kStandard>(activations, inputs, item.biases, products[0],
                                             item.update, item.state);
    }
    if (step + 1 < num_steps) send_next(item.state);
    if constexpr (Block::kIsLayered) block().pass_on(item, step);
    item.finish_step(step);
  }

  template <class Item>
  __device__ __forceinline__ void run_fixed(UInt32 num_steps) {
    const int row = threadIdx.x / Block::kPassUnits;
    const int unit = part.first_unit + static_cast<int>(threadIdx.x) % Block::kPassUnits;
    Item item(layer, part.first_sequence + row, unit, row < part.num_sequences && unit < hidden(),
              block().inputs);
    gather_initial(part.first_sequence, static_cast<int>(part.num_sequences));
    const Loads loads = loads_of_thread();
    Word* const sent = exchanged(0, item.n) + unit;
    for (UInt32 step = 0; step < num_steps; ++step) {
      if constexpr (kLinearBeforeReset) {
        process_fixed<kUpdate, kNumGates>(item, loads, sent, step, num_steps);
      } else {
        process_fixed<kUpdate, kCandidate>(item, loads, sent, step, num_steps);
        process_fixed<kCandidate, kNumGates>(item, loads, sent, step, num_steps);
      }
    }
  }

  __device__ __forceinline__ void run() {
    const int end_unit =
        min(part.first_unit + layer.params.num_passes * Block::kPassUnits, hidden());
    layer.store_padding(part.first_sequence, part.num_sequences, part.first_unit, end_unit,
                        threadIdx.x, kGridThreads);
    static_cast<Block&>(*this).load_weights();
    // Columns past the hidden size and rows past the batch stay 0, so that no weight of 0 meets infinity.
    for (int i = threadIdx.x; i < block().round_batch() * block().row_stride(); i += kGridThreads) {
      block().states[i] = 0;
    }
    // The zeros are written before states overwrite them.
    __syncthreads();

    const UInt32 steps = layer.longest(part.first_sequence, part.num_sequences);
    if constexpr (kIsFixed) {
      run_fixed<FixedItem<Element, kGridThreads, Block::kIsLayered>>(steps);
      return;
    }
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
