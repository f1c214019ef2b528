"""The cases of bench/ as the launches that cudml plans on an H200, in memory that is mapped when written."""

import contextlib
import importlib
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np

from bench.cases import Case
from bench.prediction.model import Prediction, SecondLevel, extrapolated, in_order, library_call, predict
from bench.sources import Source
from cudml.devices import get_device
from cudml.executable import Recent
from cudml.operators.path import Choice
from cudml.operators.top_k.paths import choose_path
from cudml.operators.top_k.rows import Selection
from cudml.plans import WAIT_REPORT, KernelLaunch, Limits, MatMul, Params, Plan, Step
from proof.sass.launch import Buffer, Launch, zeros
from proof.sass.plan import HOPPER, launch_of, memory_of, wait_report
from proof.sass.rates import NUM_MULTIPROCESSORS

#: Larger problems are run at two smaller sizes: fewer elements of top-k, fewer steps of a recurrence. If each
#: block has a row of its own, the blocks of a few multiprocessors stand for all: then top-k runs whole up to
#: `_MAX_BYTES`, because its plan depends on the length of a row.
_MAX_ELEMENTS = 1 << 26
_MAX_BYTES = 1 << 29
STEPS = (2, 4)
#: Enough rows to keep all multiprocessors busy, whether a lane or a block owns a row.
_MANY_ROWS = 1024
#: Peers' cases with more elements have no time: a case of this many takes a quarter of an hour.
MOST_OF_PEERS = 1 << 28

#: The kernels of a problem that was run, with their times.
Times = list[tuple[str, Prediction]]


