// Computes: REVERSE_SUBSEQUENCES of lanes that are contiguous on both sides.
// Idea: a lane is two runs, one mirrored and one straight; both move in aligned 16-byte words.
// Ownership: 4 to 32 threads own a piece of a lane; blocks stride over pieces.
// Requires: pieces of multiples of 16 bytes, the source's extent, and whether it runs backwards.
// Chosen when: lanes are long for their item; others go to boxes.cu or, with gaps, gather.cu.
#include "common/run_copy.cuh"
#include "reverse_subsequences/lane_space.cuh"

constexpr int kThreads = 256;
// A minimum for the compiler; asking for more would spill registers.
constexpr int kBlocksPerMultiprocessor = 3;

// In bytes, from item 0 of a lane on; dimension 0 counts the pieces of a lane.
struct ReverseLanesParams : LaneSpace {
  Int64 num_pieces;
  Int64 piece_bytes;
  Int64 source_begin;
  Int64 source_end;
  Int32 item_bytes;
  Int32 is_backwards;  // item i of a lane lies i items before item 0 in the source
  Int32 group_shift;   // 1 << group_shift lanes own a piece
};

__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    reverse_lanes(const void* source, const void* lengths, void* target, ReverseLanesParams p) {
  const UInt8* from = static_cast<const UInt8*>(source);
  UInt8* to = static_cast<UInt8*>(target);
  const int pieces_per_block = kThreads >> p.group_shift;
  const RunGroup group = group_of_thread(p.group_shift, p.item_bytes, source, target,
                                         Extent{from + p.source_begin, from + p.source_end});
  const Int64 lane_bytes = p.axis_size * p.item_bytes;

  for (Int64 first = static_cast<Int64>(blockIdx.x) * pieces_per_block; first < p.num_pieces;
       first += static_cast<Int64>(gridDim.x) * pieces_per_block) {
    const Int64 index = first + (threadIdx.x >> p.group_shift);
    const bool is_live = index < p.num_pieces;
    const LanePosition at = position_of(p, is_live ? index : 0, -1);
    const Int64 split = is_live ? p.item_bytes * length_at(p, lengths, at.length) : 0;
    UInt8* lane_target = to + at.target;
    const Piece piece = piece_of(at.part, p.piece_bytes, lane_bytes, lane_target, p.item_bytes);
    const Int64 middle = min(max(split, piece.begin), piece.end);

    // First the mirrored part, then the rest.
#pragma unroll 1
    for (int part = 0; part < 2; ++part) {
      const Int64 begin = part == 0 ? piece.begin : middle;
      const Int64 end = part == 0 ? middle : piece.end;
      const int num_bytes = is_live ? static_cast<int>(end - begin) : 0;
      if (!__any_sync(kFullMask, num_bytes > 0)) continue;
      // The place in the lane that the part's lowest byte, or highest, comes from.
      const Int64 place = part == 0 ? split - end : begin;
      const UInt8* lowest = from + (p.is_backwards ? at.source + p.item_bytes - place - num_bytes
                                                   : at.source + place);
      const Run run{lowest, lane_target + begin, num_bytes};
      if ((part == 0) != (p.is_backwards != 0)) {
        copy_run<true>(group, run);
      } else {
        copy_run<false>(group, run);
      }
    }
  }
}
