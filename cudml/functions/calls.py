"""How array functions run: cache of planned calls, keyed by layouts and the other arguments."""

import os
from collections.abc import Callable, Hashable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from cudml.devices import Array, Device, Layout, Program, get_device, operand_makers
from cudml.executable import MAX_GOOD, Recent, load
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
from cudml.plans import Limits, Plan
from cudml.tensors import num_elements, tensor_of

#: Planned calls that each array function keeps.
MAX_CALLS = 1024

#: Returns where an array is: `Device.address_and_layout`.
_PlaceOf = Callable[[Any], tuple[int, Layout]]

#: Maximum number of array types that are remembered.
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


@dataclass(eq=False)
class Call:
    """An array function planned for arrays of certain layouts, ready to run.

    Attributes
    ----------
    has_place : bool
        Whether `run` takes a place within the arrays, on which plans do not depend.
    device : Device
        The device of all the arrays.
    num_inputs : int
        Number of inputs among the arrays.
    masks : tuple of int
        For each array that is given, the bits that its address must not have.
    boxes : sequence of Box
        The bytes that the arrays address, if outputs are given.
    make_outputs : callable
        Allocates the outputs, if none are given.
    packed : sequence of Argument
        The arguments, without their arrays, if some go through packed arrays.
    places : optional
        The allowed places of the request, if the call has a place.
    launch : Program
        The loaded program, which takes operands: inputs first.
    plan : Plan or None
        The plan that `launch` runs, if it runs one plan; its workspace has `temporary_bytes`.
    takes_operands : bool
        Whether `run` takes operands of the launched program in place of arrays.
    """

    has_place: ClassVar[bool] = False

    device: Device
    num_inputs: int
    masks: tuple[int, ...]
    boxes: Sequence[Box]
    make_outputs: Callable[[], list[Array]]
    packed: Sequence[Argument]
    places: Any
    launch: Program
    plan: Plan | None
    takes_operands: bool
    _good: Recent[tuple[int, ...], bool] | None = None

    @property
    def is_launch(self) -> bool:
        """Whether `run` only has to `launch` its operands if outputs are given."""
        return self.takes_operands and not self.has_place

    def takes(self, addresses: tuple[int, ...]) -> bool:
        """Whether arrays of the planned layouts may be at these addresses."""
        good = self._good
        if good is None:
            good = self._good = Recent(MAX_GOOD)
        if addresses in good:
            return True
        if any(address & mask for address, mask in zip(addresses, self.masks, strict=True)):
            return False
        if self.boxes:
            is_written = [number >= self.num_inputs for number in range(len(self.boxes))]
            if next(overlaps(self.boxes, addresses, is_written), None) is not None:
                return False
        good[addresses] = True
        return True

    def run(
        self, inputs: Sequence[Array], outputs: Sequence[Array], stream: Any = None, place: Any = None
    ) -> Sequence[Array]:
        """Compute outputs from inputs, in the order of a stream; makes the outputs if none are given."""
        if stream is not None and not (outputs and self.takes_operands):
            with self.device.on_stream(stream):
                return self.run(inputs, outputs, None, place)
        if self.packed:
            return self._run_packed(inputs, outputs, place)
        if not outputs:
            outputs = self.make_outputs()
        self.launch((*inputs, *outputs), None, stream)
        return outputs

    def _launch_at(self, place: Any, operands: Sequence[Array]) -> None:
        """Compute output operands from input operands."""
        self.launch(operands, None)

    def _run_packed(self, inputs: Sequence[Array], outputs: Sequence[Array], place: Any) -> Sequence[Array]:
        """`run` by way of packed arrays, which live as long as the outputs if a graph is captured."""
        rows, count = self.packed, self.num_inputs
        with self.device.on_stream(None):
            results = outputs or self.make_outputs()
            operands = [
                self._operand(number, row, array, results)
                for number, (row, array) in enumerate(zip(rows, (*inputs, *results), strict=True), 1)
            ]
            for row, array, operand in zip(rows, inputs, operands, strict=False):
                if row.is_copied and 0 in row.shape:  # zeros stand in for an empty input
                    assign(operand, 0)
                elif row.is_copied:
                    assign(operand.reshape(row.shape), array)
            self._launch_at(place, operands)
            for row, array, operand in zip(rows[count:], results, operands[count:], strict=True):
                if row.is_copied:
                    assign(array, operand.reshape(row.shape))
        return results

    def _operand(self, part: int, row: Argument, array: Array, outputs: Sequence[Array]) -> Array:
        """The operand for an array: itself, a view, or memory for a packed copy, not filled yet."""
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
    """The program of a call whose outputs are 0; the operands start with `num_inputs` inputs."""
    for output in operands[num_inputs:]:
        assign(output, 0)


