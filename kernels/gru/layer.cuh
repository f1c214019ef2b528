// Shared by all GRU kernels: the parameters, and a layer's tensors as seen from one direction.
#pragma once

#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "gru/gates.cuh"

constexpr Int32 kBackward = 1;
constexpr Int32 kBidirectional = 2;

// Strides are in elements; those of absent tensors are not read.
struct GruParams {
  Int64 bias_strides[2];      // direction, column
  Int64 initial_strides[3];   // direction, batch, hidden
  Int64 sequence_strides[4];  // time, direction, batch, hidden
  Int64 single_strides[3];    // direction, batch, hidden
  Int64 batch_size;
  // A group is the set of sequences of one block, or of one set of blocks that exchange states.
  Int64 group_batch;
  Int64 overflow_pieces;  // per block; a piece is the weights that a thread loads at once
  UInt32 num_steps;
  Int32 hidden_size;
  Int32 num_directions;
  Int32 direction;
  Int32 num_groups;
  Int32 num_shards;         // blocks that share the hidden units of a group
  Int32 num_passes;         // times that a block's threads take new hidden units
  Int32 round_batch;        // sequences whose states are in shared storage at a time
  Int32 num_stored_chunks;  // chunks of weights in shared storage
  Int32 activation_codes[4];
  Float32 activation_firsts[4];
  Float32 activation_seconds[4];
  Float32 clip;
  Int32 input_size;
};

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(Float16 value) {
  return float_from_half_bits(value.bits);
}
__device__ __forceinline__ float to_float(BFloat16 value) {
  return __uint_as_float(static_cast<UInt32>(value.bits) << 16);
}

__device__ __forceinline__ void store(float* address, float value) { *address = value; }
__device__ __forceinline__ void store(Float16* address, float value) {
  address->bits = half_bits_from_float(value);
}
__device__ __forceinline__ void store(BFloat16* address, float value) {
  address->bits = bfloat_bits_from_float(value);
}

// The tensors of a layer, as seen from one direction.
template <class Element>
struct Layer {
  const float* projection;    // X W^T, packed: time, batch, direction, gate, hidden
  const Element* recurrence;  // packed
  const Element* bias;
  const Element* initial;
  const UInt32* lengths;  // packed; constant while the kernel runs
  Element* sequence;
  Element* single;
  const GruParams& params;
  int direction;

  __device__ __forceinline__ bool is_backward() const {
    return params.direction == kBackward || direction == 1;
  }

  // Number of steps of sequence n.
  __device__ __forceinline__ UInt32 length(Int64 n) const {
    if (lengths == nullptr) return params.num_steps;
    const UInt32 length = lengths[n];
    return length < params.num_steps ? length : params.num_steps;
  }

  // The longest of the sequences [first, first + count); the same in every thread.
  __device__ __forceinline__ UInt32 longest(Int64 first, Int64 count) const {
    if (lengths == nullptr) return params.num_steps;
    UInt32 most = 0;
#pragma unroll 1
    for (Int64 n = first; n < first + count; ++n) most = max(most, length(n));
    return most;
  }

  // The time index of a step of a sequence; the backward direction starts at the sequence's own end.
  __device__ __forceinline__ Int64 time(UInt32 step, UInt32 length) const {
    return is_backward() ? length - 1 - step : step;
  }

  __device__ __forceinline__ float initial_state(Int64 n, int unit) const {
    if (initial == nullptr) return 0.0f;
    const Int64* strides = params.initial_strides;
    return to_float(initial[direction * strides[0] + n * strides[1] + unit * strides[2]]);
  }

  // The start of a hidden unit's row of R for a gate, in elements; R has fewer than 2^32.
  __device__ __forceinline__ UInt32 weight_row(int gate, int unit) const {
    const UInt32 hidden = params.hidden_size;
    return ((direction * kNumGates + gate) * hidden + unit) * hidden;
  }

  // The projected input of a hidden unit's first gate; the inputs of the other gates follow, a row of units
  // apart.
  __device__ __forceinline__ const float* inputs_of(Int64 time, Int64 n, int unit) const {
    const Int64 row = (time * params.batch_size + n) * params.num_directions + direction;
    return projection + row * kNumGates * params.hidden_size + unit;
  }

  __device__ __forceinline__ GateInputs load_inputs(Int64 time, Int64 n, int unit) const {
    const int hidden = params.hidden_size;
    const float* x = inputs_of(time, n, unit);
    return {x[0], x[hidden], x[2 * static_cast<Int64>(hidden)]};
  }

  __device__ __forceinline__ float bias_element(int row, int unit) const {
    const Int64 column = static_cast<Int64>(row) * params.hidden_size + unit;
    return to_float(bias[direction * params.bias_strides[0] + column * params.bias_strides[1]]);
  }

  // Rows 0 to 2 of the bias belong to the input's weights, 3 to 5 to the state's.
  __device__ __forceinline__ GateBiases load_biases(int unit) const {
    if (bias == nullptr) return {0.0f, 0.0f, 0.0f, 0.0f};
    return {bias_element(0, unit) + bias_element(3, unit),
            bias_element(1, unit) + bias_element(4, unit), bias_element(2, unit),
            bias_element(5, unit)};
  }

  // Bidirectional layers have the backward direction's pair after the forward one's.
  __device__ __forceinline__ Activations activations() const {
    const int f = 2 * direction;
    const GruParams& p = params;
    return {{p.activation_codes[f], p.activation_firsts[f], p.activation_seconds[f]},
            {p.activation_codes[f + 1], p.activation_firsts[f + 1], p.activation_seconds[f + 1]},
            p.clip};
  }

  __device__ __forceinline__ void store_single(Int64 n, int unit, float state) const {
    if (single == nullptr) return;
    const Int64* strides = params.single_strides;
    store(single + direction * strides[0] + n * strides[1] + unit * strides[2], state);
  }

  __device__ __forceinline__ Int64 sequence_offset(Int64 time, Int64 n, int unit) const {
    const Int64* strides = params.sequence_strides;
    return time * strides[0] + direction * strides[1] + n * strides[2] + unit * strides[3];
  }

  __device__ __forceinline__ void store_sequence(Int64 time, Int64 n, int unit, float state) const {
    if (sequence != nullptr) store(sequence + sequence_offset(time, n, unit), state);
  }

  __device__ __forceinline__ void store_state(UInt32 step, UInt32 length, Int64 n, int unit,
                                              float state) const {
    store_sequence(time(step, length), n, unit, state);
    if (step == length - 1) store_single(n, unit, state);
  }

  // Writes zeros past the end of the sequences [first, first + count), in the hidden units [first_unit,
  // end_unit).
  __device__ __forceinline__ void store_padding(Int64 first, Int64 count, int first_unit,
                                                int end_unit, int thread, int num_threads) const {
    if (lengths == nullptr || first_unit >= end_unit) return;
    const Int64 num_units = end_unit - first_unit;
    for (Int64 n = first; n < first + count; ++n) {
      const UInt32 steps = length(n);
      const Int64 num_items = (params.num_steps - steps) * num_units;
      for (Int64 item = thread; item < num_items; item += num_threads) {
        store_sequence(steps + item / num_units, n, first_unit + static_cast<int>(item % num_units),
                       0.0f);
      }
      if (steps > 0) continue;
      for (int unit = first_unit + thread; unit < end_unit; unit += num_threads) {
        store_single(n, unit, 0.0f);
      }
    }
  }
};
