#include "changing_input.cuh"
#include "top_k/block_keep.cu"
