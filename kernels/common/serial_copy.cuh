// Copies strided rows by a single thread: plain loops, of which the host's compiler makes block moves.
#pragma once

#include "common/move_item.cuh"
#include "common/types.cuh"

__device__ __forceinline__ void copy_bytes(UInt8* __restrict__ target,
                                           const UInt8* __restrict__ source, Int64 num_bytes) {
  for (Int64 b = 0; b < num_bytes; ++b) target[b] = source[b];
}

// Items i of a row, below num_items: target + i * target_stride from source + i * source_stride, both in
// items. `alignment` divides both places.
template <class Item>
__device__ __forceinline__ void copy_row(UInt8* target, const UInt8* source, Int64 num_items,
                                         Int64 target_stride, Int64 source_stride, int alignment) {
  constexpr int kItemBytes = sizeof(Item);
  const Int64 target_step = target_stride * kItemBytes;
  const Int64 source_step = source_stride * kItemBytes;
  if (target_stride == 1 && source_stride == 1) {
    copy_bytes(target, source, num_items * kItemBytes);
  } else if (alignment == kItemBytes) {
    for (Int64 i = 0; i < num_items; ++i) {
      store_item<Item>(target + i * target_step, load_item<Item>(source + i * source_step));
    }
  } else {
    for (Int64 i = 0; i < num_items; ++i) {
      move_pieces(target + i * target_step, source + i * source_step, kItemBytes, alignment);
    }
  }
}
