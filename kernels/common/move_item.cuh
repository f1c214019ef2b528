// Moves one item of 1 to 16 bytes between places that need not be aligned to it. Places are byte pointers
// derived from the kernel's parameters, so that the compiler knows that they are in global memory.
#pragma once

#include "common/intrinsics.cuh"
#include "common/types.cuh"

__device__ __forceinline__ UInt64 address_of(const void* pointer) {
  return reinterpret_cast<UInt64>(pointer);
}

// The largest power of two, at most `limit` (itself a power of two), that divides both addresses.
__device__ __forceinline__ int common_alignment(const void* left, const void* right, int limit) {
  const int bits = static_cast<int>(address_of(left) | address_of(right)) | limit;
  return bits & -bits;
}

template <class Item>
__device__ __forceinline__ Item load_item(const UInt8* place) {
  return *reinterpret_cast<const Item*>(place);
}

template <>
__device__ __forceinline__ Bits128 load_item<Bits128>(const UInt8* place) {
  const uint4 v = load_16_bytes(place);
  return Bits128{{v.x, v.y, v.z, v.w}};
}

template <class Item>
__device__ __forceinline__ void store_item(UInt8* place, Item item) {
  *reinterpret_cast<Item*>(place) = item;
}

template <>
__device__ __forceinline__ void store_item<Bits128>(UInt8* place, Bits128 item) {
  store_16_bytes(place, uint4{item.words[0], item.words[1], item.words[2], item.words[3]});
}

template <class Piece>
__device__ __forceinline__ void move_item(UInt8* target, const UInt8* source) {
  store_item<Piece>(target, load_item<Piece>(source));
}

// Moves num_bytes as pieces of `alignment` bytes, to which both places are aligned.
__device__ __forceinline__ void move_pieces(UInt8* target, const UInt8* source, int num_bytes,
                                            int alignment) {
#pragma unroll 1
  for (int b = 0; b < num_bytes; b += alignment) {
    if (alignment == 1) {
      move_item<UInt8>(target + b, source + b);
    } else if (alignment == 2) {
      move_item<UInt16>(target + b, source + b);
    } else if (alignment == 4) {
      move_item<UInt32>(target + b, source + b);
    } else if (alignment == 8) {
      move_item<UInt64>(target + b, source + b);
    } else {
      move_item<Bits128>(target + b, source + b);
    }
  }
}
