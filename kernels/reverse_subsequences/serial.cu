// Reverses the first `length` items of every lane by single threads: REVERSE_SUBSEQUENCES on a CPU.
// Idea: rows are plain loops; a row is a whole lane, mirrored up to its length, or runs across lanes at one place.
// A block is one thread and owns neighbouring rows, so that no two blocks write the same cache line often.
// The host gives the axis as the row, or a row across lanes and the axis among the dimensions.
// The plan picks it where blocks of one thread are the fastest.
#include "common/serial_copy.cuh"
#include "reverse_subsequences/lane_space.cuh"

// In items.
struct ReverseSerialParams : LaneSpace {
  Int64 num_rows;
  Int64 rows_per_block;
  Int64 row_items;
  Int64 row_source_stride;
  Int64 row_target_stride;
  Int64 row_length_stride;
  Int64 axis_stride;  // of the source
  Int32 axis;         // -1 where the row is the axis
};

template <class Item>
__global__ void reverse_serial(const void* source, const void* lengths, void* target,
                               ReverseSerialParams p) {
  constexpr int kItemBytes = sizeof(Item);
  const UInt8* from = static_cast<const UInt8*>(source);
  UInt8* to = static_cast<UInt8*>(target);
  const int alignment = common_alignment(source, target, kItemBytes);
  const Int64 first = blockIdx.x * p.rows_per_block;
  const Int64 stop = min(first + p.rows_per_block, p.num_rows);

  for (Int64 row = first; row < stop; ++row) {
    const LanePosition at = position_of(p, row, p.axis);
    UInt8* row_target = to + at.target * kItemBytes;
    const UInt8* row_source = from + at.source * kItemBytes;
    const Int64 length = length_at(p, lengths, at.length);
    if (p.axis < 0) {
      copy_row<Item>(row_target, row_source + (length - 1) * p.axis_stride * kItemBytes, length,
                     p.row_target_stride, -p.axis_stride, alignment);
      copy_row<Item>(row_target + length * p.row_target_stride * kItemBytes,
                     row_source + length * p.axis_stride * kItemBytes, p.row_items - length,
                     p.row_target_stride, p.axis_stride, alignment);
    } else if (p.row_length_stride == 0) {
      const Int64 origin = origin_of(at.place, length);
      copy_row<Item>(row_target, row_source + origin * p.axis_stride * kItemBytes, p.row_items,
                     p.row_target_stride, p.row_source_stride, alignment);
    } else {
      for (Int64 i = 0; i < p.row_items; ++i) {
        const Int64 own = length_at(p, lengths, at.length + i * p.row_length_stride);
        const Int64 origin = origin_of(at.place, own);
        copy_row<Item>(row_target + i * p.row_target_stride * kItemBytes,
                       row_source + (origin * p.axis_stride + i * p.row_source_stride) * kItemBytes,
                       1, 0, 0, alignment);
      }
    }
  }
}
