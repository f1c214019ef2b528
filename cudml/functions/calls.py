"""How array functions run: cache of planned calls, keyed by layouts and the other arguments."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cudml.devices import Array, Device, Layout, Program, get_device, take_operand
from cudml.dtypes import ElementType
from cudml.executable import MAX_GOOD, Executable, Planner, Recent
from cudml.functions.arguments import Arguments, all_on_device, on_stream, wrong_argument
from cudml.functions.transfer import assign
from cudml.overlap import Box, box_of, overlaps
from cudml.tensors import TensorDesc, num_elements

#: Planned calls that each array function keeps.
MAX_CALLS = 1024

#: No kernel needs more of an address than this many bytes.
_MAX_ALIGNMENT = 8

#: Returns where an array is: `Device.address_and_layout`.
_PlaceOf = Callable[[Any], tuple[int, Layout]]

#: Types of arrays that are remembered.
_MAX_TYPES = 256


class _Places(Recent[type, _PlaceOf | None]):
    """Array type -> the function that returns where such an array is, or None for arrays of no device."""

    def __missing__(self, kind: type) -> _PlaceOf | None:
        place_of: _PlaceOf | None = None
        if issubclass(kind, np.ndarray):
            place_of = get_device("cpu").address_and_layout
        elif any((base.__module__, base.__qualname__) == ("cupy", "ndarray") for base in kind.__mro__):
            place_of = get_device("cuda").address_and_layout
        self[kind] = place_of
        return place_of


_places = _Places(_MAX_TYPES)


@dataclass(frozen=True)
class Argument:
    """An array of a call: its name, its member of the descriptor, and its properties there.

    An input is broadcast to `shape`. `sizes` is the shape in the descriptor, which the operand's shape
    broadcasts to. An `array` of None is an output that the call makes. `alignment` is the alignment that the
    kernels require of the address. If there is an `operand_shape`, the operand is a packed array of that
    shape: a view, or if `is_copied` a separate array.
    """

    name: str
    member: str
    kind: ElementType
    array: Array | None
    shape: tuple[int, ...]
    dtype: Any
    sizes: tuple[int, ...]
    alignment: int
    operand_shape: tuple[int, ...] | None
    is_copied: bool

    @staticmethod
    def input(
        name: str,
        member: str,
        kind: ElementType,
        array: Array,
        sizes: tuple[int, ...] | None = None,
        *,
        shape: tuple[int, ...] | None = None,
        operand_shape: tuple[int, ...] | None = None,
        any_address: bool = False,
    ) -> "Argument":
        """An array that is read; `any_address` if the kernels take it at any address."""
        shape, dtype = shape or tuple(array.shape), array.dtype
        alignment = 1 if any_address else min(dtype.itemsize, _MAX_ALIGNMENT)
        is_view = array.flags.c_contiguous and shape == array.shape and 0 not in shape
        is_copied = operand_shape is not None and not is_view
        sizes = operand_shape or sizes or shape
        return Argument(name, member, kind, array, shape, dtype, sizes, alignment, operand_shape, is_copied)

    @staticmethod
    def output(
        name: str,
        member: str,
        kind: ElementType,
        array: Array | None,
        shape: tuple[int, ...],
        dtype: Any,
        sizes: tuple[int, ...] | None = None,
        *,
        operand_shape: tuple[int, ...] | None = None,
        any_address: bool = False,
    ) -> "Argument":
        """An array that is written; None if the call makes it."""
        alignment = 1 if any_address else min(dtype.itemsize, _MAX_ALIGNMENT)
        is_copied = operand_shape is not None and array is not None and not array.flags.c_contiguous
        sizes = operand_shape or sizes or shape
        return Argument(name, member, kind, array, shape, dtype, sizes, alignment, operand_shape, is_copied)

    @property
    def tensor(self) -> TensorDesc:
        """The layout of the operand, with strides in elements; packed if it does not exist yet."""
        sizes, operand = self.sizes or (1,), self.array
        if operand is None or self.operand_shape is not None:
            return TensorDesc(self.kind, sizes)
        item_bytes = operand.dtype.itemsize
        shape = operand.shape
        leading = (0,) * (len(sizes) - len(shape))
        own = zip(sizes[len(leading) :], shape, operand.strides, strict=False)
        # The stride of a dimension of size 1 may be anything.
        strides = leading + tuple(
            step // item_bytes if size == n and step % item_bytes == 0 else 0 for size, n, step in own
        )
        tensor = TensorDesc(self.kind, sizes, strides if shape else (0,) * len(sizes))
        return TensorDesc(self.kind, sizes) if tensor.is_packed else tensor


@dataclass(frozen=True)
class Request:
    """Checked arguments: the arrays, and the options that make the descriptor together with their tensors.

    Nothing is computed if every output is empty, or if `is_zero`, which sets the outputs to 0.
    """

    inputs: Sequence[Argument]
    outputs: Sequence[Argument]
    options: tuple[Any, ...]
    is_zero: bool = False

    @property
    def computes(self) -> bool:
        """Whether there is work for kernels."""
        return not self.is_zero and any(0 not in output.shape for output in self.outputs)

    def without_arrays(self) -> "Request":
        """The same request without its arrays."""
        inputs, outputs = ([replace(a, array=None) for a in of] for of in (self.inputs, self.outputs))
        return replace(self, inputs=inputs, outputs=outputs)


class Call:
    """An array function planned for arrays of certain layouts, ready to run.

    Attributes
    ----------
    has_place : bool
        Whether `run` takes a place within the arrays, on which plans do not depend.

    Parameters
    ----------
    function : ArrayFunction
        The function that is called.
    device : Device
        The device of all the arrays.
    request : Request
        The checked arguments.
    """

    has_place = False

    def __init__(self, function: "ArrayFunction", device: Device, request: Request) -> None:
        self.device = device
        self.request = request.without_arrays()  # because the cache must not keep them alive
        arguments = (*request.inputs, *request.outputs)
        given = [a for a in arguments if a.array is not None]
        self._masks = tuple(0 if a.is_copied else a.alignment - 1 for a in given)
        self.first_mask = self._masks[0]
        self._boxes = [_box(a.array) for a in given] if len(given) > len(request.inputs) else []
        self._is_written = [number >= len(request.inputs) for number in range(len(given))]
        self._good: Recent[tuple[int, ...], bool] = Recent(MAX_GOOD)
        self._make_outputs = device.allocator([(a.shape, a.dtype) for a in request.outputs])
        is_converted = request.computes and any(a.operand_shape is not None for a in arguments)
        # Operands need not be arrays.
        self.takes_operands = not is_converted
        self.run = self._convert_and_compute if is_converted else self.compute
        self._launch: Program = launch_nothing
        if request.is_zero:
            self._launch = self._fill_with_zero
        if request.computes:
            self._load(function, {a.member: a.tensor for a in arguments})

    def _load(self, function: "ArrayFunction", tensors: dict[str, TensorDesc]) -> None:
        """Prepare the program that `compute` launches on such operands."""
        desc = function.describe(tensors, *self.request.options)
        executable = Executable(function.plan, desc, self.device)
        if executable.plan.operands != tuple(tensors):
            raise ValueError(f"{function.name}: arrays {tuple(tensors)} of {executable.plan}")
        self._launch = executable.run

    def takes(self, addresses: tuple[int, ...]) -> bool:
        """Whether arrays of the planned layouts may be at these addresses."""
        if addresses in self._good:
            return True
        if any(address & mask for address, mask in zip(addresses, self._masks, strict=True)):
            return False
        if self._boxes and next(overlaps(self._boxes, addresses, self._is_written), None) is not None:
            return False
        self._good[addresses] = True
        return True

    def compute(
        self, inputs: Sequence[Array], outputs: Sequence[Array], place: Any = None
    ) -> Sequence[Array]:
        """Compute output operands from input operands; makes the outputs if none are given."""
        if not outputs:
            outputs = self._make_outputs()
        self._launch((*inputs, *outputs), None)
        return outputs

    def _convert_and_compute(
        self, inputs: Sequence[Array], outputs: Sequence[Array], place: Any = None
    ) -> Sequence[Array]:
        """`compute` by way of packed arrays, which live as long as the outputs if a graph is captured."""
        request = self.request
        with self.device.on_stream(None):
            results = outputs or self._make_outputs()
            operands = [
                self._operand(number, row, array, results)
                for number, (row, array) in enumerate(
                    zip((*request.inputs, *request.outputs), (*inputs, *results), strict=True), 1
                )
            ]
            count = len(inputs)
            for row, array, operand in zip(request.inputs, inputs, operands, strict=False):
                if row.is_copied and 0 in row.shape:  # in place of no elements: one that is 0
                    assign(operand, 0)
                elif row.is_copied:
                    assign(operand.reshape(row.shape), array)
            self.compute(operands[:count], operands[count:], place)
            for row, array, operand in zip(request.outputs, results, operands[count:], strict=True):
                if row.is_copied:
                    assign(array, operand.reshape(row.shape))
        return results

    def _operand(self, part: int, row: Argument, array: Array, outputs: Sequence[Array]) -> Array:
        """What the kernels take of an array, not filled yet if it is a copy."""
        if row.operand_shape is None:
            return array
        if not row.is_copied:
            return array.reshape(row.operand_shape)
        num_bytes = num_elements(row.operand_shape) * row.dtype.itemsize
        memory = self.device.scratch(num_bytes, outputs, part=part)
        return memory.view(row.dtype).reshape(row.operand_shape)

    def _fill_with_zero(
        self, operands: Sequence[Array], workspace: Array | None, stream: Any = None, shift: int = 0
    ) -> None:
        for output in operands[len(self.request.inputs) :]:
            assign(output, 0)


def launch_nothing(
    operands: Sequence[Array], workspace: Array | None, stream: Any = None, shift: int = 0
) -> None:
    """The program of a call that has nothing to compute."""


@dataclass(frozen=True)
class ArrayFunction:
    """An array function: its planned calls, and how to plan others.

    Attributes
    ----------
    name : str
        Its name in messages.
    input_names, output_names : tuple of str
        The arguments that are arrays.
    check : callable
        Takes `Arguments`, the options of the call, and `run`'s place if the call has one; raises, or returns
        the `Request`.
    describe : callable
        Takes the tensors of the operands by member and the options of the request; returns what to plan.
    plan : Planner
        Plans what `describe` returns.
    lengths_axes : (int, int)
        The range of axes of the first argument to which a single number as `sequence_lengths` applies.
    call : type of Call
        The class of the cached calls.
    """

    name: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    check: Callable[..., Request]
    describe: Callable[..., Hashable]
    plan: Planner
    lengths_axes: tuple[int, int] = (0, 0)
    call: type[Call] = Call
    calls: Recent[Hashable, Call] = field(default_factory=lambda: Recent(MAX_CALLS))

    def outputs_for(
        self, inputs: dict[str, tuple[tuple[int, ...], Any]], options: Sequence[Any]
    ) -> list[tuple[tuple[int, ...], Any]]:
        """The outputs' shapes and dtypes for such inputs, by name; raises what the call would raise."""
        arrays = {
            name: np.broadcast_to(np.zeros((), dtype), shape) for name, (shape, dtype) in inputs.items()
        }
        given = all_on_device(self.name, arrays, {}, slice(*self.lengths_axes))
        return [(output.shape, output.dtype) for output in self.check(given, *options).outputs]

    def find(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        options: Any,
        stream: Any = None,
        names: tuple[str, ...] = (),
    ) -> "Call | Shared | Unplanned":
        """Find the planned call for these arguments, or one that normalises and plans first.

        Parameters
        ----------
        inputs, outputs : sequence
            The arrays, or objects that can be converted, in the order of their names. Without outputs, the
            call makes them.
        options : tuple or list
            The other arguments of `check` that plans depend on. A list is never found; it is for options of
            other types than a plan's, so that 2.0 does not find the call planned for 2.
        stream : optional
            The functions' own argument.
        names : tuple of str, optional
            The names of `inputs` if some were left out, which the options then show.
        """
        try:
            if stream is not None:
                pass
            elif len(inputs) == 1 and not outputs:  # by far the most frequent case, so it has a fast path
                place_of = _places[type(inputs[0])]
                if place_of is not None:
                    address, layout = place_of(inputs[0])
                    call = self.calls.get((options, layout))
                    if call is not None and not address & call.first_mask:
                        return call
                elif (operand := take_operand(inputs[0])) is not None:
                    call = self.calls.get((options, operand.layout))
                    if call is not None and call.takes_operands and not operand.ptr & call.first_mask:
                        return Shared(call, (operand,), {operand.ptr: operand})
            elif (found := self._find(inputs, outputs, options)) is not None:
                return found
        except TypeError:  # something unhashable, or a masked array
            pass
        return Unplanned(self, options, stream, names or self.input_names)

    def _find(self, inputs: Sequence[Any], outputs: Sequence[Any], options: Any) -> "Call | Shared | None":
        """The planned call of any number of arrays."""
        addresses: list[int] = []
        layouts: list[Any] = [options]
        given, shared = [*inputs], {}
        for number, array in enumerate((*inputs, *outputs)):
            place_of = _places[type(array)]
            if place_of is not None:
                address, layout = place_of(array)
            elif number < len(inputs) and (operand := take_operand(array)) is not None:
                address, layout = operand.ptr, operand.layout
                given[number] = operand
                shared[operand.ptr] = operand
            else:
                return None
            addresses.append(address)
            layouts.append(layout)
        call = self.calls.get(tuple(layouts))
        if call is None or not call.takes(tuple(addresses)):
            return None
        if not shared:
            return call
        return Shared(call, given, shared) if call.takes_operands else None


