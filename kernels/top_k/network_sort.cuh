// Sorts a list in shared storage by a bitonic network, which is the fastest for a few hundred elements.
#pragma once

#include "common/types.cuh"
#include "top_k/list.cuh"

// Sorts the first `count` elements of a list in shared storage by rank. On return, every thread may read the
// list if it has more than 32 elements, else only the first warp.
template <class Word, int kThreads>
__device__ __forceinline__ void sort_by_network(const List<Word>& list, UInt32 count) {
  UInt32 size = 2;
  while (size < count) size *= 2;
  // Padding ranks behind every element, because no element has this index.
  for (UInt32 i = count + threadIdx.x; i < size; i += kThreads) {
    list.keys[i] = 0;
    list.indices[i] = kFullMask;
  }
  __syncthreads();  // all elements and the padding are written before the first exchange
  for (UInt32 run = 2; run <= size; run *= 2) {
    for (UInt32 distance = run / 2; distance > 0; distance /= 2) {
      for (UInt32 pair = threadIdx.x; pair < size / 2; pair += kThreads) {
        const UInt32 lower = 2 * pair - (pair & (distance - 1));
        const UInt32 upper = lower + distance;
        const Word lower_key = list.keys[lower];
        const Word upper_key = list.keys[upper];
        const UInt32 lower_index = list.indices[lower];
        const UInt32 upper_index = list.indices[upper];
        const bool upper_first =
            upper_key > lower_key || (upper_key == lower_key && upper_index < lower_index);
        if (upper_first == ((lower & run) == 0)) {
          list.keys[lower] = upper_key;
          list.keys[upper] = lower_key;
          list.indices[lower] = upper_index;
          list.indices[upper] = lower_index;
        }
      }
      // If the distance is 32 or less, the 32 pairs of a warp are in 64 consecutive elements, in this step
      // and in the next one, unless that starts a run of more than 64 elements. Else other warps read what
      // this warp has written.
      if (distance > kWarpSize || (distance == 1 && run >= 2 * kWarpSize)) {
        __syncthreads();  // exchanges of all warps are done before the next step reads the elements
      } else {
        __syncwarp();  // exchanges of this warp are done before its next step reads the elements
      }
    }
  }
}
