"""Tests of the kernels' machine code, which need no GPU."""
