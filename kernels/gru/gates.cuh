// The equations of a gated recurrent unit, for one hidden unit of one sequence at one step.
#pragma once

#include "gru/activations.cuh"

// Rows of the weights and biases, in the order of the gates.
constexpr int kUpdate = 0;
constexpr int kReset = 1;
constexpr int kCandidate = 2;
constexpr int kNumGates = 3;

// Products of the input with the weights of the three gates.
struct GateInputs {
  float update;
  float reset;
  float candidate;
};

struct GateBiases {
  float update;     // of both products
  float reset;      // of both products
  float candidate;  // of the input's product
  float recurrent;  // of the state's product with the candidate's rows
};

// f of the update and reset gates, g of the candidate; each takes x bounded to [-clip, clip].
struct Activations {
  Activation f;
  Activation g;
  float clip;
};

__device__ __forceinline__ float apply_activation(const Activations& activations, int gate,
                                                  float x) {
  const float clip = activations.clip;
  const float bounded = x > clip ? clip : x < -clip ? -clip : x;  // NaN stays NaN
  return apply_activation(gate == kCandidate ? activations.g : activations.f, bounded);
}

template <bool kStandard>
__device__ __forceinline__ float activate(const Activations& activations, int gate, float x) {
  if (kStandard) return gate == kCandidate ? tanhf(x) : sigmoid(x);
  return apply_activation(activations, gate, x);
}

__device__ __forceinline__ float next_state(float update, float candidate, float state) {
  return fmaf(update, state, (1.0f - update) * candidate);
}

// linear_before_reset: `products` are those of the state with the weights of the three gates.
template <bool kStandard>
__device__ __forceinline__ float step_linear_before_reset(const Activations& activations,
                                                          const GateInputs& inputs,
                                                          const GateBiases& biases,
                                                          const float (&products)[kNumGates],
                                                          float state) {
  float update = 0.0f;
  float reset = 0.0f;
  float candidate = 0.0f;
  // Rolled for arbitrary activations, so that their code exists once.
#pragma unroll(kStandard ? kNumGates : 1)
  for (int gate = 0; gate < kNumGates; ++gate) {
    const float x = gate == kUpdate  ? inputs.update + (products[kUpdate] + biases.update)
                    : gate == kReset ? inputs.reset + (products[kReset] + biases.reset)
                                     : inputs.candidate + biases.candidate +
                                           reset * (products[kCandidate] + biases.recurrent);
    const float y = activate<kStandard>(activations, gate, x);
    if (gate == kUpdate) update = y;
    if (gate == kReset) reset = y;
    if (gate == kCandidate) candidate = y;
  }
  return next_state(update, candidate, state);
}

struct UpdateAndReset {
  float update;
  float reset;
};

// Not linear_before_reset, first half: the candidate's product needs the reset gate.
template <bool kStandard>
__device__ __forceinline__ UpdateAndReset step_gates(const Activations& activations,
                                                     const GateInputs& inputs,
                                                     const GateBiases& biases,
                                                     const float (&products)[2]) {
  float update = 0.0f;
  float reset = 0.0f;
#pragma unroll(kStandard ? 2 : 1)
  for (int gate = 0; gate < 2; ++gate) {
    const float x = gate == kUpdate ? inputs.update + (products[kUpdate] + biases.update)
                                    : inputs.reset + (products[kReset] + biases.reset);
    const float y = activate<kStandard>(activations, gate, x);
    if (gate == kUpdate) update = y;
    if (gate == kReset) reset = y;
  }
  return {update, reset};
}

// Second half: `product` is the product of the reset state with the candidate's weights.
template <bool kStandard>
__device__ __forceinline__ float step_candidate(const Activations& activations,
                                                const GateInputs& inputs, const GateBiases& biases,
                                                float product, float update, float state) {
  const float x = inputs.candidate + biases.candidate + (product + biases.recurrent);
  return next_state(update, activate<kStandard>(activations, kCandidate, x), state);
}
