"""The arguments of array functions: the device they are on, and the errors about wrong ones."""

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from operator import index
from typing import Any, TypeVar

import numpy as np
from numpy.exceptions import AxisError
from numpy.ma import MaskedArray

from cudml.checks import MAX_DIMENSIONS, is_integer, one_of
from cudml.devices import Array, Device, device_of, own_types, take
from cudml.devices.exchange import ExchangeError, Exported
from cudml.dtypes import BITS_BY_SIZE, INTEGERS, ElementType
from cudml.errors import DeviceError, a_type
from cudml.functions.transfer import upload
from cudml.tensors import is_injective, num_elements

#: Scratch slot for lengths given as one number.
LENGTHS = -1

#: The arguments that may be a list or a number instead of an array.
_LENGTHS_NAMES = ("sequence_lengths", "lengths")

#: The first arguments of functions, here and in the adapters.
_FIRST_NAMES = ("a", "x", "input", "operand")

Choice = TypeVar("Choice")

#: The largest alignment of an address that any kernel needs, in bytes.
MAX_ALIGNMENT = 8


def wrong_argument(function: str, argument: str, got: object, expected: str) -> str:
    """The text of every error about an argument."""
    return f"{function}: {argument} is {got}, must be {expected}"


def raise_all(function: str, errors: Sequence[Exception]) -> None:
    """Raise one error with all texts, if there are errors: TypeError if any is one, else ValueError."""
    if errors:
        texts = [str(error).removeprefix(f"{function}: ") for error in errors]
        is_type = any(isinstance(error, TypeError) for error in errors)
        raise (TypeError if is_type else ValueError)(f"{function}: {'; '.join(texts)}")


class Errors(list[Exception]):
    """Collects the errors of checks for `raise_all`; each check runs in a `with` block of its own."""

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> bool:
        if not isinstance(error, (TypeError, ValueError)):
            return False
        self.append(error)
        return True


def advice(name: str, candidate: Any, maker: str) -> str:
    """Advice about an argument that is no array: to make one or, for a number, to put the array before it."""
    is_other = isinstance(candidate, (int, float)) and name in _FIRST_NAMES
    return "the array comes before numbers" if is_other else maker


def on_device(function: str, name: str, candidate: Any) -> tuple[Array, Exported | None, Device]:
    """An argument as a plain array of its device's own type, its memory if that is shared, and the device.

    Raises TypeError if no device supports it, DeviceError if its GPU cannot be used from here.
    """
    own = own_types.get(type(candidate))
    if own is not None and (device := own[1].get(own[0](candidate))) is not None:
        return candidate, None, device
    if isinstance(candidate, MaskedArray):
        expected = "an array without a mask, such as its .filled(value) or its .data"
        raise TypeError(wrong_argument(function, name, "a masked array", expected))
    expected = "a NumPy array, a CuPy array or an object that shares memory of a CPU or a GPU as they do"
    if isinstance(candidate, type):  # the class of an array has the attributes of one
        raise TypeError(wrong_argument(function, name, f"the class {candidate.__qualname__}", expected))
    try:
        found = take(candidate)
    except ExchangeError as error:
        raise TypeError(wrong_argument(function, name, f"{a_type(candidate)} {error}", expected)) from error
    except DeviceError as error:
        where = f"{a_type(candidate)} in a GPU's memory, which cannot be used from here"
        raise DeviceError(f"{function}: {name} is {where}: {error}") from error
    if found is not None:
        return *found[0], found[1]
    if isinstance(candidate, (list, tuple, int, float, complex)) or hasattr(candidate, "__array__"):
        expected = f"{expected}; {advice(name, candidate, 'numpy.asarray makes one')}"
    if name in _LENGTHS_NAMES:
        expected = "an integer, a list of integers or an array of integers"
    raise TypeError(wrong_argument(function, name, a_type(candidate), expected))


@dataclass(slots=True)
class Arguments:
    """Arguments as plain arrays by name, and the device that all are on.

    `shared` is the memory of other libraries, `made` the arrays made from lengths that were not arrays.
    """

    arrays: dict[str, Array]
    device: Device
    shared: list[Exported]
    made: list[Array]