class ArrayFunction:
    """An array function: how its arguments are checked and planned, and its planned calls.

    A call is found by `find`, or else made and run by `plan_and_run`.

    Attributes
    ----------
    name : str
        Its name in messages.
    input_names, output_names : tuple of str
        The arguments that are arrays.
    lengths_axes : slice
        The axes of the first argument to which a single number as lengths applies.
    descriptor : type
        The class of descriptors that `plan` takes.
    call : type of Call
        The class of its calls.
    calls : Recent
        The planned calls by the options and the arrays' layouts.
    """

    name: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    lengths_axes = slice(0)
    descriptor: type[Any]
    call: type[Call] = Call

    def __init__(self) -> None:
        self.calls: Recent[Hashable, Call] = Recent(MAX_CALLS)

    def check(self, given: Arguments, *options: Any, **others: Any) -> Request:
        """The request for arguments, the options of the call, and `run`'s place if the call has one.

        Raises an error if any of them is wrong.
        """
        raise NotImplementedError

    @staticmethod
    def plan(desc: Any, limits: Limits, *options: Any, **others: Any) -> Plan:
        """The plan of a descriptor, with the options of the request."""
        raise NotImplementedError

    def load_parts(
        self, desc: Any, options: tuple[Any, ...], device: Device, limits: Limits
    ) -> tuple[Plan | None, Program]:
        """The plan and the program of a request that `has_parts`; no plan if the program runs several."""
        raise NotImplementedError

    def outputs_for(
        self, inputs: dict[str, tuple[tuple[int, ...], Any]], options: Sequence[Any]
    ) -> list[tuple[tuple[int, ...], Any]]:
        """Shapes and dtypes of the outputs, from those of the named inputs; raises what the call would."""
        arrays = [np.broadcast_to(np.zeros((), dtype), shape) for shape, dtype in inputs.values()]
        given = all_on_device(self.name, [*inputs], arrays, lengths_axes=self.lengths_axes)
        return [(output.shape, output.dtype) for output in self.check(given, *options).outputs]

    def find(
        self, inputs: Sequence[Any], outputs: Sequence[Any], options: Any, stream: Any = None
    ) -> Call | None:
        """The planned call that takes these arrays as they are, if there is one.

        Parameters
        ----------
        inputs, outputs : sequence
            The arrays, or objects that can be converted, in the order of their names. Without outputs, the
            call makes them.
        options : tuple or list
            The other arguments of `check` that plans depend on. A list is never found: options of wrong types
            are given in one, so that 2.0 does not find the call planned for 2.
        stream : optional
            The array function's own argument.
        """
        try:
            # By far the most frequent case, so it has a fast path.
            if len(inputs) == 1 and not outputs:
                place_of = _places_of[type(inputs[0])]
                if place_of is None:
                    return None
                address, layout = place_of(inputs[0])
                call = self.calls.get((options, layout))
                if call is None or address & call.masks[0]:
                    return None
            else:
                addresses, key = [], [options]
                for array in (*inputs, *outputs):
                    place_of = _places_of[type(array)]
                    if place_of is None:
                        return None
                    address, layout = place_of(array)
                    addresses.append(address)
                    key.append(layout)
                call = self.calls.get(tuple(key))
                if call is None or not call.takes(tuple(addresses)):
                    return None
            if stream is not None:
                call.device.check_stream(stream)
        except (TypeError, ValueError):  # something unhashable, a masked array, or not a stream
            return None
        return call

    def plan_and_run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        options: Any,
        stream: Any = None,
        place: Any = None,
        names: tuple[str, ...] = (),
    ) -> Sequence[Array]:
        """`Call.run` for arguments that `find` has no call for: they are converted, and planned if need be.

        Parameters
        ----------
        inputs, outputs, options, stream
            As for `find`.
        place : optional
            As for `Call.run`.
        names : tuple of str, optional
            The names of `inputs` if some were left out; the options then contain them, too.
        """
        if operand_makers:
            results = self._run_shared(inputs, outputs, options, stream, place)
            if results is not None:
                return results
        if stream is not None:
            with on_stream(self.name, inputs[0], stream):
                return self.plan_and_run(inputs, outputs, options, None, place, names)
        given = all_on_device(
            self.name, names or self.input_names, inputs, self.output_names, outputs, self.lengths_axes
        )
        device, arrays = given.device, [*given.arrays.values()]
        with device.sharing(given.shared):
            call = self._call_for(given, [*map(device.address_and_layout, arrays)], options, place)
            results = call.run(arrays[: len(inputs)], arrays[len(inputs) :], None, place)
            if given.made and not outputs:
                device.retain_for_graph(given.made, results)
        return outputs or results

    def planned(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        options: Any,
        stream: Any = None,
        names: tuple[str, ...] = (),
    ) -> Call:
        """The call of `plan_and_run`, which has no place, for a caller that launches it itself."""
        if stream is not None:
            with on_stream(self.name, inputs[0], stream):
                return self.planned(inputs, outputs, options, None, names)
        given = all_on_device(
            self.name, names or self.input_names, inputs, self.output_names, outputs, self.lengths_axes
        )
        device = given.device
        with device.sharing(given.shared):
            return self._call_for(given, [*map(device.address_and_layout, given.arrays.values())], options)

    def _run_shared(
        self, inputs: Sequence[Any], outputs: Sequence[Any], options: Any, stream: Any, place: Any
    ) -> Sequence[Array] | None:
        """`plan_and_run` with operands in memory of other libraries; None unless a call for them is planned.

        `Device.hold` is enough for held operands; other operands need `Device.order_after`.
        """
        is_held = True
        operands: Sequence[Any]
        try:
            if len(inputs) == 1 and not outputs:  # as in `find`
                made = operand_makers[0](inputs[0], stream, False)
                if made is None:
                    return None
                operand, held = made
                call = self.calls.get((options, operand.layout))
                if call is None or not call.takes_operands or operand.ptr & call.masks[0]:
                    return None
                operands, is_held, shared = (operand,), held is not None, held or {operand.ptr: operand}
            else:
                operands, shared, addresses, key = [], {}, [], [options]
                for array in (*inputs, *outputs):
                    place_of = _places_of[type(array)]
                    if place_of is not None:
                        address, layout = place_of(array)
                    else:
                        made = operand_makers[0](array, stream, len(operands) >= len(inputs))
                        if made is None:
                            return None
                        array, held = made
                        address, layout = array.ptr, array.layout
                        shared[address] = array
                        is_held = is_held and held is not None
                    operands.append(array)
                    addresses.append(address)
                    key.append(layout)
                call = self.calls.get((*key,)) if shared else None
                if call is None or not call.takes_operands or not call.takes((*addresses,)):
                    return None
            if stream is not None:
                call.device.check_stream(stream)
        except (TypeError, ValueError):  # as in `find`
            return None
        try:
            results = call.run(operands[: len(inputs)], operands[len(inputs) :], stream, place)
        finally:
            if is_held:
                call.device.hold(shared)
            else:
                call.device.order_after(shared.values(), stream)
        return outputs or results

    def _call_for(
        self, given: Arguments, places: Sequence[tuple[int, Layout]], options: Any, place: Any = None
    ) -> Call:
        """The planned call for plain arrays, or a new one.

        `places` are the addresses and the layouts of the arrays.
        """
        addresses, layouts = zip(*places, strict=True)
        key: Hashable = _key(options, addresses, layouts)
        try:
            call = self.calls.get(key)
        except TypeError:  # options that cannot be part of a key
            key = call = None
        if call is None or not call.takes(addresses):
            request = self.check(given, *options, *((place,) if self.call.has_place else ()))
            call = self._loaded(request, given.device, addresses, layouts, key)
        return call

    def _loaded(
        self,
        request: Request,
        device: Device,
        addresses: Sequence[int],
        layouts: Sequence[Layout],
        key: Hashable | None,
    ) -> Call:
        """A new call for checked arguments, its plan loaded; kept under the key of the lookup, if it has one.

        Raises ValueError if an output overlaps another array, or an array is misaligned.
        """
        rows, count = [*request.inputs, *request.outputs], len(request.inputs)
        boxes: list[Box] = []
        if rows[count].array is not None:
            boxes = [box_of(0, a.array.shape, a.array.strides, a.array.dtype.itemsize) for a in rows]
            is_written = [n >= count for n in range(len(rows))]
            for earlier, later in overlaps(boxes, addresses, is_written):
                got = f"overlapping {rows[earlier].name}"
                raise ValueError(wrong_argument(self.name, rows[later].name, got, "in memory of its own"))
        for number, (address, layout) in enumerate(zip(addresses, layouts, strict=True)):
            if layout[1] or address % rows[number].alignment:  # else it is packed and aligned
                rows[number] = _aligned(self.name, device, rows[number], address, layout)
        is_empty = request.is_zero or all(0 in output.shape for output in request.outputs)
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
        desc = None
        if not is_empty:
            desc = self.descriptor.of_plain({**tensors, **request.members})
        make_outputs, limits = device.allocator(made), device.limits
        plan: Plan | None = None
        launch: Program = launch_nothing
        if request.is_zero:
            launch = partial(_fill_with_zero, count)
        elif desc is not None:
            if request.has_parts:
                plan, launch = self.load_parts(desc, request.options, device, limits)
            else:
                plan, launch = load(self.plan, desc, device, request.options, limits)
            if plan is not None and plan.operands != (*tensors,):
                raise ValueError(f"{self.name}: arrays {(*tensors,)} of {plan}")
        packed = [copy(row) for row in rows] if converts and desc is not None else []
        for row in packed:
            row.array = None  # the cache must not keep the array alive
        takes_operands = not packed and (plan is not None or launch is launch_nothing)
        call = self.call(
            device,
            count,
            (*masks,),
            boxes,
            make_outputs,
            packed,
            request.places,
            launch,
            plan,
            takes_operands,
        )
        if key is not None:
            self.calls[key] = call
        return call


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
