// Computes: REVERSE_SUBSEQUENCES on a CPU, of lanes that cross rows, each of its own length.
// Idea: a strip of lanes is copied to a small buffer row by row, reversed there, and copied back.
// Ownership: a block is one thread and owns neighbouring strips; it reads each length once.
// Requires: strips that fit shared storage; the axis is not among the dimensions.
// Chosen when: blocks have one thread, and neighbouring lanes have lengths of their own.
#include "common/intrinsics.cuh"
#include "common/serial_copy.cuh"
#include "reverse_subsequences/lane_space.cuh"

struct Storage {
  uint4 strip[1];  // rows of the strip one after another, as many as the launch has bytes for
};

// In items; dimension 0 counts the strips of a row.
struct ReverseSerialColumnsParams : LaneSpace {
  Int64 num_strips;
  Int64 strips_per_block;
  Int64 row_items;
  Int64 strip_items;  // lanes of a strip
  Int64 row_source_stride;
  Int64 row_target_stride;
  Int64 row_length_stride;
  Int64 axis_source_stride;
  Int64 axis_target_stride;
};

// Swaps the items of a column, `pitch` bytes apart, from the outer ones to the middle.
template <class Item>
__device__ __forceinline__ void reverse_column(UInt8* column, Int64 length, Int64 pitch) {
  constexpr int kItemBytes = sizeof(Item);
  UInt8* low = column;
  UInt8* high = column + (length - 1) * pitch;
  for (; low < high; low += pitch, high -= pitch) {
    Item first, last;
    move_bytes<kItemBytes>(&first, low);
    move_bytes<kItemBytes>(&last, high);
    move_bytes<kItemBytes>(low, &last);
    move_bytes<kItemBytes>(high, &first);
  }
}

template <class Item>
__global__ void reverse_serial_columns(const void* source, const void* lengths, void* target,
                                       ReverseSerialColumnsParams p) {
  SHARED_STORAGE(Storage, storage);
  constexpr int kItemBytes = sizeof(Item);
  UInt8* strip_bytes = reinterpret_cast<UInt8*>(storage.strip);
  const Int64 pitch = p.strip_items * kItemBytes;
  const Int64 first = blockIdx.x * p.strips_per_block;
  const Int64 stop = min(first + p.strips_per_block, p.num_strips);

  for (Int64 strip = first; strip < stop; ++strip) {
    const LanePosition at = position_of(p, strip, -1);
    const UInt8* from = static_cast<const UInt8*>(source) + at.source * kItemBytes;
    UInt8* to = static_cast<UInt8*>(target) + at.target * kItemBytes;
    const Int64 num_columns = min(p.strip_items, p.row_items - at.part * p.strip_items);
    for (Int64 i = 0; i < p.axis_size; ++i) {
      copy_row<Item>(strip_bytes + i * pitch, from + i * p.axis_source_stride * kItemBytes,
                     num_columns, 1, p.row_source_stride);
    }
    for (Int64 c = 0; c < num_columns; ++c) {
      const Int64 length = length_at(p, lengths, at.length + c * p.row_length_stride);
      reverse_column<Item>(strip_bytes + c * kItemBytes, length, pitch);
    }
    for (Int64 i = 0; i < p.axis_size; ++i) {
      copy_row<Item>(to + i * p.axis_target_stride * kItemBytes, strip_bytes + i * pitch,
                     num_columns, p.row_target_stride, 1);
    }
  }
}
