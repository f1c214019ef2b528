"""Running a DxDispatch model that was read: the commands in order, what they print and what they save."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cudml.compiled import CompiledOperator, compile_operator
from cudml.devices import Array, Device
from cudml.dispatch_model import Binding, Dispatch, Model, Print, Resource, WriteFile
from cudml.enums import FeatureLevel
from cudml.errors import ModelError, ProblemsError
from cudml.transfer import download, upload

#: Floats below this are shown as integers where they are whole; above it an exponent is shorter.
_MAX_WHOLE = 1e16


def run_model(
    model: Model,
    device: Device,
    *,
    feature_level: FeatureLevel = FeatureLevel.LEVEL_6_4,
    output: Path | None = None,
    echo: Callable[[str], None] = print,
) -> None:
    """Run a model's commands in order.

    Every operator is compiled before the first command, so a model with an error computes nothing.

    Parameters
    ----------
    model : Model
        What `load_model` gave.
    device : Device
        Where to run it.
    feature_level : FeatureLevel
        The level whose rules the operators must keep.
    output : Path, optional
        A folder: resources that would be printed are saved in it instead, each as `NAME.npy`, and it is
        where the paths of `writeFile` begin. None prints; paths begin at the current folder.
    echo : callable
        Takes each line that is printed.

    Raises
    ------
    DescriptorError, BindingError
        An operator or its bindings break rules; says which dispatchable or command.
    ModelError
        A file cannot be written, or a resource to save in `output` has no name for a file.
    """
    if output is not None:
        _check_file_names(model)
    buffers = {name: _buffer(device, resource) for name, resource in model.resources.items()}
    operators: dict[str, CompiledOperator] = {}
    for name, dispatchable in model.dispatchables.items():
        with _place_of_problems(f"dispatchables.{name}"):
            operator = compile_operator(
                dispatchable.desc, device=device, feature_level=feature_level, flags=dispatchable.flags
            )
            if operator.persistent_resource_size:
                operator.initialize(**_bound(dispatchable.owned, dispatchable.desc, buffers))
        operators[name] = operator
    for number, command in enumerate(model.commands):
        if isinstance(command, Dispatch):
            desc = model.dispatchables[command.dispatchable].desc
            with _place_of_problems(f"commands[{number}]"):
                operators[command.dispatchable].dispatch(**_bound(command.bindings, desc, buffers))
            continue
        values = _values(model.resources[command.resource], buffers[command.resource])
        if isinstance(command, WriteFile):
            _save((output or Path()) / command.target_path, values)
        elif output is not None:
            _save(output / f"{command.resource}.npy", values)
        else:
            echo(f"Resource '{command.resource}': {', '.join(_shown(values))}")


def _check_file_names(model: Model) -> None:
    """Raise `ModelError` unless every resource that is printed has a name that a file can have."""
    for number, command in enumerate(model.commands):
        if isinstance(command, Print) and Path(command.resource).name != command.resource:
            expected = "the name of a file without folders, since it is saved"
            raise ModelError(f"commands[{number}].resource", expected, repr(command.resource))


@contextmanager
def _place_of_problems(place: str) -> Iterator[None]:
    """Have an error that lists problems say at which place of the model they are."""
    try:
        yield
    except ProblemsError as error:
        raise type(error)(f"{place}: {error.operator}", error.problems) from None


def _buffer(device: Device, resource: Resource) -> Array:
    """The resource in the device's memory, as bytes."""
    data = np.zeros(resource.num_bytes, np.uint8)
    data[: resource.values.nbytes] = resource.values.reshape(-1).view(np.uint8)
    return upload(device, data)


def _bound(bindings: tuple[Binding, ...], desc: Any, buffers: dict[str, Array]) -> dict[str, Array]:
    """The arrays to bind: what a buffer holds is for the operator to say."""
    arrays = {}
    for binding in bindings:
        element = getattr(desc, binding.member).element
        data = buffers[binding.resource][binding.first_byte :]
        whole_bytes = len(data) // element.size * element.size
        arrays[binding.member] = data[:whole_bytes].view(element.numpy_name)
    return arrays


def _values(resource: Resource, buffer: Array) -> np.ndarray:
    """What the buffer holds now, in the type and shape of the first values."""
    data = download(buffer)[: resource.values.nbytes]
    return data.view(resource.values.dtype).reshape(resource.values.shape)


def _shown(values: np.ndarray) -> list[str]:
    """Each element as the shortest text that reads back the same; whole numbers as integers."""
    return [_text(value) for value in values.reshape(-1)]


def _text(value: Any) -> str:
    is_whole = value.dtype.kind == "f" and abs(float(value)) < _MAX_WHOLE and float(value).is_integer()
    return str(int(value) if is_whole else value)


def _save(path: Path, values: np.ndarray) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".npy":
            np.save(path, values)
        else:
            path.write_bytes(values.tobytes())
    except (OSError, ValueError) as error:  # ValueError where no file can have the name
        reason = error.strerror if isinstance(error, OSError) else error
        raise ModelError("the file", "writable", f"not written ({reason})", str(path)) from None
