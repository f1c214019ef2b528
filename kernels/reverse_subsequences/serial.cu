// Reverses the first `length` items of every lane by single threads: REVERSE_SUBSEQUENCES on a CPU.
// Idea: rows are plain loops; a row is a whole lane, mirrored up to its length, or runs across lanes at one place.
// A block is one thread and owns neighbouring rows, so that no two blocks write the same cache line often.
// The host gives the axis as the row, or a row across lanes and the axis among the dimensions.
// The plan picks it where blocks of one thread are the fastest.
#include "common/serial_copy.cuh"
#include "common/strided_index.cuh"
#include "reverse_subsequences/lengths.cuh"

struct ReverseSerialParams {
  Int64 num_rows;
  Int64 rows_per_block;
  Int64 row_items;
  Int64 source_offset;  // offsets and strides count items, those of lengths count lengths
  Int64 target_offset;
  Int64 length_offset;
  Int64 row_source_stride;
  Int64 row_target_stride;
  Int64 row_length_stride;
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
  Int32 axis;  // -1 where the row is the axis
  Int32 length_bytes;
  Int32 length_is_signed;
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
    Int64 source_item = p.source_offset;
    Int64 target_item = p.target_offset;
    Int64 length_index = p.length_offset;
    Int64 place = 0;
    visit_coordinates(p, row, [&](int d, Int64 coordinate) {
      source_item += coordinate * p.source_strides[d];
      target_item += coordinate * p.target_strides[d];
      length_index += coordinate * p.length_strides[d];
      if (d == p.axis) place = coordinate;
    });
    UInt8* row_target = to + target_item * kItemBytes;
    const UInt8* row_source = from + source_item * kItemBytes;
    const Int64 length =
        read_length(lengths, length_index, p.length_bytes, p.length_is_signed, p.axis_size);
    if (p.axis < 0) {
      copy_row<Item>(row_target, row_source + (length - 1) * p.axis_stride * kItemBytes, length,
                     p.row_target_stride, -p.axis_stride, alignment);
      copy_row<Item>(row_target + length * p.row_target_stride * kItemBytes,
                     row_source + length * p.axis_stride * kItemBytes, p.row_items - length,
                     p.row_target_stride, p.axis_stride, alignment);
    } else if (p.row_length_stride == 0) {
      const Int64 origin = place < length ? length - 1 - place : place;
      copy_row<Item>(row_target, row_source + origin * p.axis_stride * kItemBytes, p.row_items,
                     p.row_target_stride, p.row_source_stride, alignment);
    } else {
      for (Int64 i = 0; i < p.row_items; ++i) {
        const Int64 own = read_length(lengths, length_index + i * p.row_length_stride,
                                      p.length_bytes, p.length_is_signed, p.axis_size);
        const Int64 origin = place < own ? own - 1 - place : place;
        copy_row<Item>(row_target + i * p.row_target_stride * kItemBytes,
                       row_source + (origin * p.axis_stride + i * p.row_source_stride) * kItemBytes,
                       1, 0, 0, alignment);
      }
    }
  }
}
