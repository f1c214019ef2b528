// Computes: REVERSE_SUBSEQUENCES by blocks of one thread, on a CPU.
// Idea: a row is a whole lane, or crosses lanes of one length; it moves as a block.
// Ownership: a block is one thread and owns neighbouring rows; blocks seldom share a cache line.
// Requires: the axis as the row; or rows of lanes of one length, the axis among the dimensions.
// Chosen when: blocks have one thread, except for rows of lanes with lengths of their own.
#include "common/serial_copy.cuh"
#include "reverse_subsequences/lane_space.cuh"

// In items.
struct ReverseSerialParams : LaneSpace {
  Int64 num_rows;
  Int64 rows_per_block;
  Int64 row_items;
  Int64 row_source_stride;
  Int64 row_target_stride;
  Int64 axis_stride;  // of the source
  Int32 axis;         // -1 if the row is the axis
};

// Copies rows that cross lanes, each from the row that the length of its lanes gives.
template <class Item, class Copy>
__device__ __forceinline__ void move_rows(const ReverseSerialParams& p, UInt8* to,
                                          const UInt8* from, const void* lengths, Int64 first,
                                          Int64 stop, Copy copy) {
  constexpr Int64 kItemBytes = sizeof(Item);
  // A store could change what is read through a reference.
  const Int64 axis_pitch = p.axis_stride * kItemBytes;
  const Int64 source_step = p.source_strides[0] * kItemBytes;
  const Int64 target_step = p.target_strides[0] * kItemBytes;
  const Int64 length_step = p.length_strides[0];
  const Int64 place_step = p.axis == 0;
  for (Int64 row = first; row < stop;) {
    const LanePosition at = position_of(p, row, p.axis);
    const Int64 end = min(row + p.sizes[0] - at.part, stop);
    const UInt8* row_source = from + at.source * kItemBytes;
    UInt8* row_target = to + at.target * kItemBytes;
    Int64 place = at.place, index = at.length;
    for (; row < end; ++row) {
      // `origin_of` would be a branch that no CPU predicts if lengths differ.
      const Int64 mirrored = length_at(p, lengths, index) - 1 - place;
      const Int64 origin = mirrored + ((place - mirrored) & mirrored >> 63);
      copy(row_target, row_source + origin * axis_pitch);
      row_source += source_step;
      row_target += target_step;
      index += length_step;
      place += place_step;
    }
  }
}

// A row of kBytes to 2 * kBytes, as two blocks that may overlap: no branch depends on its size.
template <int kBytes>
struct TwoBlocks {
  Int64 second;

  explicit __device__ __forceinline__ TwoBlocks(Int64 num_bytes) : second(num_bytes - kBytes) {}

  __device__ __forceinline__ void operator()(UInt8* target, const UInt8* source) const {
    const Bytes<kBytes> low = *reinterpret_cast<const Bytes<kBytes>*>(source);
    const Bytes<kBytes> high = *reinterpret_cast<const Bytes<kBytes>*>(source + second);
    *reinterpret_cast<Bytes<kBytes>*>(target) = low;
    *reinterpret_cast<Bytes<kBytes>*>(target + second) = high;
  }
};

template <class Item>
__global__ void reverse_serial(const void* source, const void* lengths, void* target,
                               ReverseSerialParams p) {
  constexpr int kItemBytes = sizeof(Item);
  const UInt8* from = static_cast<const UInt8*>(source);
  UInt8* to = static_cast<UInt8*>(target);
  const Int64 first = blockIdx.x * p.rows_per_block;
  const Int64 stop = min(first + p.rows_per_block, p.num_rows);

  if (p.axis >= 0) {
    const Int64 num_bytes = p.row_items * kItemBytes;
    const bool has_blocks = p.row_source_stride == 1 && p.row_target_stride == 1;
    const auto move = [&](auto copy) { move_rows<Item>(p, to, from, lengths, first, stop, copy); };
    if (has_blocks && num_bytes >= 4 && num_bytes <= 8) {
      move(TwoBlocks<4>(num_bytes));
    } else if (has_blocks && num_bytes > 8 && num_bytes <= 16) {
      move(TwoBlocks<8>(num_bytes));
    } else if (has_blocks && num_bytes > 16 && num_bytes <= 32) {
      move(TwoBlocks<16>(num_bytes));
    } else if (has_blocks && num_bytes > 32 && num_bytes <= 64) {
      move(TwoBlocks<32>(num_bytes));
    } else {
      move([&](UInt8* row_target, const UInt8* row_source) {
        copy_row<Item>(row_target, row_source, p.row_items, p.row_target_stride,
                       p.row_source_stride);
      });
    }
    return;
  }
  for (Int64 row = first; row < stop;) {
    LanePosition at = position_of(p, row, p.axis);
    const Int64 end = min(row + p.sizes[0] - at.part, stop);
    for (; row < end; ++row) {
      UInt8* row_target = to + at.target * kItemBytes;
      const UInt8* row_source = from + at.source * kItemBytes;
      const Int64 length = length_at(p, lengths, at.length);
      copy_row<Item>(row_target, row_source + (length - 1) * p.axis_stride * kItemBytes, length,
                     p.row_target_stride, -p.axis_stride);
      copy_row<Item>(row_target + length * p.row_target_stride * kItemBytes,
                     row_source + length * p.axis_stride * kItemBytes, p.row_items - length,
                     p.row_target_stride, p.axis_stride);
      at.source += p.source_strides[0];
      at.target += p.target_strides[0];
      at.length += p.length_strides[0];
    }
  }
}
