"""Small kernels, each for a few instructions, with the results according to NumPy."""