class Argument:
    """An array of a call: its name, its member of the descriptor, and its properties there.

    Attributes
    ----------
    array : array or None
        None for an output that the call makes.
    shape : tuple of int
        The shape in the call; an input is broadcast to it.
    sizes : tuple of int
        The shape in the descriptor, which the operand's shape broadcasts to.
    alignment : int
        The alignment that the kernels require of the address; 1 if they take `any_address`.
    operand_shape : tuple of int or None
        If given, the operand is a packed array of that shape: a view, or if `is_copied` a separate array.
    """

    __slots__ = (
        "alignment",
        "array",
        "dtype",
        "is_copied",
        "kind",
        "member",
        "name",
        "operand_shape",
        "shape",
        "sizes",
    )

    def __init__(
        self,
        name: str,
        member: str,
        kind: ElementType,
        array: Array | None,
        shape: tuple[int, ...],
        dtype: Any,
        *,
        sizes: tuple[int, ...] | None = None,
        operand_shape: tuple[int, ...] | None = None,
        any_address: bool = False,
    ) -> None:
        self.name = name
        self.member = member
        self.kind = kind
        self.array: Array = array
        self.shape = shape
        self.dtype = dtype
        self.sizes = operand_shape or sizes or shape
        self.alignment = 1 if any_address else min(dtype.itemsize, MAX_ALIGNMENT)
        self.operand_shape = operand_shape
        self.is_copied = (
            operand_shape is not None
            and array is not None
            and (shape != array.shape or 0 in shape or not array.flags.c_contiguous)
        )


@dataclass(slots=True)
class Request:
    """Checked arguments: the arrays and the other contents of the descriptor.

    `members` are the descriptor's members that are no tensors; `options` go to the planner. Nothing is
    computed if every output is empty, or if `is_zero`, which sets the outputs to 0. If it `has_parts`, one
    plan may not be enough. `places` describe the allowed places, for calls that have a place.
    """

    inputs: Sequence[Argument]
    outputs: Sequence[Argument]
    members: Mapping[str, Any]
    options: tuple[Any, ...] = ()
    is_zero: bool = False
    has_parts: bool = False
    places: Any = None


def all_on_device(
    function: str,
    input_names: Sequence[str],
    inputs: Sequence[Any],
    output_names: Sequence[str] = (),
    outputs: Sequence[Any] = (),
    lengths_axes: slice = slice(0),
) -> Arguments:
    """Arguments as plain arrays of the device that all of them are on; outputs may be left out.

    Lengths may be a list, or one number for all places along `lengths_axes` of the first argument. Raises
    what `on_device` does, TypeError or ValueError if devices are mixed, ValueError for a read-only output.
    """
    first_array, exported, first = on_device(function, input_names[0], inputs[0])
    arrays: dict[str, Array] = {input_names[0]: first_array}
    shared, made = [] if exported is None else [exported], []
    host_name = None
    others = zip((*input_names[1:], *output_names), (*inputs[1:], *outputs), strict=False)
    for name, candidate in others:
        if name in _LENGTHS_NAMES and _is_on_host(candidate):
            host_name = name
            arrays[name] = candidate  # keeps its place among them
            continue
        arrays[name], exported, device = on_device(function, name, candidate)
        if device is not first:
            kinds = {device.name.partition(":")[0], first.name.partition(":")[0]}
            error = TypeError if len(kinds) > 1 else ValueError
            expected = f"on {first.name}, where {input_names[0]} is"
            raise error(wrong_argument(function, name, f"on {device.name}", expected))
        if exported is not None:
            shared.append(exported)
            if exported.is_read_only and name in output_names:
                raise ValueError(wrong_argument(function, name, "read-only", "writable"))
    if host_name is not None:
        shape, written = tuple(first_array.shape), [arrays[name] for name in output_names[: len(outputs)]]
        lengths, sizes = arrays[host_name], shape[lengths_axes]
        with first.on_stream(None):
            own = lengths_on(function, first, lengths, sizes, max(shape, default=0), written, host_name)
        arrays[host_name] = own
        made.append(own)
    return Arguments(arrays, first, shared, made)


def on_stream(function: str, candidate: Any, stream: Any) -> AbstractContextManager[None]:
    """A context in which an array's GPU is the current one and a stream is that GPU's current one.

    None leaves the current stream. Raises TypeError if `stream` is not a stream or the array is on a CPU,
    which has no streams; ValueError if it is a stream of another GPU.
    """
    try:
        device = None if isinstance(candidate, type) else device_of(candidate)
    except (DeviceError, ExchangeError):
        device = None
    if device is None:
        return nullcontext()  # the call without the stream raises the error about the array
    try:
        return device.on_stream(stream)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{function}: {error}") from None


