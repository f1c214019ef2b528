// Computes: a GRU layer over a whole sequence by blocks of one thread, on a CPU.
// Idea: plain loops that the compiler vectorises: 16 sums at a time, rows of R in turn.
// Ownership: a block owns sequences of a direction: their states in global memory, their outputs.
// Requires: R packed, and room for three rows per sequence in `states`.
// Chosen when: blocks of one thread are the fastest, and gru/panels.cu is not chosen.

#include "gru/layer.cuh"

// Sums that a product is accumulated in; a vector register or two on a CPU.
constexpr int kPartials = 16;
// Sequences whose products with a row are accumulated together.
constexpr int kSerialBatch = 2;

struct Partials {
  float sums[kPartials];
};

// Adds kPartials products to each of the sums [kIndex, kGates * kBatch), sequence by sequence. Recursion
// instead of a loop, since compilers keep an array's elements in registers for constant indices alone.
template <int kGates, int kBatch, class Element, int kIndex = 0>
__device__ __forceinline__ void add_products(Partials (&partials)[kGates * kBatch],
                                             const Element* const (&weights)[kGates],
                                             const float* states, Int64 row_stride, int column) {
  if constexpr (kIndex < kGates * kBatch) {
    const Element* w = weights[kIndex % kGates] + column;
    const float* h = states + kIndex / kGates * row_stride + column;
    float (&sums)[kPartials] = partials[kIndex].sums;
    for (int i = 0; i < kPartials; ++i) sums[i] = fmaf(to_float(w[i]), h[i], sums[i]);
    add_products<kGates, kBatch, Element, kIndex + 1>(partials, weights, states, row_stride,
                                                      column);
  }
}

template <int kHalf = kPartials / 2>
__device__ __forceinline__ float total(Partials& partials) {
  for (int i = 0; i < kHalf; ++i) partials.sums[i] += partials.sums[i + kHalf];
  if constexpr (kHalf > 1) return total<kHalf / 2>(partials);
  return partials.sums[0];
}

template <class Element, bool kStandard, bool kLinearBeforeReset>
struct SerialGroup {
  Layer<Element> layer;
  // Rows of a sequence each: the states of two steps in turn if linear before reset, else the states,
  // the reset states and the update gates.
  float* rows;
  Int64 first_sequence;
  Int64 num_sequences;

  __device__ __forceinline__ int hidden() const { return layer.params.hidden_size; }

  __device__ __forceinline__ float* row(int buffer, Int64 sequence) const {
    return rows + (buffer * layer.params.group_batch + sequence) * hidden();
  }

  // Products of kBatch neighbouring rows of states with the rows of R of gates kFirst to kLast - 1.
  template <int kFirst, int kLast, int kBatch>
  __device__ __forceinline__ void multiply(float (&products)[kBatch][kLast - kFirst],
                                           const float* states, int unit) const {
    constexpr int kGates = kLast - kFirst;
    const int num_columns = hidden();
    const Element* weights[kGates];
    for (int gate = 0; gate < kGates; ++gate) {
      weights[gate] = layer.recurrence + layer.weight_row(kFirst + gate, unit);
    }
    Partials partials[kGates * kBatch] = {};
    int column = 0;
    for (; column + kPartials <= num_columns; column += kPartials) {
      add_products<kGates, kBatch>(partials, weights, states, num_columns, column);
    }
    for (int b = 0; b < kBatch; ++b) {
      const float* state = states + static_cast<Int64>(b) * num_columns;
      for (int gate = 0; gate < kGates; ++gate) {
        Partials& part = partials[b * kGates + gate];
        for (int c = column; c < num_columns; ++c) {
          part.sums[c - column] = fmaf(to_float(weights[gate][c]), state[c], part.sums[c - column]);
        }
        products[b][gate] = total(part);
      }
    }
  }

