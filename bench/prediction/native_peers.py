"""Peers on an H200: CUB's and RAFT's top-k and PyTorch's kernels, their own host code over a stand-in for the
CUDA runtime, and PyTorch's GRU cells at the limits of the device.

`python -m bench predict --peers` writes bench/results/predicted-peers.csv. A result that was executed is
checked before its time is told; if there is no time, the row says why.
"""

import ctypes
import fcntl
import hashlib
import importlib
import importlib.metadata
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from bench import gru, native, top_k
from bench.cases import WrongResultError
from bench.prediction import torch_cells, torch_peers
from bench.prediction.cases import MOST_OF_PEERS, fewer_rows, seed_of
from bench.prediction.model import Prediction
from bench.prediction.recorder import Recorder, Row
from bench.prediction.table import TOLERANCE, read_rows, text_of
from bench.results import RESULTS
from bench.runner import OPERATORS
from bench.sources import Source
from cudml.settings import cache_dir
from proof.runtime import library as stand_in
from proof.sass.plan import HOPPER

TABLE = RESULTS / "predicted-peers.csv"

#: Peers of top-k: the library of each, and the package whose version is the peer's.
PEERS = {"cub.DeviceTopK": ("cub", "nvidia-cuda-cccl"), "raft.select_k": ("raft", "libraft-cu13")}
#: The peer of GRU.
TORCH = "torch, GRU cells"

#: Cases of many rows with more elements than this are predicted from fewer rows.
_MOST_TOGETHER = 40_000_000


def predicted(case: top_k.TopKCase, peer: str) -> Row | None:
    """The row of a case; None if the peer has no function for it."""
    name, package = PEERS[peer]
    if not can(case, peer):
        return None
    row = Row(case.name, peer, version_of(package), 0.0, 0, "", top_k.PEERS[peer].contract)
    less, more, factor = fewer_rows(case, _MOST_TOGETHER)
    if np.prod(more.shape) > MOST_OF_PEERS:
        return replace(row, note=f"not executed: more than {MOST_OF_PEERS} elements")
    if why := native.unavailable(native.LIBRARIES[name]) or stand_in.unavailable():
        return replace(row, note=f"not executed: {why}")
    return row.of_sizes(less, more, factor, lambda size: _executed(size, peer))


def _executed(case: top_k.TopKCase, peer: str) -> Prediction | str:
    """The time of a call whose result is right, or why there is none."""
    definition = top_k.PEERS[peer]
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
            return f"not executed: {' '.join(str(cause).split())}"
    if cause := runtime.error():  # the program did not look
        return f"not executed: {' '.join(str(cause).split())}"
    try:
        assert definition.check is not None
        definition.check(case, inputs, result)
    except WrongResultError as error:
        return f"wrong result: {error}"
    return recorder.total()


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
    key = hashlib.sha256(repr((library, native.OPTIONS, sources, versions, _compiler_version())).encode())
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


def rows_of(operator: str | None = None, names: str = "", peer: str = "") -> Iterator[Row]:
    """The rows of cases whose names contain a text; of one operator, or of all; of one peer, or of all."""
    for module in [operator] if operator else OPERATORS:
        cases = [case for case in importlib.import_module(f"bench.{module}").CASES if names in case.name]
        for case in cases if module == "top_k" else ():
            for name in PEERS if not peer else {peer} & PEERS.keys():
                if row := predicted(case, name):
                    yield row
        for layer in cases if module == "gru" and peer in ("", TORCH) else ():
            if row := of_cells(layer):
                yield row
        chosen = [name for name in torch_peers.PEERS.get(module, ()) if peer in ("", name)]
        if cases and chosen:
            yield from torch_peers.rows_of(module, cases, chosen)


def names() -> list[str]:
    """All peers."""
    return [*PEERS, TORCH, *(peer for peers in torch_peers.PEERS.values() for peer in peers)]


def order() -> list[tuple[str, str, str]]:
    """The keys of all rows, in the order of the table."""
    return [
        (operator, case.name, peer)
        for operator in OPERATORS
        for case in importlib.import_module(f"bench.{operator}").CASES
        for peer in peers_of(operator, case)
    ]


def peers_of(operator: str, case: Any) -> list[str]:
    """The peers that have a function for a case."""
    found = [peer for peer in PEERS if operator == "top_k" and can(case, peer)]
    found += [TORCH] if operator == "gru" and case.linear_before_reset else []
    return found + [
        peer for peer in torch_peers.PEERS.get(operator, ()) if torch_peers.can(operator, case, peer)
    ]


def main(operator: str | None, names: str, check: bool, peer: str = "") -> int:
    """Predict the peers of the cases whose names contain a text, and write or compare.

    A peer that is not installed is printed, but its row does not replace a recorded time.
    """
    rows, recorded = [], read()
    for row in rows_of(operator, names, peer):
        rows.append(row)
        print(row, flush=True)
        if not check:  # at once, so that nothing is lost when it is interrupted
            merged = {row.key: row for row in recorded}
            merged |= {row.key: row for row in rows if row.time_us or row.version or row.key not in merged}
            TABLE.write_text(table_text(merged[key] for key in order() if key in merged))
    found = differences(recorded, rows) if check else []
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0
