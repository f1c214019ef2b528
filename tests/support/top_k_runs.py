"""Run a top-k on a device, by any of its paths, and compare every bit with the oracle."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cudml.devices import Device
from cudml.dtypes import ElementType, element_type_of
from cudml.enums import AxisDirection, DataType
from cudml.operators.top_k.operator import RaggedTopKDesc, TopK1Desc, plan, selection_of_desc
from cudml.operators.top_k.paths import PATHS
from cudml.operators.top_k.rows import Selection
from cudml.plans import KernelLaunch, Limits, Plan
from cudml.tensors import TensorDesc
from proof.oracle.top_k import BFLOAT16, top_k
from tests.support import assert_identical, to_device
from tests.support.layouts import Layout, at_alignment, lay_out

DTYPES = (
    *(np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *map(np.dtype, ("float16", "float32", "float64")),
    BFLOAT16,
)


@dataclass(frozen=True)
class Options:
    """How to select; `path` None leaves the choice to the plan."""

    k: int
    axis: int = -1
    largest: bool = True
    nan_last: bool = False
    path: str | None = None
    index_type: DataType = DataType.UINT32


def element_type(x: np.ndarray) -> ElementType:
    kind = element_type_of(x.dtype)
    assert kind is not None
    return kind


def described(x: TensorDesc, values: TensorDesc, indices: TensorDesc, options: Options) -> TopK1Desc:
    direction = AxisDirection.DECREASING if options.largest else AxisDirection.INCREASING
    return TopK1Desc(x, values, indices, options.axis % x.dimension_count, options.k, direction)


def plan_of(x: Layout, values: Layout, indices: Layout, options: Options, limits: Limits) -> Plan:
    desc = described(x.desc, values.desc, indices.desc, options)
    return plan(desc, limits, nan_last=options.nan_last, path=options.path)


def plan_for(x: np.ndarray, options: Options, limits: Limits) -> Plan:
    """The plan for packed tensors."""
    kind, sizes = element_type(x), output_sizes(x.shape, options)
    return plan_of(
        lay_out(x.shape, kind), lay_out(sizes, kind), lay_out(sizes, options.index_type), options, limits
    )


def launches(chosen: Plan) -> list[KernelLaunch]:
    """The plan's kernel launches."""
    return [step for step in chosen.steps if isinstance(step, KernelLaunch)]


def output_sizes(sizes: tuple[int, ...], options: Options) -> tuple[int, ...]:
    axis = options.axis % len(sizes)
    return (*sizes[:axis], options.k, *sizes[axis + 1 :])


def check_in_layouts(
    device: Device,
    raw: np.ndarray,
    x: Layout,
    values: Layout,
    indices: Layout,
    options: Options,
    dtype: np.dtype,
    limits: Limits | None = None,
) -> None:
    """Select from the tensor inside `raw`; every byte of the outputs' buffers is compared."""
    chosen = plan_of(x, values, indices, options, limits or device.limits)
    source = x.view(raw).view(dtype)
    expected_values, expected_indices = top_k(
        source, options.k, options.axis, largest=options.largest, nan_last=options.nan_last
    )
    buffers = {"input_tensor": at_alignment(device, raw)}
    expected = {}
    places = {"input_tensor": x, "output_value_tensor": values, "output_index_tensor": indices}
    index_dtype = np.dtype(f"u{indices.desc.element.size}")
    results = {
        "output_value_tensor": expected_values,
        "output_index_tensor": expected_indices.astype(index_dtype),
    }
    for name, result in results.items():
        before = np.full(places[name].num_bytes, 0xA5, np.uint8)
        buffers[name] = at_alignment(device, before)
        places[name].view(before)[...] = np.ascontiguousarray(result).view(f"V{result.dtype.itemsize}")
        expected[name] = before
    workspace = dirty_workspace(device, chosen)
    device.load(chosen)([places[name].operand(buffers[name]) for name in chosen.operands], workspace)
    for name, whole in expected.items():
        assert_identical(buffers[name], whole)


def check_top_k(device: Device, x: np.ndarray, options: Options, limits: Limits | None = None) -> None:
    """The same with packed tensors."""
    kind = element_type(x)
    sizes = output_sizes(x.shape, options)
    raw = np.frombuffer(np.ascontiguousarray(x).tobytes(), np.uint8)
    places = lay_out(x.shape, kind), lay_out(sizes, kind), lay_out(sizes, options.index_type)
    check_in_layouts(device, raw, *places, options, x.dtype, limits)


def dirty_workspace(device: Device, chosen: Plan) -> Any:
    """A temporary resource full of ones, as another operator may leave it."""
    if not chosen.temporary_bytes:
        return None
    return to_device(device, np.full(chosen.temporary_bytes, 0xFF, np.uint8))


def selection_in(
    x: TensorDesc,
    values: TensorDesc,
    indices: TensorDesc,
    options: Options,
    lengths: TensorDesc | None = None,
) -> Selection:
    """The problem that paths solve, of ragged rows if they have lengths."""
    direction = AxisDirection.DECREASING if options.largest else AxisDirection.INCREASING
    members = x, values, indices, options.axis % x.dimension_count, options.k, direction
    desc = TopK1Desc(*members) if lengths is None else RaggedTopKDesc(*members, lengths, 0)
    return selection_of_desc(desc, options.nan_last)


def selection_for(x: np.ndarray, options: Options) -> Selection:
    """The same for packed tensors."""
    kind, sizes = element_type(x), output_sizes(x.shape, options)
    descs = TensorDesc(kind, x.shape), TensorDesc(kind, sizes), TensorDesc(options.index_type, sizes)
    return selection_in(*descs, options)


def paths_for(selection: Selection, limits: Limits) -> list[str]:
    """The paths that can do a selection."""
    return [name for name, path in PATHS.items() if path.can_do(selection, limits)]


def possible_paths(x: np.ndarray, options: Options, limits: Limits) -> list[str]:
    """The same for packed tensors."""
    return paths_for(selection_for(x, options), limits)