class Shared:
    """A planned call some of whose inputs are operands in memory of other libraries."""

    __slots__ = ("_call", "_inputs", "_shared")

    def __init__(self, call: Call, inputs: Sequence[Any], shared: dict[int, Any]) -> None:
        self._call, self._inputs, self._shared = call, inputs, shared

    def run(self, inputs: Sequence[Any], outputs: Sequence[Array], place: Any = None) -> Sequence[Array]:
        """As `Call.run`, with the operands instead of the given inputs."""
        results = self._call.run(self._inputs, outputs, place)
        self._call.device.hold(self._shared)
        return results


@dataclass(frozen=True)
class Unplanned:
    """A call that was not planned for arrays like these: `run` normalises them, and plans if necessary."""

    function: ArrayFunction
    options: Any
    stream: Any
    names: tuple[str, ...]

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any], place: Any = None) -> Sequence[Array]:
        """As `Call.run`, with objects that can be converted to arrays."""
        function = self.function
        named_inputs = dict(zip(self.names, inputs, strict=True))
        named_outputs = dict(zip(function.output_names, outputs, strict=False))
        with on_stream(function.name, inputs[0], self.stream):
            axes = slice(*function.lengths_axes)
            given = all_on_device(function.name, named_inputs, named_outputs, axes)
            with given.device.sharing(given.shared):
                own = [given.arrays[name] for name in named_inputs]
                outs = [given.arrays[name] for name in named_outputs]
                results = self._run_plain(given, own, outs, place)
                if given.made and not outputs:
                    given.device.retain_for_graph(given.made, results)
        return outputs or results

    def _run_plain(
        self, given: Arguments, inputs: Sequence[Array], outputs: Sequence[Array], place: Any
    ) -> Sequence[Array]:
        key, addresses = self._key(given)
        call = None if key is None else self.function.calls.get(key)
        if call is not None and call.takes(addresses):
            return call.run(inputs, outputs, place)
        function, device = self.function, given.device
        request = function.check(given, *self.options, *((place,) if function.call.has_place else ()))
        arguments = [a for a in (*request.inputs, *request.outputs) if a.array is not None]
        if outputs:
            check_overlap(function.name, device, arguments, len(request.inputs))
        request = replace(
            request,
            inputs=[_aligned(function.name, device, a) for a in request.inputs],
            outputs=[_aligned(function.name, device, a) for a in request.outputs],
        )
        call = function.call(function, device, request)
        if key is not None:
            function.calls[key] = call
        return call.run(inputs, outputs, place)

    def _key(self, given: Arguments) -> tuple[Hashable, tuple[int, ...]]:
        """The key of plain arrays, and their addresses; the key is None if they cannot have one."""
        arrays = given.arrays.values()
        try:
            hash(self.options)
            places = [given.device.address_and_layout(array) for array in arrays]
        except TypeError:
            return None, ()
        key: Hashable = (self.options, *(layout for _, layout in places))
        addresses = tuple(address for address, _ in places)
        masks = [min(array.dtype.itemsize, _MAX_ALIGNMENT) - 1 for array in arrays]
        unaligned = tuple(bool(place & mask) for place, mask in zip(addresses, masks, strict=True))
        return ((key, unaligned) if any(unaligned) else key), addresses


