// Computes: REVERSE_SUBSEQUENCES of lanes that are contiguous on both sides.
// Idea: a lane is two runs, one mirrored and one straight; both move in aligned 16-byte words.
// Ownership: 4 to 256 threads own a piece of a lane; blocks stride over pieces.
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
  Int32 owner_shift;   // 1 << owner_shift threads own a piece
  Int32 lane_words;    // words that each loads at once
};

__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    reverse_lanes(const void* source, const void* lengths, void* target, ReverseLanesParams p) {
  const UInt8* from = static_cast<const UInt8*>(source);
  UInt8* to = static_cast<UInt8*>(target);
  const int pieces_per_block = kThreads >> p.owner_shift;
  const RunGroup group = group_of_thread(p.owner_shift, p.lane_words, p.item_bytes,
                                         Extent{from + p.source_begin, from + p.source_end});
  const bool cuts_items = (address_of(target) & (p.item_bytes - 1)) != 0;
  const Int64 lane_bytes = p.axis_size * p.item_bytes;

  for (Int64 first = static_cast<Int64>(blockIdx.x) * pieces_per_block; first < p.num_pieces;
       first += static_cast<Int64>(gridDim.x) * pieces_per_block) {
    const Int64 index = first + (threadIdx.x >> p.owner_shift);
    const bool is_live = index < p.num_pieces;
    const LanePosition at = position_of(p, is_live ? index : 0, -1);
    const Int64 split = is_live ? p.item_bytes * length_at(p, lengths, at.length) : 0;
    const Int64 begin = at.part * p.piece_bytes;
    const Int64 end = begin + p.piece_bytes < lane_bytes ? begin + p.piece_bytes : lane_bytes;
    UInt8* lane_target = to + at.target;
    // All but a lane's last piece end where the next one's words begin.
    UInt8* words = word_of(lane_target);
    UInt8* words_end = end < lane_bytes ? words + end : lane_target + end;

#pragma unroll 1
    for (int part = 0; part < 2; ++part) {
      const Int64 part_begin = part == 0 ? 0 : split;
      const Int64 part_end = part == 0 ? split : lane_bytes;
      const bool overlaps =
          words + begin < lane_target + part_end && lane_target + part_begin < words_end;
      const bool has_part = is_live && part_begin < part_end && (overlaps || cuts_items);
      if (!__any_sync(kFullMask, has_part)) continue;
      const Int64 lowest =
          p.is_backwards ? at.source - (part_end - p.item_bytes) : at.source + part_begin;
      const Run run{from + lowest, lane_target + part_begin, has_part ? part_end - part_begin : 0,
                    (part == 0) != (p.is_backwards != 0)};
      if (cuts_items && (part == 0) != (p.is_backwards != 0)) {
        const Int64 run_begin = begin > part_begin ? begin - part_begin : 0;
        copy_items_reversed(group, run, run_begin, end - part_begin);
      } else {
        copy_words(group, run, words + begin, words_end);
      }
    }
  }
}
