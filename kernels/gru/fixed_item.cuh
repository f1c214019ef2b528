// The item that a thread has in every step: a hidden unit of a sequence. Its operands are in registers,
// except for the inputs: these are copied into shared storage while the thread waits for the other blocks, so
// that no register waits for them.
#pragma once

#include "gru/layer.cuh"

// If inputs may be computed, a layer may have no projection: the kernel then computes its inputs.
template <class Element, int kNumThreads, bool kMayCompute = false>
struct FixedItem {
  const Layer<Element>& layer;
  Int64 n;
  int unit;
  // Whether the thread has an item. An item past its sequence's length goes on: the other blocks wait for its
  // states, but nothing that it computes is stored or reaches another sequence.
  bool exists;
  UInt32 length = 0;
  float state = 0.0f;
  float update = 0.0f;
  GateBiases biases = {};
  // The thread's inputs of a step in shared storage, kNumThreads apart, and the copies under way.
  float* slots;
  FloatCopies<kNumGates> copies = {};
  // The next step's inputs, and the next place of the output.
  const float* inputs = nullptr;
  Element* output = nullptr;
  Int64 input_stride = 0;
  Int64 output_stride = 0;

  __device__ __forceinline__ FixedItem(const Layer<Element>& of, Int64 sequence, int hidden_unit,
                                       bool is_item, float* inputs_of_block)
      : layer(of),
        n(sequence),
        unit(hidden_unit),
        exists(is_item),
        slots(inputs_of_block + threadIdx.x) {
    if (!exists) return;
    const GruParams& params = layer.params;
    length = layer.length(n);
    state = layer.initial_state(n, unit);
    biases = layer.load_biases(unit);
    if (length == 0) {
#pragma unroll
      for (int gate = 0; gate < kNumGates; ++gate) slots[gate * kNumThreads] = 0.0f;
      return;
    }
    const Int64 hidden = params.hidden_size;
    const Int64 first = layer.time(0, length);
    const Int64 row = (first * params.batch_size + n) * params.num_directions + layer.direction;
    inputs = layer.projection + row * kNumGates * hidden + unit;
    input_stride = params.batch_size * params.num_directions * kNumGates * hidden;
    if (layer.sequence != nullptr) {
      output = layer.sequence + layer.sequence_offset(first, n, unit);
      output_stride = params.sequence_strides[0];
    }
    if (layer.is_backward()) {
      input_stride = -input_stride;
      output_stride = -output_stride;
    }
    fetch_inputs();
  }

  __device__ __forceinline__ void fetch_inputs() {
    if (kMayCompute && layer.projection == nullptr) return;
#pragma unroll
    for (int gate = 0; gate < kNumGates; ++gate) {
      copies.start(gate, slots + gate * kNumThreads,
                   inputs + gate * static_cast<Int64>(layer.params.hidden_size));
    }
    inputs += input_stride;
  }

  __device__ __forceinline__ GateInputs fetched_inputs() {
    copies.wait();
    return {slots[0], slots[kNumThreads], slots[2 * kNumThreads]};
  }

  // Stores the state after `step` and fetches the inputs of the next step.
  __device__ __forceinline__ void finish_step(UInt32 step) {
    if (step >= length) return;
    if (step + 1 < length) fetch_inputs();
    if (layer.sequence != nullptr) {
      store(output, state);
      output += output_stride;
    }
    if (step + 1 == length) layer.store_single(n, unit, state);
  }
};
