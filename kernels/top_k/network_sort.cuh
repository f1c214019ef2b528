// A list in shared storage put in order by a bitonic network: best for some hundreds of elements, which
// may come in any order.
#pragma once

#include "common/types.cuh"
#include "top_k/list.cuh"

// Sorts the first `count` elements, in shared storage, into the order of rank. On return the first warp may
// read all of it where a warp has that many lanes, and every thread where it is longer.
template <class Word, int kThreads>
__device__ __forceinline__ void sort_by_network(const List<Word>& list, UInt32 count) {
  UInt32 size = 2;
  while (size < count) size *= 2;
  // Padding ranks behind every element: no element has this index.
  for (UInt32 i = count + threadIdx.x; i < size; i += kThreads) {
    list.keys[i] = 0;
    list.indices[i] = kFullMask;
  }
  __syncthreads();  // the list and its padding are complete before they are exchanged
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
      // A warp's 32 pairs lie in 64 neighbouring elements where the distance is 32 or less, in this
      // step and the next alike; above that, other warps read what this one wrote.
      if (distance > kWarpSize || (distance == 1 && run >= 2 * kWarpSize)) {
        __syncthreads();  // exchanges across warps are done before the next step reads them
      } else {
        __syncwarp();  // as above, within the warp
      }
    }
  }
}
