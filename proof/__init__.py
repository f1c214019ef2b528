"""Proof of the kernels: oracles, and the interpreter of machine code. Imports neither tests nor bench."""
