// A GRU layer over a whole sequence by a cooperative grid, for hidden sizes that one block is slow for.
// Every block keeps its rows of R on the chip; each step it multiplies, applies the gates, sends its states.
// A group of blocks shares the hidden units of some sequences; 8 warps split the columns, 8 lanes again.
// All blocks are resident, `exchange` is zeroed, shared storage holds states, partial sums and chunks.
// Chosen where several blocks a direction are estimated to be faster than one, see operators/gru_paths.py.

#include "common/exchange.cuh"
#include "gru/product.cuh"

constexpr int kGridThreads = 256;
constexpr int kGridWarps = kGridThreads / kWarpSize;
// Hidden units of a thread. More would meet a state once it is loaded, but their sums do not fit beside
// the weights.
constexpr int kGridUnits = 2;
// Sequences whose products are accumulated together.
constexpr int kGridBatch = 2;
// Chunks of 256 columns whose weights are in registers.
constexpr int kGridRegisterChunks = 4;
// Loads of one thread that are on their way at a time.
constexpr int kLoadsInFlight = 4;

struct alignas(16) SharedWords {
  float words[4];
};

// What the first half of a step that is not linear before reset leaves to the second.
struct Carried {
  float update;
  float state;
};

template <class Element, bool kStandard, bool kLinearBeforeReset>
struct GridBlock {
  using Weights = ResidentWeights<Element, kGridUnits, kGridWarps, kGridRegisterChunks>;
  static constexpr int kPassUnits = Weights::kUnitsPerWarp;

  Layer<Element> layer;
  Weights weights;
  float* states;    // sequence of the round, column
  float* partials;  // parity of the pass, warp, gate, item
  UInt64* exchange;
  Carried* carried;
  Int64 first_sequence;
  Int64 num_sequences;
  int first_unit;

  __device__ __forceinline__ int hidden() const { return layer.params.hidden_size; }
  __device__ __forceinline__ int row_stride() const {
    return weights.num_chunks() * Weights::kChunkColumns;
  }
  __device__ __forceinline__ int pairs_per_row() const { return (hidden() + 1) / 2; }
  __device__ __forceinline__ int items_per_round() const {
    return layer.params.round_batch * kPassUnits;
  }

  // The words of sequence n in the buffer that an exchange uses.
  __device__ __forceinline__ UInt64* exchanged(UInt32 tag, Int64 n) const {
    const Int64 rows = layer.params.num_directions * layer.params.batch_size;
    const Int64 row = (tag & 1) * rows + layer.direction * layer.params.batch_size + n;
    return exchange + row * (2 * pairs_per_row());
  }

  // Brings the states of the sequences [first, first + count) that take this step into shared
  // storage. Rows of the others keep what they had; nothing that is computed from them is used.
  __device__ __forceinline__ void gather(UInt32 step, UInt32 tag, Int64 first, int count) const {
    const int pairs = pairs_per_row();
    int row = 0;
    int pair = threadIdx.x;
    while (pair >= pairs) {
      pair -= pairs;
      ++row;
    }
    while (row < count) {
      WordPair words[kLoadsInFlight];
      const UInt64* sources[kLoadsInFlight];
      int targets[kLoadsInFlight];
      bool is_last[kLoadsInFlight];
#pragma unroll
      for (int i = 0; i < kLoadsInFlight; ++i) {
        sources[i] = nullptr;
        if (row < count && step < layer.length(first + row)) {
          sources[i] = exchanged(tag, first + row) + 2 * pair;
          targets[i] = row * row_stride() + 2 * pair;
          is_last[i] = 2 * pair + 1 == hidden();
          words[i] = load_pair_relaxed(sources[i]);
        }
        pair += kGridThreads;
        while (pair >= pairs) {
          pair -= pairs;
          ++row;
        }
      }
#pragma unroll
      for (int i = 0; i < kLoadsInFlight; ++i) {
        if (sources[i] == nullptr) continue;
        while (!has_tag(words[i].first, tag) || !(is_last[i] || has_tag(words[i].second, tag))) {
          give_way();
          words[i] = load_pair_relaxed(sources[i]);
        }
        states[targets[i]] = tagged_value(words[i].first);
        if (!is_last[i]) states[targets[i] + 1] = tagged_value(words[i].second);
      }
    }
  }

