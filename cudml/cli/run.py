"""`cudml run`: an ONNX model on arrays from files."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cudml.dxdispatch.files import OutsideError, check_target, open_inside, read_npy, save_inside

if TYPE_CHECKING:
    from cudml.onnx import Session


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
        The model cannot be read, an input or an option is wrong, ONNX Runtime is not installed or fails, or
        an output cannot be saved. The names of all outputs are checked before the model runs.
    """
    try:
        import cudml.onnx  # noqa: F401
    except ModuleNotFoundError as error:
        raise RunError(str(error)) from None
    try:
        session = _session(path, {} if ops is None else {"ops": ops})
        feeds = _feeds(inputs, session)
        targets = {} if output is None else _targets(session.outputs, output)
        results = session.run_named(feeds, progress=progress)
        placed: list[tuple[str, ...]] = [(r.node, r.op, r.runs_on, r.reason) for r in session.placed]
        return placed, [_row(name, value, output, targets.get(name)) for name, value in results.items()]
    except (RuntimeError, TypeError, ValueError) as error:
        raise RunError(str(error)) from error


def _session(path: Path, options: Mapping[str, Any]) -> "Session":
    from cudml.onnx import Session

    try:
        return Session(path, **options)
    except OSError as error:
        raise RunError(f"{path}: the file is unreadable ({error.strerror}), must be readable") from None


def _feeds(arguments: Sequence[str], session: "Session") -> dict[str, Any]:
    """The arrays of the arguments by name; raises ValueError unless each input is given once."""
    files: dict[str, str] = {}
    for argument in arguments:
        name, equals, file = argument.partition("=")
        if not (name and equals):
            raise ValueError(f"--input is {argument!r}, must be NAME=FILE.npy")
        if name in files:
            raise ValueError(f"--input gives {name} as {files[name]!r} and {file!r}, must give it once")
        files[name] = file
    unknown = sorted(files.keys() - session.inputs.keys())
    if unknown:
        raise ValueError(
            f"--input has {', '.join(unknown)}, must be of {', '.join(session.inputs) or 'none'}"
        )
    missing = session.inputs.keys() - files.keys()
    if missing:
        needed = [f"\n  {name}={session.described(name)}" for name in session.inputs if name in missing]
        raise ValueError(f"--input NAME=FILE.npy is missing for{''.join(needed)}")
    return {name: _loaded(name, file) for name, file in files.items()}


def _loaded(name: str, file: str) -> np.ndarray:
    path = Path(file)
    try:
        with open_inside(path.parent, path, allow_outside=True) as opened:
            return read_npy(opened)
    except OSError as error:
        reason = error.strerror
    except ValueError as error:
        reason = str(error)
    raise ValueError(f"--input {name} is {file!r}, must be an .npy file that can be read ({reason})")


def _targets(names: Iterable[str], output: Path) -> dict[str, Path]:
    """The file of each output; raises ValueError, with every problem, for names that cannot be a file's."""
    targets: dict[str, Path] = {}
    problems = []
    for name in names:
        # A model's names may have any characters; the file's name has only letters, digits, '.', '_' and '-'.
        target = output / ("".join(c if c.isalnum() or c in "._-" else "_" for c in name) + ".npy")
        problem = _problem_of(target, output)
        sharing = [other for other in targets if targets[other] == target]
        if sharing:
            problem = f"saved as {target.name}, must be of a file that {sharing[0]!r} has not"
        if problem is not None:
            problems.append(f"\n  {name!r} is {problem}")
        targets[name] = target
    if problems:
        raise ValueError(f"--output: these outputs cannot be saved in {output}{''.join(problems)}")
    return targets


def _problem_of(target: Path, output: Path) -> str | None:
    """Why an output cannot be saved in a file, and what the file must be; None if it can be saved."""
    if not any(map(str.isalnum, target.stem)):
        return f"saved as {target.name}, must have a letter or a digit"
    try:
        check_target(output, target, allow_outside=False)
    except OutsideError as error:
        return f"saved as {target.name}, a link to {error.place}, must be in {output}"
    except ValueError as error:
        return f"saved as {target.name:.40}, must be of a name that a file can have ({error})"
    return None


def _row(name: str, value: Any, output: Path | None, target: Path | None) -> tuple[str, ...]:
    """Save an output, if it has a file; return its name, dtype, shape, and its file or its values."""
    array = value if isinstance(value, np.ndarray) else value.get()
    kind = (name, str(array.dtype), "x".join(map(str, array.shape)) or "scalar")
    if output is None or target is None:
        return (*kind, np.array2string(array, threshold=8, edgeitems=2, precision=4).replace("\n", ""))
    # ONNX Runtime's strings are objects, which only pickles could hold.
    saved = array.astype(str) if array.dtype == object else array
    save_inside(output, target, saved, allow_outside=False)
    return (*kind, str(target))
