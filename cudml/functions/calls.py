"""Array functions planned for arrays of certain layouts: kept, found again, and run."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from cudml.compiled import load_fitting
from cudml.devices import Array, Device, Layout, Program, get_device
from cudml.dtypes import ElementType
from cudml.functions.arguments import is_wrong
from cudml.overlap import Box, box_of, first_overlap
from cudml.plans import Limits, Plan
from cudml.tensors import TensorDesc

#: Planned calls that each array function keeps; when they are too many, all go.
MAX_CALLS = 1024

#: Sets of addresses that a call remembers as good.
MAX_PLACES = 256

#: No kernel needs more of an address than this many bytes.
_MAX_ALIGNMENT = 8


class _Describers(dict[type, Callable[[Any], tuple[int, Layout]]]):
    """Array type -> `Device.describe`, filled when a type is first met."""

    def __missing__(self, kind: type) -> Callable[[Any], tuple[int, Layout]]:
        if kind is np.ndarray:
            device = get_device("cpu")
        elif (kind.__module__, kind.__qualname__) == ("cupy", "ndarray"):
            device = get_device("cuda")
        else:
            raise KeyError(kind)
        self[kind] = device.describe
        return self[kind]


_describers = _Describers()


@dataclass(frozen=True)
class Argument:
    """An array of a call: its name, its member of the descriptor, and what it is there.

    `sizes` is the shape as the descriptor has it, which `shape` broadcasts to. `array` None is an
    output that the call makes. `alignment` is what the kernels need of its address.
    """

    name: str
    member: str
    kind: ElementType
    array: Array | None
    shape: tuple[int, ...]
    dtype: Any
    sizes: tuple[int, ...]
    alignment: int

    @staticmethod
    def input(
        name: str,
        member: str,
        kind: ElementType,
        array: Array,
        sizes: tuple[int, ...] | None = None,
        *,
        any_address: bool = False,
    ) -> "Argument":
        """An array that is read; `any_address` where the kernels take it at any address."""
        shape = tuple(array.shape)
        return Argument.output(name, member, kind, array, shape, array.dtype, sizes, any_address=any_address)

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
        any_address: bool = False,
    ) -> "Argument":
        """An array that is written, or None for one to be made."""
        alignment = 1 if any_address else min(dtype.itemsize, _MAX_ALIGNMENT)
        return Argument(name, member, kind, array, shape, dtype, sizes or shape, alignment)

    @property
    def tensor(self) -> TensorDesc:
        """How it lies in memory, strides in elements; packed if it is yet to be made."""
        sizes = self.sizes or (1,)
        if self.array is None:
            return TensorDesc(self.kind, sizes)
        item_bytes = self.array.dtype.itemsize
        leading = (0,) * (len(sizes) - len(self.shape))
        own = zip(sizes[len(leading) :], self.shape, self.array.strides, strict=False)
        # Where there is one index, the stride may be anything.
        strides = leading + tuple(
            step // item_bytes if size == n and step % item_bytes == 0 else 0 for size, n, step in own
        )
        tensor = TensorDesc(self.kind, sizes, strides if self.shape else (0,) * len(sizes))
        return TensorDesc(self.kind, sizes) if tensor.is_packed else tensor


class Call:
    """An array function planned for arrays of certain layouts, ready to run.

    Parameters
    ----------
    device : Device
        Where all the arrays are.
    make_plan : callable or None
        Gives the plan for the limits of the device, or narrower ones; None where there is nothing to
        compute, because the outputs are empty.
    inputs, outputs : sequence of Argument
        In the order in which `run` takes and gives them.
    """

    def __init__(
        self,
        device: Device,
        make_plan: Callable[[Limits], Plan] | None,
        inputs: Sequence[Argument],
        outputs: Sequence[Argument],
    ) -> None:
        self.device = device
        self._num_inputs = len(inputs)
        self._good_places: set[tuple[int, ...]] = set()
        given = [a for a in (*inputs, *outputs) if a.array is not None]
        self._masks = tuple(a.alignment - 1 for a in given)
        self.first_mask = self._masks[0]
        self._boxes = tuple(_box(a.array) for a in given)
        self._make_outputs = device.allocator([(output.shape, output.dtype) for output in outputs])
        self._program: Program | None = None
        self._order: tuple[int, ...] | None = None
        self._temporary_bytes = 0
        if make_plan is not None:
            plan, program = load_fitting(make_plan, device)
            self._program = program if plan.steps else None
            self._temporary_bytes = plan.temporary_bytes
            members = [argument.member for argument in (*inputs, *outputs)]
            order = tuple(members.index(name) for name in plan.operands)
            self._order = None if order == tuple(range(len(members))) else order

    def takes(self, addresses: tuple[int, ...]) -> bool:
        """Whether arrays of the planned layouts may be at these addresses."""
        if addresses in self._good_places:
            return True
        if any(address & mask for address, mask in zip(addresses, self._masks, strict=True)):
            return False
        if first_overlap(self._boxes, addresses, self._num_inputs):
            return False
        if len(self._good_places) >= MAX_PLACES:
            self._good_places.clear()
        self._good_places.add(addresses)
        return True

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Sequence[Array]:
        """Compute into the outputs, which are made where none are given."""
        if not outputs:
            outputs = self._make_outputs()
        if self._program is not None:
            arrays: Sequence[Array] = (*inputs, *outputs)
            if self._order is not None:
                arrays = [arrays[number] for number in self._order]
            scratch = None
            if self._temporary_bytes:
                scratch = self.device.scratch(self._temporary_bytes, outputs)
            self._program(arrays, scratch)
        return outputs


class CallCache:
    """The calls that an array function has planned, by the layouts of its arrays and its other arguments."""

    def __init__(self) -> None:
        self._calls: dict[Hashable, Call] = {}

    def find(
        self, inputs: Sequence[Any], outputs: Sequence[Any], others: Hashable
    ) -> tuple[Hashable, Call | None]:
        """The key of these arguments (None where they have none), and the call that can take them."""
        try:
            if len(inputs) == 1 and not outputs:  # by far the most frequent, so it has a shorter way
                address, layout = _describers[type(inputs[0])](inputs[0])
                key: Hashable = (others, layout)
                call = self._calls.get(key)
                if call is not None and address & call.first_mask:
                    call = None
                return key, call
            addresses: list[int] = []
            layouts: list[Hashable] = [others]
            for array in (*inputs, *outputs):
                address, layout = _describers[type(array)](array)
                addresses.append(address)
                layouts.append(layout)
            key = tuple(layouts)
            call = self._calls.get(key)
        except (KeyError, TypeError):  # no array of either device's own type, something unhashable
            return None, None
        if call is not None and not call.takes(tuple(addresses)):
            call = None
        return key, call

    def add(self, key: Hashable, call: Call) -> None:
        """Keep a call for the arguments of a key."""
        if key is not None:
            if len(self._calls) >= MAX_CALLS:
                self._calls.clear()
            self._calls[key] = call


def _box(array: Array) -> Box:
    """What the array addresses, from address 0."""
    return box_of(0, array.shape, array.strides, array.dtype.itemsize)


def execute(
    function: str,
    device: Device,
    inputs: Sequence[Argument],
    outputs: Sequence[Argument],
    make_plan: Callable[[dict[str, TensorDesc], Limits], Plan],
    calls: "CallCache",
    key: Hashable,
) -> Sequence[Array]:
    """Plan a call of checked arguments, keep it for arrays like these, and run it.

    Raises
    ------
    ValueError
        An output that was given shares memory with another argument.
    """
    given = [argument for argument in (*inputs, *outputs) if argument.array is not None]
    check_overlap(function, device, given, len(inputs))
    ready_inputs = [_aligned(function, device, argument, is_output=False) for argument in inputs]
    ready_outputs = [_aligned(function, device, argument, is_output=True) for argument in outputs]
    plan_for = None
    if any(0 not in argument.shape for argument in outputs):
        plan_for = partial(make_plan, {a.member: a.tensor for a in (*ready_inputs, *ready_outputs)})
    call = Call(device, plan_for, ready_inputs, ready_outputs)
    if all(a is b for a, b in zip((*ready_inputs, *ready_outputs), (*inputs, *outputs), strict=True)):
        calls.add(key, call)
    arrays = [argument.array for argument in ready_outputs if argument.array is not None]
    results = call.run([argument.array for argument in ready_inputs], arrays)
    for output, result in zip(outputs, results, strict=True):
        if output.array is not None and output.array is not result:
            output.array[...] = result
    return [r if o.array is None else o.array for o, r in zip(outputs, results, strict=True)]


def store(
    function: str,
    device: Device,
    inputs: Sequence[Argument],
    outputs: Sequence[Argument],
    results: Sequence[Array],
    made: Sequence[Array] = (),
) -> Sequence[Array]:
    """Results that are there already, in the outputs that were given, if any were.

    `made` are the arrays that were made to compute them.

    Raises
    ------
    ValueError
        An output that was given shares memory with another argument.
    """
    given = [output for output in outputs if output.array is not None]
    own = [argument.array for argument in inputs]
    if not given:
        device.keep_captured(made, own, results)
        return results
    check_overlap(function, device, [*inputs, *given], len(inputs))
    arrays: list[Array] = [output.array for output in given]
    for array, result in zip(arrays, results, strict=True):
        array[...] = result
    device.keep_captured((*made, *results), own, arrays)
    return arrays


def check_overlap(function: str, device: Device, arguments: Sequence[Argument], num_inputs: int) -> None:
    """Raise ValueError if an output shares memory with another argument; the inputs come first."""
    arrays = [argument.array for argument in arguments]
    overlap = first_overlap([_box(a) for a in arrays], [device.address(a) for a in arrays], num_inputs)
    if overlap is not None:
        out, other = (arguments[number].name for number in overlap)
        raise ValueError(is_wrong(function, out, f"overlapping {other}", "in memory of its own"))


def _aligned(function: str, device: Device, argument: Argument, *, is_output: bool) -> Argument:
    """The argument, or one with a packed array instead where elements are not where kernels need them.

    Raises
    ------
    ValueError
        It is in a GPU's memory, where CuPy could not copy it either.
    """
    array = argument.array
    if array is None:
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
        raise ValueError(is_wrong(function, argument.name, got, expected))
    return replace(argument, array=device.empty(argument.shape, array.dtype) if is_output else array.copy())
