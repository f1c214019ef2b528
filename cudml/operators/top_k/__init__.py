"""`TOP_K` and `TOP_K1`.

`rows.py` has a top-k as kernels see it; files named after a kernel, or after who owns a row, have the paths.
`paths.py` has the table of them, and chooses.
"""
