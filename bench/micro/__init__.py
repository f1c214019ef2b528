"""Figures of a GPU that the kernels' designs rest on: `python -m bench micro`."""
