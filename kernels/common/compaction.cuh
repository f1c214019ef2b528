// Compaction: moves the wanted items of a vector side by side. Here it moves them one by one, because no plan
// for a GPU needs it; the emulator's file of the same name uses a CPU's vector registers.
#pragma once

#include "common/types.cuh"

constexpr UInt32 kCompacted = 16;

// Whether compaction takes a few instructions for all kCompacted items, and no branch.
template <class Item>
constexpr bool kCompactsAtOnce = false;

// A bit for each of kCompacted keys: whether it is above a limit.
template <class Key>
__device__ __forceinline__ UInt32 bits_above(const Key* keys, Key limit) {
  UInt32 bits = 0;
  for (UInt32 i = 0; i < kCompacted; ++i) bits |= (keys[i] > limit ? 1u : 0u) << i;
  return bits;
}

// Stores the items whose bits are set, of kCompacted items. It may write kCompacted items.
template <class Item>
__device__ __forceinline__ void store_where(Item* to, const Item* from, UInt32 bits) {
  UInt32 count = 0;
  for (UInt32 i = 0; i < kCompacted; ++i) {
    to[count] = from[i];
    count += bits >> i & 1;
  }
}
