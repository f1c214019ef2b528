"""Times of an H200 from the machine code, without a GPU: `python -m bench predict`; bench/PREDICTION.md."""