  __device__ __forceinline__ void gather_initial(Int64 first, int count) const {
    for (int row = 0; row < count; ++row) {
      for (int unit = threadIdx.x; unit < hidden(); unit += kGridThreads) {
        states[row * row_stride() + unit] = layer.initial_state(first + row, unit);
      }
    }
  }

  template <int kFirst, int kLast, int kBatch>
  __device__ __forceinline__ void multiply(int row, int pass, float* sums_of_pass) const {
    constexpr int kPairs = kBatch * kGridUnits;
    float sums[kPairs][kLast - kFirst];
    weights.template multiply<kFirst, kLast, kBatch>(sums, states + row * row_stride(),
                                                     row_stride(), pass);
    reduce_rows(sums);
    if (owns_pair<kPairs>()) {
      const int pair = owned_pair<kPairs>();
      const int warp = threadIdx.x / kWarpSize;
      const int item =
          (row + pair / kGridUnits) * kPassUnits + weights.first_unit() + pair % kGridUnits;
#pragma unroll
      for (int gate = 0; gate < kLast - kFirst; ++gate) {
        sums_of_pass[(warp * kNumGates + gate) * items_per_round() + item] = sums[0][gate];
      }
    }
  }

  // The gates kFirst to kLast - 1 of the sequences [first, first + count) at one step.
  template <int kFirst, int kLast>
  __device__ __forceinline__ void process_round(UInt32 step, Int64 first, int count) const {
    constexpr bool kIsSecondHalf = kFirst == kCandidate;
    // Exchanges are numbered by what they carry: the state after `step` steps, or step's reset
    // state.
    const UInt32 tag = kLinearBeforeReset ? step : 2 * step + (kIsSecondHalf ? 1 : 0);

    const int item = threadIdx.x;
    const int row = item / kPassUnits;
    const Int64 n = first + row;
    const UInt32 length = row < count ? layer.length(n) : 0;
    const Int64 time = layer.time(step, length);
    const Activations activations = layer.activations();
    const int num_passes = layer.params.num_passes;
    GateInputs inputs = {};
    GateBiases biases = {};
    const auto load_pass = [&](int pass) {
      const int unit = first_unit + pass * kPassUnits + item % kPassUnits;
      if (step >= length || unit >= hidden()) return;
      inputs = layer.load_inputs(time, n, unit);
      biases = layer.load_biases(unit);
    };

    // What does not depend on other blocks is on its way while they are waited for.
    load_pass(0);
    if (tag == 0) {
      gather_initial(first, count);
    } else {
      gather(step, tag, first, count);
    }
    // The states of the round are complete before any thread multiplies with them.
    __syncthreads();

    for (int pass = 0; pass < num_passes; ++pass) {
      const int unit = first_unit + pass * kPassUnits + item % kPassUnits;
      const bool is_mine = step < length && unit < hidden();
      // Read before the barrier: after the last one of a round its states may be replaced.
      const float state = is_mine ? states[row * row_stride() + unit] : 0.0f;
      float* sums_of_pass = partials + (pass & 1) * kGridWarps * kNumGates * items_per_round();
      int done = 0;
      for (; done + kGridBatch <= count; done += kGridBatch) {
        multiply<kFirst, kLast, kGridBatch>(done, pass, sums_of_pass);
      }
      for (; done < count; ++done) multiply<kFirst, kLast, 1>(done, pass, sums_of_pass);
      // All warps' sums of this pass are complete before they are added. The next pass writes the
      // other half of `partials`; the one after it comes after another barrier.
      __syncthreads();

      if (is_mine) {
        float products[kLast - kFirst];
#pragma unroll
        for (int gate = 0; gate < kLast - kFirst; ++gate) {
          float sums[kGridWarps];
#pragma unroll
          for (int warp = 0; warp < kGridWarps; ++warp) {
            sums[warp] = sums_of_pass[(warp * kNumGates + gate) * items_per_round() + item];
          }
          products[gate] = ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
                           ((sums[4] + sums[5]) + (sums[6] + sums[7]));
        }
        finish<kFirst, kLast>(activations, inputs, biases, products, state, step, length, n, unit);
      }
      if (pass + 1 < num_passes) load_pass(pass + 1);
    }
  }

