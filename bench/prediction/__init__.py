"""Times on an H200 predicted from the machine code: `python -m bench predict`; see bench/PREDICTION.md."""
