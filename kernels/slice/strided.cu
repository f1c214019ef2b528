// Copies a box whose rows take every s-th item of the source, s from 2 to 8 in either direction: SLICE and SLICE1.
// Idea: a warp loads the whole stretch of source in 16-byte words, and picks the items out of shared storage.
// A warp owns a piece of a row, tile_words target words a lane at a time; warps stride over pieces.
// The host gives pieces of whole tiles, strides in items, and the source's extent. Pointers may be misaligned.
// The plan picks it for items of 1, 2 and 4 bytes and rows of a few tiles; wider items gather as well.
#include "common/run_copy.cuh"
#include "common/strided_index.cuh"

constexpr int kThreads = 128;
// At least, so that registers are never spilled for more.
constexpr int kBlocksPerMultiprocessor = 4;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kMaxStride = 8;
// Source words of a tile at most: 8 for each lane, and one more because neither end is aligned.
constexpr int kLoadsPerLane = kMaxStride + 1;

struct SliceStridedParams {
  Int64 num_pieces;
  Int64 row_items;
  Int64 piece_items;
  Int64 source_offset;  // bytes of the first item; strides of dimensions and extents are bytes too
  Int64 target_offset;
  Int64 source_begin;
  Int64 source_end;
  Int64 sizes[kMaxDimensions];  // dimension 0 counts the pieces of a row
  UInt64 multipliers[kMaxDimensions];
  Int64 source_strides[kMaxDimensions];
  Int64 target_strides[kMaxDimensions];
  Int32 shifts[kMaxDimensions];
  Int32 num_dimensions;
  Int32 is_wide;
  Int32 stride;      // items between neighbours of a row in the source, not 0
  Int32 tile_words;  // words that a lane writes per tile: |stride| * tile_words <= kMaxStride
};

struct Storage {
  uint4 words[kWarps][kLoadsPerLane * kWarpSize];
};

// One tile: the row's items [begin, end), of which the first is at `source` and the target words start
// at `word`, one before the first item's place where that is inside a word.
template <class Item>
__device__ __forceinline__ void copy_tile(const SliceStridedParams& p, const Extent& extent,
                                          uint4* shared, const UInt8* row_source, UInt8* row_target,
                                          UInt8* word, Int64 begin, Int64 end, int lane) {
  constexpr int kItemBytes = sizeof(Item);
  constexpr int kItemsPerWord = kWordBytes / kItemBytes;
  const Int64 step = static_cast<Int64>(p.stride) * kItemBytes;
  const UInt8* first = row_source + begin * step;
  const UInt8* last = row_source + (end - 1) * step;
  const UInt8* low = p.stride > 0 ? first : last;
  const UInt8* high = (p.stride > 0 ? last : first) + kItemBytes;
  const UInt8* stretch = word_of(low);
  const int num_words =
      begin < end ? static_cast<int>((high - stretch + kWordBytes - 1) / kWordBytes) : 0;

  uint4 loaded[kLoadsPerLane];
#pragma unroll
  for (int k = 0; k < kLoadsPerLane; ++k) {
    const int w = lane + k * kWarpSize;
    const UInt8* at = stretch + w * kWordBytes;
    if (w < num_words) {
      if (at >= extent.begin && at + kWordBytes <= extent.end) {
        loaded[k] = load_16_bytes(at);
      } else {
        loaded[k] = load_bytes_between(at, low, high);
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kLoadsPerLane; ++k) {
    const int w = lane + k * kWarpSize;
    if (w < num_words) shared[w] = loaded[k];
  }
  __syncwarp();  // the stretch is complete before any lane picks from it

  const UInt8* picked_from = reinterpret_cast<const UInt8*>(shared) + (row_source - stretch);
  for (int k = 0; k < p.tile_words; ++k) {
    UInt8* target = word + (lane + k * kWarpSize) * kWordBytes;
    const Int64 item = (target - row_target) / kItemBytes;
    UInt32 words[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < kItemsPerWord; ++i) {
      if (item + i >= begin && item + i < end) {
        const UInt32 bits = *reinterpret_cast<const Item*>(picked_from + (item + i) * step);
        words[i * kItemBytes / 4] |= bits << (i * kItemBytes % 4 * 8);
      }
    }
    const uint4 v = {words[0], words[1], words[2], words[3]};
    if (item >= begin && item + kItemsPerWord <= end) {
      store_16_bytes(target, v);
    } else if (item < end && item + kItemsPerWord > begin) {
      const int from = item < begin ? static_cast<int>(begin - item) * kItemBytes : 0;
      const int to =
          item + kItemsPerWord > end ? static_cast<int>(end - item) * kItemBytes : kWordBytes;
      store_bytes_between(target, v, from, to);
    }
  }
  __syncwarp();  // every lane has picked before the next tile overwrites the stretch
}

template <class Item>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    slice_strided(const void* source, void* target, SliceStridedParams p) {
  SHARED_STORAGE(Storage, storage);
  constexpr int kItemBytes = sizeof(Item);
  const UInt8* from = static_cast<const UInt8*>(source);
  UInt8* to = static_cast<UInt8*>(target);
  const Extent extent{from + p.source_begin, from + p.source_end};
  const int lane = static_cast<int>(threadIdx.x) & (kWarpSize - 1);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int alignment = common_alignment(source, target, kItemBytes);
  const int tile_bytes = p.tile_words * kWarpSize * kWordBytes;

  for (Int64 index = static_cast<Int64>(blockIdx.x) * kWarps + warp; index < p.num_pieces;
       index += static_cast<Int64>(gridDim.x) * kWarps) {
    Int64 begin = 0;
    Int64 source_byte = p.source_offset;
    Int64 target_byte = p.target_offset;
    visit_coordinates(p, index, [&](int d, Int64 coordinate) {
      if (d == 0) {
        begin = coordinate * p.piece_items;
      } else {
        source_byte += coordinate * p.source_strides[d];
        target_byte += coordinate * p.target_strides[d];
      }
    });
    const UInt8* row_source = from + source_byte;
    UInt8* row_target = to + target_byte;
    const Int64 end = begin + p.piece_items < p.row_items ? begin + p.piece_items : p.row_items;
    if (alignment != kItemBytes) {
      for (Int64 i = begin + lane; i < end; i += kWarpSize) {
        move_pieces(row_target + i * kItemBytes, row_source + i * p.stride * kItemBytes, kItemBytes,
                    alignment);
      }
    } else {
      UInt8* word = word_of(row_target + begin * kItemBytes);
      for (Int64 i = begin; i < end; word += tile_bytes) {
        const Int64 reached = (word + tile_bytes - row_target) / kItemBytes;
        const Int64 tile_end = reached < end ? reached : end;
        copy_tile<Item>(p, extent, storage.words[warp], row_source, row_target, word, i, tile_end,
                        lane);
        i = tile_end;
      }
    }
  }
}
