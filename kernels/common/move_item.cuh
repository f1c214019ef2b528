// Moving one item of 1 to 16 bytes between byte addresses that need not be aligned to it.
#pragma once

#include "common/intrinsics.cuh"
#include "common/types.cuh"

__device__ __forceinline__ UInt64 address_of(const void* pointer) {
  return reinterpret_cast<UInt64>(pointer);
}

// The largest power of two, at most `limit` (itself one), that divides both addresses.
__device__ __forceinline__ UInt64 common_alignment(UInt64 left, UInt64 right, UInt64 limit) {
  const UInt64 bits = left | right | limit;
  return bits & (~bits + 1);
}

template <class Item>
__device__ __forceinline__ Item load_item(UInt64 address) {
  return *reinterpret_cast<const Item*>(address);
}

template <>
__device__ __forceinline__ Bits128 load_item<Bits128>(UInt64 address) {
  const uint4 v = load_16_bytes(reinterpret_cast<const void*>(address));
  return Bits128{{v.x, v.y, v.z, v.w}};
}

template <class Item>
__device__ __forceinline__ void store_item(UInt64 address, Item item) {
  *reinterpret_cast<Item*>(address) = item;
}

template <>
__device__ __forceinline__ void store_item<Bits128>(UInt64 address, Bits128 item) {
  const uint4 v = {item.words[0], item.words[1], item.words[2], item.words[3]};
  store_16_bytes(reinterpret_cast<void*>(address), v);
}

template <class Piece>
__device__ __forceinline__ void move_in(UInt64 target, UInt64 source, int num_bytes) {
  for (int b = 0; b < num_bytes; b += static_cast<int>(sizeof(Piece))) {
    store_item<Piece>(target + b, load_item<Piece>(source + b));
  }
}

// Moves num_bytes as pieces of `alignment` bytes, to which both addresses are aligned.
__device__ __forceinline__ void move_pieces(UInt64 target, UInt64 source, int num_bytes,
                                            UInt64 alignment) {
  if (alignment >= 8) {
    move_in<UInt64>(target, source, num_bytes);
  } else if (alignment == 4) {
    move_in<UInt32>(target, source, num_bytes);
  } else if (alignment == 2) {
    move_in<UInt16>(target, source, num_bytes);
  } else {
    move_in<UInt8>(target, source, num_bytes);
  }
}