def normalized_axis(function: str, axis: Any, ndim: int) -> int:
    """An axis counted from the front; raise AxisError if it is out of range."""
    if axis is None:
        raise ValueError(wrong_argument(function, "axis", None, "an integer: flattening is up to the caller"))
    number = as_integer(function, "axis", axis)
    if not -ndim <= number < ndim:
        allowed = f"axis must be from {-ndim} to {ndim - 1}" if ndim else "a must have a dimension"
        raise AxisError(number, ndim, f"{function}: {allowed}")
    return number % ndim


def as_integer(function: str, name: str, value: Any) -> int:
    """Convert to int; raise TypeError if not integral."""
    try:
        return index(value)
    except TypeError:
        raise TypeError(wrong_argument(function, name, repr(value), "an integer")) from None


def as_integers(function: str, name: str, values: Any, count: int) -> tuple[int, ...]:
    """Convert to a tuple of `count` ints; raise TypeError if not integral, ValueError if not `count`."""
    try:
        if type(values) is not tuple:
            check_order(values)
        numbers = tuple(map(index, values))
    except TypeError:
        raise TypeError(wrong_argument(function, name, repr(values), "a sequence of integers")) from None
    if len(numbers) != count:
        raise ValueError(
            wrong_argument(
                function,
                name,
                f"{numbers}, of length {len(numbers)}",
                f"of length {count}, one per dimension",
            )
        )
    return numbers


def choice_of(function: str, name: str, value: Any, choices: dict[str, Choice]) -> Choice:
    """The choice that a string argument names; raise ValueError if it is not a key of `choices`."""
    if isinstance(value, str) and value in choices:
        return choices[value]
    expected = one_of([repr(choice) for choice in choices])
    raise ValueError(wrong_argument(function, name, repr(value), expected))


def check_order(values: Any) -> None:
    """Raise TypeError if a collection has no order of its elements."""
    if isinstance(values, (Set, Mapping)):
        raise TypeError(f"{a_type(values)} is not a sequence")


def _is_on_host(lengths: Any) -> bool:
    """Whether lengths are not an array, but a list or one number for all."""
    if type(lengths) in own_types:
        return False
    is_number = isinstance(lengths, (int, np.integer)) and not isinstance(lengths, bool)
    return is_number or isinstance(lengths, (list, tuple))


def lengths_on(
    function: str,
    device: Device,
    lengths: Any,
    shape: tuple[int, ...],
    largest: int,
    outputs: Sequence[Array] = (),
    name: str = "sequence_lengths",
) -> Array:
    """An array on the device for lengths given as a list or a number.

    A number is clipped to [0, `largest`] and fills the shape, in scratch memory if `outputs` are given.
    Raises TypeError if a list is not of integers, ValueError if the lists in it differ in length.
    """
    if not isinstance(lengths, (list, tuple)):
        dtype = np.dtype(np.uint32 if largest < 2**32 else np.uint64)
        if outputs:
            num_bytes = num_elements(shape) * dtype.itemsize
            array = device.scratch(num_bytes, outputs, part=LENGTHS).view(dtype).reshape(shape)
        else:
            array = device.empty(shape, dtype)
        array.fill(min(max(int(lengths), 0), largest))
        return array
    try:
        host = np.array(lengths)
    except ValueError:
        raise ValueError(wrong_argument(function, name, repr(lengths), "a list without gaps")) from None
    if not host.size:
        host = host.astype(np.int64)
    if host.dtype.kind not in "iu":
        expected = "a list of integers"
        if all(is_integer(number) for number in _leaves(lengths)):
            expected = "a list of integers that one type of 64 bits holds"
        raise TypeError(wrong_argument(function, name, f"a list of {host.dtype}", expected))
    return upload(device, host)


def _leaves(lists: Any) -> Iterator[Any]:
    """The elements of lists of lists."""
    for item in lists:
        if isinstance(item, (list, tuple)):
            yield from _leaves(item)
        else:
            yield item


