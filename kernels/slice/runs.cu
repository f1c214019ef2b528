// Computes: SLICE and SLICE1 of a box whose rows are contiguous on both sides, or mirrored.
// Idea: rows move in aligned 16-byte words that are shifted and reversed in registers.
// Ownership: 4 to 32 lanes own a piece of a run; blocks stride over pieces.
// Requires: items of 1 to 16 bytes, pieces of multiples of 16 bytes, and the source's extent.
// Chosen when: the output is large and runs are long; one run of whole words is the driver's.
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
  Int32 group_shift;  // 1 << group_shift lanes own a piece
};

__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    slice_runs(const void* source, void* target, SliceRunsParams p) {
  const UInt8* from = static_cast<const UInt8*>(source);
  UInt8* to = static_cast<UInt8*>(target);
  const int pieces_per_block = kThreads >> p.group_shift;
  const RunGroup group = group_of_thread(p.group_shift, p.item_bytes, source, target,
                                         Extent{from + p.source_begin, from + p.source_end});

  for (Int64 first = static_cast<Int64>(blockIdx.x) * pieces_per_block; first < p.num_pieces;
       first += static_cast<Int64>(gridDim.x) * pieces_per_block) {
    const Int64 index = first + (threadIdx.x >> p.group_shift);
    Int64 number = 0;
    const UInt8* run_source = from + p.source_offset;
    UInt8* run_target = to + p.target_offset;
    if (index < p.num_pieces) {
      visit_coordinates(p, index, [&](int d, Int64 coordinate) {
        if (d == 0) {
          number = coordinate;
        } else {
          run_source += coordinate * p.source_strides[d];
          run_target += coordinate * p.target_strides[d];
        }
      });
    }
    const Piece piece = piece_of(number, p.piece_bytes, p.run_bytes, run_target, p.item_bytes);
    const int num_bytes = index < p.num_pieces ? static_cast<int>(piece.end - piece.begin) : 0;
    if (p.is_reversed) {
      copy_run<true>(
          group, Run{run_source + (p.run_bytes - piece.end), run_target + piece.begin, num_bytes});
    } else {
      copy_run<false>(group, Run{run_source + piece.begin, run_target + piece.begin, num_bytes});
    }
  }
}
