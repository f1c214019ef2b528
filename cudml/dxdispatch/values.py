"""Buffers of DxDispatch models: sizes and initial values, as lists, constants, sequences and files."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from cudml.dtypes import ELEMENTS, element_type_of
from cudml.dxdispatch.descriptors import read_enum
from cudml.dxdispatch.files import OutsideError, open_inside, read_npy
from cudml.dxdispatch.memory import free_bytes, size_text
from cudml.dxdispatch.reader import Node
from cudml.enums import DataType

#: Sizes of DirectML's buffers are multiples of this many bytes.
BUFFER_ALIGNMENT = 4

#: Maximum size of an array in bytes.
MAX_BUFFER_BYTES = 2**63 - BUFFER_ALIGNMENT

#: Extensions of raw files; every other file is a NumPy array.
RAW_SUFFIXES = (".bin", ".dat")
FILE_SUFFIXES = (".npy", *RAW_SUFFIXES)

_UINT32_MAX = 2**32 - 1

_KEYS = ("type", "initialValues", "initialValuesDataType", "initialValuesOffsetInBytes", "sizeInBytes")
_IMAGE_KEYS = ("resampleSize", "resampleMode")
_VALUES_EXPECTED = "a list, or an object with valueCount or sourcePath"

#: Writes values into a one-dimensional array of their dtype.
Fill = Callable[[np.ndarray], None]


@dataclass(frozen=True)
class Resource:
    """A buffer and its initial values, which are computed when the buffer is created.

    `first_byte` is the offset of the values in the buffer. Values of a file have the file's shape; all
    others are flat.
    """

    num_bytes: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    first_byte: int
    fill: Fill

    def data(self) -> np.ndarray:
        """The buffer's initial content in a new array: the values, and 0 elsewhere."""
        data = np.zeros(self.num_bytes, np.uint8)
        self.fill(self.values_in(data).reshape(-1))
        return data

    def values_in(self, data: np.ndarray, shape: tuple[int, ...] | None = None) -> np.ndarray:
        """The part of a buffer that held the initial values; `shape` may make it longer or shorter."""
        shape = self.shape if shape is None else shape
        end = self.first_byte + math.prod(shape) * self.dtype.itemsize
        return data[self.first_byte : end].view(self.dtype).reshape(shape)

    @property
    def most_elements(self) -> int:
        """Number of elements from the first value to the end of the buffer."""
        return (self.num_bytes - self.first_byte) // self.dtype.itemsize


@dataclass(frozen=True)
class SourceFolder:
    """The folder that a model's files must be in, unless files outside are allowed."""

    folder: Path
    allow_outside: bool


def read_resource(node: Node, source: SourceFolder) -> Resource:
    """A buffer of a model."""
    for key in _IMAGE_KEYS:
        if (given := node.get(key)) is not None:
            given.fail(f"left out: cudml reads no images, only {_names(FILE_SUFFIXES)}", "given")
    node.only(*_KEYS)
    kind = node.get("type")
    if kind is not None:
        kind.choice({"buffer": None})
    dtype, shape, fill = _initial_values(node, source)
    value_bytes = math.prod(shape) * dtype.itemsize
    offset_node, size = node.get("initialValuesOffsetInBytes"), node.get("sizeInBytes")
    first_byte = 0 if offset_node is None else offset_node.integer_from(0, MAX_BUFFER_BYTES)
    end = first_byte + value_bytes
    if size is None:
        num_bytes = _rounded_up(value_bytes)
        if end > num_bytes and offset_node is not None:
            offset_node.fail(f"at most {num_bytes - value_bytes} where sizeInBytes is left out")
    else:
        what = "the size of the initial values" if not first_byte else "where the initial values end"
        if not end <= size.integer() <= MAX_BUFFER_BYTES:
            size.fail(f"from {end}, {what}, to {MAX_BUFFER_BYTES}")
        num_bytes = _rounded_up(size.integer())
    return Resource(num_bytes, dtype, shape, first_byte, fill)


