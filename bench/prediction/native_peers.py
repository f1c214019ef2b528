"""Peers on an H200: CUB's and RAFT's top-k, their own host code over a stand-in for the CUDA runtime, and
PyTorch's GRU cells at the limits of the device.

`python -m bench predict --peers` writes bench/results/predicted-peers.csv. A result that was executed is
checked before its time is told; where there is none, the row says why.
"""

import ctypes
import fcntl
import hashlib
import importlib.metadata
import os
import subprocess
import tempfile
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from unittest import mock

import numpy as np

from bench import gru, native, top_k
from bench.cases import WrongResultError
from bench.prediction import torch_cells
from bench.prediction.cases import seed_of
from bench.prediction.model import Prediction, SecondLevel, in_order, library_call, predict
from bench.prediction.table import TOLERANCE, read_rows, text_of
from bench.results import RESULTS
from bench.sources import Source
from cudml.plans import Copy, Fill
from cudml.settings import cache_dir
from proof.runtime import library as stand_in
from proof.sass.launch import Buffer, Launch, run
from proof.sass.plan import HOPPER
from proof.sass.rates import H200, Gpu

TABLE = RESULTS / "predicted-peers.csv"

#: Of top-k by peer: its library, and the package whose version is its own.
PEERS = {"cub.DeviceTopK": ("cub", "nvidia-cuda-cccl"), "raft.select_k": ("raft", "libraft-cu13")}
#: Of GRU.
TORCH = "torch, GRU cells"

#: Cases with more elements are not executed: a million take a few seconds.
MAX_ELEMENTS = 1 << 24
#: Launches of more blocks a multiprocessor are sampled, as blocks that start late share nothing with those
#: that started first.
_JOINT_WAVES = 8


@dataclass(frozen=True)
class Row:
    """A case and a peer: the predicted time, or why there is none.

    `time_us` is 0 where `note` says why. `launches` counts fills and copies, too. `contract` is what the
    peer's result may differ in.
    """

    case: str
    peer: str
    version: str
    time_us: float
    launches: int
    bound: str
    contract: str
    note: str = ""
    operator: str = "top_k"

    @property
    def key(self) -> tuple[str, str]:
        """The key of the row."""
        return self.case, self.peer

    def __str__(self) -> str:
        time = f"{self.time_us:>10.1f} us  {self.bound}" if self.time_us else f"  {self.note}"
        return f"{self.case:<60.60}{self.peer:<16}{time}"


class Recorder:
    """Runs the launches of a program and predicts their time: each kernel is cold once, and the L2 keeps what
    fits, as in calls of cudml."""

    def __init__(self, gpu: Gpu = H200) -> None:
        self._gpu = gpu
        self.runtime = stand_in.Runtime(self._launch, self._transfer, gpu)
        self.begin()

    def begin(self) -> None:
        """Forget what was launched before: a call starts with a cold L2."""
        self._parts: list[tuple[Hashable, Prediction]] = []
        self._second_level = SecondLevel()

    def total(self) -> Prediction:
        """The time of all launches since."""
        return in_order(self._parts)

    def _launch(self, name: str, launch: Launch) -> None:
        launch = self._second_level.before(launch)
        if launch.num_blocks <= _JOINT_WAVES * self._gpu.num_multiprocessors:  # all run, and leave results
            whole = replace(launch, joint_blocks=launch.num_blocks)
            self._parts.append((name, predict(whole, self._gpu)))
            return
        before = [buffer.array.copy() for buffer in launch.buffers]
        self._parts.append((name, predict(launch, self._gpu)))
        for buffer, array in zip(launch.buffers, before, strict=True):
            buffer.array[...] = array
        run(launch)

    def _transfer(self, step: Copy | Fill, used: list[Buffer]) -> None:
        self._parts.append((type(step), library_call(step, self._gpu)))
        self._second_level.touch(used)


