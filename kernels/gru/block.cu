// Computes: a GRU layer over a whole sequence, for small hidden sizes.
// Idea: a block holds all of R; a step takes one barrier if linear before reset, else two.
// Ownership: a block owns sequences of a direction, a warp 16 units; 8 lanes share a row.
// Requires: a warp for every 16 hidden units, up to the limit of a block; then several passes.
// Chosen when: the weights fit one multiprocessor, or no grid of several blocks can run.

#include "gru/fixed_item.cuh"
#include "gru/product.cuh"

constexpr int kBlockThreads = 256;
// Hidden units of a thread.
constexpr int kBlockUnits = 4;

struct alignas(16) SharedWords {
  float words[4];
};

// Items are fixed if a block has one sequence and its threads have all hidden units in one pass.
// Then kNumChunks is the number of chunks of 32 columns, else 0. The weights of kRegisterChunks
// chunks are in registers.
template <class Element, bool kStandard, bool kLinearBeforeReset, int kNumChunks,
          int kRegisterChunks>
struct WholeBlock {
  static constexpr bool kIsFixed = kNumChunks > 0;
  using Weights = ResidentWeights<Element, kBlockUnits, 1, kRegisterChunks, !kIsFixed, kNumChunks>;

  Layer<Element> layer;
  Weights weights;
  // Rows of one sequence each: the states of two steps in turn if linear before reset, else the states, the
  // reset states and the update gates.
  float* rows;
  // The inputs of a step, if items are fixed.
  float* inputs;
  Int64 first_sequence;
  int num_sequences;

  __device__ __forceinline__ int hidden() const { return layer.params.hidden_size; }
  __device__ __forceinline__ int row_stride() const {
    return weights.num_chunks() * Weights::kChunkColumns;
  }
  __device__ __forceinline__ int pass_units() const {
    return static_cast<int>(blockDim.x) / kWarpSize * Weights::kUnitsPerWarp;
  }
  __device__ __forceinline__ float* buffer(int which) const {
    return rows + which * static_cast<int>(layer.params.group_batch) * row_stride();
  }

  // The hidden unit that the thread finishes in a pass.
  __device__ __forceinline__ int owned_unit(int pass) const {
    return pass * pass_units() + weights.first_unit() + owned_pair<kBlockUnits>();
  }

  // The inputs of the thread's item, if it has one in this step.
  __device__ __forceinline__ GateInputs load_inputs(UInt32 step, int pass, int sequence) const {
    const Int64 n = first_sequence + sequence;
    const UInt32 length = layer.length(n);
    const int unit = owned_unit(pass);
    if (!owns_pair<kBlockUnits>() || unit >= hidden() || step >= length) return {};
    return layer.load_inputs(layer.time(step, length), n, unit);
  }

  // One step or half step of a sequence, for the units of a pass.
  template <int kFirst, int kLast>
  __device__ __forceinline__ void process(UInt32 step, int pass, int sequence) const {
    const int unit = owned_unit(pass);
    const Int64 n = first_sequence + sequence;
    const UInt32 length = layer.length(n);
    const bool is_mine = owns_pair<kBlockUnits>() && unit < hidden() && step < length;

    // The loads from global memory are in flight while the products are computed.
    const GateInputs inputs = load_inputs(step, pass, sequence);
    GateBiases biases = {};
    if (is_mine) biases = layer.load_biases(unit);

    const int from = kLinearBeforeReset ? static_cast<int>(step & 1) : kFirst == kCandidate ? 1 : 0;
    float sums[kBlockUnits][kLast - kFirst];
    weights.template multiply<kFirst, kLast, 1>(sums, buffer(from) + sequence * row_stride(),
                                                row_stride(), pass);
    reduce_rows(sums);
    if (!is_mine) return;

    const Activations activations = layer.activations();
    const int place = sequence * row_stride() + unit;
    float next;
    if constexpr (kLinearBeforeReset) {
      next = step_linear_before_reset<kStandard>(activations, inputs, biases, sums[0],
                                                 buffer(from)[place]);
      buffer(1 - from)[place] = next;
    } else if constexpr (kFirst == kUpdate) {
      const UpdateAndReset gates = step_gates<kStandard>(activations, inputs, biases, sums[0]);
      buffer(1)[place] = gates.reset * buffer(0)[place];
      buffer(2)[place] = gates.update;
      return;
    } else {
      next = step_candidate<kStandard>(activations, inputs, biases, sums[0][0], buffer(2)[place],
                                       buffer(0)[place]);
      buffer(0)[place] = next;
    }
    layer.store_state(step, length, n, unit, next);
  }

  template <int kFirst, int kLast>
  __device__ __forceinline__ void process_all(UInt32 step) const {
    for (int pass = 0; pass < layer.params.num_passes; ++pass) {
      for (int sequence = 0; sequence < num_sequences; ++sequence) {
        process<kFirst, kLast>(step, pass, sequence);
      }
    }
    // The results of this half step are complete before the next one reads them, and its operands have been
    // read before they are overwritten.
    __syncthreads();
  }

