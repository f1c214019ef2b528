"""PyTorch's own kernels on an H200: its own host code over the stand-in for the CUDA runtime.

`python -m bench.prediction.torch_peers OPERATOR PEERS NAME ...` prints a row of each case and peer, as JSON;
`rows_of` runs that in a process of its own, because the stand-in has to be there before PyTorch. cuBLAS,
cuDNN and the driver are absent; a call that needs one has no time.
"""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from bench.cases import Case, WrongResultError
from bench.checks import require_identical
from bench.prediction.cases import MOST_OF_PEERS, fewer_rows, seed_of
from bench.prediction.model import Prediction
from bench.prediction.recorder import Recorder, Row
from bench.sources import Source
from proof.runtime import absent, fat_binary
from proof.runtime import library as stand_in

#: PyTorch's peers in bench/, by operator.
PEERS = {
    "top_k": ("torch.topk", "torch.argmax"),
    "slice": ("torch",),
    "reverse_subsequences": ("torch.gather",),
}
#: Operators that only move elements run a sample of blocks from this number of elements on, and the bytes
#: that these wrote are checked. A million elements of top-k take two seconds: cases of many rows are
#: predicted from fewer rows above this number of elements.
_MIN_SAMPLED = {"slice": 1 << 22, "reverse_subsequences": 1 << 22}
_MOST_TOGETHER = (1 << 23) - 1
#: Cases with more bytes of input do not run at all. A reversal has a position of 64 bits for each element.
_MAX_BYTES = 1 << 29
_POSITION_BYTES = {"reverse_subsequences": 8}

#: A folder of a PyTorch for CUDA, where the installed one is for a CPU.
_VARIABLE = "CUDML_BENCH_TORCH"
_INSTALL = f"pip install --no-deps --target FOLDER torch===2.13.0, and {_VARIABLE}=FOLDER"

#: Each tensor has memory of its own, whose bounds are checked.
_ENVIRONMENT = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


def folder() -> Path | None:
    """Where PyTorch for CUDA is; None if there is none."""
    if chosen := os.environ.get(_VARIABLE):
        return Path(chosen)
    spec = find_spec("torch")
    found = Path(spec.origin).parents[1] if spec and spec.origin else None
    return found if found and (found / "torch/lib/libtorch_cuda.so").exists() else None


def unavailable() -> str | None:
    """Why PyTorch's kernels cannot be run; None if they can."""
    if (found := folder()) is None:
        return f"PyTorch for CUDA is not installed: {_INSTALL}"
    if not (found / "torch/lib/libtorch_cuda.so").exists():
        return f"{_VARIABLE}={found} has no PyTorch for CUDA: {_INSTALL}"
    return fat_binary.unavailable() or stand_in.unavailable()


def version() -> str:
    """The version of PyTorch for CUDA, "" if there is none."""
    found = folder()
    names = sorted(path.name for path in found.glob("torch-*.dist-info")) if found else []
    return names[0].removeprefix("torch-").removesuffix(".dist-info") if names else ""


def can(operator: str, case: Any, peer: str) -> bool:
    """Whether a peer has a function for a case."""
    return peer != "torch.argmax" or case.k == 1


def rows_of(operator: str, cases: Sequence[Case], peers: Sequence[str]) -> Iterator[Row]:
    """The rows of the cases of an operator, by each of the peers that can do them."""
    if why := unavailable():
        for case in cases:
            for peer in peers:
                if can(operator, case, peer):
                    yield replace(_row(operator, case, peer), note=f"not executed: {why}")
        return
    missing = {(case.name, peer): case for case in cases for peer in peers if can(operator, case, peer)}
    if not missing:
        return
    names = dict.fromkeys(name for name, _ in missing)
    command = [sys.executable, "-m", __spec__.name, operator, ",".join(peers), *names]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | _ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            row = Row(**json.loads(line))
            del missing[row.case, row.peer]
            yield row
    # A process that dies at its end has told all rows.
    for (_, peer), case in missing.items():
        note = f"not executed: PyTorch's process ended with {process.returncode}"
        yield replace(_row(operator, case, peer), note=note)