def predicted(case: top_k.TopKCase, peer: str) -> Row | None:
    """The row of a case; None if the peer has no function for it."""
    name, package = PEERS[peer]
    definition = top_k.PEERS[peer]
    if not can(case, peer):
        return None
    row = Row(case.name, peer, version_of(package), 0.0, 0, "", definition.contract)
    if np.prod(case.shape) > MAX_ELEMENTS:
        return replace(row, note=f"not executed: more than {MAX_ELEMENTS} elements")
    if why := native.unavailable(native.LIBRARIES[name]) or stand_in.unavailable():
        return replace(row, note=f"not executed: {why}")
    recorder = Recorder()
    runtime = recorder.runtime
    made = top_k.make(case, Source(np, seed_of(case)))
    inputs = {key: runtime.array(array) for key, array in made.items()}
    with (
        mock.patch.object(native, "load", lambda name: loaded(name)),
        mock.patch.object(np, "empty", runtime.empty),
    ):
        try:
            call = definition.prepare(case, inputs)
            assert call is not None
            recorder.begin()
            result = call()
        except (RuntimeError, OSError) as error:
            cause = runtime.error() or error
            return replace(row, note=f"not executed: {' '.join(str(cause).split())}")
    if cause := runtime.error():  # the program did not look
        return replace(row, note=f"not executed: {' '.join(str(cause).split())}")
    try:
        assert definition.check is not None
        definition.check(case, inputs, result)
    except WrongResultError as error:
        return replace(row, note=f"wrong result: {error}")
    total = recorder.total()
    return replace(row, time_us=round(total.time_us, 2), launches=total.launches, bound=total.bound)


def can(case: top_k.TopKCase, peer: str) -> bool:
    """Whether a peer has a function for a case."""
    is_row = case.num_rows == 1 or peer != "cub.DeviceTopK"
    return is_row and case.inner == 1 and case.dtype in ("float32", "float16")


@cache
def loaded(name: str) -> ctypes.CDLL:
    """A peer's library over the stand-in, built if necessary: RAFT's takes minutes."""
    library, runtime = native.LIBRARIES[name], stand_in.build()
    sources = [path.read_bytes() for path in library.files(is_over_runtime=True)]
    versions = [version_of(package) for _, package in PEERS.values()]
    key = hashlib.sha256(repr((library, sources, versions, _compiler_version())).encode())
    folder = cache_dir() / "machine-code" / f"peer-{key.hexdigest()[:32]}"
    path = folder / f"{library.name}.so"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may build it, too
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
                native.build(library, HOPPER.name, Path(scratch) / "built", runtime)
                os.rename(Path(scratch) / "built", folder)
    ctypes.CDLL(str(runtime), ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(path))


def _compiler_version() -> str:
    return subprocess.run([native.nvcc() or "", "--version"], capture_output=True, text=True).stdout


def version_of(package: str) -> str:
    """The version of an installed package, "" if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def read(path: Path = TABLE) -> list[Row]:
    """The rows; none if there is no file."""
    return read_rows(Row, path)[1]


def table_text(rows: Iterable[Row]) -> str:
    """The file's text."""
    return text_of(Row, rows)


def differences(recorded: Iterable[Row], rows: Iterable[Row]) -> list[str]:
    """How rows differ from the table's: another version, no time, or another time."""
    known = {row.key: row for row in recorded}
    found = []
    for row in rows:
        old, where = known.get(row.key), f"{row.case}, {row.peer}"
        if old is None:
            found.append(f"{where}: not in {TABLE.name}; run `python -m bench predict --peers`")
        elif row.note != old.note:
            found.append(f"{where}: {row.note or 'has a time'}, recorded: {old.note or 'a time'}")
        elif row.version != old.version:
            found.append(f"{where}: version {row.version}, recorded: {old.version}")
        elif abs(row.time_us - old.time_us) > TOLERANCE * old.time_us:
            found.append(f"{where}: {row.time_us} us, recorded: {old.time_us} us")
    return found


def of_cells(case: gru.GruCase) -> Row | None:
    """The row of PyTorch's GRU cells for a case; None if they cannot do it."""
    found = torch_cells.predicted(case)
    if found is None:
        return None
    rest = found.launches, found.bound, torch_cells.CONTRACT
    return Row(case.name, TORCH, "", round(found.time_us, 2), *rest, operator="gru")


def rows_of(operator: str | None = None, names: str = "") -> Iterator[Row]:
    """The rows of the cases of one operator, or of both, whose names contain a text."""
    for case in top_k.CASES if operator in (None, "top_k") else ():
        for peer in PEERS if names in case.name else ():
            if row := predicted(case, peer):
                yield row
    for layer in gru.CASES if operator in (None, "gru") else ():
        if names in layer.name and (row := of_cells(layer)):
            yield row


def main(operator: str | None, names: str, check: bool) -> int:
    """Predict the peers of the cases whose names contain a text, and write or compare."""
    rows, recorded = [], read()
    order = [(case.name, peer) for case in top_k.CASES for peer in PEERS]
    order += [(case.name, TORCH) for case in gru.CASES]
    for row in rows_of(operator, names):
        rows.append(row)
        print(row, flush=True)
        if not check:  # at once, so that nothing is lost when it is interrupted
            merged = {row.key: row for row in (*recorded, *rows)}
            TABLE.write_text(table_text(merged[key] for key in order if key in merged))
    found = differences(recorded, rows) if check else []
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0
