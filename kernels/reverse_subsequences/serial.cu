// Computes: REVERSE_SUBSEQUENCES by blocks of one thread, on a CPU.
// Idea: a row is a whole lane, or crosses lanes of one length; it moves as a block.
// Ownership: a block is one thread and owns neighbouring rows; blocks seldom share a cache line.
// Requires: the axis as the row; or rows of lanes of one length, the axis among the dimensions.
// Chosen when: blocks have one thread, except for rows of lanes with lengths of their own.
#include "common/serial_copy.cuh"
#include "reverse_subsequences/lane_space.cuh"

// In items.
struct ReverseSerialParams : LaneSpace {
  Int64 num_rows;
  Int64 rows_per_block;
  Int64 row_items;
  Int64 row_source_stride;
  Int64 row_target_stride;
  Int64 axis_stride;  // of the source
  Int32 axis;         // -1 if the row is the axis
};

template <class Item>
__global__ void reverse_serial(const void* source, const void* lengths, void* target,
                               ReverseSerialParams p) {
  constexpr int kItemBytes = sizeof(Item);
  const UInt8* from = static_cast<const UInt8*>(source);
  UInt8* to = static_cast<UInt8*>(target);
  const Int64 first = blockIdx.x * p.rows_per_block;
  const Int64 stop = min(first + p.rows_per_block, p.num_rows);

  for (Int64 row = first; row < stop;) {
    LanePosition at = position_of(p, row, p.axis);
    const Int64 end = min(row + p.sizes[0] - at.part, stop);
    for (; row < end; ++row) {
      UInt8* row_target = to + at.target * kItemBytes;
      const UInt8* row_source = from + at.source * kItemBytes;
      const Int64 length = length_at(p, lengths, at.length);
      if (p.axis < 0) {
        copy_row<Item>(row_target, row_source + (length - 1) * p.axis_stride * kItemBytes, length,
                       p.row_target_stride, -p.axis_stride);
        copy_row<Item>(row_target + length * p.row_target_stride * kItemBytes,
                       row_source + length * p.axis_stride * kItemBytes, p.row_items - length,
                       p.row_target_stride, p.axis_stride);
      } else {
        const Int64 origin = origin_of(at.place, length);
        copy_row<Item>(row_target, row_source + origin * p.axis_stride * kItemBytes, p.row_items,
                       p.row_target_stride, p.row_source_stride);
      }
      at.source += p.source_strides[0];
      at.target += p.target_strides[0];
      at.length += p.length_strides[0];
      if (p.axis == 0) ++at.place;
    }
  }
}