  // The gates kFirst to kLast - 1 of one hidden unit of kBatch sequences from `sequence` on.
  template <int kFirst, int kLast, int kBatch>
  __device__ __forceinline__ void process(UInt32 step, Int64 sequence, int unit,
                                          const GateBiases& biases,
                                          const Activations& activations) const {
    const int from = kLinearBeforeReset ? static_cast<int>(step & 1) : kFirst == kCandidate ? 1 : 0;
    float products[kBatch][kLast - kFirst];
    multiply<kFirst, kLast, kBatch>(products, row(from, sequence), unit);
    for (int b = 0; b < kBatch; ++b) {
      const Int64 n = first_sequence + sequence + b;
      const UInt32 length = layer.length(n);
      if (step >= length) continue;
      const GateInputs inputs = layer.load_inputs(layer.time(step, length), n, unit);
      float* states = row(0, sequence + b);
      float next;
      if constexpr (kLinearBeforeReset) {
        next = step_linear_before_reset<kStandard>(activations, inputs, biases, products[b],
                                                   row(from, sequence + b)[unit]);
        row(1 - from, sequence + b)[unit] = next;
      } else if constexpr (kFirst == kUpdate) {
        const UpdateAndReset gates =
            step_gates<kStandard>(activations, inputs, biases, products[b]);
        row(1, sequence + b)[unit] = gates.reset * states[unit];
        row(2, sequence + b)[unit] = gates.update;
        continue;
      } else {
        next = step_candidate<kStandard>(activations, inputs, biases, products[b][0],
                                         row(2, sequence + b)[unit], states[unit]);
        states[unit] = next;
      }
      layer.store_state(step, length, n, unit, next);
    }
  }

  // A row of R meets every sequence before the next row is read.
  template <int kFirst, int kLast>
  __device__ __forceinline__ void process_all(UInt32 step) const {
    const Activations activations = layer.activations();
    for (int unit = 0; unit < hidden(); ++unit) {
      const GateBiases biases = layer.load_biases(unit);
      Int64 sequence = 0;
      for (; sequence + kSerialBatch <= num_sequences; sequence += kSerialBatch) {
        process<kFirst, kLast, kSerialBatch>(step, sequence, unit, biases, activations);
      }
      for (; sequence < num_sequences; ++sequence) {
        process<kFirst, kLast, 1>(step, sequence, unit, biases, activations);
      }
    }
  }

  __device__ __forceinline__ void run() const {
    layer.store_padding(first_sequence, num_sequences, 0, hidden(), 0, 1);
    UInt32 num_steps = 0;
    for (Int64 sequence = 0; sequence < num_sequences; ++sequence) {
      const Int64 n = first_sequence + sequence;
      num_steps = max(num_steps, layer.length(n));
      for (int unit = 0; unit < hidden(); ++unit) {
        row(0, sequence)[unit] = layer.initial_state(n, unit);
        // Sequences that have ended are multiplied with what there is.
        row(1, sequence)[unit] = 0.0f;
      }
    }
    for (UInt32 step = 0; step < num_steps; ++step) {
      if constexpr (kLinearBeforeReset) {
        process_all<kUpdate, kNumGates>(step);
      } else {
        process_all<kUpdate, kCandidate>(step);
        process_all<kCandidate, kNumGates>(step);
      }
    }
  }
};

template <class Element, bool kStandard, bool kLinearBeforeReset>
__global__ void __launch_bounds__(1)
    gru_serial(const float* projection, const Element* recurrence, const Element* bias,
               const Element* initial, const UInt32* lengths, Element* sequence, Element* single,
               float* states, GruParams params) {
  // Blocks in order of direction and group.
  const int group = blockIdx.x % params.num_groups;
  const int direction = blockIdx.x / params.num_groups;
  const Layer<Element> layer = {projection, recurrence, bias,   initial,  lengths,
                                sequence,   single,     params, direction};
  const Int64 first_sequence = group * params.group_batch;
  constexpr int kNumBuffers = 3;
  const SerialGroup<Element, kStandard, kLinearBeforeReset> rows = {
      layer, states + blockIdx.x * kNumBuffers * params.group_batch * params.hidden_size,
      first_sequence, min(params.group_batch, params.batch_size - first_sequence)};
  rows.run();
}
