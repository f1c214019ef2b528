"""Benchmarks of cudml: `python -m bench --help`."""