def broadcasts_to(shape: Sequence[int], target: Sequence[int]) -> bool:
    """Whether an array of one shape can be read as an array of another shape, as NumPy broadcasts."""
    if len(shape) > len(target):
        return False
    own = target[len(target) - len(shape) :]
    return shape == own or all(size in (1, wanted) for size, wanted in zip(shape, own, strict=True))


def lengths_of_lanes(function: str, name: str, lengths: Array, shape: tuple[int, ...], axis: int) -> Argument:
    """The lengths of lanes along an axis of `a`, an array of this shape, as an input.

    Raises TypeError if they are not integers, ValueError if they do not broadcast to the lanes.
    """
    kind = dtype_in(function, name, lengths, INTEGERS)
    lane_shape = (*shape[:axis], 1, *shape[axis + 1 :])
    if lengths.shape != lane_shape and not broadcasts_to(lengths.shape, lane_shape):
        expected = f"of a shape that broadcasts to {lane_shape}, the shape of a with 1 at the axis"
        if lengths.ndim == len(shape) - 1:
            with_axis = (*lengths.shape[:axis], 1, *lengths.shape[axis:])
            if broadcasts_to(with_axis, lane_shape):
                expected += f"; {name}[{':, ' * axis}None] is"
        raise ValueError(wrong_argument(function, name, f"of shape {tuple(lengths.shape)}", expected))
    is_flat = len(shape) > MAX_DIMENSIONS
    return Argument(
        name,
        "sequence_lengths_tensor",
        kind,
        lengths,
        lane_shape if is_flat else lengths.shape,
        lengths.dtype,
        sizes=lane_shape,
        operand_shape=(num_elements(shape[:axis]), 1, num_elements(shape[axis + 1 :])) if is_flat else None,
    )


def output_pair(function: str, out: Any, names: str) -> tuple[Any, ...]:
    """The two arrays of `out`, none if it is None; raise TypeError if it is not a pair."""
    if out is None:
        return ()
    if not isinstance(out, tuple) or len(out) != 2:
        got = f"a tuple of {len(out)}" if isinstance(out, tuple) else a_type(out)
        raise TypeError(wrong_argument(function, "out", got, f"a tuple of two arrays, ({names})"))
    return out


def bits_of(function: str, name: str, array: Array) -> ElementType:
    """The element type that moves an array's items; raise TypeError if no kernel moves such items."""
    kind = BITS_BY_SIZE.get(array.dtype.itemsize)
    if kind is None or array.dtype.hasobject:
        expected = "of a dtype of 1, 2, 4, 8 or 16 bytes without objects"
        raise TypeError(wrong_argument(function, name, f"of dtype {array.dtype}", expected))
    return kind


@lru_cache(maxsize=64)
def _name_of(dtype: Any) -> str:
    return str(dtype.name)


def dtype_in(function: str, name: str, array: Array, allowed: dict[str, ElementType]) -> ElementType:
    """The element type of an array; raise TypeError unless it is an `allowed` one in native byte order."""
    kind = allowed.get(_name_of(array.dtype))
    if kind is not None and array.dtype.isnative:
        return kind
    expected = f"of {one_of([*allowed])}"
    if kind is not None:
        expected = f"in native byte order, as {name}.astype({array.dtype.name!r}) is"
    raise TypeError(wrong_argument(function, name, f"of dtype {array.dtype}", expected))


def check_output(function: str, name: str, array: Array, shape: tuple[int, ...], dtype: Any) -> None:
    """Raise unless an output is of exactly this dtype and shape, writable, and does not overlap itself."""
    if array.dtype != dtype:
        raise TypeError(
            wrong_argument(function, name, f"of dtype {array.dtype}", f"of dtype {np.dtype(dtype)}")
        )
    if tuple(array.shape) != tuple(shape):
        raise ValueError(
            wrong_argument(function, name, f"of shape {array.shape}", f"of shape {tuple(shape)}")
        )
    if not getattr(array.flags, "writeable", True):
        raise ValueError(wrong_argument(function, name, "read-only", "writable"))
    # The bytes of an element count as a dimension, because strides may be smaller than an element.
    if array.size and not is_injective((*array.shape, array.dtype.itemsize), (*array.strides, 1)):
        expected = "of strides that give every element its own place"
        raise ValueError(wrong_argument(function, name, f"of strides {array.strides}", expected))
