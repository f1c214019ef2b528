// Computes: SLICE and SLICE1 of a strided box, for any strides.
// Idea: an item's number in target order gives both addresses by multiplication, not division.
// Ownership: a thread owns kItemsPerThread items per tile and loads all before it stores any.
// Requires: merged and widened dimensions; source strides and pointer alignment are arbitrary.
// Chosen when: the output is small, a block reads whole sectors, or no other path pays.
#include "common/move_item.cuh"
#include "slice/box_space.cuh"

constexpr int kThreads = 256;
// A minimum for the compiler; asking for more would spill registers.
constexpr int kBlocksPerMultiprocessor = 4;

// Loads that a thread has in flight: more for narrow items, fewer for wide numbers, and if each item is a
// memory read of its own. Warps have enough of these reads in flight, and small outputs are then moved in
// several waves: one wave loads while another stores.
template <class Item>
constexpr int kItemsPerThread = sizeof(Item) <= 4 ? 8 : 4;
constexpr int kFewItemsPerThread = 2;

// Offsets and strides count items.
struct SliceGatherItems {
  Int64 num_items;
  Int64 source_offset;
  Int64 target_offset;
};

struct SliceGatherParams : SliceGatherItems, BoxSpace {
  Int32 target_is_packed;  // item i goes to place i
  Int32 source_is_far;     // neighbours share no read of the memory
};

// The places of items first, first + kThreads, ... of an operand, in items from its pointer. The places are
// unsigned, because numbers past the last item may lead anywhere; callers cast them to signed.
template <class Index, int kCount>
__device__ __forceinline__ void locate(const SliceGatherParams& p, Int64 offset,
                                       const Int64 (&strides)[kMaxDimensions], Index first,
                                       Index (&places)[kCount]) {
  Index rest[kCount];
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    rest[k] = first + k * kThreads;
    places[k] = static_cast<Index>(offset);
  }
  visit_coordinates_together(p, rest, [&](int d, int k, Index coordinate) {
    places[k] += coordinate * static_cast<Index>(strides[d]);
  });
}

// Index counts items; Place is the signed type of the same width.
template <class Item, int kCount, class Index, class Place>
__device__ __forceinline__ void copy_tiles(const SliceGatherParams& p, const UInt8* source,
                                           UInt8* target) {
  constexpr int kItemBytes = sizeof(Item);
  constexpr int kItemsPerTile = kThreads * kCount;
  const Index num_items = static_cast<Index>(p.num_items);

  for (Int64 tile_begin = static_cast<Int64>(blockIdx.x) * kItemsPerTile; tile_begin < p.num_items;
       tile_begin += static_cast<Int64>(gridDim.x) * kItemsPerTile) {
    const Index first = static_cast<Index>(tile_begin) + threadIdx.x;
    Index from[kCount];
    Index to[kCount];
    Item items[kCount];
    locate(p, p.source_offset, p.source_strides, first, from);
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      if (first + k * kThreads < num_items) {
        items[k] =
            load_item<Item>(source + static_cast<Int64>(static_cast<Place>(from[k])) * kItemBytes);
      }
    }
    if (p.target_is_packed) {
      UInt8* place = target + (p.target_offset + static_cast<Int64>(first)) * kItemBytes;
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        if (first + k * kThreads < num_items) {
          store_item<Item>(place + k * kThreads * kItemBytes, items[k]);
        }
      }
    } else {
      locate(p, p.target_offset, p.target_strides, first, to);
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        if (first + k * kThreads < num_items) {
          store_item<Item>(target + static_cast<Int64>(static_cast<Place>(to[k])) * kItemBytes,
                           items[k]);
        }
      }
    }
  }
}

// As `copy_tiles`, for pointers that are aligned to less than an item.
template <class Index, class Place>
__device__ __forceinline__ void copy_in_pieces(const SliceGatherParams& p, const UInt8* source,
                                               UInt8* target, int item_bytes, int alignment) {
  const Int64 step = static_cast<Int64>(gridDim.x) * kThreads;
  for (Int64 i = static_cast<Int64>(blockIdx.x) * kThreads + threadIdx.x; i < p.num_items;
       i += step) {
    Index from[1];
    Index to[1];
    locate(p, p.source_offset, p.source_strides, static_cast<Index>(i), from);
    locate(p, p.target_offset, p.target_strides, static_cast<Index>(i), to);
    move_pieces(target + static_cast<Int64>(static_cast<Place>(to[0])) * item_bytes,
                source + static_cast<Int64>(static_cast<Place>(from[0])) * item_bytes, item_bytes,
                alignment);
  }
}

template <class Item>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    slice_gather(const void* source, void* target, SliceGatherParams p) {
  constexpr int kItemBytes = sizeof(Item);
  const UInt8* from = static_cast<const UInt8*>(source);
  UInt8* to = static_cast<UInt8*>(target);
  const int alignment = common_alignment(from, to, kItemBytes);
  const bool is_aligned = alignment == kItemBytes;
  if (is_aligned && p.is_wide) {
    copy_tiles<Item, kFewItemsPerThread, UInt64, Int64>(p, from, to);
  } else if (is_aligned && p.source_is_far) {
    copy_tiles<Item, kFewItemsPerThread, UInt32, Int32>(p, from, to);
  } else if (is_aligned) {
    copy_tiles<Item, kItemsPerThread<Item>, UInt32, Int32>(p, from, to);
  } else if (p.is_wide) {
    copy_in_pieces<UInt64, Int64>(p, from, to, kItemBytes, alignment);
  } else {
    copy_in_pieces<UInt32, Int32>(p, from, to, kItemBytes, alignment);
  }
}
