// Reverses the first `length` items of every lane and copies the rest: REVERSE_SUBSEQUENCES for any strides.
// Idea: an item's number in target order gives its lane and its place in it; the length gives where it comes from.
// A thread moves kItemsPerThread items a tile, a block's width apart, loads before stores; blocks stride over tiles.
// The host gives the axis no source stride of its own in source_strides, and lengths no stride along it.
// The plan picks it where neither the lanes nor what lies between their items is a run worth vectors.
#include "common/move_item.cuh"
#include "common/strided_index.cuh"
#include "reverse_subsequences/lengths.cuh"

constexpr int kThreads = 256;
// At least, so that registers are never spilled for more.
constexpr int kBlocksPerMultiprocessor = 3;
constexpr int kItemsPerThread = 4;
constexpr int kItemsPerTile = kThreads * kItemsPerThread;

struct ReverseGatherParams {
  Int64 num_items;
  Int64 num_tiles;
  Int64 source_offset;  // offsets and strides count items, those of lengths count lengths
  Int64 target_offset;
  Int64 length_offset;
  Int64 axis_size;
  Int64 axis_stride;  // of the source
  Int64 sizes[kMaxDimensions];
  UInt64 multipliers[kMaxDimensions];
  Int64 source_strides[kMaxDimensions];
  Int64 target_strides[kMaxDimensions];
  Int64 length_strides[kMaxDimensions];
  Int32 shifts[kMaxDimensions];
  Int32 num_dimensions;
  Int32 is_wide;
  Int32 axis;
  Int32 length_bytes;
  Int32 length_is_signed;
};

// Where item `index` comes from and goes to, in items from the source's and the target's start.
__device__ __forceinline__ void locate(const ReverseGatherParams& p, const void* lengths,
                                       Int64 index, Int64& source, Int64& target) {
  Int64 length_index = p.length_offset;
  Int64 place = 0;
  source = p.source_offset;
  target = p.target_offset;
  visit_coordinates(p, index, [&](int d, Int64 coordinate) {
    source += coordinate * p.source_strides[d];
    target += coordinate * p.target_strides[d];
    length_index += coordinate * p.length_strides[d];
    if (d == p.axis) place = coordinate;
  });
  const Int64 length =
      read_length(lengths, length_index, p.length_bytes, p.length_is_signed, p.axis_size);
  source += (place < length ? length - 1 - place : place) * p.axis_stride;
}

template <class Item>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    reverse_gather(const void* source, const void* lengths, void* target, ReverseGatherParams p) {
  constexpr int kItemBytes = sizeof(Item);
  const UInt8* from = static_cast<const UInt8*>(source);
  UInt8* to = static_cast<UInt8*>(target);
  const int alignment = common_alignment(from, to, kItemBytes);
  Int64 source_item;
  Int64 target_item;

  if (alignment != kItemBytes) {
    const Int64 step = static_cast<Int64>(gridDim.x) * kThreads;
    for (Int64 i = static_cast<Int64>(blockIdx.x) * kThreads + threadIdx.x; i < p.num_items;
         i += step) {
      locate(p, lengths, i, source_item, target_item);
      move_pieces(to + target_item * kItemBytes, from + source_item * kItemBytes, kItemBytes,
                  alignment);
    }
    return;
  }
  for (Int64 tile = blockIdx.x; tile < p.num_tiles; tile += gridDim.x) {
    const Int64 first = tile * kItemsPerTile + threadIdx.x;
    Item items[kItemsPerThread];
    UInt8* targets[kItemsPerThread];
#pragma unroll
    for (int k = 0; k < kItemsPerThread; ++k) {
      if (first + k * kThreads < p.num_items) {
        locate(p, lengths, first + k * kThreads, source_item, target_item);
        items[k] = load_item<Item>(from + source_item * kItemBytes);
        targets[k] = to + target_item * kItemBytes;
      }
    }
#pragma unroll
    for (int k = 0; k < kItemsPerThread; ++k) {
      if (first + k * kThreads < p.num_items) store_item<Item>(targets[k], items[k]);
    }
  }
}
