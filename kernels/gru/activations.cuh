// The fused activations of DirectML, in float32. NaN gives NaN.
#pragma once

#include "common/intrinsics.cuh"
#include "common/types.cuh"

// The numbers are those of DML_OPERATOR_TYPE.
enum ActivationCode : Int32 {
  kElu = 35,
  kHardSigmoid = 37,
  kIdentity = 38,
  kLeakyRelu = 39,
  kLinear = 40,
  kParametricSoftplus = 43,
  kRelu = 44,
  kScaledElu = 45,
  kScaledTanh = 46,
  kSigmoid = 47,
  kSoftplus = 49,
  kSoftsign = 50,
  kTanh = 51,
  kThresholdedRelu = 52,
  kShrink = 90,
  kCelu = 128,
  kGelu = 157,
  kSwish = 167,
  kHardSwish = 168,
};

// Parameters in the order of DirectML's activation descriptors.
struct Activation {
  Int32 code;
  float first;
  float second;
};

constexpr float kLog2OfE = 1.44269504f;

// Without a branch, which a division has; every step of a sequence waits for two of these. The absolute
// error is below 2^-22.
__device__ __forceinline__ float sigmoid(float x) {
  return fast_reciprocal(1.0f + fast_exp2(-kLog2OfE * x));
}

__device__ __forceinline__ float hard_sigmoid(float x, float alpha, float beta) {
  const float y = fmaf(alpha, x, beta);
  return y < 0.0f ? 0.0f : y > 1.0f ? 1.0f : y;
}

// ln(1 + e^x) without overflow, because the exponent is never positive.
__device__ __forceinline__ float softplus(float x) {
  return (x > 0.0f ? x : x < 0.0f ? 0.0f : x) + log1pf(expf(-fabsf(x)));
}

__device__ __forceinline__ float elu(float x, float alpha) {
  return x >= 0.0f ? x : alpha * expm1f(x);
}

__device__ __forceinline__ float apply_activation(Activation activation, float x) {
  const float a = activation.first;
  const float b = activation.second;
  switch (activation.code) {
    case kElu:
      return elu(x, a);
    case kHardSigmoid:
      return hard_sigmoid(x, a, b);
    case kLeakyRelu:
      return x >= 0.0f ? x : a * x;
    case kLinear:
      return fmaf(a, x, b);
    case kParametricSoftplus:
      return a * softplus(b * x);
    case kRelu:
      return x < 0.0f ? 0.0f : x;
    case kScaledElu:
      return b * elu(x, a);
    case kScaledTanh:
      return a * tanhf(b * x);
    case kSigmoid:
      return sigmoid(x);
    case kSoftplus:
      return softplus(a * x) / a;
    case kSoftsign:
      return x / (1.0f + fabsf(x));
    case kTanh:
      return tanhf(x);
    case kThresholdedRelu:
      return x > a ? x : x <= a ? 0.0f : x;
    case kShrink:
      return x < -b ? x + a : x > b ? x - a : x != x ? x : 0.0f;
    case kCelu:
      return x >= 0.0f ? x : a * expm1f(x / a);
    case kGelu:
      // The complement keeps its relative precision if the error function is close to -1.
      return 0.5f * x * erfcf(-0.70710678f * x);
    case kSwish:
      return x * sigmoid(a * x);
    case kHardSwish:
      return x * hard_sigmoid(x, a, b);
    default:  // kIdentity
      return x;
  }
}
