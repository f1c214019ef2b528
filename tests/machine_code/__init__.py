"""Compile kernels as CuPy would, without a GPU, and read what the compiler made of them."""
