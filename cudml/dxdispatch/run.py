"""Run a DxDispatch model: execute its commands in order, print and save resources."""

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cudml.compiled import CompiledOperator, compile_operator
from cudml.devices import Array, Device
from cudml.dxdispatch.files import OutsideError, check_target, save_inside
from cudml.dxdispatch.memory import free_bytes, size_text
from cudml.dxdispatch.model import Binding, Dispatch, Model, Print, WriteFile
from cudml.dxdispatch.values import Resource
from cudml.enums import FeatureLevel
from cudml.errors import ModelError, ProblemsError
from cudml.functions.transfer import download, upload

#: Whole floats below this are printed as integers; above it, an exponent is shorter.
_MAX_WHOLE = 1e16

#: Maximum number of elements of a resource that are printed.
MAX_PRINTED = 1000

#: One warm-up run per this many iterations, and at least one: it builds, allocates, and fills caches.
ITERATIONS_PER_WARM_UP = 10


def run_model(
    model: Model,
    device: Device,
    *,
    feature_level: FeatureLevel = FeatureLevel.LEVEL_6_4,
    output: Path | None = None,
    iterations: int | None = None,
    allow_outside: bool = False,
    echo: Callable[[str], None] = print,
    progress: Callable[[str], None] = lambda text: None,
) -> None:
    """Run a model's commands in order.

    Every operator is compiled before the first command, so a model with an error computes nothing.

    Parameters
    ----------
    model : Model
        The result of `load_model`.
    device : Device
        The device that runs it.
    feature_level : FeatureLevel
        The level whose rules the operators must follow.
    output : Path, optional
        A folder in which resources are saved as `NAME.npy` instead of being printed, and the base of the
        paths of `writeFile`. None prints resources, and paths are relative to the current folder.
    iterations : int, optional
        How often each dispatch is timed, after a warm-up; None runs it once, untimed.
    allow_outside : bool
        Whether `writeFile` may write outside the folder that its paths are relative to.
    echo : callable
        Receives each line of output.
    progress : callable
        Receives a line about the current step, and "" when it is done.

    Raises
    ------
    DescriptorError, BindingError
        An operator or its bindings break rules; the message says which dispatchable or command.
    KernelError
        A kernel failed; the message says where. Its results are neither printed nor saved.
    ModelError
        A buffer is larger than the free memory; a file cannot be written, or must not be written there; the
        name of a resource to save in `output` cannot be a file's.
    """
    folder = output or Path()
    targets = _targets(model, output, allow_outside)
    _check_memory(model, device)
    operators: dict[str, CompiledOperator] = {}
    for number, (name, dispatchable) in enumerate(model.dispatchables.items(), 1):
        progress(f"compiling '{name}', {number} of {len(model.dispatchables)}")
        with _place_of_problems(f"dispatchables.{name}"):
            operators[name] = compile_operator(
                dispatchable.desc, device=device, feature_level=feature_level, flags=dispatchable.flags
            )
    progress("making buffers")
    buffers = {name: _buffer(device, resource) for name, resource in model.resources.items()}
    for name, dispatchable in model.dispatchables.items():
        with _place_of_problems(f"dispatchables.{name}"):
            if operators[name].persistent_resource_size:
                operators[name].initialize(**_bound(dispatchable.owned, dispatchable.desc, buffers))
    for number, command in enumerate(model.commands):
        progress(f"command {number + 1} of {len(model.commands)}")
        if isinstance(command, Dispatch):
            bound = _bound(command.bindings, model.dispatchables[command.dispatchable].desc, buffers)
            dispatch = partial(operators[command.dispatchable].dispatch, **bound)
            with _place_of_problems(f"commands[{number}]"):
                device.time(dispatch)  # waits until it is done, as DxDispatch does after each command
            device.raise_reported()
            if iterations is not None:
                echo(_timed(command.dispatchable, device, dispatch, iterations, progress))
            continue
        resource = model.resources[command.resource]
        data = download(buffers[command.resource])
        progress("")
        if number in targets:
            shape = command.dimensions if isinstance(command, WriteFile) else None
            save_inside(folder, targets[number], resource.values_in(data, shape), allow_outside=allow_outside)
            echo(f"Resource '{command.resource}' written to '{targets[number]}'")
        else:
            is_verbose = isinstance(command, Print) and command.verbose
            echo(_printed(command.resource, resource.values_in(data).reshape(-1), is_verbose))
    progress("")


