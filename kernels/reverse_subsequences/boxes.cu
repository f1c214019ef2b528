// Computes: REVERSE_SUBSEQUENCES of short lanes, in small boxes that lie one after another.
// Idea: many boxes are loaded into shared storage as 16-byte words and permuted there.
// Ownership: a block owns a tile of whole boxes; a thread loads words and lengths, stores cells.
// Requires: tiles that fit; boxes of the same layout in source and target, without gaps.
// Chosen when: boxes are below a few KiB; a box is a lane, or all lanes that cross its rows.
#include "common/run_copy.cuh"
#include "reverse_subsequences/cells.cuh"
#include "reverse_subsequences/lane_space.cuh"

constexpr int kThreads = 256;
// A minimum for the compiler; asking for more would spill registers.
constexpr int kBlocksPerMultiprocessor = 4;
constexpr int kTileWords = 1024;
constexpr int kLoads = kTileWords / kThreads;
constexpr int kLengthsAtOnce = 2;

// In items; the index space has the lanes only, ordered within a box and then from box to box.
struct ReverseBoxesParams : LaneSpace {
  Int64 num_lanes;
  Int64 num_tiles;
  UInt32 box_multiplier;  // divides by box_items
  UInt32 row_multiplier;  // divides by row_lanes
  Int32 box_shift;
  Int32 row_shift;
  Int32 box_items;
  Int32 row_lanes;  // lanes that cross each row of a box
  Int32 tile_lanes;
};

struct Storage {
  uint4 words[kTileWords];
  UInt16 lengths[1];  // as many as a tile has lanes
};

// An item of a tile: its lane and its place in the lane. With `kHasRows`, boxes have several lanes.
template <bool kHasRows>
struct TileItem {
  int index;
  int box_lane;  // the first lane of its box
  int row_lane;  // its lane, relative to box_lane
  int place;

  __device__ __forceinline__ TileItem(const ReverseBoxesParams& p, int index) : index(index) {
    const int box =
        static_cast<int>(divide(static_cast<UInt32>(index), p.box_multiplier, p.box_shift));
    box_lane = kHasRows ? box * p.row_lanes : box;
    row_lane = 0;
    place = index - box * p.box_items;
    if (kHasRows) {
      const int row =
          static_cast<int>(divide(static_cast<UInt32>(place), p.row_multiplier, p.row_shift));
      row_lane = place - row * p.row_lanes;
      place = row;
    }
  }

  // Advances to the next item.
  __device__ __forceinline__ void advance(const ReverseBoxesParams& p) {
    ++index;
    if (kHasRows && ++row_lane < p.row_lanes) return;
    row_lane = 0;
    if (++place < static_cast<int>(p.axis_size)) return;
    place = 0;
    box_lane += kHasRows ? p.row_lanes : 1;
  }

  // The index of the item that is stored here.
  __device__ __forceinline__ int origin(const ReverseBoxesParams& p, const UInt16* lengths) const {
    const int length = lengths[box_lane + row_lane];
    const int distance = origin_of(place, length) - place;
    return index + (kHasRows ? distance * p.row_lanes : distance);
  }
};

// The bytes of a word that lie in [begin, end), the others 0.
__device__ __forceinline__ uint4 load_bytes_between(const UInt8* word, const UInt8* begin,
                                                    const UInt8* end) {
  UInt64 low = 0;
  UInt64 high = 0;
#pragma unroll 1
  for (int b = kWordBytes - 1; b >= 0; --b) {
    high = high << 8 | low >> 56;
    low <<= 8;
    if (word + b >= begin && word + b < end) low |= word[b];
  }
  return uint4{static_cast<UInt32>(low), static_cast<UInt32>(low >> 32), static_cast<UInt32>(high),
               static_cast<UInt32>(high >> 32)};
}

