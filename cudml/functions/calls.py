"""How array functions run: cache of planned calls, keyed by layouts and the other arguments."""

import os
from collections.abc import Callable, Hashable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from operator import is_not
from typing import Any

import numpy as np

from cudml.devices import Array, Device, Layout, Program, get_device, operand_makers
from cudml.executable import MAX_GOOD, Planner, Recent, load
from cudml.functions.arguments import (
    MAX_ALIGNMENT,
    Argument,
    Arguments,
    Request,
    all_on_device,
    on_stream,
    wrong_argument,
)
from cudml.functions.transfer import assign
from cudml.overlap import Box, box_of, overlaps
from cudml.plans import Plan
from cudml.tensors import num_elements, tensor_of

#: Planned calls that each array function keeps.
MAX_CALLS = 1024

#: Returns where an array is: `Device.address_and_layout`.
_PlaceOf = Callable[[Any], tuple[int, Layout]]

#: The addresses and the layouts of arrays.
_Places = tuple[tuple[int, ...], tuple[Layout, ...]]

#: Types of arrays that are remembered.
_MAX_TYPES = 256


class _PlacesOf(Recent[type, _PlaceOf | None]):
    """Array type -> the function that returns where such an array is, or None for arrays of no device."""

    def __missing__(self, kind: type) -> _PlaceOf | None:
        place_of: _PlaceOf | None = None
        if issubclass(kind, np.ndarray):
            place_of = get_device("cpu").address_and_layout
        elif any((base.__module__, base.__qualname__) == ("cupy", "ndarray") for base in kind.__mro__):
            place_of = get_device("cuda").address_and_layout
        self[kind] = place_of
        return place_of


_places_of = _PlacesOf(_MAX_TYPES)

# A child has its parent's arrays on a GPU, but cannot use them: `get_device` says so when it is asked again.
os.register_at_fork(after_in_child=_places_of.clear)


