#include "changing_input.cuh"
#include "top_k/serial.cu"
