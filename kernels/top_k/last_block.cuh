// The block that finishes last, of several that share work, continues alone.
#pragma once

#include "common/intrinsics.cuh"
#include "common/types.cuh"

// Counts this block in `num_done`, which was zero before the first of `num_blocks`; returns to all its
// threads whether it is the last. Requires a barrier behind the writes of all threads but thread 0.
//
// The last block may read what the others wrote before their calls, with plain loads. In PTX's memory model,
// thread 0 releases its own writes, and those that the barrier ordered before them. The addition that finds
// the last number reads, through the additions in between, what each earlier one released, and acquires
// it. The barrier here passes that on to the other threads. A fence in these threads would acquire nothing by
// itself: an acquire pattern is an atomic read and a fence behind it in the same thread.
//
// `seen` is in shared storage, and is free again at the next barrier.
__device__ __forceinline__ bool is_last_block(UInt32* num_done, UInt32 num_blocks, UInt32& seen) {
  if (threadIdx.x == 0) seen = add_acquire_release(num_done, 1);
  __syncthreads();  // every thread has the number, and reads what other blocks released after it
  return seen == num_blocks - 1;
}