class Untouched(Source):
    """A source of zeros without memory: for operators that only move elements, and to plan large cases.

    Integers are those of a `Source`, made by NumPy: under CuPy no kernel runs that could make them.
    """

    def __init__(self, xp: Any, seed: int) -> None:
        super().__init__(xp, seed)
        self._numpy = Source(np, seed)

    def integers(self, *given: Any) -> Any:
        return self.xp.asarray(self._numpy.integers(*given))

    def bits(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self._zeros(shape, dtype)

    def normal(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
        return self._zeros(shape, dtype)

    def _zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return _array(shape, dtype) if self.xp is np else self.xp.empty(shape, dtype)

    uniform = normal


@dataclass(frozen=True)
class Planned:
    """The plan of a call, the memory of its operands by member, and the shift of the first in bytes."""

    plan: Plan
    operands: dict[str, np.ndarray]
    shift: int = 0


def seed_of(case: Case) -> int:
    """The seed of a case's data, the same for cudml and for peers."""
    return zlib.crc32(case.name.encode()) % 1000


def planned(operator: str, case: Case, source: type[Source] = Source) -> list[Planned]:
    """Call cudml's array function as bench/ does, with an H200's limits, and record what it would run."""
    module: Any = importlib.import_module(f"bench.{operator}")
    inputs = module.make(case, source(np, seed_of(case)))
    noted: list[Planned] = []

    def load(plan: Plan) -> Callable[..., None]:
        def note(arrays: Sequence[np.ndarray], workspace: Any, stream: Any = None, shift: int = 0) -> None:
            operands = dict(zip(plan.operands, map(aligned, arrays), strict=True))
            noted.append(Planned(plan, operands, shift))

        return note

    cpu = get_device("cpu")
    with (
        _nothing_kept(),
        mock.patch.object(type(cpu), "limits", HOPPER.limits),
        mock.patch.object(cpu, "load", load),
    ):
        module.run(case, inputs)
    return noted


def aligned(array: np.ndarray) -> np.ndarray:
    """The memory of an array, at a multiple of 512 bytes as in CuPy's pool."""
    memory = memory_of(array)
    if memory.ctypes.data % 512 == 0:
        return memory
    copied = zeros(memory.nbytes)
    copied[...] = memory
    return copied


@contextlib.contextmanager
def _nothing_kept() -> Iterator[None]:
    """Do not cache calls, and do not touch outputs and scratch memory."""
    empty = mock.patch.object(np, "empty", lambda shape, dtype=float: _array(shape, dtype))
    found = mock.patch.object(Recent, "get", return_value=None)
    with empty, found, mock.patch.object(Recent, "__setitem__"):
        yield


def _array(shape: Any, dtype: Any) -> np.ndarray:
    count = int(np.prod(shape))
    return zeros(count * np.dtype(dtype).itemsize).view(dtype).reshape(shape)


def launches_of(call: Planned, num_steps: int = 0) -> Iterator[tuple[KernelLaunch, Launch]]:
    """The kernels of a call, to be run; recurrences get this number of steps, 0 for their own."""
    plan = call.plan
    buffers = {name: Buffer(memory, is_output=name in plan.outputs) for name, memory in call.operands.items()}
    buffers |= {piece.name: Buffer(zeros(piece.num_bytes), is_output=True) for piece in plan.workspaces}
    second_level = SecondLevel()
    for step in plan.steps:
        if isinstance(step, MatMul):
            second_level.touch([buffers[name] for name in (step.a, step.b, step.out)])
        if isinstance(step, KernelLaunch):
            known = buffers | (wait_report() if WAIT_REPORT in step.buffers else {})
            counted = step._replace(params=_with_steps(step.params, num_steps))
            launch = launch_of(counted, known, {plan.operands[0]: call.shift})
            yield counted, second_level.before(launch)


def _with_steps(params: Params, num_steps: int) -> Params:
    changed = {"num_steps": num_steps} if num_steps and "num_steps" in params.values else {}
    return Params(params.struct, {**params.values, **changed})


def beyond(num_steps: int) -> float:
    """The steps beyond the larger of `STEPS`, as a multiple of their difference; at least 0."""
    return max(0, num_steps - STEPS[1]) / (STEPS[1] - STEPS[0])


def repeats(steps: Sequence[Step]) -> bool:
    """Whether a plan has launches of their own for each step, so that there is nothing to extrapolate."""
    return len(set(map(id, steps))) < len(steps)


def predicted(operator: str, case: Any) -> tuple[Prediction, list[str]]:
    """The time of a case, and the kernels and library calls that compute it."""
    with _path_of_first():
        calls = planned(operator, case, Untouched)
        steps = [step for call in calls for step in call.plan.steps]
        small, large, factor = _run(operator, case, calls, steps)
    names = [step.name_expression for step in steps if isinstance(step, KernelLaunch)]
    if any(names != [name for name, _ in run] for run in (small, large)):
        raise ValueError(f"{case.name}: smaller problems take other kernels than {', '.join(names)}")
    if factor:
        large = [(name, extrapolated(a, b, factor)) for (_, a), (name, b) in zip(small, large, strict=True)]
    found = iter(large)
    parts = [next(found)[1] if isinstance(s, KernelLaunch) else library_call(s) for s in steps]
    told = [s.name_expression if isinstance(s, KernelLaunch) else _name(s) for s in steps]
    return in_order(zip(told, parts, strict=True)), told


@contextlib.contextmanager
def _path_of_first() -> Iterator[None]:
    """Take the path of the first top-k for all: smaller problems stand for it."""
    choices: list[Choice[Selection]] = []

    def choice_of_first(selection: Selection, limits: Limits) -> Choice[Selection]:
        if not choices:
            choices.append(choose_path(selection, limits))
        return choices[0]

    with mock.patch("cudml.operators.top_k.operator.choose_path", choice_of_first):
        yield


def _run(
    operator: str, case: Any, calls: Sequence[Planned], steps: Sequence[Step]
) -> tuple[Times, Times, float]:
    """The kernels of a smaller problem and of a larger one, and how many times their difference is missing.

    If nothing is missing, both are of the case itself, which runs once.
    """
    if operator == "gru" and not repeats(steps) and (factor := beyond(case.steps)):
        calls = planned(operator, case)
        return _of_kernels(calls, STEPS[0]), _of_kernels(calls, STEPS[1]), factor
    if operator == "top_k":
        less, more, factor = smaller(case)
        large = _of_kernels(planned(operator, more))
        return _of_kernels(planned(operator, less)) if factor else large, large, factor
    large = _of_kernels(calls if operator != "gru" else planned(operator, case))
    return large, large, 0.0


def _name(step: Step) -> str:
    return {"MatMul": "cuBLAS", "Copy": "cudaMemcpyAsync"}.get(type(step).__name__, "cudaMemsetAsync")


def _of_kernels(calls: Sequence[Planned], num_steps: int = 0) -> Times:
    """The kernels of calls. A launch that a plan repeats is run twice: further ones are like the second."""
    found: Times = []
    for call in calls:
        done: dict[int, int] = {}
        last: dict[int, Prediction] = {}
        repeated = Counter(map(id, call.plan.steps))
        kernels = [id(step) for step in call.plan.steps if isinstance(step, KernelLaunch)]
        for key, (step, launch) in zip(kernels, launches_of(call, num_steps), strict=True):
            done[key] = done.get(key, 0) + 1
            if repeated[key] == 1 or done[key] <= 2:
                last[key] = predict(launch)
            found.append((step.name_expression, last[key]))
    return found


def fewer_rows(case: Any, most: int) -> tuple[Any, Any, float]:
    """As `smaller`, for peers: two cases of fewer rows, of at most `most` elements, stand for one of many.

    Which kernels a peer takes depends on a row's length, and on the number of rows if rows are few.
    """
    elements = case.num_rows * case.inner * case.row_length
    more = case.num_rows >> max(0, (elements - 1).bit_length() - most.bit_length() + 1)
    return _halved(case, "num_rows", more) if more >= 2 * _MANY_ROWS else (case, case, 0.0)


def smaller(case: Any) -> tuple[Any, Any, float]:
    """Two cases of top-k, the smaller first, and how many times their difference is missing.

    A small case is returned twice, with nothing missing.
    """
    lanes = case.num_rows * case.inner
    amount, most = lanes * case.row_length, _MAX_ELEMENTS
    member = "row_length" if case.num_rows < 4096 else "num_rows"
    if member == "row_length" and lanes >= NUM_MULTIPROCESSORS:
        amount, most = amount * np.dtype(case.dtype).itemsize, _MAX_BYTES
    size = getattr(case, member)
    more = size >> max(0, (amount - 1).bit_length() - most.bit_length() + 1)
    return _halved(case, member, more)


def _halved(case: Any, member: str, more: int) -> tuple[Any, Any, float]:
    """The case with half of `more` and with `more` as a member, as `smaller` returns them."""
    size, less = getattr(case, member), more // 2
    if more >= size:
        return case, case, 0.0
    return replace(case, **{member: less}), replace(case, **{member: more}), (size - more) / (more - less)
