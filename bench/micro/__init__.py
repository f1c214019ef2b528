"""Figures of a GPU that the kernels' designs are based on: `python -m bench micro`."""
