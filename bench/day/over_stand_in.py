"""`python -m bench.day.over_stand_in MODULE ...`: run a module over the stand-in for CUDA; times mean
nothing.

Results are what the machine code computes. Peers that bring a CUDA runtime of their own are left out.
"""

import os
import runpy
import sys
from unittest import mock

from proof import stand_in

_OWN_RUNTIME = ("torch", "jax")
#: CuPy's sorts are of Thrust and CUB, linked with a runtime.
_SORTING = ("cupy.argpartition", "cupy.argsort")

#: A timer calls once, and nothing fills the L2: a kernel that reads 150 MB would run for minutes.
_ONCE = {"WARM_UP_FLUSHES": 0, "MIN_REPEATS": 1, "MAX_REPEATS": 1, "MAX_DELAY_US": 0.0, "FLUSH_FACTOR": 0}


def main(arguments: list[str]) -> None:
    """Run the module as `python -m` does."""
    sys.argv = arguments
    if arguments[0] == "pytest":
        os.environ["CUDML_TEST_STAND_IN"] = "1"  # for the processes of tests, too
        runpy.run_module("pytest", run_name="__main__", alter_sys=True)
        return
    stand_in.load()
    sys.modules.update(dict.fromkeys(_OWN_RUNTIME))  # type: ignore[arg-type]  # None: not installed
    from bench import timing, top_k

    for name in _SORTING:
        top_k.PEERS.pop(name)
    with mock.patch.multiple(timing, **_ONCE), mock.patch.object(timing.CudaTimer, "flush"):
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
