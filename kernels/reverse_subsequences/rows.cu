// Reverses lanes that run across contiguous rows of items of one length: REVERSE_SUBSEQUENCES along an outer axis.
// Idea: a whole row of the target comes from one row of the source, so that rows move as runs of 16-byte words.
// 4 to 256 threads own a piece of a row and read the one length that tells which row it comes from.
// The host gives pieces that are multiples of 16 bytes, no source stride for the axis, and the source's extent.
// The plan picks it where lengths have stride 0 along rows that are long for their item.
#include "common/run_copy.cuh"
#include "common/strided_index.cuh"
#include "reverse_subsequences/lengths.cuh"

constexpr int kThreads = 256;
// At least, so that registers are never spilled for more.
constexpr int kBlocksPerMultiprocessor = 3;

struct ReverseRowsParams {
  Int64 num_pieces;
  Int64 run_bytes;
  Int64 piece_bytes;
  Int64 source_offset;  // bytes; so are strides and extents
  Int64 target_offset;
  Int64 source_begin;
  Int64 source_end;
  Int64 length_offset;  // in lengths, as are their strides
  Int64 axis_size;
  Int64 axis_stride;            // of the source
  Int64 sizes[kMaxDimensions];  // dimension 0 counts the pieces of a row
  UInt64 multipliers[kMaxDimensions];
  Int64 source_strides[kMaxDimensions];
  Int64 target_strides[kMaxDimensions];
  Int64 length_strides[kMaxDimensions];
  Int32 shifts[kMaxDimensions];
  Int32 num_dimensions;
  Int32 is_wide;
  Int32 axis;
  Int32 owner_shift;  // 1 << owner_shift threads own a piece
  Int32 lane_words;   // that each takes at once
  Int32 length_bytes;
  Int32 length_is_signed;
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
    Int64 begin = 0;
    Int64 source_byte = p.source_offset;
    Int64 target_byte = p.target_offset;
    if (index < p.num_pieces) {
      Int64 length_index = p.length_offset;
      Int64 place = 0;
      visit_coordinates(p, index, [&](int d, Int64 coordinate) {
        if (d == 0) {
          begin = coordinate * p.piece_bytes;
        } else {
          source_byte += coordinate * p.source_strides[d];
          target_byte += coordinate * p.target_strides[d];
          length_index += coordinate * p.length_strides[d];
          if (d == p.axis) place = coordinate;
        }
      });
      const Int64 length =
          read_length(lengths, length_index, p.length_bytes, p.length_is_signed, p.axis_size);
      source_byte += (place < length ? length - 1 - place : place) * p.axis_stride;
    }
    const Run run{from + source_byte, to + target_byte, index < p.num_pieces ? p.run_bytes : 0,
                  false};
    // All but a row's last piece end where the next one's words begin.
    UInt8* words = word_of(run.target);
    const Int64 end = begin + p.piece_bytes;
    copy_run(group, run, words + begin, end < p.run_bytes ? words + end : run.target + p.run_bytes);
  }
}
