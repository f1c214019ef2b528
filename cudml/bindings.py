"""The rules of binding arrays to a compiled operator; broken ones are reported as `Problem`s."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from cudml.checks import camel, one_of
from cudml.devices import Array, Device
from cudml.errors import SIMILARITY, Problem, a_type
from cudml.overlap import Box, box_of, overlaps
from cudml.tensors import TensorDesc

#: Scratch starts at a multiple of this many bytes, the widest access of a kernel.
SCRATCH_ALIGNMENT = 16


@dataclass(frozen=True)
class Member:
    """A tensor of the descriptor that is bound: its member name, its description, and its role."""

    name: str
    tensor: TensorDesc
    is_output: bool

    @property
    def label(self) -> str:
        """The member as DirectML spells it."""
        return camel(self.name)


def binding_problems(
    device: Device,
    members: Sequence[Member],
    bindings: Mapping[str, Any],
    resources: Sequence[tuple[str, Any, bool]] = (),
) -> list[Problem]:
    """All problems of `bindings`, which should have one array for each of `members`.

    `resources` are scratch that must not share memory with written arrays: label, array or None, and whether
    it is written itself.
    """
    found = _name_problems([m.name for m in members], bindings)
    written: dict[str, bool] = {}
    boxes: list[Box] = []
    for member in members:
        if member.name not in bindings:
            continue
        array = bindings[member.name]
        problems = _array_problems(device, member, array)
        found += problems
        if not any(problem.rule == "array" for problem in problems):
            written[member.label] = member.is_output
            boxes.append(_box(device.address(array), member.tensor))
    for label, resource, is_written in resources:
        if resource is not None and device.owns(resource):
            written[label] = is_written
            boxes.append(box_of(device.address(resource), (resource.nbytes,), (1,), 1))
    labels = [*written]
    for pair in overlaps(boxes, [0] * len(boxes), [*written.values()]):
        one, other = (labels[number] for number in pair)
        out, rest = (one, other) if written[one] else (other, one)
        expected = "in memory of its own: no operator runs in place"
        found.append(Problem(out, "overlap", expected, f"overlapping {rest}"))
    return found


def owned_problems(
    owned: Sequence[Member], bindings: Mapping[str, Any], *, is_initialized: bool
) -> list[Problem]:
    """The problems that `dispatch` reports about inputs flagged `OWNED_BY_DML`."""
    found = []
    for member in owned:
        if member.name in bindings:
            expected = "left out, because it is OWNED_BY_DML: initialize() takes it"
            found.append(Problem(member.label, "owned", expected, "bound"))
        if not is_initialized:
            expected = f"given to initialize({member.name}=...) before dispatch, because it is OWNED_BY_DML"
            found.append(Problem(member.label, "owned", expected, "not initialized"))
    return found


def scratch_problems(device: Device, label: str, array: Any, num_bytes: int) -> list[Problem]:
    """The problems of a temporary or persistent resource that needs at least `num_bytes` bytes."""
    if not device.owns(array):
        return [_wrong_array(device, label, array)]
    found = []
    if not array.flags.c_contiguous:
        found.append(Problem(label, "layout", "C-contiguous", f"of strides {array.strides}"))
    if array.nbytes < num_bytes:
        found.append(Problem(label, "size", f"at least {num_bytes} bytes", f"{array.nbytes} bytes"))
    if not _is_writable(array):
        found.append(_read_only(label))
    if device.address(array) % SCRATCH_ALIGNMENT:
        got = f"at address {device.address(array):#x}"
        expected = f"at a multiple of {SCRATCH_ALIGNMENT} bytes"
        found.append(Problem(label, "alignment", expected, got))
    return found


def _name_problems(names: Sequence[str], bindings: Mapping[str, Any]) -> list[Problem]:
    missing = [name for name in names if name not in bindings]
    found = [Problem(camel(n), "missing", f"bound as {n}=", "missing") for n in missing]
    for name in bindings:
        if name not in names:
            close = get_close_matches(name, names, n=1, cutoff=SIMILARITY)
            hint = f"; the closest is {close[0]}" if close else ""
            expected = f"{one_of(names)}{hint}" if names else "left out: nothing is bound here"
            found.append(Problem(name, "unexpected", expected, "not a binding"))
    return found


def _array_problems(device: Device, member: Member, array: Any) -> list[Problem]:
    """The problems of one array by itself; after a problem "array", nothing else was checked."""
    if not device.owns(array):
        return [_wrong_array(device, member.label, array)]
    found = []
    tensor = member.tensor
    wanted = tensor.element.numpy_name
    if array.dtype != wanted and not (wanted == "uint8" and array.dtype == bool):
        found.append(Problem(member.label, "data type", wanted, str(array.dtype)))
    elif not _has_layout(array, tensor):
        found.append(_layout_problem(member, array))
    if member.is_output and not _is_writable(array):
        found.append(_read_only(member.label))
    alignment = max(tensor.guaranteed_base_offset_alignment, tensor.element.size)
    if device.address(array) % alignment:
        expected = f"at a multiple of {alignment} bytes"
        if tensor.guaranteed_base_offset_alignment:
            expected += ", as its GuaranteedBaseOffsetAlignment says"
        got = f"at address {device.address(array):#x}"
        found.append(Problem(member.label, "alignment", expected, got))
    return found


def _has_layout(array: Array, tensor: TensorDesc) -> bool:
    """Whether the array has the descriptor's sizes and strides; leading sizes of 1 are ignored."""
    item_bytes = tensor.element.size
    ours = list(zip(array.shape, array.strides, strict=True))
    wanted = [
        (size, stride * item_bytes) for size, stride in zip(tensor.sizes, tensor.element_strides, strict=True)
    ]
    for pairs in (ours, wanted):
        while pairs and pairs[0][0] == 1:
            del pairs[0]
    if array.flags.c_contiguous and array.nbytes >= tensor.span_bytes:
        return True
    return len(ours) == len(wanted) and all(
        size == n and (stride == step or n == 1)
        for (size, stride), (n, step) in zip(ours, wanted, strict=True)
    )


def _layout_problem(member: Member, array: Array) -> Problem:
    tensor = member.tensor
    if array.flags.c_contiguous:
        expected = f"at least {tensor.span_bytes}, as {tensor.sizes} of {tensor.element.numpy_name} needs"
        return Problem(f"{member.label} in bytes", "size", expected, str(array.nbytes))
    strides = tuple(stride * tensor.element.size for stride in tensor.element_strides)
    expected = f"of shape {tensor.sizes} and strides {strides}, or C-contiguous"
    got = f"of shape {array.shape} and strides {array.strides}"
    return Problem(member.label, "layout", expected, got)


def _box(address: int, tensor: TensorDesc) -> Box:
    """The bytes of the elements of a tensor at an address."""
    item_bytes = tensor.element.size
    strides = [stride * item_bytes for stride in tensor.element_strides]
    return box_of(address, tensor.sizes, strides, item_bytes)


def _wrong_array(device: Device, label: str, array: Any) -> Problem:
    kind = "numpy.ndarray" if device.name == "cpu" else "cupy.ndarray"
    got = a_type(array)
    if hasattr(array, "device"):
        got += f" on {array.device}"
    return Problem(label, "array", f"a {kind} on {device.name}", got)


def _is_writable(array: Array) -> bool:
    return bool(getattr(array.flags, "writeable", True))


def _read_only(label: str) -> Problem:
    return Problem(label, "read-only", "writable", "read-only")
