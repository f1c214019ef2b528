// Computes: SLICE and SLICE1 of a strided box by blocks of one thread, on a CPU.
// Idea: contiguous rows, or pieces of long ones, are copied as blocks.
// Ownership: a block is one thread and owns neighbouring pieces; blocks seldom share a cache line.
// Requires: long rows cut into pieces; any source strides and pointer alignment.
// Chosen when: blocks of one thread are the fastest.
#include "common/serial_copy.cuh"
#include "slice/box_space.cuh"

// Offsets and strides count items.
struct SliceSerialPieces {
  Int64 num_pieces;
  Int64 pieces_per_block;
  Int64 row_items;
  Int64 piece_items;
  Int64 piece_step;  // items of a row from one piece to the next; 0 where a piece is a whole row
  Int64 source_offset;
  Int64 target_offset;
  Int64 row_source_stride;
  Int64 row_target_stride;
};

struct SliceSerialParams : SliceSerialPieces, BoxSpace {};

template <class Item>
__global__ void slice_serial(const void* source, void* target, SliceSerialParams p) {
  constexpr int kItemBytes = sizeof(Item);
  const Int64 first = blockIdx.x * p.pieces_per_block;
  const Int64 stop = min(first + p.pieces_per_block, p.num_pieces);

  for (Int64 piece = first; piece < stop;) {
    Int64 place = 0;  // along dimension 0
    Int64 source_item = p.source_offset;
    Int64 target_item = p.target_offset;
    visit_coordinates(p, piece, [&](int d, Int64 coordinate) {
      if (d == 0) place = coordinate;
      source_item += coordinate * p.source_strides[d];
      target_item += coordinate * p.target_strides[d];
    });
    const UInt8* from = static_cast<const UInt8*>(source) + source_item * kItemBytes;
    UInt8* to = static_cast<UInt8*>(target) + target_item * kItemBytes;
    const Int64 end = min(piece + p.sizes[0] - place, stop);
    for (; piece < end; ++piece, ++place) {
      copy_row<Item>(to, from, min(p.piece_items, p.row_items - place * p.piece_step),
                     p.row_target_stride, p.row_source_stride);
      from += p.source_strides[0] * kItemBytes;
      to += p.target_strides[0] * kItemBytes;
    }
  }
}
