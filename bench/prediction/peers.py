"""CuPy's own kernels for the same cases, recorded over the stand-in for a GPU.

`python -m bench.prediction.peers OPERATOR [NAME ...]` prints a case and its microseconds on a line, as JSON;
`predicted` runs that in a process of its own, since the stand-in must be there before CuPy.
"""

import importlib
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from bench.prediction.cases import Untouched, seed_of
from bench.prediction.model import Prediction, blocks_to_run, library_call, predict
from cudml.plans import Copy, Fill, Step
from tests.devices.cuda import stand_in
from tests.machine_code import cubin
from tests.machine_code.plan import HOPPER, Kernel
from tests.machine_code.sass.decode import decode
from tests.machine_code.sass.launch import Buffer, Launch, run, zeros

#: Operators whose CuPy counterpart is elementwise kernels.
OPERATORS = ("slice", "reverse_subsequences")

#: The machine keeps the registers of every block of a run, 300 KB each here.
_BLOCKS_AT_ONCE = 1024


def predicted(operator: str, names: Sequence[str]) -> dict[str, float]:
    """CuPy's predicted microseconds by case."""
    command = [sys.executable, "-m", "bench.prediction.peers", operator, *names]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return dict(json.loads(line) for line in lines)


class Recorder:
    """CuPy over the stand-in: its kernels by the number of their module, and its memory."""

    def __init__(self) -> None:
        self.kernels: dict[int, Kernel] = {}
        self.memory: list[np.ndarray] = []
        self.result: Any = None
        self._stand_in = stand_in.load()
        self._stand_in.set(compute_capability=HOPPER.number, skips_fills=1)
        import cupy
        from cupy.cuda import compiler

        self.xp = cupy
        cupy.cuda.set_allocator(self._allocate)
        note, original = self._note, compiler._NVRTCProgram.compile

        def compile_and_note(program: Any, *given: Any, **named: Any) -> Any:
            made = original(program, *given, **named)
            note(made[0])
            return made

        compiler._NVRTCProgram.compile = compile_and_note

    def _note(self, image: bytes) -> None:
        if image[:4] != b"\x7fELF":  # CuPy preprocesses a text for its cache
            return
        image += b"\0"  # CuPy treats the last byte as the end of a text
        (code,), (facts,) = decode(image).values(), cubin.kernels_of(image).values()
        self.kernels[len(self.kernels) + 1] = Kernel(code, facts)
        self._stand_in.set_parameters_of(len(self.kernels), [size for _, size in facts.parameters])

    def _allocate(self, num_bytes: int) -> Any:
        memory = zeros(num_bytes)
        self.memory.append(memory)
        cuda = self.xp.cuda
        owned = cuda.UnownedMemory(memory.ctypes.data, num_bytes, memory, 0)
        return cuda.MemoryPointer(owned, 0)

    def steps(self, call: Any) -> list[Launch | Step]:
        """The launches, copies and fills of a call."""
        self._stand_in.record()
        self.result = call()  # its memory must still exist when the launches run
        found: list[Launch | Step] = []
        launches = iter(self._stand_in.launches())
        buffers = [Buffer(memory, is_output=True) for memory in self.memory if memory.size]
        for line in self._stand_in.calls():
            words = line.split()
            if words[0] == "cuLaunchKernel":
                found.append(self._launch(next(launches), buffers))
            elif words[0].startswith("memcpy"):
                found.append(Copy("", "", int(words[1])))
            elif words[0].startswith("memset"):
                found.append(Fill("", int(words[2])))
        return found

    def _launch(self, launch: stand_in.Launch, buffers: list[Buffer]) -> Launch:
        kernel = self.kernels[launch.module]
        packed = bytearray()
        for (offset, _), data in zip(kernel.facts.parameters, launch.arguments, strict=True):
            packed += bytes(offset - len(packed)) + data
        resident = kernel.resident_blocks(math.prod(launch.block), launch.shared_bytes)
        shape = (launch.grid, launch.block, launch.shared_bytes)
        return Launch(kernel.code, bytes(packed), buffers, *shape, resident_blocks=resident)


def main(operator: str, names: Sequence[str]) -> None:
    """Print a line for each case."""
    with tempfile.TemporaryDirectory() as folder:  # empty, so that every kernel is compiled and recorded
        os.environ["CUPY_CACHE_DIR"] = folder
        recorder = Recorder()
        module = importlib.import_module(f"bench.{operator}")
        for case in module.CASES:
            if names and case.name not in names:
                continue
            recorder.memory.clear()
            inputs = module.make(case, Untouched(recorder.xp, seed_of(case)))
            steps = recorder.steps(module.PEERS["cupy"].prepare(case, inputs))
            print(json.dumps((case.name, round(_predicted(steps).time_us, 2))), flush=True)


def run_all(launches: Sequence[Launch]) -> None:
    """Run launches of which some read the indices that others wrote.

    Those of the most blocks run the blocks of which a time is predicted, which have the same elements in each
    of them. The others run whole.
    """
    most = max((launch.num_blocks for launch in launches), default=0)
    largest = [launch for launch in launches if launch.num_blocks == most]
    sampled = sorted({b for launch in largest for blocks in blocks_to_run(launch)[1] for b in blocks})
    for launch in launches:
        blocks: Sequence[int] = sampled if launch.num_blocks == most else range(launch.num_blocks)
        for first in range(0, len(blocks), _BLOCKS_AT_ONCE):
            run(launch, blocks[first : first + _BLOCKS_AT_ONCE])


def _predicted(steps: list[Launch | Step]) -> Prediction:
    """The time of a call. The last launch is predicted first, for it runs on what those before it left, and
    CuPy adds indices up in place: a launch that runs once more spoils them."""
    run_all([step for step in steps if isinstance(step, Launch)])
    parts = [predict(s) if isinstance(s, Launch) else library_call(s) for s in reversed(steps)]
    return reduce(add, reversed(parts))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
