"""CuPy's own kernels for the same cases, recorded over the stand-in for CUDA.

`python -m bench.prediction.peers OPERATOR [NAME ...]` prints a case and its microseconds on a line, as JSON;
`predicted` runs that in a process of its own, since the stand-in must be there before CuPy.
"""

import importlib
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from bench.prediction.cases import Untouched, seed_of
from bench.prediction.model import Prediction, SecondLevel, blocks_to_run, in_order, library_call, predict
from cudml.plans import Copy, Fill, Step
from proof import stand_in
from proof.sass.launch import Launch, run

#: Operators whose CuPy counterpart is elementwise kernels.
OPERATORS = ("slice", "reverse_subsequences")

#: The machine keeps the registers of every block of a run, 300 KB each here.
_BLOCKS_AT_ONCE = 1024

#: Memory of an H200. What is not used takes no memory of the host.
_MEMORY_BYTES = 141 << 30


def predicted(operator: str, names: Sequence[str]) -> dict[str, float]:
    """CuPy's predicted microseconds by case."""
    command = [sys.executable, "-m", "bench.prediction.peers", operator, *names]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return dict(json.loads(line) for line in lines)


class Recorder:
    """CuPy over the stand-in, which copies but runs no kernel, and the memory of CuPy's arrays."""

    def __init__(self) -> None:
        self.memory: list[Any] = []
        self.result: Any = None
        self._stand_in = stand_in.load(num_devices=1, memory_bytes=_MEMORY_BYTES, computes=False)
        import cupy

        self.xp = cupy
        cupy.cuda.set_allocator(self._allocate)

    def _allocate(self, num_bytes: int) -> Any:
        """Each array in memory of its own, which is kept, because the launches run after the call."""
        memory = self.xp.cuda.Memory(num_bytes)
        self.memory.append(memory)
        return self.xp.cuda.MemoryPointer(memory, 0)

    def steps(self, call: Any) -> list[Launch | Step]:
        """The launches, copies and fills of a call."""
        self._stand_in.record()
        with self._stand_in.launches() as launched:
            self.result = call()
        self.xp.cuda.Device().synchronize()  # copies are done, before any launch runs
        found: list[Launch | Step] = []
        requests = iter(launched)
        for name, *given in self._stand_in.calls:
            if name == "cuLaunchKernel":
                request, _ = next(requests)
                found.append(request.launch(self._stand_in.runtime.memory, {0}))
            elif name.startswith("cudaMemcpy"):
                found.append(Copy("", "", given[2]))
            elif name.startswith("cudaMemset"):
                found.append(Fill("", given[2]))
        return found


def main(operator: str, names: Sequence[str]) -> None:
    """Print a line for each case."""
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
    """Run launches in order: a launch may read indices that an earlier launch wrote.

    The launches of the most blocks run only the blocks by which a time is predicted, which have the same
    elements in each of these launches. The other launches run whole.
    """
    most = max((launch.num_blocks for launch in launches), default=0)
    largest = [launch for launch in launches if launch.num_blocks == most]
    sampled = sorted({b for launch in largest for blocks in blocks_to_run(launch)[1] for b in blocks})
    for launch in launches:
        blocks: Sequence[int] = sampled if launch.num_blocks == most else range(launch.num_blocks)
        for first in range(0, len(blocks), _BLOCKS_AT_ONCE):
            run(launch, blocks[first : first + _BLOCKS_AT_ONCE])


def _predicted(steps: list[Launch | Step]) -> Prediction:
    """The time of a call. The last launch is predicted first, because it runs on what those before it left,
    and CuPy adds indices up in place: a launch that runs once more spoils them."""
    run_all([step for step in steps if isinstance(step, Launch)])
    second_level = SecondLevel()
    ready = [second_level.before(step) if isinstance(step, Launch) else step for step in steps]
    parts = [
        (id(step.code), predict(step)) if isinstance(step, Launch) else (type(step), library_call(step))
        for step in reversed(ready)
    ]
    return in_order(reversed(parts))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
