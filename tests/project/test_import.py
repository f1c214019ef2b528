"""`import cudml` is quick and brings in neither CuPy nor NumPy."""

import statistics
import subprocess
import sys

MAX_SECONDS = 0.020
NUM_RUNS = 7

SCRIPT = """
import sys, time
start = time.process_time()
import cudml
print(time.process_time() - start)
print(*sorted({"cupy", "numpy", "ctypes", "subprocess"} & set(sys.modules)))
"""


def run() -> tuple[float, str]:
    """Seconds of processor time that the import took in a new interpreter, and what it brought in."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True)
    seconds, modules = done.stdout.splitlines()
    return float(seconds), modules


def test_import_brings_in_no_array_library() -> None:
    assert run()[1] == ""


def test_import_is_quick() -> None:
    run()  # writes the bytecode
    seconds = [run()[0] for _ in range(NUM_RUNS)]
    print("seconds:", *seconds)
    assert statistics.median(seconds) <= MAX_SECONDS
