// Sequence lengths of any integer type, read as what they mean: negative is 0, and no lane is longer
// than the axis.
#pragma once

#include "common/types.cuh"

__device__ __forceinline__ Int64 clamp_signed(Int64 length, Int64 axis_size) {
  return length < 0 ? 0 : (length < axis_size ? length : axis_size);
}

__device__ __forceinline__ Int64 clamp_unsigned(UInt64 length, Int64 axis_size) {
  return length < static_cast<UInt64>(axis_size) ? static_cast<Int64>(length) : axis_size;
}

// Length number `index` of integers of length_bytes bytes each.
__device__ __forceinline__ Int64 read_length(const void* lengths, Int64 index, Int32 length_bytes,
                                             Int32 length_is_signed, Int64 axis_size) {
  UInt64 bits = 0;
  Int64 value = 0;
  if (length_bytes == 4) {
    bits = static_cast<const UInt32*>(lengths)[index];
    value = static_cast<Int32>(static_cast<UInt32>(bits));
  } else if (length_bytes == 8) {
    bits = static_cast<const UInt64*>(lengths)[index];
    value = static_cast<Int64>(bits);
  } else if (length_bytes == 2) {
    bits = static_cast<const UInt16*>(lengths)[index];
    value = static_cast<Int16>(static_cast<UInt16>(bits));
  } else {
    bits = static_cast<const UInt8*>(lengths)[index];
    value = static_cast<Int8>(static_cast<UInt8>(bits));
  }
  return length_is_signed ? clamp_signed(value, axis_size) : clamp_unsigned(bits, axis_size);
}
