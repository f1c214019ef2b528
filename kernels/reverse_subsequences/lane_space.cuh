// The lanes that a kernel reverses: where each index lies in the source, the target and the lengths.
#pragma once

#include "common/lengths.cuh"
#include "common/strided_index.cuh"

// The first parameters of every kernel. Offsets and strides of the source and the target count items or
// bytes, whichever the kernel moves; those of the lengths count lengths.
struct LaneSpace {
  Int64 axis_size;
  Int64 source_offset;
  Int64 target_offset;
  Int64 length_offset;
  Int64 sizes[kMaxDimensions];
  UInt64 multipliers[kMaxDimensions];
  Int64 source_strides[kMaxDimensions];  // 0 along the axis, if it is a dimension
  Int64 target_strides[kMaxDimensions];
  Int64 length_strides[kMaxDimensions];
  Int32 shifts[kMaxDimensions];
  Int32 num_dimensions;
  Int32 is_wide;
  Int32 length_bytes;
  Int32 length_is_signed;
};

struct LanePosition {
  Int64 source;
  Int64 target;
  Int64 length;  // the index of the lane's length
  Int64 part;    // the coordinate along dimension 0, for kernels that cut lanes or rows into parts
  Int64 place;   // the coordinate along the axis, 0 if it is not a dimension
};

// The position of index number `index`. The axis is dimension `axis`; if that is negative, it is not a
// dimension.
__device__ __forceinline__ LanePosition position_of(const LaneSpace& p, Int64 index, int axis) {
  LanePosition position{p.source_offset, p.target_offset, p.length_offset, 0, 0};
  visit_coordinates(p, index, [&](int d, Int64 coordinate) {
    position.source += coordinate * p.source_strides[d];
    position.target += coordinate * p.target_strides[d];
    position.length += coordinate * p.length_strides[d];
    if (d == 0) position.part = coordinate;
    if (d == axis) position.place = coordinate;
  });
  return position;
}

template <class Index, int kCount>
__device__ __forceinline__ void locate(const LaneSpace& p, Int64 first, int step, int axis,
                                       LanePosition (&positions)[kCount]) {
  Index rest[kCount];
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    rest[k] = static_cast<Index>(first + k * step);
    positions[k] = LanePosition{p.source_offset, p.target_offset, p.length_offset, 0, 0};
  }
  visit_coordinates_together(p, rest, [&](int d, int k, Index index) {
    const Int64 coordinate = static_cast<Int64>(index);
    positions[k].source += coordinate * p.source_strides[d];
    positions[k].target += coordinate * p.target_strides[d];
    positions[k].length += coordinate * p.length_strides[d];
    if (d == 0) positions[k].part = coordinate;
    if (d == axis) positions[k].place = coordinate;
  });
}

// As `position_of`, for the indices first, first + step, ... together. Positions past the last index are
// meaningless.
template <int kCount>
__device__ __forceinline__ void positions_of(const LaneSpace& p, Int64 first, int step, int axis,
                                             LanePosition (&positions)[kCount]) {
  if (p.is_wide) {
    locate<UInt64>(p, first, step, axis, positions);
  } else {
    locate<UInt32>(p, first, step, axis, positions);
  }
}

// The length at `index`, limited to the axis.
__device__ __forceinline__ Int64 length_at(const LaneSpace& p, const void* lengths, Int64 index) {
  const UInt64 bits = load_length(lengths, index, p.length_bytes);
  return clamp_length(bits, p.length_bytes, p.length_is_signed, p.axis_size);
}

// The place in its lane that the item at `place` comes from.
template <class Place>
__device__ __forceinline__ Place origin_of(Place place, Place length) {
  return place < length ? length - 1 - place : place;
}
