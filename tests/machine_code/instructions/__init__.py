"""Small kernels, each about a few instructions, with what NumPy says that they store."""
