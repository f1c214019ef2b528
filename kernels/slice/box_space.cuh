// The index space of a box, for `common/strided_index.cuh`, and the strides of source and target in it.
#pragma once

#include "common/strided_index.cuh"

// A part of every kernel's parameters, which derive from a struct of their own members and then from this
// one: bases lie in memory in the order of their declaration. Strides count items or bytes, whichever the
// kernel moves.
struct BoxSpace {
  Int64 sizes[kMaxDimensions];
  UInt64 multipliers[kMaxDimensions];
  Int64 source_strides[kMaxDimensions];
  Int64 target_strides[kMaxDimensions];
  Int32 shifts[kMaxDimensions];
  Int32 num_dimensions;
  Int32 is_wide;  // numbers of items, or their distances from the pointers, need 64 bits
};