def _row(operator: str, case: Case, peer: str) -> Row:
    contract = importlib.import_module(f"bench.{operator}").PEERS[peer].contract
    return Row(case.name, peer, version(), 0.0, 0, "", contract, operator=operator)


class Library:
    """PyTorch over the stand-in."""

    def __init__(self) -> None:
        found = folder()
        assert found is not None
        self.recorder = Recorder()
        self._called = absent.load(sorted((found / "torch/lib").glob("*.so")), stand_in.build())
        sys.path.insert(0, str(found))
        self._torch = importlib.import_module("torch")

    def predicted(self, operator: str, case: Any, peer: str) -> Row:
        """The row of a case and a peer that can do it."""
        row, count = _row(operator, case, peer), int(np.prod(case.shape))
        if operator in _MIN_SAMPLED:
            if count * max(np.dtype(case.dtype).itemsize, _POSITION_BYTES.get(operator, 0)) > _MAX_BYTES:
                return replace(row, note=f"not executed: more than {_MAX_BYTES >> 20} MiB")
            sizes = case, case, 0.0
        else:
            sizes = fewer_rows(case, _MOST_TOGETHER)
            if np.prod(sizes[1].shape) > MOST_OF_PEERS:
                return replace(row, note=f"not executed: more than {MOST_OF_PEERS} elements")
        return row.of_sizes(*sizes, lambda size: self._executed(operator, size, peer))

    def _executed(self, operator: str, case: Any, peer: str) -> Prediction | str:
        """The time of a call whose result is right, or why there is none."""
        module = importlib.import_module(f"bench.{operator}")
        definition = module.PEERS[peer]
        inputs = module.make(case, Source(np, seed_of(case)))
        try:
            with mock.patch.object(module, "to_torch", self._on_device):
                call = definition.prepare(case, inputs)
            samples = operator in _MIN_SAMPLED and int(np.prod(case.shape)) >= _MIN_SAMPLED[operator]
            self.recorder.begin(samples)
            result = call()
            took = self.recorder.total()
            got = self._on_host(result)
            cause: object = self.recorder.runtime.error()
        except RuntimeError as error:
            cause = self.recorder.runtime.error() or error
        if name := self._called():
            cause = f"it calls {name}, which the stand-in does not have"
        if cause:
            return f"not executed: {' '.join(str(cause).split())}"
        try:
            if self.recorder.is_sampled:
                self._check_sample(module, case, inputs, result, got)
            else:
                (definition.check or module.check)(case, inputs, got)
        except WrongResultError as error:
            return f"wrong result: {error}"
        return took

    def _on_device(self, array: np.ndarray) -> Any:
        return self._torch.from_numpy(array).cuda()

    def _on_host(self, result: Any) -> Any:
        return result.cpu().numpy() if hasattr(result, "cpu") else tuple(map(self._on_host, result))

    def _check_sample(self, module: Any, case: Any, inputs: Any, result: Any, got: np.ndarray) -> None:
        """Compare the bytes of a contiguous result that were written."""
        written = self.recorder.runtime.written(result.data_ptr(), got.nbytes) > 0
        if not written.any():
            raise WrongResultError("nothing of the result is written")
        expected = np.ascontiguousarray(module.PEERS["numpy"].prepare(case, inputs)())
        own, other = (array.reshape(-1).view(np.uint8)[written] for array in (got, expected))
        require_identical(own, other, "the bytes that are written")


def main(operator: str, peers: Sequence[str], names: Sequence[str]) -> None:
    """Print a line for each case and peer."""
    library = Library()
    for case in importlib.import_module(f"bench.{operator}").CASES:
        for peer in peers if case.name in names else ():
            if can(operator, case, peer):
                print(json.dumps(asdict(library.predicted(operator, case, peer))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2].split(","), sys.argv[3:])