def _rounded_up(num_bytes: int) -> int:
    return -(-num_bytes // BUFFER_ALIGNMENT) * BUFFER_ALIGNMENT


def _names(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


Values = tuple[np.dtype[Any], tuple[int, ...], Fill]


def _initial_values(node: Node, source: SourceFolder) -> Values:
    values = node.need("initialValues", _VALUES_EXPECTED)
    if isinstance(values.value, dict) and "sourcePath" in values.value:
        return _given(_values_of_file(node, values, source))
    if isinstance(values.value, list) and not values.value:
        values.fail("a list that is not empty")
    if isinstance(values.value, list) and all(isinstance(item, dict) for item in values.value):
        kind_node = node.get("initialValuesDataType")
        if kind_node is not None and read_enum(kind_node, DataType) != DataType.UNKNOWN:
            kind_node.fail("UNKNOWN or left out, because every value has its own type")
        return _given(_struct(values))
    if not isinstance(values.value, (dict, list)):
        values.fail(_VALUES_EXPECTED)
    kind_node = node.need("initialValuesDataType", "the name of a data type")
    dtype = _element(kind_node, read_enum(kind_node, DataType))
    if isinstance(values.value, dict):
        return _generated(values, dtype)
    return _given(_numbers(values, dtype))


def _given(array: np.ndarray) -> Values:
    """Values given as a list."""
    return array.dtype, array.shape, lambda target: np.copyto(target, array.reshape(-1))


def _element(node: Node, kind: DataType) -> np.dtype[Any]:
    """The NumPy dtype of a data type of whole bytes."""
    if kind in (DataType.UNKNOWN, DataType.UINT4, DataType.INT4):
        node.fail("a type of 8, 16, 32 or 64 bits")
    return np.dtype(ELEMENTS[kind].numpy_name)


def _numbers(node: Node, dtype: np.dtype[Any]) -> np.ndarray:
    """Convert a list of numbers to a dtype; element by element only if one is not a plain number."""
    types = set(map(type, node.value))
    if dtype.kind == "f" and types <= {int, float}:
        try:
            return _as_floats(np.array(node.value, np.float64), dtype)
        except OverflowError:
            pass
    elif types == {int}:
        limits = np.iinfo(dtype)
        if limits.min <= min(node.value) and max(node.value) <= limits.max:
            return np.array(node.value, dtype)
    return np.array([_number(item, dtype) for item in node.items()], dtype)


def _as_floats(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Round doubles to a dtype; to FLOAT16 by way of FLOAT32, as DxDispatch does."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32 if dtype.itemsize == 2 else dtype).astype(dtype)


def _number(node: Node, dtype: np.dtype[Any]) -> Any:
    """A number that the dtype can represent; floats are rounded to it."""
    value = node.number()
    if dtype.kind == "f":
        return _as_floats(np.array(value), dtype)[()]
    limits = np.iinfo(dtype)
    exact = node.value if isinstance(node.value, int) else value
    if not math.isfinite(value) or int(exact) != exact:
        node.fail(f"an integer, because the type is {dtype}")
    if not limits.min <= int(exact) <= limits.max:
        node.fail(f"from {limits.min} to {limits.max}, the range of {dtype}")
    return dtype.type(int(exact))


def _generated(node: Node, dtype: np.dtype[Any]) -> Values:
    """`valueCount` values: all `value`, or from `valueStart` in steps of `valueDelta`."""
    expected = "value, or valueStart and valueDelta"
    node.only("valueCount", "value", "valueStart", "valueDelta")
    count = node.need("valueCount", "an integer").integer_from(1, _UINT32_MAX)
    if node.get("valueStart") is None:
        value = _number(node.need("value", expected), dtype)
        return dtype, (count,), lambda target: target.fill(value)
    if (constant := node.get("value")) is not None:
        constant.fail("left out, because valueStart is given", "given")
    start = node.need("valueStart", expected)
    delta = node.need("valueDelta", expected)
    if dtype.kind == "f":
        first, step = _number(start, dtype), _number(delta, dtype)
        return dtype, (count,), lambda target: _accumulate(target, first, step)
    whole_first, whole_step = start.integer(), delta.integer()
    last = whole_first + whole_step * (count - 1)
    limits = np.iinfo(dtype)
    if not (limits.min <= min(whole_first, last) and max(whole_first, last) <= limits.max):
        range_text = f"{whole_first} to {last} lie in {limits.min} to {limits.max}, the range of {dtype}"
        delta.fail(f"such that {range_text}")
    # Sums of integers are taken modulo the type's range, so a step down may be the step up that wraps.
    modulus = int(limits.max) - int(limits.min) + 1
    wrapped = (whole_step - int(limits.min)) % modulus + int(limits.min)
    return dtype, (count,), lambda target: _accumulate(target, whole_first, wrapped)


def _accumulate(target: np.ndarray, first: Any, step: Any) -> None:
    """Fill with the first value and then repeated sums with the step, in the type's own arithmetic.

    DxDispatch does the same: in FLOAT16, counting by 1 stops at 2048.
    """
    target.fill(step)
    if step == 0 and target.dtype.kind != "f":
        target.fill(first)
        return
    target[0] = first
    with np.errstate(all="ignore"):
        np.add.accumulate(target, out=target, dtype=target.dtype)


def _struct(node: Node) -> np.ndarray:
    """The bytes of a list of elements, each of its own type."""
    data = bytearray()
    for item in node.items():
        item.only("name", "type", "value")
        if (name := item.get("name")) is not None:  # only a comment
            name.text()
        kind_node = item.need("type", "the name of a data type")
        dtype = _element(kind_node, read_enum(kind_node, DataType))
        data += dtype.type(_number(item.need("value", "a number"), dtype)).tobytes()
    return np.frombuffer(bytes(data), np.uint8)


def _values_of_file(node: Node, values: Node, source: SourceFolder) -> np.ndarray:
    values.only("sourcePath")
    path_node = values.need("sourcePath", "a path")
    suffix = Path(path_node.text()).suffix.lower()
    if suffix not in FILE_SUFFIXES:
        path_node.fail(f"a file of {_names(FILE_SUFFIXES)}")
    with _opened(path_node, source) as file:
        file.seek(0, 2)
        num_bytes = file.tell()
        file.seek(0)
        free = free_bytes()
        if free is not None and num_bytes > free:
            expected = f"at most {size_text(free)}, the free memory"
            path_node.fail(expected, f"a file of {size_text(num_bytes)}")
        if suffix in RAW_SUFFIXES:
            return _raw_values(node, path_node, file.read(num_bytes))
        return _npy_values(path_node, file)


def _opened(node: Node, source: SourceFolder) -> BinaryIO:
    """Open a file of a model, in the model's folder or the current one."""
    outside = reason = None
    for folder in (source.folder, Path()):
        try:
            return open_inside(source.folder, folder / node.text(), allow_outside=source.allow_outside)
        except OutsideError as error:
            # The current folder is only a second guess, worth a message if it has such a file.
            if outside is None and (folder is source.folder or os.path.lexists(error.place)):
                outside = error.place
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:  # ValueError: no file can have the name
            reason = (error.strerror if isinstance(error, OSError) else None) or error
    if reason is not None:
        node.fail(f"a file that can be read ({reason})")
    if outside is not None:
        node.fail(f"a file in {source.folder} (--allow-outside lifts that)", f"a path to {outside}")
    node.fail(f"a file in {source.folder}")


def _npy_values(node: Node, file: BinaryIO) -> np.ndarray:
    try:
        array = read_npy(file)
    except ValueError as error:
        node.fail(f"a file that NumPy can read ({error})")
    if array.size == 0:
        node.fail("a file with at least one element", "empty")
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    if not isinstance(element_type_of(native.dtype), DataType):
        node.fail("a file of a dtype that DirectML supports", f"of dtype {array.dtype}")
    return np.ascontiguousarray(native)


def _raw_values(node: Node, path_node: Node, data: bytes) -> np.ndarray:
    kind_node = node.need("initialValuesDataType", "the name of a data type")
    dtype = _element(kind_node, read_enum(kind_node, DataType))
    if not data or len(data) % dtype.itemsize:
        path_node.fail(f"a file of a multiple of {dtype.itemsize} bytes", f"of {len(data)} bytes")
    return np.frombuffer(data, dtype)
