// From the number of an item to its coordinates: mixed-radix digits by multiplication instead of division.
// These functions take any struct with the members num_dimensions, is_wide, sizes, multipliers and shifts.
// Dimension 0 is the innermost; there is at least one.
#pragma once

#include "common/types.cuh"

// numerator / divisor, for numerators below 2^31; the plan computes the multiplier and the shift.
__device__ __forceinline__ UInt32 divide(UInt32 numerator, UInt32 multiplier, Int32 shift) {
  return (__umulhi(numerator, multiplier) + numerator) >> shift;
}

// The same for numerators below 2^63.
__device__ __forceinline__ UInt64 divide(UInt64 numerator, UInt64 multiplier, Int32 shift) {
  return (__umul64hi(numerator, multiplier) + numerator) >> shift;
}

// Calls visit(dimension, coordinate) for every dimension of item `index`. Multipliers are for 64-bit words if
// is_wide, else for 32-bit words, into which every index fits.
template <class Dimensions, class Visit>
__device__ __forceinline__ void visit_coordinates(const Dimensions& dimensions, Int64 index,
                                                  Visit visit) {
  if (dimensions.is_wide) {
    UInt64 rest = static_cast<UInt64>(index);
#pragma unroll
    for (int d = 0; d < kMaxDimensions; ++d) {
      if (d >= dimensions.num_dimensions) break;
      const UInt64 quotient = divide(rest, dimensions.multipliers[d], dimensions.shifts[d]);
      visit(d, static_cast<Int64>(rest - quotient * static_cast<UInt64>(dimensions.sizes[d])));
      rest = quotient;
    }
  } else {
    UInt32 rest = static_cast<UInt32>(index);
#pragma unroll
    for (int d = 0; d < kMaxDimensions; ++d) {
      if (d >= dimensions.num_dimensions) break;
      const UInt32 quotient =
          divide(rest, static_cast<UInt32>(dimensions.multipliers[d]), dimensions.shifts[d]);
      visit(d, static_cast<Int64>(rest - quotient * static_cast<UInt32>(dimensions.sizes[d])));
      rest = quotient;
    }
  }
}

// As `visit_coordinates`, for kCount items together, dimension by dimension: visit(dimension, k, coordinate)
// for the item whose number is rest[k]. Index is UInt64 if is_wide, else UInt32. Numbers past the last item
// give meaningless coordinates.
template <class Index, int kCount, class Dimensions, class Visit>
__device__ __forceinline__ void visit_coordinates_together(const Dimensions& dimensions,
                                                           Index (&rest)[kCount], Visit visit) {
  const int last = dimensions.num_dimensions - 1;
#pragma unroll 1
  for (int d = 0; d < last; ++d) {
    const Index multiplier = static_cast<Index>(dimensions.multipliers[d]);
    const Index size = static_cast<Index>(dimensions.sizes[d]);
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const Index quotient = divide(rest[k], multiplier, dimensions.shifts[d]);
      visit(d, k, rest[k] - quotient * size);
      rest[k] = quotient;
    }
  }
#pragma unroll
  for (int k = 0; k < kCount; ++k) visit(last, k, rest[k]);  // nothing is left to divide
}
