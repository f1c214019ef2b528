"""Run kernels' machine code without a GPU: instructions of sm_90, block by block, with their clocks."""
