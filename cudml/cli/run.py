"""`cudml run`: an ONNX model on arrays from files."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np


class RunError(Exception):
    """A model, an input or an option is wrong, or ONNX Runtime is not installed."""


def run_model(
    path: Path,
    inputs: Sequence[str],
    *,
    ops: Sequence[str] | None,
    output: Path | None,
    progress: Callable[[str], None],
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Run a model once; return rows about the nodes that cudml can run, and rows about the outputs.

    Parameters
    ----------
    path : Path
        The model.
    inputs : sequence of str
        "NAME=FILE.npy" for each input.
    ops : sequence of str, optional
        The operators that cudml runs; None is the default of `cudml.onnx.Session`.
    output : Path, optional
        The folder in which each output is saved as NAME.npy.
    progress : callable
        Receives a line about the next step.

    Raises
    ------
    RunError
        The model, an input or an option is wrong, or ONNX Runtime is not installed or fails.
    OSError
        A file cannot be read or written.
    """
    try:
        from cudml.onnx import Session
    except ModuleNotFoundError as error:
        raise RunError(f"{error.name} is not installed: pip install 'cudml[onnx]'") from None
    try:
        session = Session(path) if ops is None else Session(path, ops=ops)
        results = session.run(dict(map(_loaded, inputs)), progress=progress)
    except (RuntimeError, TypeError, ValueError) as error:
        raise RunError(str(error)) from error
    placed: list[tuple[str, ...]] = [(r.node, r.op, r.runs_on, r.reason) for r in session.placed]
    return placed, [_saved(name, array, output) for name, array in results.items()]


def _loaded(argument: str) -> tuple[str, Any]:
    name, equals, file = argument.partition("=")
    if not equals:
        raise ValueError(f"--input is {argument!r}, must be NAME=FILE.npy")
    try:
        return name, np.load(file, allow_pickle=False)
    except (EOFError, ValueError) as error:
        raise ValueError(f"{file} is not an .npy file: {error}") from error


def _saved(name: str, array: Any, output: Path | None) -> tuple[str, ...]:
    """Save an output; return its name, dtype, shape and where it is now."""
    array = array if isinstance(array, np.ndarray) else array.get()
    kind = (name, str(array.dtype), "x".join(map(str, array.shape)) or "scalar")
    if output is None:
        return (*kind, np.array2string(array, threshold=8, edgeitems=2, precision=4).replace("\n", ""))
    output.mkdir(parents=True, exist_ok=True)
    # A model's names may have any characters; the file is named by what a path may have.
    file = output / ("".join(c if c.isalnum() or c in "._-" else "_" for c in name).lstrip(".") + ".npy")
    np.save(file, array)
    return (*kind, str(file))
