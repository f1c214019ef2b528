// Cells: items that a thread picks one by one and writes at once.
#pragma once

#include "common/move_item.cuh"
#include "common/types.cuh"

// Four bytes of narrow items, so that the threads of a warp write whole lines; one item of the other types.
template <class Item, bool kIsNarrow = (sizeof(Item) < 4)>
struct CellOf {
  using Type = Item;
};
template <class Item>
struct CellOf<Item, true> {
  using Type = UInt32;
};

// The items of a cell, in order.
template <class Item>
__device__ __forceinline__ Item joined(const Item (&items)[1]) {
  return items[0];
}

template <class Item, int kItems>
__device__ __forceinline__ UInt32 joined(const Item (&items)[kItems]) {
  UInt32 cell = 0;
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    cell |= static_cast<UInt32>(items[i]) << (8 * static_cast<int>(sizeof(Item)) * i);
  }
  return cell;
}
