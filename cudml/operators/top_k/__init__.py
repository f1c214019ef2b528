"""`TOP_K` and `TOP_K1`.

`rows.py` has a top-k as kernels see it. Files named after a kernel, or after the owner of a row, have the
paths. `paths.py` has the table of the paths, and chooses one.
"""
