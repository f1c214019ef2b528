"""A child forked after CUDA was used: CUDA refuses everything there, and the user is told so by name."""

import sys

import pytest

from tests.devices.cuda.stand_in.process import NEEDS_STAND_IN
from tests.support.new_process import run_limited

pytestmark = NEEDS_STAND_IN

SCRIPT = """
import os, sys
from proof import stand_in

stand_in.load()
import cupy
import numpy as np

import cudml
from cudml.devices import get_device

a = cupy.arange(8.0)  # CUDA is used
if sys.argv[1] == "cudml":
    get_device("cuda")
    cudml.slice(a, (1,), (0,))  # remembers how to read CuPy's arrays
child = os.fork()
if child == 0:
    # The array, a view that was not seen before, and both ways to ask for the device.
    for use in (
        lambda: cudml.slice(a, (1,), (3,)),
        lambda: cudml.slice(a, (1,), (0,)),
        lambda: cudml.reverse_subsequences(a[::2], 2),
        lambda: get_device(),
        lambda: get_device("cuda"),
    ):
        try:
            use()
        except cudml.DeviceError as error:
            print(error)
    print(get_device("cpu").name, cudml.slice(np.arange(4.0), (1,), (2,)).tolist(), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert cudml.slice(a, (1,), (0,)).shape == (0,)  # the parent goes on
"""


@pytest.mark.parametrize("user", ["cudml", "cupy"])
def test_a_child_is_told_that_cuda_was_used_before_the_fork(user: str) -> None:
    done = run_limited([sys.executable, "-c", SCRIPT, user], 300)
    assert done.returncode == 0, done.stderr
    *messages, last = done.stdout.splitlines()
    assert len(messages) == 5
    for message in messages:
        assert message.startswith("CUDA cannot be used: it was used before this process was forked")
        assert "'spawn'" in message
    assert last == "cpu [1.0, 2.0]"
