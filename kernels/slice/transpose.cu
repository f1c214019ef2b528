// Copies a box whose rows lie across the source: one dimension is contiguous here, another one there.
// Idea: tiles go through shared storage, so that both sides are read and written along their own rows.
// A block owns a tile of kTile x kTile items; a warp moves whole lines of it; blocks stride over tiles.
// The host names the two dimensions and gives the source's step along the lines, 1 or -1. Pointers may be misaligned.
// The plan picks it where both dimensions are long; otherwise gather.cu does not lose.
#include "common/move_item.cuh"
#include "common/strided_index.cuh"

constexpr int kThreads = 256;
// At least, so that registers are never spilled for more.
constexpr int kBlocksPerMultiprocessor = 2;
constexpr int kWarps = kThreads / kWarpSize;

struct SliceTransposeParams {
  Int64 num_tiles;
  Int64 source_offset;  // offsets and strides count items
  Int64 target_offset;
  Int64 target_line_items;      // size of the dimension that is contiguous in the target
  Int64 source_line_items;      // size of the dimension that is contiguous in the source
  Int64 target_line_stride;     // of the source, along the target's line
  Int64 source_line_stride;     // of the target, along the source's line
  Int64 sizes[kMaxDimensions];  // dimensions 0 and 1 count tiles along target and source lines
  UInt64 multipliers[kMaxDimensions];
  Int64 source_strides[kMaxDimensions];
  Int64 target_strides[kMaxDimensions];
  Int32 shifts[kMaxDimensions];
  Int32 num_dimensions;
  Int32 is_wide;
  Int32 source_step;  // 1 or -1
};

// Lines long enough that narrow items too move whole 32-byte sectors at least.
template <class Item>
constexpr int kTile = sizeof(Item) >= 4 ? 32 : 64;

template <class Item>
struct Storage {
  Item items[kTile<Item>][kTile<Item> + 1];  // [along the target's line][along the source's line]
};

template <class Item>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    slice_transpose(const void* source, void* target, SliceTransposeParams p) {
  SHARED_STORAGE(Storage<Item>, storage);
  constexpr int kItemBytes = sizeof(Item);
  constexpr int kSide = kTile<Item>;
  const UInt8* from = static_cast<const UInt8*>(source);
  UInt8* to = static_cast<UInt8*>(target);
  const int alignment = common_alignment(source, target, kItemBytes);
  const int lane = static_cast<int>(threadIdx.x) & (kWarpSize - 1);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;

  for (Int64 tile = blockIdx.x; tile < p.num_tiles; tile += gridDim.x) {
    Int64 t0 = 0;  // first place along the target's line
    Int64 s0 = 0;  // first place along the source's line
    Int64 source_item = p.source_offset;
    Int64 target_item = p.target_offset;
    visit_coordinates(p, tile, [&](int d, Int64 coordinate) {
      if (d == 0) {
        t0 = coordinate * kSide;
      } else if (d == 1) {
        s0 = coordinate * kSide;
      } else {
        source_item += coordinate * p.source_strides[d];
        target_item += coordinate * p.target_strides[d];
      }
    });
    source_item += t0 * p.target_line_stride + s0 * p.source_step;
    target_item += t0 + s0 * p.source_line_stride;
    const int num_t =
        p.target_line_items - t0 < kSide ? static_cast<int>(p.target_line_items - t0) : kSide;
    const int num_s =
        p.source_line_items - s0 < kSide ? static_cast<int>(p.source_line_items - s0) : kSide;
    const UInt8* tile_source = from + source_item * kItemBytes;
    UInt8* tile_target = to + target_item * kItemBytes;

    if (alignment != kItemBytes) {
      for (int t = warp; t < num_t; t += kWarps) {
        for (int s = lane; s < num_s; s += kWarpSize) {
          move_pieces(tile_target + (s * p.source_line_stride + t) * kItemBytes,
                      tile_source + (t * p.target_line_stride + s * p.source_step) * kItemBytes,
                      kItemBytes, alignment);
        }
      }
      continue;
    }
    Item items[kSide / kWarps][kSide / kWarpSize];
#pragma unroll
    for (int i = 0; i < kSide / kWarps; ++i) {
#pragma unroll
      for (int j = 0; j < kSide / kWarpSize; ++j) {
        const int t = warp + i * kWarps;
        const int s = lane + j * kWarpSize;
        if (t < num_t && s < num_s) {
          items[i][j] = load_item<Item>(
              tile_source + (t * p.target_line_stride + s * p.source_step) * kItemBytes);
        }
      }
    }
    __syncthreads();  // the tile before this one has been written out
#pragma unroll
    for (int i = 0; i < kSide / kWarps; ++i) {
#pragma unroll
      for (int j = 0; j < kSide / kWarpSize; ++j) {
        const int t = warp + i * kWarps;
        const int s = lane + j * kWarpSize;
        if (t < num_t && s < num_s) storage.items[t][s] = items[i][j];
      }
    }
    __syncthreads();  // the tile is complete before lines across it are written
#pragma unroll
    for (int i = 0; i < kSide / kWarps; ++i) {
#pragma unroll
      for (int j = 0; j < kSide / kWarpSize; ++j) {
        const int s = warp + i * kWarps;
        const int t = lane + j * kWarpSize;
        if (t < num_t && s < num_s) {
          store_item<Item>(tile_target + (s * p.source_line_stride + t) * kItemBytes,
                           storage.items[t][s]);
        }
      }
    }
  }
}
