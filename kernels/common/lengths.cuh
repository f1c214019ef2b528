// Sequence lengths of any integer type: a negative one counts as 0, and none is longer than the axis.
#pragma once

#include "common/types.cuh"

// The bits of length number `index`, of integers of length_bytes bytes, without sign extension.
__device__ __forceinline__ UInt64 load_length(const void* lengths, Int64 index,
                                              Int32 length_bytes) {
  if (length_bytes == 4) return static_cast<const UInt32*>(lengths)[index];
  if (length_bytes == 8) return static_cast<const UInt64*>(lengths)[index];
  if (length_bytes == 2) return static_cast<const UInt16*>(lengths)[index];
  return static_cast<const UInt8*>(lengths)[index];
}

// The length that bits from `load_length` stand for.
__device__ __forceinline__ Int64 clamp_length(UInt64 bits, Int32 length_bytes,
                                              Int32 length_is_signed, Int64 axis_size) {
  const bool is_negative = length_is_signed && (bits >> (8 * length_bytes - 1) & 1) != 0;
  if (is_negative) return 0;
  return bits < static_cast<UInt64>(axis_size) ? static_cast<Int64>(bits) : axis_size;
}
