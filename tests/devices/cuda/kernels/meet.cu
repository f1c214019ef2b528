// Counts the blocks of a launch that are alive at the same time: out[block] = number of
// arrived blocks. Idea: a block arrives, then waits for all the others; the wait ends only if all of
// them live at once. A block's first thread counts and waits; the others have nothing to do. The host
// guarantees a counter of zero and a cooperative launch. Tests of the CUDA device pick it.
#include "common/intrinsics.cuh"

struct MeetParams {
  UInt32 num_blocks;
};

__global__ void meet(UInt32* arrived, UInt32* out, MeetParams p) {
  if (threadIdx.x == 0) {
    add_release(arrived, 1);
    while (load_acquire(arrived) < p.num_blocks) __nanosleep(64);
    out[blockIdx.x] = load_acquire(arrived);
  }
}
