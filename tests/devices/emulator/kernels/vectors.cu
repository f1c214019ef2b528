// Functions of common/vectors.cuh and common/vector_math.cuh, on as many floats as a vector has at a time.

#include "common/vector_math.cuh"

struct Params {
  Int64 num_items;  // a multiple of every vector's size
};

// Rows of `out`: e^x, the sigmoid, the hyperbolic tangent, and x * x + x rounded once.
__global__ void vector_functions(const float* x, float* out, Params params) {
  for (Int64 i = 0; i < params.num_items; i += kVectorFloats) {
    const Floats v = load_floats(x + i);
    store_floats(out + i, exponential(v));
    store_floats(out + params.num_items + i, sigmoid(v));
    store_floats(out + 2 * params.num_items + i, hyperbolic_tangent(v));
    store_floats(out + 3 * params.num_items + i, fused(v, v, in_register(v)));
  }
}

// Square after square; behind them, how many floats a vector has.
__global__ void transposed(const float* x, float* out, Params params) {
  constexpr int kSquare = kVectorFloats * kVectorFloats;
  for (Int64 i = 0; i + kSquare <= params.num_items; i += kSquare) {
    Floats rows[kVectorFloats];
    for (int row = 0; row < kVectorFloats; ++row)
      rows[row] = load_floats(x + i + row * kVectorFloats);
    transpose(rows);
    for (int row = 0; row < kVectorFloats; ++row)
      store_floats(out + i + row * kVectorFloats, rows[row]);
    out[params.num_items] = static_cast<float>(kVectorFloats);
  }
}
