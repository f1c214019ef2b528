// Square tiles of items, to transpose. Here a tile is a single item, because no plan for a GPU uses them; the
// emulator's file of the same name has the same functions for tiles of a CPU's vector registers.
#pragma once

#include "common/types.cuh"

// The size of a tile's row; a plan relies on its maximum only.
constexpr int kTileBytes = 16;

// How far `reverse_lane` may read before a lane.
constexpr int kMirroredBytes = 16;

// The number of rows of a tile, and of items in a row.
template <class Item>
constexpr int kTileItems = 1;

// Copies item c of row r to item r of row c. Rows are `target_pitch` and `source_pitch` bytes apart and need
// no alignment.
template <class Item>
__device__ __forceinline__ void transpose_tile(UInt8* target, Int64 target_pitch,
                                               const UInt8* source, Int64 source_pitch) {
  *reinterpret_cast<Item*>(target) = *reinterpret_cast<const Item*>(source);
}

// kBytes of items at a place, mirrored. The addresses need no alignment.
template <class Item, int kBytes>
struct Mirrored {
  static constexpr int kItems = kBytes / static_cast<int>(sizeof(Item));
  Item items[kItems];

  explicit __device__ __forceinline__ Mirrored(const UInt8* place) {
    for (int i = 0; i < kItems; ++i) {
      items[kItems - 1 - i] = reinterpret_cast<const Item*>(place)[i];
    }
  }
  __device__ __forceinline__ void store(UInt8* place) const {
    for (int i = 0; i < kItems; ++i) reinterpret_cast<Item*>(place)[i] = items[i];
  }
};

// Reverses the first `num_items` of a lane's `lane_items` items in place. It may read kMirroredBytes before
// the lane, and in a lane of fewer than 2 * kMirroredBytes it may read and write back every byte.
template <class Item>
__device__ __forceinline__ void reverse_lane(UInt8* lane, Int64 num_items, Int64 lane_items) {
  Item* items = reinterpret_cast<Item*>(lane);
  for (Int64 low = 0, high = num_items - 1; low < high; ++low, --high) {
    const Item item = items[low];
    items[low] = items[high];
    items[high] = item;
  }
}

// Bytes that a thread computes with at once.
constexpr int kRowBytes = 16;
struct ByteRow {
  UInt8 bytes[kRowBytes];
};

// The addresses need no alignment.
__device__ __forceinline__ ByteRow load_row(const UInt8* source) {
  return *reinterpret_cast<const ByteRow*>(source);
}
__device__ __forceinline__ void store_row(UInt8* target, ByteRow row) {
  *reinterpret_cast<ByteRow*>(target) = row;
}

// The number minus each byte.
__device__ __forceinline__ ByteRow minus(UInt8 number, ByteRow row) {
  for (int i = 0; i < kRowBytes; ++i) row.bytes[i] = static_cast<UInt8>(number - row.bytes[i]);
  return row;
}

// Each byte less one.
__device__ __forceinline__ ByteRow less_one(ByteRow row) {
  for (int i = 0; i < kRowBytes; ++i) row.bytes[i] = static_cast<UInt8>(row.bytes[i] - 1);
  return row;
}

// A condition: all ones in every byte that has the bit, else 0.
__device__ __forceinline__ ByteRow with_bit(ByteRow row, int bit) {
  for (int i = 0; i < kRowBytes; ++i) row.bytes[i] = row.bytes[i] >> bit & 1 ? 0xff : 0;
  return row;
}
__device__ __forceinline__ ByteRow choose(ByteRow condition, ByteRow yes, ByteRow no) {
  for (int i = 0; i < kRowBytes; ++i) no.bytes[i] = condition.bytes[i] ? yes.bytes[i] : no.bytes[i];
  return no;
}

// `yes` in every byte in which `a` is above `b`, else `no`.
__device__ __forceinline__ ByteRow choose_above(ByteRow a, ByteRow b, ByteRow yes, ByteRow no) {
  for (int i = 0; i < kRowBytes; ++i)
    no.bytes[i] = a.bytes[i] > b.bytes[i] ? yes.bytes[i] : no.bytes[i];
  return no;
}

// Copies kCopiedBytes, all of which are loaded before the first is stored: a load after a store has to wait
// for the store if the low 12 bits of their addresses are equal. The addresses need no alignment.
constexpr int kCopiedBytes = kRowBytes;
__device__ __forceinline__ void copy_at_once(UInt8* target, const UInt8* source) {
  store_row(target, load_row(source));
}

// What `stream_line` copies: a line of a CPU's cache.
constexpr int kLineBytes = 16;

// Copies a line past the caches. The target is aligned to kLineBytes.
__device__ __forceinline__ void stream_line(UInt8* target, const UInt8* source) {
  *reinterpret_cast<uint4*>(target) = *reinterpret_cast<const uint4*>(source);
}

// Orders streamed lines before all that the thread writes later.
__device__ __forceinline__ void finish_streaming() {}
