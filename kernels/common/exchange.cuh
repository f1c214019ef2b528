// Floats that blocks of a running grid pass to each other, every one with the number of its
// exchange in the same 64-bit word, so that the data is its own flag: no fence, no counter, one
// write and one read.
//
// Numbers start at 1 in zeroed memory and grow by one an exchange; two buffers take turns. A block
// may write exchange e + 2 over exchange e once it has read everything it reads of exchange e + 1,
// if every other block writes e + 1 only after it has read e: then nobody still waits for what is
// overwritten.
#pragma once

#include "common/intrinsics.cuh"
#include "common/types.cuh"

__device__ __forceinline__ void send_tagged(UInt64* address, float value, UInt32 tag) {
  store_relaxed(address, static_cast<UInt64>(tag) << 32 | __float_as_uint(value));
}

__device__ __forceinline__ bool has_tag(UInt64 word, UInt32 tag) {
  return static_cast<UInt32>(word >> 32) == tag;
}

__device__ __forceinline__ float tagged_value(UInt64 word) {
  return __uint_as_float(static_cast<UInt32>(word));
}
