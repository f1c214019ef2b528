#include "changing_input.cuh"
#include "top_k/grid_radix.cu"
