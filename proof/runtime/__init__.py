"""A stand-in for the CUDA runtime's library, whose launches the interpreter of machine code runs."""
