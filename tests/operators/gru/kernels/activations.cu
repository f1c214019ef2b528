// An activation of each element.
#include "gru/activations.cuh"

struct ActivationParams {
  Int64 num_elements;
  Int32 code;
  float first;
  float second;
};

__global__ void activations(const float* in, float* out, ActivationParams params) {
  const Activation activation = {params.code, params.first, params.second};
  for (Int64 i = 0; i < params.num_elements; ++i) out[i] = apply_activation(activation, in[i]);
}
