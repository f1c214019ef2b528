// Does not compile: the name on the marked line was never declared.
#include "common/types.cuh"

__global__ void mistaken(UInt32* out) { out[0] = never_declared; }
