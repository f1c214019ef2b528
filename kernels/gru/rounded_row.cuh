// Rows of numbers rounded to TF32, three bytes each. A panel of 16 columns has the upper halves of its
// numbers and then their next bytes: three times 16 bytes, which copies need.
#pragma once

#include "common/intrinsics.cuh"

// The bits of a float32 that TF32 has, and half of the last of them.
constexpr UInt32 kTf32Bits = 0xffffe000u;
constexpr UInt32 kHalfUnit = 0x1000u;

constexpr int kRoundedColumns = 16;
constexpr int kRoundedWords = 3 * kRoundedColumns / 4;
// In shared storage, words after a chunk of four panels, with which four rows are in different banks.
constexpr int kRoundedGap = 8;

// Words of a number of columns, whole panels.
__device__ __forceinline__ constexpr int rounded_words(int columns) {
  return columns / kRoundedColumns * kRoundedWords;
}

// Rounds to nearest. NaN gets the bit that rounding leaves in place.
__device__ __forceinline__ void store_rounded(float* row, int column, float value) {
  const UInt32 bits = __float_as_uint(value);
  const UInt32 rounded = value != value ? bits | 0x400000u : bits + kHalfUnit;
  float* const panel = row + column / kRoundedColumns * kRoundedWords;
  const int place = column % kRoundedColumns;
  reinterpret_cast<UInt16*>(panel)[place] = static_cast<UInt16>(rounded >> 16);
  reinterpret_cast<UInt8*>(panel + kRoundedColumns / 2)[place] = static_cast<UInt8>(rounded >> 8);
}

// What a matrix instruction takes of a number: its upper part and, unless it is rounded, its lower part.
struct Parts {
  UInt32 high;
  UInt32 low;
};

// Four columns of a row.
struct RoundedQuad {
  uint2 halves;
  UInt32 bytes;

  // The lowest byte may be any: matrix instructions ignore it.
  __device__ __forceinline__ Parts parts(int column) const {
    const UInt32 order = (column % 2 == 0 ? 0x5400u : 0x7600u) | static_cast<UInt32>(column) << 4;
    return {__byte_perm(bytes, column < 2 ? halves.x : halves.y, order), 0};
  }
};

__device__ __forceinline__ RoundedQuad rounded_quad(const float* row, int panel, int quad) {
  const float* const start = row + panel * kRoundedWords;
  return {*reinterpret_cast<const uint2*>(start + 2 * quad),
          *reinterpret_cast<const UInt32*>(start + kRoundedColumns / 2 + quad)};
}
