#include "changing_input.cuh"
#include "top_k/arg_max.cu"
