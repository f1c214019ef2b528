// Computes: REVERSE_SUBSEQUENCES for any strides.
// Idea: an item's number, by rows or panels, gives its lane and position; the length its source.
// Ownership: a thread owns kItemsPerThread items per tile: all lengths, all items, all stores.
// Requires: source_strides and length_strides of 0 along the axis.
// Chosen when: lanes or rows are short and have gaps, or lanes are too long for columns.cu.
#include "common/move_item.cuh"
#include "reverse_subsequences/lane_space.cuh"

constexpr int kThreads = 256;
// A minimum for the compiler; asking for more would spill registers.
constexpr int kBlocksPerMultiprocessor = 3;
constexpr int kItemsPerThread = 4;
constexpr int kItemsPerTile = kThreads * kItemsPerThread;

// In items.
struct ReverseGatherParams : LaneSpace {
  Int64 num_items;
  Int64 num_tiles;
  Int64 axis_stride;  // of the source
  Int32 axis;
};

template <class Item>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    reverse_gather(const void* source, const void* lengths, void* target, ReverseGatherParams p) {
  constexpr int kItemBytes = sizeof(Item);
  const UInt8* from = static_cast<const UInt8*>(source);
  UInt8* to = static_cast<UInt8*>(target);
  const int alignment = common_alignment(from, to, kItemBytes);

  for (Int64 tile = blockIdx.x; tile < p.num_tiles; tile += gridDim.x) {
    const Int64 first = tile * kItemsPerTile + threadIdx.x;
    LanePosition positions[kItemsPerThread];
    UInt64 length_bits[kItemsPerThread];
    Item items[kItemsPerThread];
#pragma unroll
    for (int k = 0; k < kItemsPerThread; ++k) {
      if (first + k * kThreads < p.num_items) {
        positions[k] = position_of(p, first + k * kThreads, p.axis);
        length_bits[k] = load_length(lengths, positions[k].length, p.length_bytes);
      }
    }
#pragma unroll
    for (int k = 0; k < kItemsPerThread; ++k) {
      if (first + k * kThreads < p.num_items) {
        const Int64 length =
            clamp_length(length_bits[k], p.length_bytes, p.length_is_signed, p.axis_size);
        const Int64 origin = origin_of(positions[k].place, length);
        const UInt8* item = from + (positions[k].source + origin * p.axis_stride) * kItemBytes;
        UInt8* place = to + positions[k].target * kItemBytes;
        if (alignment == kItemBytes) {
          items[k] = load_item<Item>(item);
        } else {
          move_pieces(place, item, kItemBytes, alignment);
        }
      }
    }
    if (alignment != kItemBytes) continue;
#pragma unroll
    for (int k = 0; k < kItemsPerThread; ++k) {
      if (first + k * kThreads < p.num_items) {
        store_item<Item>(to + positions[k].target * kItemBytes, items[k]);
      }
    }
  }
}
