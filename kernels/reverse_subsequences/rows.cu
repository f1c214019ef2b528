// Computes: REVERSE_SUBSEQUENCES along an outer axis, where all items of a row have one length.
// Idea: a target row comes whole from one source row, so rows move as runs of 16-byte words.
// Ownership: 4 to 32 lanes own a piece of a row, and read the length that gives its source.
// Requires: pieces of multiples of 16 bytes, the source's extent, source strides of 0 for the axis.
// Chosen when: lengths have stride 0 along the rows, and the rows are long for their item.
#include "common/run_copy.cuh"
#include "reverse_subsequences/lane_space.cuh"

constexpr int kThreads = 256;
// A minimum for the compiler; asking for more would spill registers.
constexpr int kBlocksPerMultiprocessor = 3;

// In bytes; dimension 0 counts the pieces of a row.
struct ReverseRowsParams : LaneSpace {
  Int64 num_pieces;
  Int64 run_bytes;
  Int64 piece_bytes;
  Int64 source_begin;
  Int64 source_end;
  Int64 axis_stride;  // of the source
  Int32 axis;
  Int32 item_bytes;
  Int32 group_shift;  // 1 << group_shift lanes own a piece
};

__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    reverse_rows(const void* source, const void* lengths, void* target, ReverseRowsParams p) {
  const UInt8* from = static_cast<const UInt8*>(source);
  UInt8* to = static_cast<UInt8*>(target);
  const int pieces_per_block = kThreads >> p.group_shift;
  const RunGroup group = group_of_thread(p.group_shift, p.item_bytes, source, target,
                                         Extent{from + p.source_begin, from + p.source_end});

  for (Int64 first = static_cast<Int64>(blockIdx.x) * pieces_per_block; first < p.num_pieces;
       first += static_cast<Int64>(gridDim.x) * pieces_per_block) {
    const Int64 index = first + (threadIdx.x >> p.group_shift);
    const bool is_live = index < p.num_pieces;
    const LanePosition at = position_of(p, is_live ? index : 0, p.axis);
    const Int64 length = is_live ? length_at(p, lengths, at.length) : 0;
    const UInt8* row_source = from + at.source + origin_of(at.place, length) * p.axis_stride;
    UInt8* row_target = to + at.target;
    const Piece piece = piece_of(at.part, p.piece_bytes, p.run_bytes, row_target, p.item_bytes);
    const int num_bytes = is_live ? static_cast<int>(piece.end - piece.begin) : 0;
    copy_run<false>(group, Run{row_source + piece.begin, row_target + piece.begin, num_bytes});
  }
}