class Call:
    """An array function planned for arrays of certain layouts, ready to run.

    Attributes
    ----------
    has_place : bool
        Whether `run` takes a place within the arrays, on which plans do not depend.
    takes_operands : bool
        Whether `run` and `run_on` take operands of the launched program that are not arrays.
    is_launch : bool
        Whether all that `run` does, if outputs are given, is to `launch` operands, inputs first.
    masks : tuple of int
        For each array that is given, the bits that its address must not have.
    launch : Program
        What `run` launches.
    plan : Plan or None
        What `launch` runs, if it is one plan; `temporary_bytes` are those of its workspace.

    Parameters
    ----------
    function : ArrayFunction
        The function that is called.
    key : hashable, optional
        The key under which the function keeps the call.
    device : Device
        The device of all the arrays.
    request : Request
        The checked arguments.
    rows : sequence of Argument
        Its inputs and outputs, those that are not aligned through packed arrays.
    boxes : sequence of Box
        The bytes that the arguments address, if outputs are given.
    """

    has_place = False

    def __init__(
        self,
        function: "ArrayFunction",
        key: Hashable,
        device: Device,
        request: Request,
        rows: Sequence[Argument],
        boxes: Sequence[Box],
    ) -> None:
        self.device = device
        self._num_inputs = len(request.inputs)
        # Masks for the arrays that are given, tensors for all.
        masks, made, tensors, converts = [], [], {}, False
        for row in rows:
            array = row.array
            if array is None:
                made.append((row.shape, row.dtype))
            else:
                masks.append(0 if row.is_copied else row.alignment - 1)
            if row.operand_shape is not None:
                array, converts = None, True
            tensors[row.member] = tensor_of(row.kind, row.sizes, array)
        is_empty = request.is_zero or not [output for output in request.outputs if 0 not in output.shape]
        self.masks = tuple(masks)
        self.first_mask = masks[0]
        self._make_outputs = device.allocator(made)
        self._boxes = boxes
        self._good: Recent[tuple[int, ...], bool] | None = None
        self.launch: Program = launch_nothing
        self.plan: Plan | None = None
        if request.is_zero:
            # No method of this call, whose cycle of references would outlive it until a garbage collection.
            self.launch = partial(_fill_with_zero, self._num_inputs)
        self.takes_operands = (is_empty or not converts) and not request.is_zero
        # Set if operands are packed arrays; without the arrays, because the cache must not keep them alive.
        self._rows: list[Argument] | None = None
        if converts and not is_empty:
            self._rows = [copy(row) for row in rows]
            for row in self._rows:
                row.array = None
        desc = None if is_empty else request.describe({**tensors, **request.members})
        if self.has_place:
            self._prepare(request, rows, desc)
        elif desc is not None:
            if request.load is None:
                self.plan, self.launch = load(function.plan, desc, device, request.options)
            else:
                self.plan, self.launch = request.load(desc, request.options, device)
            if self.plan is None:
                self.takes_operands = False
            elif self.plan.operands != (*tensors,):
                raise ValueError(f"{function.name}: arrays {tuple(tensors)} of {self.plan}")
        self.is_launch = self.takes_operands and not self.has_place
        if key is not None:
            function.calls[key] = self

    def _prepare(self, request: Request, rows: Sequence[Argument], desc: Any) -> None:
        """Prepare what `run` launches, if a call has a place; without a descriptor, nothing is computed."""

    def takes(self, addresses: tuple[int, ...]) -> bool:
        """Whether arrays of the planned layouts may be at these addresses."""
        good = self._good
        if good is None:
            good = self._good = Recent(MAX_GOOD)
        if addresses in good:
            return True
        if any(address & mask for address, mask in zip(addresses, self.masks, strict=True)):
            return False
        if self._boxes:
            is_written = [number >= self._num_inputs for number in range(len(self._boxes))]
            if next(overlaps(self._boxes, addresses, is_written), None) is not None:
                return False
        good[addresses] = True
        return True

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array], place: Any = None) -> Sequence[Array]:
        """Compute outputs from inputs; makes the outputs if none are given."""
        if self._rows:
            return self._run_packed(self._rows, inputs, outputs, place)
        if not outputs:
            outputs = self._make_outputs()
        self.launch((*inputs, *outputs), None)
        return outputs

    def run_on(
        self, stream: Any, inputs: Sequence[Array], outputs: Sequence[Array], place: Any = None
    ) -> Sequence[Array]:
        """`run` in the order of a stream of the device."""
        if outputs and self.takes_operands:
            self._launch_on(stream, place, (*inputs, *outputs))
            return outputs
        with self.device.on_stream(stream):
            return self.run(inputs, outputs, place)

    def _launch_on(self, stream: Any, place: Any, operands: Sequence[Array]) -> None:
        """Compute output operands from input operands, in the order of a stream, if operands are taken."""
        self.launch(operands, None, stream)

    def _launch_at(self, place: Any, operands: Sequence[Array]) -> None:
        """Compute output operands from input operands."""
        self.launch(operands, None)

    def _run_packed(
        self, rows: Sequence[Argument], inputs: Sequence[Array], outputs: Sequence[Array], place: Any
    ) -> Sequence[Array]:
        """`run` by way of packed arrays, which live as long as the outputs if a graph is captured."""
        count = self._num_inputs
        with self.device.on_stream(None):
            results = outputs or self._make_outputs()
            operands = [
                self._operand(number, row, array, results)
                for number, (row, array) in enumerate(zip(rows, (*inputs, *results), strict=True), 1)
            ]
            for row, array, operand in zip(rows, inputs, operands, strict=False):
                if row.is_copied and 0 in row.shape:  # in place of no elements: one that is 0
                    assign(operand, 0)
                elif row.is_copied:
                    assign(operand.reshape(row.shape), array)
            self._launch_at(place, operands)
            for row, array, operand in zip(rows[count:], results, operands[count:], strict=True):
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


def launch_nothing(
    operands: Sequence[Array], workspace: Array | None, stream: Any = None, shift: int = 0
) -> None:
    """The program of a call that has nothing to compute."""


