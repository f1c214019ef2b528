// Copies a strided box of items to a strided place, whatever the strides: SLICE and SLICE1.
// Idea: an item's number in target order gives both addresses by multiplication instead of division.
// A thread moves kItemsPerThread items a tile, a block's width apart, loads before stores; blocks stride over tiles.
// The host merges and widens dimensions; strides may be negative or 0 in the source. Pointers may be misaligned.
// The plan picks it where no run, reversal, small stride or transposition is long enough to exploit.
#include "common/move_item.cuh"
#include "common/strided_index.cuh"

constexpr int kThreads = 256;
// At least, so that registers are never spilled for more.
constexpr int kBlocksPerMultiprocessor = 3;
constexpr int kItemsPerThread = 4;
constexpr int kItemsPerTile = kThreads * kItemsPerThread;

struct SliceGatherParams {
  Int64 num_items;
  Int64 num_tiles;
  Int64 source_offset;  // offsets and strides count items
  Int64 target_offset;
  Int64 sizes[kMaxDimensions];
  UInt64 multipliers[kMaxDimensions];
  Int64 source_strides[kMaxDimensions];
  Int64 target_strides[kMaxDimensions];
  Int32 shifts[kMaxDimensions];
  Int32 num_dimensions;
  Int32 is_wide;
};

// Where item `index` lies, in items from the source's and the target's start.
__device__ __forceinline__ void locate(const SliceGatherParams& p, Int64 index, Int64& source,
                                       Int64& target) {
  source = p.source_offset;
  target = p.target_offset;
  visit_coordinates(p, index, [&](int d, Int64 coordinate) {
    source += coordinate * p.source_strides[d];
    target += coordinate * p.target_strides[d];
  });
}

template <class Item>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    slice_gather(const void* source, void* target, SliceGatherParams p) {
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
      locate(p, i, source_item, target_item);
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
        locate(p, first + k * kThreads, source_item, target_item);
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
