"""Compile kernels as CuPy would, without a GPU, and examine the machine code."""
