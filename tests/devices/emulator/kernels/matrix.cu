// Products of matrices of 16-bit numbers and of TF32, and words that are loaded four at a time.

#include "common/matrix_intrinsics.cuh"

struct Params {
  Int32 depth;
};

// out += a b^T by one warp: a is 16 x depth, b is 8 x depth, out is 16 x 8, all packed.
template <bool kIsBFloat>
__global__ void product(const UInt16* a, const UInt16* b, float* out, Params params) {
  const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  const auto pair = [&](const UInt16* matrix, int row, int column) {
    const UInt16* halves = matrix + row * params.depth + column;
    return halves[0] | static_cast<UInt32>(halves[1]) << 16;
  };
  MatrixSums sums;
  for (int i = 0; i < 4; ++i) sums.values[i] = out[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  for (int k = 0; k < params.depth; k += 16) {
    MatrixRows rows;
    MatrixColumns columns;
    for (int i = 0; i < 4; ++i) rows.words[i] = pair(a, g + i % 2 * 8, k + 2 * t + i / 2 * 8);
    for (int i = 0; i < 2; ++i) columns.words[i] = pair(b, g, k + 2 * t + i * 8);
    sums =
        kIsBFloat ? multiply_add_bfloats(rows, columns, sums) : multiply_add(rows, columns, sums);
  }
  for (int i = 0; i < 4; ++i) out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums.values[i];
}

// The same for TF32.
__global__ void tf32_product(const UInt32* a, const UInt32* b, float* out, Params params) {
  const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  MatrixSums sums;
  for (int i = 0; i < 4; ++i) sums.values[i] = out[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  for (int k = 0; k < params.depth; k += 8) {
    MatrixRows rows;
    MatrixColumns columns;
    for (int i = 0; i < 4; ++i) {
      rows.words[i] = a[(g + i % 2 * 8) * params.depth + k + t + i / 2 * 4];
    }
    for (int i = 0; i < 2; ++i) columns.words[i] = b[g * params.depth + k + t + i * 4];
    sums = multiply_add_tf32(rows, columns, sums);
  }
  for (int i = 0; i < 4; ++i) out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums.values[i];
}

// Every thread copies two words.
__global__ void pairs(const UInt32* x, UInt32* out, Params params) {
  const uint2 pair = load_pair_relaxed(x + 2 * threadIdx.x);
  out[2 * threadIdx.x] = pair.x;
  out[2 * threadIdx.x + 1] = pair.y;
}