def _box(array: Array) -> Box:
    """The bytes that the array addresses, relative to its address."""
    return box_of(0, array.shape, array.strides, array.dtype.itemsize)


def check_overlap(function: str, device: Device, arguments: Sequence[Argument], num_inputs: int) -> None:
    """Raise ValueError if an output shares memory with another argument; the inputs come first."""
    arrays = [argument.array for argument in arguments]
    boxes, addresses = [_box(array) for array in arrays], [device.address(array) for array in arrays]
    is_written = [number >= num_inputs for number in range(len(arrays))]
    for earlier, later in overlaps(boxes, addresses, is_written):
        other, out = arguments[earlier].name, arguments[later].name
        raise ValueError(wrong_argument(function, out, f"overlapping {other}", "in memory of its own"))


def _aligned(function: str, device: Device, argument: Argument) -> Argument:
    """The argument, through a packed array if its elements are not aligned as kernels require.

    Raises
    ------
    ValueError
        It is in a GPU's memory, where CuPy could not copy it either.
    """
    array = argument.array
    if array is None or argument.is_copied:
        return argument
    item_bytes = array.dtype.itemsize
    is_regular = all(
        stride % item_bytes == 0 for size, stride in zip(array.shape, array.strides, strict=True) if size > 1
    )
    if is_regular and device.address(array) % argument.alignment == 0:
        return argument
    if device.name != "cpu":
        got = f"at address {device.address(array):#x} with strides {array.strides}"
        expected = f"at multiples of {argument.alignment} bytes"
        raise ValueError(wrong_argument(function, argument.name, got, expected))
    return replace(argument, operand_shape=argument.operand_shape or argument.shape, is_copied=True)