  // One step or half step, for an item that the thread has in every step.
  template <int kFirst, int kLast>
  __device__ __forceinline__ void process_fixed(FixedItem<Element, kBlockThreads>& item,
                                                UInt32 step) const {
    const int from = kLinearBeforeReset ? static_cast<int>(step & 1) : kFirst == kCandidate ? 1 : 0;
    float sums[kBlockUnits][kLast - kFirst];
    weights.template multiply<kFirst, kLast, 1>(sums, buffer(from), row_stride(), 0);
    reduce_rows(sums);
    if (item.exists) {
      const GateInputs inputs = item.fetched_inputs();
      const Activations activations = layer.activations();
      if constexpr (kLinearBeforeReset) {
        item.state = step_linear_before_reset<kStandard>(activations, inputs, item.biases, sums[0],
                                                         item.state);
        buffer(1 - from)[item.unit] = item.state;
      } else if constexpr (kFirst == kUpdate) {
        const UpdateAndReset gates =
            step_gates<kStandard>(activations, inputs, item.biases, sums[0]);
        item.update = gates.update;
        buffer(1)[item.unit] = gates.reset * item.state;
      } else {
        item.state = step_candidate<kStandard>(activations, inputs, item.biases, sums[0][0],
                                               item.update, item.state);
        buffer(0)[item.unit] = item.state;
      }
      if (kLast == kNumGates) item.finish_step(step);
    }
    // As in process_all.
    __syncthreads();
  }

  __device__ __forceinline__ void run() {
    const int thread = threadIdx.x;
    const int num_threads = blockDim.x;
    layer.store_padding(first_sequence, num_sequences, 0, hidden(), thread, num_threads);
    weights.load(0, pass_units());
    // Columns past the hidden size stay 0, so that a weight of 0 is not multiplied by infinity.
    const int num_buffers = kLinearBeforeReset ? 2 : 3;
    for (int which = 0; which < num_buffers; ++which) {
      for (int row = 0; row < num_sequences; ++row) {
        for (int column = thread; column < row_stride(); column += num_threads) {
          buffer(which)[row * row_stride() + column] =
              which == 0 && column < hidden() ? layer.initial_state(first_sequence + row, column)
                                              : 0.0f;
        }
      }
    }
    // The initial states are complete before the first step reads them.
    __syncthreads();

    const UInt32 steps = layer.longest(first_sequence, num_sequences);
    if constexpr (kIsFixed) {
      const int unit = owned_unit(0);
      FixedItem<Element, kBlockThreads> item(layer, first_sequence, unit,
                                             owns_pair<kBlockUnits>() && unit < hidden(), inputs);
      for (UInt32 step = 0; step < steps; ++step) {
        if constexpr (kLinearBeforeReset) {
          process_fixed<kUpdate, kNumGates>(item, step);
        } else {
          process_fixed<kUpdate, kCandidate>(item, step);
          process_fixed<kCandidate, kNumGates>(item, step);
        }
      }
      return;
    }
    for (UInt32 step = 0; step < steps; ++step) {
      if constexpr (kLinearBeforeReset) {
        process_all<kUpdate, kNumGates>(step);
      } else {
        process_all<kUpdate, kCandidate>(step);
        process_all<kCandidate, kNumGates>(step);
      }
    }
  }
};

template <class Element, bool kStandard, bool kLinearBeforeReset, int kNumChunks,
          int kRegisterChunks>
__global__ void __launch_bounds__(kBlockThreads, 1)
    gru_block(const float* projection, const Element* recurrence, const Element* bias,
              const Element* initial, const UInt32* lengths, Element* sequence, Element* single,
              Element* overflow, GruParams params) {
  SHARED_STORAGE(SharedWords, shared);
  using Block = WholeBlock<Element, kStandard, kLinearBeforeReset, kNumChunks, kRegisterChunks>;
  // Blocks in order of direction and group.
  const int group = blockIdx.x % params.num_groups;
  const int direction = blockIdx.x / params.num_groups;

  const Layer<Element> layer = {projection, recurrence, bias,   initial,  lengths,
                                sequence,   single,     params, direction};
  const Int64 first_sequence = group * params.group_batch;
  Block block = {layer,
                 {layer, nullptr, nullptr, {}},
                 shared.words + (Block::kIsFixed ? kNumGates * kBlockThreads : 0),
                 shared.words,
                 first_sequence,
                 static_cast<int>(min(params.group_batch, params.batch_size - first_sequence))};
  const int num_buffers = kLinearBeforeReset ? 2 : 3;
  block.weights.stored = reinterpret_cast<WeightQuad<Element>*>(block.buffer(num_buffers));
  block.weights.overflow =
      reinterpret_cast<WeightQuad<Element>*>(overflow) + blockIdx.x * params.overflow_pieces;
  block.run();
}
