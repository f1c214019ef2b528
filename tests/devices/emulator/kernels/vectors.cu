// Functions of common/vectors.cuh and common/vector_math.cuh, on one vector of floats at a time.

#include "common/vector_math.cuh"

struct Params {
  Int64 num_items;  // a multiple of every vector's size
};

struct TransposedParams {
  Int64 num_columns;  // a multiple of kLoadedColumns
  Int64 stride;
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

// A row for each lane of a vector, `stride` floats apart, column by column; then the number of lanes.
__global__ void transposed(const float* x, float* out, TransposedParams params) {
  for (Int64 column = 0; column < params.num_columns; column += kLoadedColumns) {
    Floats columns[kLoadedColumns];
    load_quads(columns, x + column, params.stride);
    transpose_quads(columns);
    for (int i = 0; i < kLoadedColumns; ++i)
      store_floats(out + (column + i) * kVectorFloats, columns[i]);
  }
  out[params.num_columns * kVectorFloats] = static_cast<float>(kVectorFloats);
}