template <class Item, bool kHasRows>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    reverse_boxes(const void* source, const void* lengths, void* target, ReverseBoxesParams p) {
  SHARED_STORAGE(Storage, storage);
  using Cell = typename CellOf<Item>::Type;
  constexpr int kItemBytes = sizeof(Item);
  constexpr int kItems = sizeof(Cell) / sizeof(Item);
  const int thread = static_cast<int>(threadIdx.x);
  const UInt8* all = static_cast<const UInt8*>(source) + p.source_offset * kItemBytes;
  const UInt8* all_end = all + p.num_lanes * p.axis_size * kItemBytes;
  const int alignment = common_alignment(source, target, kItemBytes);

  for (Int64 tile = blockIdx.x; tile < p.num_tiles; tile += gridDim.x) {
    const Int64 first_lane = tile * p.tile_lanes;
    const Int64 lanes_left = p.num_lanes - first_lane;
    const int num_lanes = lanes_left < p.tile_lanes ? static_cast<int>(lanes_left) : p.tile_lanes;
    const int num_items = num_lanes * static_cast<int>(p.axis_size);
    const Int64 first_byte = first_lane * p.axis_size * kItemBytes;
    const UInt8* from = all + first_byte;
    const UInt8* from_end = from + num_items * kItemBytes;
    UInt8* to = static_cast<UInt8*>(target) + p.target_offset * kItemBytes + first_byte;

    const UInt8* word = word_of(from) + thread * kWordBytes;
    uint4 words[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      const UInt8* at = word + k * kThreads * kWordBytes;
      if (at < from_end && at >= all && at + kWordBytes <= all_end) words[k] = load_16_bytes(at);
    }
    // The tensor's first and last words may reach beyond it.
    if (word_of(from) < all || from_end + (kWordBytes - 1) > all_end) {
#pragma unroll
      for (int k = 0; k < kLoads; ++k) {
        const UInt8* at = word + k * kThreads * kWordBytes;
        if (at < from_end && (at < all || at + kWordBytes > all_end)) {
          words[k] = load_bytes_between(at, all, all_end);
        }
      }
    }
#pragma unroll 1
    for (int first = thread; first < num_lanes; first += kThreads * kLengthsAtOnce) {
      LanePosition positions[kLengthsAtOnce];
      UInt64 length_bits[kLengthsAtOnce];
      positions_of(p, first_lane + first, kThreads, -1, positions);
#pragma unroll
      for (int k = 0; k < kLengthsAtOnce; ++k) {
        if (first + k * kThreads < num_lanes) {
          length_bits[k] = load_length(lengths, positions[k].length, p.length_bytes);
        }
      }
#pragma unroll
      for (int k = 0; k < kLengthsAtOnce; ++k) {
        const int lane = first + k * kThreads;
        if (lane < num_lanes) {
          storage.lengths[lane] = static_cast<UInt16>(
              clamp_length(length_bits[k], p.length_bytes, p.length_is_signed, p.axis_size));
        }
      }
    }
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      const int at = thread + k * kThreads;
      if (word + k * kThreads * kWordBytes < from_end) storage.words[at] = words[k];
    }
    __syncthreads();  // the tile and its lengths are complete before any thread picks from them

    if (alignment == kItemBytes) {
      const UInt8* items = reinterpret_cast<const UInt8*>(storage.words) + (from - word_of(from));
      // Cells are aligned. If neighbouring tiles share one, its items are moved one by one.
      const int head =
          kItems == 1 ? 0 : static_cast<int>(-address_of(to) & (sizeof(Cell) - 1)) / kItemBytes;
      const int num_cells = max(num_items - head, 0) / kItems;
      const int tail = head + num_cells * kItems;
#pragma unroll 2
      for (int cell = thread; cell < num_cells; cell += kThreads) {
        TileItem<kHasRows> item(p, head + cell * kItems);
        UInt8* place = to + item.index * kItemBytes;
        Item picked[kItems];
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
          picked[i] =
              *reinterpret_cast<const Item*>(items + item.origin(p, storage.lengths) * kItemBytes);
          item.advance(p);
        }
        store_item<Cell>(place, joined(picked));
      }
      if (kItems > 1) {
        const int index = thread < head ? thread : thread - head + tail;
        if (thread < head + kItems && index < num_items) {
          const TileItem<kHasRows> item(p, index);
          store_item<Item>(
              to + index * kItemBytes,
              *reinterpret_cast<const Item*>(items + item.origin(p, storage.lengths) * kItemBytes));
        }
      }
    } else {
      for (int index = thread; index < num_items; index += kThreads) {
        const TileItem<kHasRows> item(p, index);
        move_pieces(to + index * kItemBytes, from + item.origin(p, storage.lengths) * kItemBytes,
                    kItemBytes, alignment);
      }
    }
    __syncthreads();  // every thread has picked its items before the next tile is loaded
  }
}
