// Computes: SLICE and SLICE1 of a box whose rows are contiguous on both sides, or mirrored.
// Idea: rows move in aligned 16-byte words that are shifted and reversed in registers.
// Ownership: 4 to 256 threads own a piece of a run; short runs share a warp; blocks stride.
// Requires: items of 1 to 16 bytes, pieces of multiples of 16 bytes, and the source's extent.
// Chosen when: runs are long for their item, except for a single long one, which the driver copies.
#include "common/run_copy.cuh"
#include "slice/box_space.cuh"

constexpr int kThreads = 256;
// A minimum for the compiler; asking for more would spill registers.
constexpr int kBlocksPerMultiprocessor = 3;

// Offsets, strides and extents count bytes.
struct SliceRunsPieces {
  Int64 num_pieces;
  Int64 run_bytes;
  Int64 piece_bytes;
  Int64 source_offset;  // of the lowest byte of the first run
  Int64 target_offset;
  Int64 source_begin;
  Int64 source_end;
};

// Dimension 0 counts the pieces of a run.
struct SliceRunsParams : SliceRunsPieces, BoxSpace {
  Int32 item_bytes;
  Int32 is_reversed;
  Int32 owner_shift;  // 1 << owner_shift threads own a piece
  Int32 lane_words;   // words that each loads at once
};

__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    slice_runs(const void* source, void* target, SliceRunsParams p) {
  const UInt8* from = static_cast<const UInt8*>(source);
  UInt8* to = static_cast<UInt8*>(target);
  const int pieces_per_block = kThreads >> p.owner_shift;
  const RunGroup group = group_of_thread(p.owner_shift, p.lane_words, p.item_bytes,
                                         Extent{from + p.source_begin, from + p.source_end});
  const bool cuts_items = p.is_reversed && (address_of(target) & (p.item_bytes - 1)) != 0;

  for (Int64 first = static_cast<Int64>(blockIdx.x) * pieces_per_block; first < p.num_pieces;
       first += static_cast<Int64>(gridDim.x) * pieces_per_block) {
    const Int64 index = first + (threadIdx.x >> p.owner_shift);
    Int64 begin = 0;
    Int64 source_byte = p.source_offset;
    Int64 target_byte = p.target_offset;
    if (index < p.num_pieces) {
      visit_coordinates(p, index, [&](int d, Int64 coordinate) {
        if (d == 0) {
          begin = coordinate * p.piece_bytes;
        } else {
          source_byte += coordinate * p.source_strides[d];
          target_byte += coordinate * p.target_strides[d];
        }
      });
    }
    const Run run{from + source_byte, to + target_byte, index < p.num_pieces ? p.run_bytes : 0,
                  p.is_reversed != 0};
    const Int64 end = begin + p.piece_bytes < run.num_bytes ? begin + p.piece_bytes : run.num_bytes;
    if (cuts_items) {
      copy_items_reversed(group, run, begin, end);
    } else {
      // All but a run's last piece end where the next one's words begin.
      UInt8* words = word_of(run.target);
      copy_run(group, run, words + begin, end < run.num_bytes ? words + end : run.target + end);
    }
  }
}