  // The gates of one item, from the complete products.
  template <int kFirst, int kLast>
  __device__ __forceinline__ void finish(const Activations& activations, const GateInputs& inputs,
                                         const GateBiases& biases,
                                         const float (&products)[kLast - kFirst], float state,
                                         UInt32 step, UInt32 length, Int64 n, int unit) const {
    float next;
    if constexpr (kLinearBeforeReset) {
      next = step_linear_before_reset<kStandard>(activations, inputs, biases, products, state);
    } else {
      Carried& mine =
          carried[(layer.direction * layer.params.batch_size + n) * static_cast<Int64>(hidden()) +
                  unit];
      if constexpr (kFirst == kUpdate) {
        const UpdateAndReset gates = step_gates<kStandard>(activations, inputs, biases, products);
        mine = {gates.update, state};
        send_tagged(exchanged(2 * step + 1, n) + unit, gates.reset * state, 2 * step + 1);
        return;
      }
      next = step_candidate<kStandard>(activations, inputs, biases, products[0], mine.update,
                                       mine.state);
    }
    if (step + 1 < length) {
      const UInt32 tag = kLinearBeforeReset ? step + 1 : 2 * step + 2;
      send_tagged(exchanged(tag, n) + unit, next, tag);
    }
    layer.store_state(step, length, n, unit, next);
  }

  template <int kFirst, int kLast>
  __device__ __forceinline__ void process(UInt32 step) const {
    for (Int64 done = 0; done < num_sequences; done += layer.params.round_batch) {
      const Int64 left = num_sequences - done;
      const int round_batch = layer.params.round_batch;
      process_round<kFirst, kLast>(step, first_sequence + done,
                                   left < round_batch ? static_cast<int>(left) : round_batch);
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
    const int pass_units = layer.params.num_passes * kPassUnits;
    layer.store_padding(first_sequence, num_sequences, first_unit,
                        min(first_unit + pass_units, hidden()), threadIdx.x, kGridThreads);
    weights.load(first_unit, kPassUnits);
    // Columns past the hidden size stay 0, so that a weight of 0 meets no infinity.
    for (int i = threadIdx.x; i < layer.params.round_batch * row_stride(); i += kGridThreads) {
      states[i] = 0.0f;
    }
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

template <class Element, bool kStandard, bool kLinearBeforeReset>
__global__ void __launch_bounds__(kGridThreads, 1)
    gru_grid(const float* projection, const Element* recurrence, const Element* bias,
             const Element* initial, const UInt32* lengths, Element* sequence, Element* single,
             UInt64* exchange, float* carried, Element* overflow, GruParams params) {
  SHARED_STORAGE(SharedWords, shared);
  // Blocks in order of direction, group and shard.
  const int shard = blockIdx.x % params.num_shards;
  const int group = blockIdx.x / params.num_shards % params.num_groups;
  const int direction = blockIdx.x / params.num_shards / params.num_groups;

  const Layer<Element> layer = {projection, recurrence, bias,   initial,  lengths,
                                sequence,   single,     params, direction};
  using Block = GridBlock<Element, kStandard, kLinearBeforeReset>;
  const Int64 first_sequence = group * params.group_batch;
  Block block = {layer,
                 {layer, nullptr, nullptr, {}},
                 shared.words,
                 nullptr,
                 exchange,
                 reinterpret_cast<Carried*>(carried),
                 first_sequence,
                 min(params.group_batch, params.batch_size - first_sequence),
                 shard * params.num_passes * Block::kPassUnits};
  block.partials = block.states + params.round_batch * block.row_stride();
  const int num_halves = params.num_passes > 1 ? 2 : 1;
  block.weights.stored = reinterpret_cast<WeightQuad<Element>*>(
      block.partials + num_halves * kGridWarps * kNumGates * block.items_per_round());
  block.weights.overflow =
      reinterpret_cast<WeightQuad<Element>*>(overflow) + blockIdx.x * params.overflow_pieces;
  block.run();
}
