// Copies a strided box of items to a strided place by single threads: SLICE and SLICE1 on a CPU.
// Idea: an innermost row is one plain loop, which the host's compiler turns into block moves where it is contiguous.
// A block is one thread and owns neighbouring pieces of rows, so that no two blocks write the same cache line often.
// The host cuts long rows into pieces; strides may be negative or 0 in the source. Pointers may be misaligned.
// The plan picks it where blocks of one thread are the fastest.
#include "common/serial_copy.cuh"
#include "common/strided_index.cuh"

struct SliceSerialParams {
  Int64 num_pieces;
  Int64 pieces_per_block;
  Int64 row_items;
  Int64 piece_items;
  Int64 source_offset;  // offsets and strides count items
  Int64 target_offset;
  Int64 row_source_stride;
  Int64 row_target_stride;
  Int64 sizes[kMaxDimensions];  // dimension 0 counts the pieces of a row
  UInt64 multipliers[kMaxDimensions];
  Int64 source_strides[kMaxDimensions];
  Int64 target_strides[kMaxDimensions];
  Int32 shifts[kMaxDimensions];
  Int32 num_dimensions;
  Int32 is_wide;
};

template <class Item>
__global__ void slice_serial(const void* source, void* target, SliceSerialParams p) {
  constexpr int kItemBytes = sizeof(Item);
  const UInt8* from = static_cast<const UInt8*>(source);
  UInt8* to = static_cast<UInt8*>(target);
  const int alignment = common_alignment(source, target, kItemBytes);
  const Int64 first = blockIdx.x * p.pieces_per_block;
  const Int64 stop = min(first + p.pieces_per_block, p.num_pieces);

  for (Int64 piece = first; piece < stop; ++piece) {
    Int64 begin = 0;
    Int64 source_item = p.source_offset;
    Int64 target_item = p.target_offset;
    visit_coordinates(p, piece, [&](int d, Int64 coordinate) {
      if (d == 0) {
        begin = coordinate * p.piece_items;
      } else {
        source_item += coordinate * p.source_strides[d];
        target_item += coordinate * p.target_strides[d];
      }
    });
    source_item += begin * p.row_source_stride;
    target_item += begin * p.row_target_stride;
    copy_row<Item>(to + target_item * kItemBytes, from + source_item * kItemBytes,
                   min(p.piece_items, p.row_items - begin), p.row_target_stride,
                   p.row_source_stride, alignment);
  }
}
