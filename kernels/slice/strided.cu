// Computes: SLICE and SLICE1 of a box of every s-th item of the source, s from 2 to 8 or -8 to -2.
// Idea: a warp loads a stretch of source in 16-byte words and picks its items in shared storage.
// Ownership: a warp owns a piece of a row, tile_words words per lane at a time; warps stride.
// Requires: pieces of whole tiles, strides in items, the source's extent; any pointer alignment.
// Chosen when: items have 1, 2 or 4 bytes and rows a few tiles; gathering wider items is as fast.
#include "common/run_copy.cuh"
#include "slice/box_space.cuh"

constexpr int kThreads = 128;
// A minimum for the compiler; asking for more would spill registers.
constexpr int kBlocksPerMultiprocessor = 4;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kMaxStride = 8;
// Maximum number of source words of a tile: 8 per lane, and one more because neither end is aligned.
constexpr int kLoadsPerLane = kMaxStride + 1;

// Offsets, strides and extents count bytes.
struct SliceStridedPieces {
  Int64 num_pieces;
  Int64 row_items;
  Int64 piece_items;
  Int64 source_offset;  // of the first item
  Int64 target_offset;
  Int64 source_begin;
  Int64 source_end;
};

// Dimension 0 counts the pieces of a row.
struct SliceStridedParams : SliceStridedPieces, BoxSpace {
  Int32 stride;      // items between neighbours of a row in the source, not 0
  Int32 tile_words;  // words that a lane writes per tile: |stride| * tile_words <= kMaxStride
};

// A stretch is stored with a gap of 4 bytes after every 128, so that lanes that pick at multiples of a power
// of two reach different banks.
constexpr UInt32 kLineBytes = 128;
constexpr UInt32 kKeptLineBytes = kLineBytes + 4;

struct Storage {
  UInt8 bytes[kWarps][kLoadsPerLane * kWarpSize * kWordBytes / kLineBytes * kKeptLineBytes];
};

// Where byte `offset` of a stretch is stored.
__device__ __forceinline__ constexpr UInt32 kept_at(UInt32 offset) {
  return offset + offset / kLineBytes * (kKeptLineBytes - kLineBytes);
}

// One tile: `num_items` items of the row from `begin` on, which go into `tile_words` words per lane from
// `word` on. The first word begins `lead` items before item `begin`, if that item is inside a word.
template <class Item>
__device__ __forceinline__ void copy_tile(const SliceStridedParams& p, const Extent& extent,
                                          UInt8* kept, const UInt8* row_source, UInt8* word,
                                          Int64 begin, int num_items, int lead, int lane) {
  constexpr int kItemBytes = sizeof(Item);
  constexpr int kItemsPerWord = kWordBytes / kItemBytes;
  const int step = p.stride * kItemBytes;
  const UInt8* first = row_source + begin * step;
  const UInt8* last = first + (num_items - 1) * step;
  const UInt8* low = p.stride > 0 ? first : last;
  const UInt8* high = (p.stride > 0 ? last : first) + kItemBytes;
  const UInt8* stretch = word_of(low);
  const int num_words = static_cast<int>(high - stretch + kWordBytes - 1) / kWordBytes;
  // All bytes of the words [whole_begin, whole_end) belong to the tensor.
  const int whole_begin = stretch < extent.begin ? 1 : 0;
  const int whole_end = stretch + num_words * kWordBytes > extent.end ? num_words - 1 : num_words;

  uint4 loaded[kLoadsPerLane];
#pragma unroll
  for (int k = 0; k < kLoadsPerLane; ++k) {
    const int w = lane + k * kWarpSize;
    if (w >= whole_begin && w < whole_end) loaded[k] = load_16_bytes(stretch + w * kWordBytes);
  }
  // All loads are in flight before the first is waited for, and every lane has picked from the last stretch
  // before this one overwrites it.
  __syncwarp();
  UInt8* lane_kept = kept + kept_at(lane * kWordBytes);
#pragma unroll
  for (int k = 0; k < kLoadsPerLane; ++k) {
    const int w = lane + k * kWarpSize;
    if (w >= whole_begin && w < whole_end) {
      UInt32* words = reinterpret_cast<UInt32*>(lane_kept + k * kept_at(kWarpSize * kWordBytes));
      words[0] = loaded[k].x;
      words[1] = loaded[k].y;
      words[2] = loaded[k].z;
      words[3] = loaded[k].w;
    }
  }
  if (whole_begin > 0 || whole_end < num_words) {
    for (int offset = lane * kItemBytes; offset < num_words * kWordBytes;
         offset += kWarpSize * kItemBytes) {
      const UInt8* at = stretch + offset;
      const bool is_loaded = offset >= whole_begin * kWordBytes && offset < whole_end * kWordBytes;
      if (!is_loaded && at >= low && at < high) {
        *reinterpret_cast<Item*>(kept + kept_at(offset)) = load_item<Item>(at);
      }
    }
  }
  __syncwarp();  // the stretch is complete before any lane picks from it

  const int origin = static_cast<int>(first - stretch);
  for (int k = 0; k < p.tile_words; ++k) {
    const int w = lane + k * kWarpSize;
    const int item = w * kItemsPerWord - lead;
    const int offset = origin + item * step;
    UInt32 words[4] = {0, 0, 0, 0};
    if (item >= 0 && item + kItemsPerWord <= num_items) {
#pragma unroll
      for (int i = 0; i < kItemsPerWord; ++i) {
        const UInt32 bits = *reinterpret_cast<const Item*>(kept + kept_at(offset + i * step));
        words[i * kItemBytes / 4] |= bits << (i * kItemBytes % 4 * 8);
      }
      store_16_bytes(word + w * kWordBytes, uint4{words[0], words[1], words[2], words[3]});
    } else {
#pragma unroll 1
      for (int i = max(item, 0); i < min(item + kItemsPerWord, num_items); ++i) {
        store_item<Item>(word + w * kWordBytes + (i - item) * kItemBytes,
                         *reinterpret_cast<const Item*>(kept + kept_at(origin + i * step)));
      }
    }
  }
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
        const Int64 word_item = (word - row_target) / kItemBytes;
        const Int64 reached = word_item + tile_bytes / kItemBytes;
        const Int64 tile_end = reached < end ? reached : end;
        copy_tile<Item>(p, extent, storage.bytes[warp], row_source, word, i,
                        static_cast<int>(tile_end - i), static_cast<int>(i - word_item), lane);
        i = tile_end;
      }
    }
  }
}