def _targets(model: Model, output: Path | None, allow_outside: bool) -> dict[int, Path]:
    """The target of each command that saves; raises `ModelError` unless all targets are allowed."""
    targets = {}
    for number, command in enumerate(model.commands):
        if isinstance(command, WriteFile):
            place = f"commands[{number}].targetPath"
            folder, name = output or Path(), command.target_path
        elif isinstance(command, Print) and output is not None:
            place = f"commands[{number}].resource"
            folder, name = output, f"{command.resource}.npy"
            if Path(command.resource).name != command.resource:
                expected = "a file name without folders, because the resource is saved"
                raise ModelError(place, expected, repr(command.resource))
        else:
            continue
        targets[number] = folder / name
        try:
            check_target(folder, targets[number], allow_outside=allow_outside)
        except OutsideError as error:
            expected = f"a path within {folder.absolute()} (--allow-outside lifts that)"
            raise ModelError(place, expected, f"a path to {error.place}") from None
        except ValueError as error:
            raise ModelError(place, "the name of a file", f"{name!r} ({error})") from None
    return targets


def _check_memory(model: Model, device: Device) -> None:
    """Raise `ModelError` if the buffers are larger than the free memory of the host.

    A GPU's buffers pass through the host's memory one by one.
    """
    free = free_bytes()
    if free is None:
        return
    taken = 0
    for name, resource in model.resources.items():
        if resource.num_bytes > free - taken:
            beside = f" next to {size_text(taken)} of other buffers" * (taken > 0)
            expected = f"at most {size_text(free - taken)}, the free memory{beside}"
            raise ModelError(f"resources.{name}", expected, f"a buffer of {size_text(resource.num_bytes)}")
        if device.name == "cpu":
            taken += resource.num_bytes


def _timed(
    name: str,
    device: Device,
    dispatch: Callable[[], None],
    iterations: int,
    progress: Callable[[str], None],
) -> str:
    """The median and the minimum time of several dispatches."""
    warm_ups = max(1, iterations // ITERATIONS_PER_WARM_UP)
    seconds = []
    for number in range(warm_ups + iterations):
        progress(f"Dispatch '{name}': {number + 1} of {warm_ups + iterations}")
        seconds.append(device.time(dispatch))
    progress("")
    device.raise_reported()
    del seconds[:warm_ups]
    median, least = 1000 * statistics.median(seconds), 1000 * min(seconds)
    count = f"{iterations} iterations after {warm_ups} of warm-up"
    return f"Dispatch '{name}': {count}, {median:.4f} ms median, {least:.4f} ms minimum ({device.clock})"


@contextmanager
def _place_of_problems(place: str) -> Iterator[None]:
    """Add the position in the model to an error that lists problems."""
    try:
        yield
    except ProblemsError as error:
        raise type(error)(f"{place}: {error.operator}", error.problems) from None


def _buffer(device: Device, resource: Resource) -> Array:
    """The resource in the device's memory, as bytes."""
    data = resource.data()
    return data if device.owns(data) else upload(device, data)


def _bound(bindings: tuple[Binding, ...], desc: Any, buffers: dict[str, Array]) -> dict[str, Array]:
    """The arrays to bind, as bytes: the operator determines their element types."""
    arrays = {}
    for binding in bindings:
        element = getattr(desc, binding.member).element
        data = buffers[binding.resource][binding.first_byte :]
        whole_bytes = len(data) // element.size * element.size
        arrays[binding.member] = data[:whole_bytes].view(element.numpy_name)
    return arrays


def _printed(name: str, values: np.ndarray, is_verbose: bool) -> str:
    """The text that DxDispatch prints for a resource, up to a number of elements."""
    first, rest = values[:MAX_PRINTED], values.size - MAX_PRINTED
    more = f"... {rest} more; --output saves them all" if rest > 0 else ""
    if not is_verbose:
        return f"Resource '{name}': {', '.join([*map(_text, first), *([more] if more else [])])}"
    width, digits = len(str(first.size - 1)), 2 * values.itemsize
    words = first.view(f"u{values.itemsize}")
    lines = [
        f"[{index:{width}}] {_text(value)} (0x{int(word):0{digits}X})"
        for index, (value, word) in enumerate(zip(first, words, strict=True))
    ]
    return "\n".join([f"Resource '{name}':", *lines, *([more] if more else [])])


def _text(value: Any) -> str:
    """The shortest text that reads back as the same value; whole numbers as integers."""
    is_whole = value.dtype.kind == "f" and abs(float(value)) < _MAX_WHOLE and float(value).is_integer()
    return str(int(value) if is_whole else value)
