#include "changing_input.cuh"
#include "top_k/cluster.cu"
