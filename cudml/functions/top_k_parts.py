"""Top-k along an axis that is longer than a kernel's row: of each part, then of the results of all parts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from cudml.devices import Array, Device, Program
from cudml.enums import DataType
from cudml.executable import load
from cudml.functions.arguments import wrong_argument
from cudml.functions.transfer import assign
from cudml.operators.top_k import operator as _operator
from cudml.operators.top_k.rows import LENGTHS
from cudml.plans import Limits
from cudml.tensors import TensorDesc, num_elements, packed_strides

_INDEX = np.dtype(np.int64)


#: The first scratch slot used here; the slots of arguments have greater numbers.
_FIRST_SCRATCH = -2


class _Part(NamedTuple):
    """A part's elements along the axis, the places of its results, and the program that selects them."""

    elements: slice
    results: slice
    launch: Program


def load_parts(
    desc: _operator.TopK1Desc,
    options: tuple[Any, ...],
    device: Device,
    limits: Limits,
    max_row_length: int,
) -> "PartedTopK":
    """Plan and load a top-k along an axis of more elements than a kernel's row, `max_row_length`.

    Raises ValueError if all parts together would have more results than a kernel's row.
    """
    sizes, axis = desc.input_tensor.sizes, desc.axis
    others = (*sizes[:axis], *sizes[axis + 1 :])
    # The parts have one length, except the last, and start at multiples of any vector length.
    length = (max_row_length + 1) // 2
    starts = range(0, sizes[axis], length)
    lengths = [min(length, starts.stop - start) for start in starts]
    counts = [min(desc.k, length) for length in lengths]
    num_found = sum(counts)
    if num_found > max_row_length:
        most = max(max_row_length // len(starts), (max_row_length - lengths[-1]) // (len(starts) - 1))
        expected = f"at most {most} for an axis of {starts.stop} elements"
        raise ValueError(wrong_argument("top_k", "k", desc.k, expected))

    def with_axis(numbers: tuple[int, ...], own: int) -> tuple[int, ...]:
        """The numbers of the other dimensions, with the axis's own number inserted."""
        return (*numbers[:axis], own, *numbers[axis:])

    def rows(kind: Any, length: int, room: int) -> TensorDesc:
        """The layout of scratch as `_along` returns it: contiguous rows, one every `room` elements."""
        *strides, step = packed_strides((*others, room))
        return TensorDesc(kind, with_axis(others, length), with_axis((*strides,), step))

    def loaded(source: TensorDesc, values: TensorDesc, indices: TensorDesc, k: int) -> Program:
        members: dict[str, Any] = {"input_tensor": source, "k": k}
        members |= {"output_value_tensor": values, "output_index_tensor": indices}
        if isinstance(desc, _operator.RaggedTopKDesc):
            members[LENGTHS] = rows(DataType.INT64, 1, 1)
        return load(_operator.plan, replace(desc, **members), device, options, limits)[1]

    kind, strides = desc.input_tensor.data_type, desc.input_tensor.element_strides
    parts: list[_Part] = []
    first = 0
    for start, length, num_own in zip(starts, lengths, counts, strict=True):
        source = TensorDesc(kind, with_axis(others, length), strides)
        values, indices = (rows(each, num_own, num_found + 1) for each in (kind, DataType.INT64))
        launch = loaded(source, values, indices, num_own)
        parts.append(_Part(slice(start, start + length), slice(first, first + num_own), launch))
        first += num_own
    found, places = rows(kind, num_found, num_found + 1), rows(DataType.INT64, desc.k, desc.k)
    merge = loaded(found, desc.output_value_tensor, places, desc.k)
    return PartedTopK(device, axis, others, desc.k, parts, merge)


@dataclass(eq=False)
class PartedTopK:
    """The program of a top-k along an axis of more elements than a kernel's row has, made by `load_parts`.

    The results of the parts stand in the order of the parts, so that of equal elements the lower index still
    comes first. Missing results of ragged rows follow all others, because only the last part of a row that
    has elements can have fewer than k.
    """

    _device: Device
    _axis: int
    #: Sizes of the other dimensions.
    _others: tuple[int, ...]
    _k: int
    _parts: Sequence[_Part]
    _merge: Program

    def _along(self, rows: Array) -> Array:
        """Rows along the last axis as rows along the axis."""
        return np.moveaxis(rows, -1, self._axis)

    def __call__(
        self, operands: Sequence[Array], workspace: Array | None, stream: Any = None, shift: int = 0
    ) -> None:
        """Compute the outputs from the inputs, on the current stream."""
        source, *lengths, values, indices = operands
        numbers = count(_FIRST_SCRATCH, -1)
        # One more result, with the index of a missing element.
        room = self._parts[-1].results.stop + 1

        def scratch(dtype: Any, length: int) -> Array:
            shape = (*self._others, length)
            num_bytes = num_elements(shape) * dtype.itemsize
            memory = self._device.scratch(num_bytes, (values, indices), part=next(numbers))
            return memory.view(dtype).reshape(shape)

        # No other array is made, because a captured graph would not keep its memory.
        with self._device.on_stream(None):
            found_values, found = scratch(source.dtype, room), scratch(_INDEX, room)
            places, taken = scratch(_INDEX, self._k), scratch(_INDEX, self._k)
            *part_lengths, found_lengths = self._lengths(lengths, scratch)
            for part, own_lengths in zip(self._parts, part_lengths, strict=True):
                elements = source[(np.s_[:],) * self._axis + (part.elements,)]
                results = [self._along(rows[..., part.results]) for rows in (found_values, found)]
                part.launch((elements, *own_lengths, *results), None)
                results[1] += part.elements.start
            found[..., -1] = -1
            merged = self._along(found_values[..., :-1])
            self._merge((merged, *found_lengths, values, self._along(places)), None)
            for row in np.ndindex(*self._others):
                found[row].take(places[row], out=taken[row])
            assign(indices, self._along(taken))

    def _lengths(
        self, lengths: Sequence[Array], scratch: Callable[[Any, int], Array]
    ) -> Sequence[Sequence[Array]]:
        """The lengths of the rows of each part, and of the rows of all results, if rows are ragged."""
        if not lengths:
            return [()] * (len(self._parts) + 1)
        kind = np.dtype(np.uint64 if lengths[0].dtype.kind == "u" else np.int64)
        kept, in_all, bounded = scratch(kind, 1), scratch(_INDEX, 1), scratch(_INDEX, 1)
        assign(self._along(kept), lengths[0])
        np.minimum(kept, kind.type(self._parts[-1].elements.stop), out=kept)
        kept = kept.view(_INDEX)
        in_all.fill(0)
        in_parts = []
        for part in self._parts:
            in_part = scratch(_INDEX, 1)
            np.subtract(kept, part.elements.start, out=in_part)
            np.clip(in_part, 0, part.results.stop - part.results.start, out=bounded)
            in_all += bounded
            in_parts.append((self._along(in_part),))
        return [*in_parts, (self._along(in_all),)]
