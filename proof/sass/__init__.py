"""Machine code of kernels without a GPU: compiled as CuPy would, read, and run with its clocks."""
