"""`SLICE` and `SLICE1`."""
