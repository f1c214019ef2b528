// Shared by the kernels whose blocks exchange states and whose threads have one item each: a hidden unit of
// a sequence, the same in every step.
//
// A step, or half a step if the layer is not linear before reset, brings the states of the block's sequences
// into shared storage, multiplies them with the block's rows of R, finishes the items and sends their states
// to the other blocks, in words with the number of the exchange.
#pragma once

#include "common/exchange.cuh"
#include "gru/fixed_item.cuh"
#include "gru/grid_part.cuh"
#include "gru/grid_product.cuh"

// Loads that a thread has in flight.
constexpr int kLoadsInFlight = 4;

// `Block` derives from this and has
//   kPassUnits: hidden units of the block, which has a thread for each of them in each of its sequences;
//   states: shared floats by sequence and column, rows row_stride() apart;
//   partials: shared, for the sums;
//   round_batch(): sequences that there is room for;
//   load_weights(), before the first step;
//   multiply_all<kFirst, kLast>(count): each warp's part of the products of `count` states for the gates
//     kFirst to kLast - 1;
//   sum_place(warp, gate, row, unit): the place of an item's sum among those.
//   inputs: shared, kNumGates * kGridThreads floats.
//   kIsLayered: whether the layer may be one of several in the grid. Then also, in a
//     step: gather_both(tag, loads, step), its own states and those of the layer below;
//     inputs_of<kFirst, kLast>(item), the inputs of an item once sums are complete;
//     pass_on(item, step), when its state is known.
template <class Block, class Element, bool kStandard, bool kLinearBeforeReset>
struct ExchangedGrid {
  using Format = TaggedFloats;
  using Word = Format::Word;

  Layer<Element> layer;
  GridPart part;
  Word* exchange;
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

  // The words of sequence n in the buffer of exchanges with even numbers.
  __device__ __forceinline__ Word* exchanged(Int64 n) const {
    return exchange + row_of(n) * (Format::kNumWords * loads_per_row());
  }

  __device__ __forceinline__ void gather_initial(Int64 first, int count) const {
    for (int row = 0; row < count; ++row) {
      for (int unit = threadIdx.x; unit < hidden(); unit += kGridThreads) {
        block().states[row * block().row_stride() + unit] = layer.initial_state(first + row, unit);
      }
    }
  }

  // The loads of a thread that bring an exchange into shared storage: every `ahead` words of one row, so that
  // places are equally far apart in memory and in shared storage.
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
    loads.first = exchanged(part.first_sequence + row) + load * Format::kNumWords;
    loads.words_per_buffer =
        layer.params.num_directions * layer.params.batch_size * (Format::kNumWords * per_row);
    loads.target = row * block().row_stride() + load * Format::kNumWords;
    loads.ahead = threads_per_row * Format::kNumWords;
    loads.count = row < num_rows && load < per_row
                      ? (per_row - load + threads_per_row - 1) / threads_per_row
                      : 0;
    return loads;
  }

  // Words with a tag that a thread brings to shared storage.
  struct Stream {
    UInt32 tag;
    const Word* source;
    float* target;
  };

  // The thread's next kNumLoads loads of each stream, or unless kAreAllThere, `left` of them. Words of the
  // last load past the hidden size are never sent.
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
  __device__ __forceinline__ void process(Item& item, const Loads& loads, Word* sent, UInt32 step,
                                          UInt32 num_steps) {
    constexpr bool kIsSecondHalf = kFirst == kCandidate;
    const UInt32 tag = kLinearBeforeReset ? step : 2 * step + (kIsSecondHalf ? 1 : 0);
    if constexpr (Block::kIsLayered && kFirst == kUpdate) {
      static_cast<Block&>(*this).gather_both(tag, loads, step);
    } else if (tag > 0) {
      gather_all(tag, loads);
    }
    // The states are complete before any thread multiplies them.
    __syncthreads();
    block().template multiply_all<kFirst, kLast>(static_cast<int>(part.num_sequences));
    // All warps' sums are complete before they are added up, and all states are read before the next states
    // replace them. The next sums are written after another barrier.
    __syncthreads();
    if (!item.exists) return;

    float products[kLast - kFirst];
    add_up<kFirst>(block(), products, block().partials, threadIdx.x / Block::kPassUnits,
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
  __device__ __forceinline__ void run_steps(UInt32 num_steps) {
    const int row = threadIdx.x / Block::kPassUnits;
    const int unit = part.first_unit + static_cast<int>(threadIdx.x) % Block::kPassUnits;
    Item item(layer, part.first_sequence + row, unit, row < part.num_sequences && unit < hidden(),
              block().inputs);
    gather_initial(part.first_sequence, static_cast<int>(part.num_sequences));
    const Loads loads = loads_of_thread();
    Word* const sent = exchanged(item.n) + unit;
    for (UInt32 step = 0; step < num_steps; ++step) {
      if constexpr (kLinearBeforeReset) {
        process<kUpdate, kNumGates>(item, loads, sent, step, num_steps);
      } else {
        process<kUpdate, kCandidate>(item, loads, sent, step, num_steps);
        process<kCandidate, kNumGates>(item, loads, sent, step, num_steps);
      }
    }
  }

  __device__ __forceinline__ void run() {
    const int end_unit = min(part.first_unit + Block::kPassUnits, hidden());
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
    run_steps<FixedItem<Element, kGridThreads, Block::kIsLayered>>(steps);
  }
};
