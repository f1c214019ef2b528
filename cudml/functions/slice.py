"""The array function `slice`."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, ClassVar, overload

import numpy as np

from cudml.checks import MAX_DIMENSIONS
from cudml.devices import Array, Device, Program
from cudml.executable import load
from cudml.functions.arguments import (
    Argument,
    Arguments,
    Errors,
    Request,
    as_integers,
    bits_of,
    check_order,
    check_output,
    raise_all,
    wrong_argument,
)
from cudml.functions.array_types import ForeignArray, Integers, NumPyArray, Scalar
from cudml.functions.calls import ArrayFunction, Call, launch_nothing
from cudml.functions.words import SLICE, hiding_words, no_argument
from cudml.operators.index_space import MAX_ITEM_BYTES, dimensions_of, merged, without_ones
from cudml.operators.slice import operator as _operator
from cudml.plans import Limits
from cudml.tensors import TensorDesc, packed_strides

#: The bits of a shift that affect the alignment of items.
_ALIGNMENT_BITS = MAX_ITEM_BYTES - 1

#: Collections that are known to be ordered.
_SEQUENCES = (tuple, list, type(None))


@overload
def slice(
    a: NumPyArray[Scalar],
    offsets: Integers,
    sizes: Integers,
    strides: Integers | None = None,
    *,
    out: NumPyArray[Scalar] | None = None,
    stream: None = None,
) -> NumPyArray[Scalar]: ...
@overload
def slice(
    a: ForeignArray,
    offsets: Integers,
    sizes: Integers,
    strides: Integers | None = None,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any: ...
@hiding_words
def slice(
    a: Any,
    offsets: Any,
    sizes: Any,
    strides: Any = None,
    *,
    out: Any = None,
    stream: Any = None,
    **words: Any,
) -> Any:
    """A strided box of an array: `y[c] = a[offsets + strides * c]` for every c below `sizes`.

    Parameters
    ----------
    a : array
        Of any dtype of 1, 2, 4, 8 or 16 bytes without objects; any strides. Arrays in GPU memory (CuPy's, or
        any that share it) are processed by that GPU, arrays in CPU memory (NumPy's, or any that share it) by
        the CPU emulator.
    offsets : sequence of int
        First element to take in each dimension; 0 or more. Where `sizes` is 0, the offset may be the size of
        the dimension.
    sizes : sequence of int
        Number of elements to take in each dimension: the shape of the result. May be 0.
    strides : sequence of int, optional
        Distance between taken elements, not 0; negative values go backwards. None means 1 everywhere.
    out : array, optional
        Array to write the result to, of exactly its shape and dtype and any strides, not overlapping `a`.
    stream : optional
        Orders the work, the results and the scratch memory: a CuPy stream, an object with `__cuda_stream__`,
        or an integer handle, on the GPU of `a`. None means CuPy's current stream, and is the only choice on
        a CPU.

    Returns
    -------
    array
        A new array (never a view) of shape `sizes` and the dtype of `a`, or `out`.

    Raises
    ------
    ValueError
        An element outside of `a`, a stride of 0, arguments whose length is not the number of dimensions, or
        an `out` of another shape, read-only or overlapping.
    TypeError
        Not an array, an unsupported dtype, mixed devices, a set or a mapping instead of a sequence, an `out`
        of another dtype, or not a stream.

    Examples
    --------
    >>> import numpy as np, cudml
    >>> a = np.arange(16).reshape(4, 4)
    >>> cudml.slice(a, (1, 0), (2, 2), (2, 3)).tolist()
    [[4, 7], [12, 15]]
    >>> cudml.slice(a, (0, 3), (1, 4), (1, -1)).tolist()
    [[3, 2, 1, 0]]

    Notes
    -----
    Source: SLICE of DirectML's documentation; negative strides are those of SLICE1, but the offset is the
    first element taken. A box of more than 8 dimensions, counting mergeable neighbours as one, is copied in
    several launches.
    """
    if words:
        raise no_argument(slice, next(iter(words)), SLICE)
    try:
        if (
            type(offsets) not in _SEQUENCES
            or type(sizes) not in _SEQUENCES
            or type(strides) not in _SEQUENCES
        ):
            for values in (offsets, sizes, strides):
                check_order(values)
        # Integers, so that 1.0 does not find the call planned for 1.
        offsets = (*map(index, offsets),)
        options: Any = (
            (*map(index, sizes),),
            None if strides is None else (*map(index, strides),),
        )
    except TypeError:
        options = [sizes, strides]  # the check raises the error
    inputs, outputs = (a,), () if out is None else (out,)
    call = _slice.find(inputs, outputs, options, stream)
    if call is None:
        return _slice.plan_and_run(inputs, outputs, options, stream, offsets)[0]
    return call.run(inputs, outputs, stream, offsets)[0]


def _bounds(
    function: str, array: Array, offsets: Sequence[int], sizes: Sequence[int], strides: Sequence[int]
) -> list[tuple[int, int, int, int]]:
    """Each dimension, the least and the largest offset of a box in it, and its stride in bytes.

    Raises what `_check_box` does.
    """
    bounds: list[tuple[int, int, int, int]] = []
    for n, step, offset, size, stride in zip(
        array.shape, array.strides, offsets, sizes, strides, strict=True
    ):
        reach = (size - 1) * stride
        if not size:
            least, largest = 0, n  # the end of the dimension, as in NumPy's a[n:n]
        elif reach < 0:
            least, largest = -reach, n - 1
        else:
            least, largest = 0, n - 1 - reach
        if size < 0 or not stride or not least <= offset <= largest:
            _check_box(function, array.shape, offsets, sizes, strides)
        bounds.append((len(bounds), least, largest, step))
    return bounds


def _check_box(
    function: str, shape: Sequence[int], offsets: Sequence[int], sizes: Sequence[int], strides: Sequence[int]
) -> None:
    """Raise ValueError, listing all problems, unless every element of a box lies in an array of a shape."""
    errors: list[Exception] = []

    def add(argument: str, got: object, expected: str) -> None:
        errors.append(ValueError(wrong_argument(function, argument, got, expected)))

    for i, n in enumerate(shape):
        offset, size, stride = offsets[i], sizes[i], strides[i]
        before = len(errors)
        if size < 0:
            add(f"sizes[{i}]", size, "0 or more")
        elif size and not n:
            add(f"sizes[{i}]", size, f"0, because dimension {i} is empty")
        if stride == 0:
            add(f"strides[{i}]", 0, "any integer but 0")
        largest = n - 1 if size and n else n
        if not 0 <= offset <= largest:
            expected = f"from 0 to {largest}, {'an element' if largest < n else 'a place'} of dimension {i}"
            add(f"offsets[{i}]", offset, expected)
        last = offset + (size - 1) * stride
        if len(errors) == before and size and not 0 <= last < n:
            got = f"{last} = {offset} + ({size} - 1) * {stride}"
            add(f"the last element of dimension {i}", got, f"from 0 to {n - 1}")
    raise_all(function, errors)


class _Copies:
    """The program that copies a box at any shift of the pointer.

    The fastest kernel depends on the alignment of the shift, so there is a program for each alignment that
    has occurred. A loop over `loop_axes` covers the dimensions beyond a kernel's maximum.
    """

    def __init__(self, desc: _operator.SliceDesc, device: Device, limits: Limits) -> None:
        self.loop_axes = axes = _axes_to_loop_over(desc)
        self.launches: dict[int, Program] = {}
        self._whole, self._device, self._limits = desc, device, limits
        self._desc = _without_axes(desc, axes) if axes or not desc.sizes else desc

    def load(self, alignment: int) -> Program:
        """Load the program for a first element of this alignment; the pointer moves by the rest."""
        first = alignment // self._desc.input_tensor.element.size
        _, launch = load(_operator.plan, self._desc, self._device, (first,), self._limits)
        self.launches[alignment] = launch
        return launch

    def __call__(
        self, operands: Sequence[Array], workspace: Array | None, stream: Any = None, shift: int = 0
    ) -> None:
        """Copy the box of the other axes for each place along those of the loop."""
        source, target = operands
        steps = [self._whole.strides[axis] * source.strides[axis] for axis in self.loop_axes]
        for place in np.ndindex(*(self._whole.sizes[axis] for axis in self.loop_axes)):
            at = dict(zip(self.loop_axes, place, strict=True))
            filled = target[tuple(at.get(axis, np.s_[:]) for axis in range(target.ndim))]
            moved = shift + sum(i * step for i, step in zip(place, steps, strict=True))
            alignment = moved & -moved & _ALIGNMENT_BITS
            launch = self.launches.get(alignment) or self.load(alignment)
            launch((source, filled), None, stream, moved - alignment)


@dataclass(eq=False)
class _SliceCall(Call):
    """A call for boxes of one size at any offset, which only shifts the pointer."""

    has_place: ClassVar[bool] = True

    def __post_init__(self) -> None:
        # A copy is several launches if it loops.
        loop_axes = self.launch.loop_axes if isinstance(self.launch, _Copies) else ()
        self.takes_operands = not (self.packed or loop_axes)
        self._bounds, self._shape, self._sizes, self._strides = self.places
        if self.packed and self.packed[0].is_copied:  # from an unaligned array to a packed one
            steps = [step * self.packed[0].dtype.itemsize for step in packed_strides(self._shape)]
            self._bounds = [(*bounds[:3], steps[bounds[0]]) for bounds in self._bounds]
        # The checked offsets of the last call that took no packed arrays, with their program and shift.
        self._last: tuple[Any, Program, int] = (None, launch_nothing, 0)

    def run(
        self, inputs: Sequence[Array], outputs: Sequence[Array], stream: Any = None, place: Any = None
    ) -> Sequence[Array]:
        if stream is not None and not (outputs and self.takes_operands):
            with self.device.on_stream(stream):
                return self.run(inputs, outputs, None, place)
        offsets, launch, shift = self._last
        if offsets != place:
            if self.packed:
                return self._run_packed(inputs, outputs, place)
            _, launch, shift = self._last = self._at(place)
        if not outputs:
            outputs = self.make_outputs()
        launch((inputs[0], outputs[0]), None, stream, shift)
        return outputs

    def _launch_at(self, place: Any, operands: Sequence[Array]) -> None:
        _, launch, shift = self._at(place)
        launch(operands, None, None, shift)

    def _at(self, offsets: Any) -> tuple[Any, Program, int]:
        """The offsets, the program that copies the box there, and the shift of its pointer."""
        if len(offsets) != len(self._bounds):
            as_integers("slice", "offsets", offsets, len(self._bounds))
        shift = 0
        for axis, least, largest, step in self._bounds:
            offset = offsets[axis]  # with `zip`, a new offset takes 0.3 us more
            if not least <= offset <= largest:
                _check_box("slice", self._shape, offsets, self._sizes, self._strides)
            shift += offset * step
        launch = self.launch
        if not isinstance(launch, _Copies) or launch.loop_axes:
            return offsets, launch, shift
        alignment = shift & -shift & _ALIGNMENT_BITS
        return offsets, launch.launches.get(alignment) or launch.load(alignment), shift - alignment


class _Slice(ArrayFunction):
    """The array function."""

    name, input_names, output_names = "slice", ("a",), ("out",)
    descriptor = _operator.SliceDesc
    call = _SliceCall

    def check(self, given: Arguments, sizes: Any, strides: Any, offsets: Any) -> Request:
        array, out = given.arrays["a"], given.arrays.get("out")
        named = {
            "offsets": offsets,
            "sizes": sizes,
            "strides": (1,) * array.ndim if strides is None else strides,
        }
        numbers: dict[str, tuple[int, ...]] = {}
        kind: Any = None
        bounds: Any = None
        errors = Errors()
        with errors:
            kind = bits_of(self.name, "a", array)
        for name, values in named.items():
            with errors:
                numbers[name] = as_integers(self.name, name, values, array.ndim)
        with errors:
            if len(numbers) == len(named):
                bounds = _bounds(self.name, array, **numbers)
        with errors:
            if out is not None and "sizes" in numbers:
                check_output(self.name, "out", out, numbers["sizes"], array.dtype)
        raise_all(self.name, errors)
        sizes, strides, dtype = numbers["sizes"], numbers["strides"], array.dtype
        source = Argument("a", "input_tensor", kind, array, array.shape, dtype, any_address=True)
        target = Argument("out", "output_tensor", kind, out, sizes, dtype, any_address=True)
        members = {"offsets": (0,) * array.ndim, "sizes": sizes, "strides": strides}
        places = (bounds, array.shape, sizes, strides)
        return Request([source], [target], members, has_parts=True, places=places)

    def load_parts(
        self, desc: Any, options: tuple[Any, ...], device: Device, limits: Limits
    ) -> tuple[None, _Copies]:
        """A program that loads another program for each alignment of an offset that occurs."""
        return None, _Copies(desc, device, limits)


def _without_axes(desc: _operator.SliceDesc, axes: Sequence[int]) -> _operator.SliceDesc:
    """The box without some axes."""

    def kept(numbers: Sequence[int]) -> tuple[int, ...]:
        # 0-d arrays have one element, like 1-D arrays of size 1.
        return tuple([number for axis, number in enumerate(numbers) if axis not in axes]) or (1,)

    source, target = (
        TensorDesc(tensor.data_type, kept(tensor.sizes), kept(tensor.element_strides))
        for tensor in (desc.input_tensor, desc.output_tensor)
    )
    return _operator.SliceDesc(source, target, kept(desc.offsets), kept(desc.sizes), kept(desc.strides))


def _axes_to_loop_over(desc: _operator.SliceDesc) -> tuple[int, ...]:
    """The axes of a box to leave to a loop, so that the kernels can take the others."""
    axes: tuple[int, ...] = ()
    if len(desc.strides) <= MAX_DIMENSIONS:
        return axes
    source, target = desc.input_tensor, desc.output_tensor
    steps = [step * stride for step, stride in zip(desc.strides, source.element_strides, strict=True)]
    dimensions = tuple(reversed(dimensions_of(target.sizes, steps, target.element_strides)))

    def num_merged(without: Sequence[int]) -> int:
        kept = [dimension for axis, dimension in enumerate(dimensions) if axis not in without]
        return len(merged(without_ones(reversed(kept))))

    while num_merged(axes) > MAX_DIMENSIONS:
        # Prefer few remaining dimensions, then few launches, then contiguous parts of memory.
        others = [axis for axis in range(len(desc.strides)) if axis not in axes]
        best = min(others, key=lambda axis: (num_merged((*axes, axis)), target.sizes[axis], axis))
        axes = (*axes, best)
    return axes


_slice = _Slice()