def _fill_with_zero(
    num_inputs: int,
    operands: Sequence[Array],
    workspace: Array | None,
    stream: Any = None,
    shift: int = 0,
) -> None:
    """The program of a call whose outputs are 0, by the number of its inputs."""
    for output in operands[num_inputs:]:
        assign(output, 0)


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
    plan : Planner
        Plans the descriptor of a request.
    lengths_axes : slice
        The axes of the first argument to which a single number as lengths applies.
    call : type of Call
        The class of the cached calls.
    """

    name: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    check: Callable[..., Request]
    plan: Planner
    lengths_axes: slice = field(default_factory=lambda: slice(0))
    call: type[Call] = Call
    calls: Recent[Hashable, Call] = field(default_factory=lambda: Recent(MAX_CALLS))

    def outputs_for(
        self, inputs: dict[str, tuple[tuple[int, ...], Any]], options: Sequence[Any]
    ) -> list[tuple[tuple[int, ...], Any]]:
        """The outputs' shapes and dtypes for such inputs, by name; raises what the call would raise."""
        arrays = [np.broadcast_to(np.zeros((), dtype), shape) for shape, dtype in inputs.values()]
        given = all_on_device(self.name, [*inputs], arrays, lengths_axes=self.lengths_axes)
        return [(output.shape, output.dtype) for output in self.check(given, *options).outputs]

    def planned(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        options: Any,
        stream: Any = None,
        names: tuple[str, ...] = (),
    ) -> Call:
        """The call for arguments as of `find`, planned if it was not, for a caller that launches it itself.

        Raises what the call would raise.
        """
        return Unplanned(self, options, stream, names or self.input_names, None).planned(inputs, outputs)

    def find(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        options: Any,
        stream: Any = None,
        names: tuple[str, ...] = (),
    ) -> "Call | Held | Bound | Unplanned":
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
        places: _Places | None = None
        try:
            # By far the most frequent case, so it has a fast path.
            if stream is None and len(inputs) == 1 and not outputs:
                place_of = _places_of[type(inputs[0])]
                if place_of is not None:
                    address, layout = place_of(inputs[0])
                    call = self.calls.get((options, layout))
                    if call is not None and not address & call.first_mask:
                        return call
                    places = (address,), (layout,)
                elif operand_makers and (made := operand_makers[0](inputs[0], None, False)) is not None:
                    operand, held = made
                    call = self.calls.get((options, operand.layout))
                    if call is not None and call.takes_operands and not operand.ptr & call.first_mask:
                        if held is not None:
                            return Held(call, (operand,), held)
                        return Bound(call, (operand,), (), {operand.ptr: operand}, False, None)
            elif (found := self._find(inputs, outputs, options, stream, names)) is not None:
                return found
        except (TypeError, ValueError):  # something unhashable, a masked array, or not a stream
            pass
        return Unplanned(self, options, stream, names or self.input_names, places)

    def _find(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        options: Any,
        stream: Any,
        names: tuple[str, ...],
    ) -> "Call | Bound | Unplanned | None":
        """`find` for any number of arrays and any stream; None if some arrays have to be converted."""
        addresses: list[int] = []
        layouts: list[Any] = [options]
        given, count = [*inputs, *outputs], len(inputs)
        shared: dict[int, Any] = {}
        is_held = True
        for number, array in enumerate(given):
            place_of = _places_of[type(array)]
            if place_of is not None:
                address, layout = place_of(array)
            elif operand_makers and (made := operand_makers[0](array, stream, number >= count)) is not None:
                operand, held = made
                address, layout = operand.ptr, operand.layout
                given[number] = shared[address] = operand
                is_held = is_held and held is not None
            else:
                return None
            addresses.append(address)
            layouts.append(layout)
        at = tuple(addresses)
        call = self.calls.get(tuple(layouts))
        if call is None or not call.takes(at):
            places = None if shared else (at, tuple(layouts[1:]))
            return Unplanned(self, options, stream, names or self.input_names, places)
        if stream is not None:
            call.device.check_stream(stream)
        elif not shared:
            return call
        if shared and not call.takes_operands:
            return None
        return Bound(call, given[:count], given[count:], shared, is_held, stream)


class Held:
    """A planned call some of whose inputs are operands in memory of other libraries, for `Device.hold`."""

    __slots__ = ("_call", "_inputs", "_shared")

    def __init__(self, call: Call, inputs: Sequence[Any], shared: dict[int, Any]) -> None:
        self._call, self._inputs, self._shared = call, inputs, shared

    def run(self, inputs: Sequence[Any], outputs: Sequence[Array], place: Any = None) -> Sequence[Array]:
        """As `Call.run`, with the operands instead of the given inputs."""
        results = self._call.run(self._inputs, outputs, place)
        self._call.device.hold(self._shared)
        return results


class Bound:
    """A planned call with its stream, and with operands in memory of other libraries, by address.

    For these, `Device.hold` is enough if they are held, else they take `Device.order_after`.
    """

    __slots__ = ("_call", "_inputs", "_is_held", "_outputs", "_shared", "_stream")

    def __init__(
        self,
        call: Call,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        shared: dict[int, Any],
        is_held: bool,
        stream: Any,
    ) -> None:
        self._call, self._inputs, self._outputs = call, inputs, outputs
        self._shared, self._is_held, self._stream = shared, is_held, stream

    def run(self, inputs: Sequence[Any], outputs: Sequence[Array], place: Any = None) -> Sequence[Array]:
        """As `Call.run`, with the operands instead of the given arrays."""
        call, shared, stream = self._call, self._shared, self._stream
        try:
            if stream is None:
                results = call.run(self._inputs, self._outputs, place)
            else:
                results = call.run_on(stream, self._inputs, self._outputs, place)
        finally:
            if shared and self._is_held:
                call.device.hold(shared)
            elif shared:
                call.device.order_after(shared.values(), stream)
        return outputs or results


