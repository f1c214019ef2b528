// Computes: REVERSE_SUBSEQUENCES along an outer axis, where all items of a row have one length.
// Idea: a target row comes whole from one source row, so rows move as runs of 16-byte words.
// Ownership: 4 to 256 threads own a piece of a row, and read the length that gives its source.
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
  Int32 owner_shift;  // 1 << owner_shift threads own a piece
  Int32 lane_words;   // words that each loads at once
};

__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    reverse_rows(const void* source, const void* lengths, void* target, ReverseRowsParams p) {
  const UInt8* from = static_cast<const UInt8*>(source);
  UInt8* to = static_cast<UInt8*>(target);
  const int pieces_per_block = kThreads >> p.owner_shift;
  const RunGroup group = group_of_thread(p.owner_shift, p.lane_words, 1,
                                         Extent{from + p.source_begin, from + p.source_end});

  for (Int64 first = static_cast<Int64>(blockIdx.x) * pieces_per_block; first < p.num_pieces;
       first += static_cast<Int64>(gridDim.x) * pieces_per_block) {
    const Int64 index = first + (threadIdx.x >> p.owner_shift);
    const bool is_live = index < p.num_pieces;
    const LanePosition at = position_of(p, is_live ? index : 0, p.axis);
    const Int64 length = is_live ? length_at(p, lengths, at.length) : 0;
    const Int64 source_byte = at.source + origin_of(at.place, length) * p.axis_stride;
    const Run run{from + source_byte, to + at.target, is_live ? p.run_bytes : 0, false};
    const Int64 begin = at.part * p.piece_bytes;
    // All but a row's last piece end where the next one's words begin.
    UInt8* words = word_of(run.target);
    const Int64 end = begin + p.piece_bytes;
    copy_run(group, run, words + begin, end < p.run_bytes ? words + end : run.target + p.run_bytes);
  }
}
