// Reverses lanes that run across rows, each by its own length: REVERSE_SUBSEQUENCES along an outer axis, in full.
// Idea: a strip of lanes, as wide as a few sectors, goes through shared storage whole and is picked apart there.
// A block owns a strip; a thread loads and stores items of one lane of it and reads its length once.
// The host sizes the strip so that it fits; strip widths are powers of two up to the block's threads.
// The plan picks it where a strip of one sector's width fits; longer lanes go through gather.cu.
#include "common/move_item.cuh"
#include "common/strided_index.cuh"
#include "reverse_subsequences/lengths.cuh"

constexpr int kThreads = 256;
// At least, so that registers are never spilled for more.
constexpr int kBlocksPerMultiprocessor = 3;

struct ReverseColumnsParams {
  Int64 num_strips;
  Int64 num_columns;
  Int64 axis_size;
  Int64 source_offset;  // offsets and strides count items, those of lengths count lengths
  Int64 target_offset;
  Int64 length_offset;
  Int64 axis_source_stride;
  Int64 axis_target_stride;
  Int64 column_length_stride;
  Int64 sizes[kMaxDimensions];  // dimension 0 counts the strips of a row
  UInt64 multipliers[kMaxDimensions];
  Int64 source_strides[kMaxDimensions];
  Int64 target_strides[kMaxDimensions];
  Int64 length_strides[kMaxDimensions];
  Int32 shifts[kMaxDimensions];
  Int32 num_dimensions;
  Int32 is_wide;
  Int32 column_shift;  // a strip has 1 << column_shift lanes
  Int32 length_bytes;
  Int32 length_is_signed;
};

template <class Item>
struct Storage {
  Item items[1];  // [place in the lane][lane of the strip], as many as the launch has bytes for
};

template <class Item>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    reverse_columns(const void* source, const void* lengths, void* target, ReverseColumnsParams p) {
  SHARED_STORAGE(Storage<Item>, storage);
  constexpr int kItemBytes = sizeof(Item);
  constexpr int kLoads =
      kItemBytes <= 4 ? 16 : 64 / kItemBytes;  // in flight, for want of wider ones
  Item* strip_items = storage.items;
  const int alignment = common_alignment(source, target, kItemBytes);
  const int axis_size = static_cast<int>(p.axis_size);
  const int width = 1 << p.column_shift;
  const int column = static_cast<int>(threadIdx.x) & (width - 1);
  const int first_place = static_cast<int>(threadIdx.x) >> p.column_shift;
  const int place_step = kThreads >> p.column_shift;

  for (Int64 strip = blockIdx.x; strip < p.num_strips; strip += gridDim.x) {
    Int64 first_column = 0;
    Int64 source_item = p.source_offset;
    Int64 target_item = p.target_offset;
    Int64 length_index = p.length_offset;
    visit_coordinates(p, strip, [&](int d, Int64 coordinate) {
      if (d == 0) {
        first_column = coordinate << p.column_shift;
      } else {
        source_item += coordinate * p.source_strides[d];
        target_item += coordinate * p.target_strides[d];
        length_index += coordinate * p.length_strides[d];
      }
    });
    const Int64 lane = first_column + column;
    const bool is_live = lane < p.num_columns;
    const UInt8* lane_source =
        static_cast<const UInt8*>(source) + (source_item + lane) * kItemBytes;
    UInt8* lane_target = static_cast<UInt8*>(target) + (target_item + lane) * kItemBytes;
    const Int64 source_step = p.axis_source_stride * kItemBytes;
    const Int64 target_step = p.axis_target_stride * kItemBytes;
    int length = 0;
    if (is_live) {
      length = static_cast<int>(read_length(lengths, length_index + lane * p.column_length_stride,
                                            p.length_bytes, p.length_is_signed, p.axis_size));
    }
    if (alignment != kItemBytes) {
#pragma unroll 1
      for (int place = first_place; is_live && place < axis_size; place += place_step) {
        const int origin = place < length ? length - 1 - place : place;
        move_pieces(lane_target + place * target_step, lane_source + origin * source_step,
                    kItemBytes, alignment);
      }
      continue;
    }
#pragma unroll kLoads
    for (int place = first_place; place < axis_size; place += place_step) {
      if (is_live) {
        strip_items[(place << p.column_shift) + column] =
            load_item<Item>(lane_source + place * source_step);
      }
    }
    __syncthreads();  // the strip is complete before its lanes are read in another order
#pragma unroll kLoads
    for (int place = first_place; place < axis_size; place += place_step) {
      const int origin = place < length ? length - 1 - place : place;
      if (is_live) {
        store_item<Item>(lane_target + place * target_step,
                         strip_items[(origin << p.column_shift) + column]);
      }
    }
    __syncthreads();  // the strip has been written out before the next one is loaded
  }
}