@dataclass(slots=True)
class Unplanned:
    """A call that was not planned for arrays like these: `run` normalises them, and plans if necessary."""

    function: ArrayFunction
    options: Any
    stream: Any
    names: tuple[str, ...]
    #: Where the arrays are, if none of them has to be converted.
    places: _Places | None

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any], place: Any = None) -> Sequence[Array]:
        """As `Call.run`, with objects that can be converted to arrays."""
        function = self.function
        if self.stream is not None:
            with on_stream(function.name, inputs[0], self.stream):
                return replace(self, stream=None).run(inputs, outputs, place)
        given = all_on_device(
            function.name, self.names, inputs, function.output_names, outputs, function.lengths_axes
        )
        device, arrays = given.device, [*given.arrays.values()]
        own, outs = arrays[: len(inputs)], arrays[len(inputs) :]
        with device.sharing(given.shared):
            results = self._call_for(given, arrays, (*inputs, *outputs), place).run(own, outs, place)
            if given.made and not outputs:
                device.retain_for_graph(given.made, results)
        return outputs or results

    def planned(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Call:
        """The call that `run` would run, which has no place."""
        function = self.function
        if self.stream is not None:
            with on_stream(function.name, inputs[0], self.stream):
                return replace(self, stream=None).planned(inputs, outputs)
        given = all_on_device(
            function.name, self.names, inputs, function.output_names, outputs, function.lengths_axes
        )
        with given.device.sharing(given.shared):
            return self._call_for(given, [*given.arrays.values()], (*inputs, *outputs), None)

    def _call_for(
        self, given: Arguments, arrays: Sequence[Array], originals: Sequence[Any], place: Any
    ) -> Call:
        """The call for arguments, some of which may be arrays made from the original ones."""
        calls, device = self.function.calls, given.device
        if self.places is None or any(map(is_not, arrays, originals)):
            addresses, layouts = zip(*map(device.address_and_layout, arrays), strict=True)
        else:
            addresses, layouts = self.places
        key: Hashable = _key(self.options, addresses, layouts)
        try:
            call = calls.get(key)
        except TypeError:  # options that cannot be part of a key
            key = call = None
        if call is None or not call.takes(addresses):
            call = self._planned(given, key, addresses, layouts, place)
        return call

    def _planned(
        self, given: Arguments, key: Hashable, addresses: Sequence[int], layouts: Sequence[Layout], place: Any
    ) -> Call:
        """A new call for checked arguments, kept by its key."""
        function = self.function
        request = function.check(given, *self.options, *((place,) if function.call.has_place else ()))
        rows, count = [*request.inputs, *request.outputs], len(request.inputs)
        boxes: list[Box] = []
        if rows[count].array is not None:
            boxes = [box_of(0, a.array.shape, a.array.strides, a.array.dtype.itemsize) for a in rows]
            is_written = [n >= count for n in range(len(rows))]
            for earlier, later in overlaps(boxes, addresses, is_written):
                got = f"overlapping {rows[earlier].name}"
                raise ValueError(wrong_argument(function.name, rows[later].name, got, "in memory of its own"))
        for number, (address, layout) in enumerate(zip(addresses, layouts, strict=True)):
            if layout[1] or address % rows[number].alignment:  # else it is packed and aligned
                rows[number] = _aligned(function.name, given.device, rows[number], address, layout)
        return function.call(function, key, given.device, request, rows, boxes)


def _key(options: Any, addresses: Sequence[int], layouts: Sequence[Layout]) -> tuple[Any, ...]:
    """The key of plain arrays in the cache of planned calls."""
    key = (options, *layouts)
    for address in addresses:
        if address % MAX_ALIGNMENT:
            break
    else:
        return key
    unaligned = [
        number
        for number, (address, layout) in enumerate(zip(addresses, layouts, strict=True))
        if address & (min(layout[2].itemsize, MAX_ALIGNMENT) - 1)
    ]
    return (key, *unaligned) if unaligned else key


def _aligned(function: str, device: Device, argument: Argument, address: int, layout: Layout) -> Argument:
    """The argument, through a packed array if its elements are not aligned as kernels require.

    Raises ValueError if it is in a GPU's memory, where CuPy could not copy it either.
    """
    shape, strides, item_bytes = layout[0], layout[1], layout[2].itemsize
    # Without strides, it is C-contiguous.
    irregular = strides and [n for n, at in zip(shape, strides, strict=True) if n > 1 and at % item_bytes]
    if argument.is_copied or not (irregular or address % argument.alignment):
        return argument
    if device.name != "cpu":
        got = f"at address {address:#x} with strides {argument.array.strides}"
        expected = f"at multiples of {argument.alignment} bytes"
        raise ValueError(wrong_argument(function, argument.name, got, expected))
    through = copy(argument)
    through.operand_shape, through.is_copied = argument.operand_shape or argument.shape, True
    return through
