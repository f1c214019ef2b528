// Computes: the gates of one step of a GRU layer, after a library's products with the state.
// Idea: identical launches for all steps; each block counts in memory the steps it has done.
// Ownership: a thread owns one hidden unit of a sequence; a block owns a count of steps.
// Requires: kStart first, then for each step its products and kHalf (reset first), kFinish.
// Chosen when: reading the weights from memory in every step beats keeping few on the chip.

#include "gru/layer.cuh"
#include "gru/phases.cuh"

constexpr int kProductsThreads = 256;

// Items are packed by direction, sequence and hidden unit; `sums` has as many gates to a sequence as the
// product before the launch.
template <class Element>
struct ProductRows {
  const float* sums;
  float* states;
  Element* operands;  // of the next product: states, or those multiplied by the reset gate
  float* updates;     // between the halves of a step
  UInt32* counts;     // steps done, by block
};

template <class Element, bool kStandard, bool kLinearBeforeReset, int kPhase>
__global__ void __launch_bounds__(kProductsThreads)
    gru_products(const float* projection, const float* sums, const Element* bias,
                 const Element* initial, const UInt32* lengths, Element* sequence, Element* single,
                 float* states, Element* operands, float* updates, UInt32* counts,
                 GruParams params) {
  const ProductRows<Element> rows = {sums, states, operands, updates, counts};
  const int thread = threadIdx.x;
  const int hidden = params.hidden_size;
  // Blocks in order of direction, sequence and units; `row` is a sequence of a direction.
  const Int64 row = blockIdx.x / static_cast<UInt32>(params.num_shards);
  const int first_unit = blockIdx.x % static_cast<UInt32>(params.num_shards) * kProductsThreads;
  const int direction = row >= params.batch_size ? 1 : 0;
  const Int64 n = row - direction * params.batch_size;
  const int unit = first_unit + thread;
  const Int64 item = row * hidden + unit;
  const Layer<Element> layer = {projection, nullptr, bias,   initial,  lengths,
                                sequence,   single,  params, direction};

  if constexpr (kPhase == kStart) {
    if (thread == 0) rows.counts[blockIdx.x] = 0;
    layer.store_padding(n, 1, first_unit, min(hidden, first_unit + kProductsThreads), thread,
                        kProductsThreads);
    if (unit >= hidden) return;
    const float state = layer.initial_state(n, unit);
    rows.states[item] = state;
    store(rows.operands + item, state);
    return;
  }

  const UInt32 step = rows.counts[blockIdx.x];
  if constexpr (kPhase == kFinish) {
    // All threads have read the count before it changes.
    __syncthreads();
    if (thread == 0) rows.counts[blockIdx.x] = step + 1;
  }
  const UInt32 length = layer.length(n);
  if (step >= length || unit >= hidden) return;

  const GateInputs inputs = layer.load_inputs(layer.time(step, length), n, unit);
  const GateBiases biases = layer.load_biases(unit);
  const Activations activations = layer.activations();
  const float state = rows.states[item];
  float next;
  if constexpr (kLinearBeforeReset) {
    const float* products = rows.sums + row * kNumGates * hidden + unit;
    const float of_gates[kNumGates] = {products[0], products[hidden],
                                       products[2 * static_cast<Int64>(hidden)]};
    next = step_linear_before_reset<kStandard>(activations, inputs, biases, of_gates, state);
  } else if constexpr (kPhase == kHalf) {
    const float* products = rows.sums + row * kCandidate * hidden + unit;
    const float of_gates[kCandidate] = {products[0], products[hidden]};
    const UpdateAndReset gates = step_gates<kStandard>(activations, inputs, biases, of_gates);
    rows.updates[item] = gates.update;
    store(rows.operands + item, gates.reset * state);
    return;
  } else {
    next = step_candidate<kStandard>(activations, inputs, biases, rows.sums[item],
                                     rows.updates[item], state);
  }
  rows.states[item] = next;
  store(rows.operands + item, next);
  layer.store_state(step, length, n, unit, next);
}
