"""Places farther apart than 2**32 bytes, and 2**32 elements, on every path of every operator.

A path that cuts an offset or a stride to 32 bits goes to a wrong place of the same, sparse tensor.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from cudml.devices import emulator
from cudml.enums import AxisDirection, DataType, ExecutionFlags
from cudml.operators import launch_shape
from cudml.operators.gru import paths as gru_paths
from cudml.operators.gru.operator import GruDesc
from cudml.operators.gru.operator import plan as plan_gru
from cudml.operators.index_space import Space, coalesced, dimensions_of, widened
from cudml.operators.reverse_subsequences import paths as reverse_subsequences_paths
from cudml.operators.reverse_subsequences import serial as reverse_subsequences_serial
from cudml.operators.reverse_subsequences.lanes import lanes_of
from cudml.operators.reverse_subsequences.operator import ReverseSubsequencesDesc
from cudml.operators.reverse_subsequences.operator import plan as plan_reversal
from cudml.operators.slice import paths as slice_paths
from cudml.operators.slice import serial as slice_serial
from cudml.operators.slice.box import SOURCE, TARGET, BoxCopy
from cudml.operators.slice.paths import copy_step
from cudml.operators.top_k import arg_max as top_k_arg_max
from cudml.operators.top_k import columns as top_k_columns
from cudml.operators.top_k import filter as top_k_filter
from cudml.operators.top_k import paths as top_k_paths
from cudml.operators.top_k import radix as top_k_radix
from cudml.operators.top_k.operator import RaggedTopKDesc
from cudml.operators.top_k.operator import plan as plan_top_k
from cudml.plans import KernelLaunch, Limits, Plan
from cudml.tensors import TensorDesc
from proof.oracle.reverse_subsequences import reverse_lanes
from proof.oracle.top_k import ragged_top_k, top_k
from tests.support import assert_identical, run_plan
from tests.support.gru_runs import (
    BIDIRECTIONAL,
    MEMBERS,
    ONE_STEP_PATHS,
    Options,
    Weights,
    assert_as_precise_as_numpy,
    dtypes_of,
    random_layer,
)
from tests.support.kernel_cases import CPU, GPU, Case, gru_stack, operands_of, require_precise
from tests.support.sparse import WIDE, described, sparse_tensor, wide_strides
from tests.support.top_k_runs import Options as TopKOptions
from tests.support.top_k_runs import described as top_k_desc
from tests.support.top_k_runs import paths_for, selection_in

LIMITS = {"gpu": GPU, "cpu": CPU}


@pytest.fixture(params=[1, 1 << 30], ids=["many blocks", "one block"])
def serial_block_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of one thread that own a row or two each, and one block that steps along all rows."""
    monkeypatch.setattr(launch_shape, "MIN_SERIAL_BLOCK_BYTES", request.param)


def fill(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Fill a tensor with random bits, and return a packed copy."""
    array[...] = np.frombuffer(rng.bytes(array.size * array.itemsize), array.dtype).reshape(array.shape)
    return array.copy()


# ---- SLICE

#: Copies of items of 2 bytes: sizes, the strides of source and target, and kernels that can do them.
COPIES = {
    "rows": ((3, 300), (WIDE, 1), (WIDE, 1), {"runs", "gather", "serial"}),
    "rows from below": ((3, 300), (-WIDE, 1), (301, 1), {"runs", "gather", "serial"}),
    "mirrored rows": ((3, 5, 300), (9 * WIDE, -WIDE, -1), (6000, WIDE, 1), {"runs", "gather", "serial"}),
    "every third item": ((3, 900), (WIDE, 3), (WIDE, 1), {"planes", "gather", "serial"}),
    "pixels": (
        (2, 3, 300),
        (-WIDE, 1, 4),
        (9 * WIDE, WIDE, 1),
        {"planes", "transpose", "gather", "serial"},
    ),
    "planes": ((2, 300, 3), (9 * WIDE, 1, -WIDE), (WIDE, 3, 1), {"planes", "transpose", "gather", "serial"}),
    "columns": ((2, 70, 70), (WIDE, 1, 75), (WIDE, 80, 1), {"transpose", "gather", "serial"}),
    "columns far apart": (
        (2, 200, 70),
        (200, 1, WIDE),
        (200 * WIDE, WIDE, 1),
        {"transpose", "gather", "serial"},
    ),
    "items": ((3, 4, 5), (40 * WIDE, -7 * WIDE, WIDE), (50 * WIDE, WIDE, 9 * WIDE), {"gather", "serial"}),
}


@pytest.mark.usefixtures("serial_block_bytes")
@pytest.mark.parametrize("name", slice_paths.PATHS)
@pytest.mark.parametrize("case", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("skew", [0, 1])
def test_copies(skew: int, case: tuple, name: str, rng: np.random.Generator) -> None:
    """From an offset past 2**32 to another, with items that are aligned to their size or not."""
    sizes, source_strides, target_strides, can = case
    space = Space(dimensions_of(sizes, source_strides, target_strides), (WIDE, WIDE + 32), 2)
    space = widened(coalesced(space, TARGET), (SOURCE, TARGET))
    limits = CPU if name == "serial" else GPU
    copy = BoxCopy(space, "source", "target")
    assert slice_paths.PATHS[name].can_do(copy, limits) == (name in can)
    if name not in can:
        return
    source = sparse_tensor((2, *sizes), np.uint16, (WIDE, *source_strides), skew)
    target = sparse_tensor((2, *sizes), np.uint16, (WIDE + 32, *target_strides))
    expected = fill(source[1], rng)
    launch = copy_step(space, "source", "target", limits, path=name)
    assert isinstance(launch, KernelLaunch)
    plan = Plan("copy", ("source", "target"), (launch,), outputs=("target",))
    run_plan(emulator.get_device(), plan, {"source": source, "target": target})
    assert_identical(target[1].copy(), expected)


def test_pieces_of_a_row(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of one thread; the second one begins past 2**32."""
    monkeypatch.setattr(slice_serial, "MAX_SERIAL_PIECE_BYTES", 8)
    source, target = (sparse_tensor((9,), np.uint16, (stride,)) for stride in (WIDE, 2 * WIDE))
    expected = fill(source, rng)
    space = Space(dimensions_of((9,), (WIDE,), (2 * WIDE,)), (0, 0), 2)
    plan = Plan("copy", ("a", "b"), (copy_step(space, "a", "b", CPU),), outputs=("b",))
    run_plan(emulator.get_device(), plan, {"a": source, "b": target})
    assert_identical(target.copy(), expected)


# ---- REVERSE_SUBSEQUENCES

EVERY = {"gather", "serial"}

#: Lanes of items of 2 bytes: sizes, axis, the strides of source, target and lengths, and the kernels for
#: them.
LANES = {
    "lanes": ((3, 300), 1, (WIDE, 1), (WIDE, 1), (WIDE, 1), EVERY | {"lanes"}),
    "lanes backwards": ((3, 300), 1, (-WIDE, -1), (301, 1), (2 * WIDE, 1), EVERY | {"lanes"}),
    "lanes into the last row first": ((3, 300), 1, (WIDE, 1), (-WIDE, 1), (WIDE, 1), EVERY | {"lanes"}),
    "rows": (
        (3, 9, 200), 1, (-20 * WIDE, WIDE, 1), (WIDE, 5 * WIDE, 1), (WIDE, 1, 0), EVERY | {"rows", "columns"},
    ),
    "columns": (
        (2, 9, 300), 1, (WIDE, 3 * WIDE, 1), (-20 * WIDE, WIDE, 1), (500 * WIDE, 1, WIDE),
        EVERY | {"columns", "serial_columns"},
    ),
    "columns from below": (
        (2, 9, 40), 1, (WIDE, -3 * WIDE, 1), (20 * WIDE, WIDE, 1), (-50 * WIDE, 1, -WIDE),
        EVERY | {"columns", "serial_columns"},
    ),
    "long columns": (
        (40, 30), 0, (3 * WIDE, 1), (WIDE, 1), (WIDE, 1), EVERY | {"columns", "serial_columns"},
    ),
    "wide columns": (
        (2, 40, 200), 1, (90 * WIDE, WIDE, 1), (50 * WIDE + 5, WIDE, 1), (300 * WIDE, 1, WIDE),
        EVERY | {"columns", "serial_columns"},
    ),
    "short columns": (
        (2, 40, 200), 1, (WIDE, 200, 1), (3 * WIDE, 210, 1), (300 * WIDE, 1, WIDE),
        EVERY | {"columns", "serial_columns"},
    ),
    "small boxes": (
        (30, 3, 4), 1, (12, 4, 1), (12, 4, 1), (4 * WIDE, 1, WIDE),
        EVERY | {"boxes", "columns", "serial_columns"},
    ),
    "short lanes": ((300, 7), 1, (7, 1), (7, 1), (WIDE, 1), EVERY | {"boxes", "lanes"}),
    "items": (
        (2, 9, 5), 1, (WIDE, 3 * WIDE, 60 * WIDE), (WIDE, 90 * WIDE, 5 * WIDE), (WIDE, 1, 6 * WIDE),
        EVERY | {"serial_columns"},
    ),
    "items along the axis": (
        (2, 5, 9), 2, (WIDE, 60 * WIDE, 3 * WIDE), (100 * WIDE, 20 * WIDE, WIDE), (WIDE, 6 * WIDE, 1), EVERY,
    ),
}  # fmt: skip


@pytest.mark.usefixtures("serial_block_bytes")
@pytest.mark.parametrize("name", reverse_subsequences_paths.PATHS)
@pytest.mark.parametrize("case", LANES.values(), ids=LANES)
@pytest.mark.parametrize("skew", [0, 1])
def test_reversals(
    skew: int, case: tuple, name: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source's items are aligned to their size, or not; large strips are streamed."""
    monkeypatch.setattr(reverse_subsequences_serial, "SERIAL_STREAMED_BYTES", 1 << 13)
    sizes, axis, *strides, can = case
    one = tuple(1 if d == axis else n for d, n in enumerate(sizes))
    source = sparse_tensor(sizes, np.uint16, strides[0], skew)
    target = sparse_tensor(sizes, np.uint16, strides[1])
    lengths = sparse_tensor(one, np.uint8, strides[2])
    descs = (
        described(source, DataType.UINT16),
        described(lengths, DataType.UINT8),
        described(target, DataType.UINT16),
    )
    lanes = lanes_of(*descs, axis)
    limits = CPU if name.startswith("serial") else GPU
    assert reverse_subsequences_paths.PATHS[name].can_do(lanes, limits) == (name in can)
    if name not in can:
        return
    content = fill(source, rng)
    lengths[...] = rng.integers(2, min(sizes[axis] + 2, 256), one)
    expected = reverse_lanes(content, lengths.copy(), axis)
    plan = plan_reversal(ReverseSubsequencesDesc(*descs, axis), limits, path=name)
    operands = dict(zip(plan.operands, (source, lengths, target), strict=True))
    run_plan(emulator.get_device(), plan, operands)
    assert_identical(target.copy(), expected)


# ---- TOP_K1

#: Sizes, axis, and how many inner dimensions are packed in the input and in the outputs.
SELECTIONS = {
    "rows": ((3, 700), 1, 1, 0),
    "outputs in rows": ((3, 700), 1, 2, 1),
    "columns": ((700, 3), 0, 1, 1),
    "columns of several tiles": ((5001, 1), 0, 1, 1),
    "items": ((2, 300, 2), 1, 0, 0),
}


def selection_descs(case: str, k: int) -> tuple[TensorDesc, TensorDesc, TensorDesc]:
    """The input, the values and the indices."""
    sizes, axis, packed_in, packed_out = SELECTIONS[case]
    out = (*sizes[:axis], k, *sizes[axis + 1 :])
    strides = wide_strides(out, packed_out)
    return (
        TensorDesc(DataType.UINT16, sizes, wide_strides(sizes, packed_in)),
        TensorDesc(DataType.UINT16, out, strides),
        TensorDesc(DataType.UINT32, out, strides),
    )


#: The lengths of the rows of a ragged case, far apart.
LENGTHS = TensorDesc(DataType.UINT16, (3, 1), (WIDE, 1))


def possible_selections(lengths: TensorDesc | None = None) -> list[tuple[str, int, str, str]]:
    """Every case with every k, in both shapes, on every path that can compute it."""
    return [
        (case, k, shape, path)
        for case, (_, axis, *_) in SELECTIONS.items()
        if lengths is None or case == "rows"
        for k in (1, 6, 40)
        for shape, limits in LIMITS.items()
        for path in paths_for(selection_in(*selection_descs(case, k), TopKOptions(k, axis), lengths), limits)
    ]


def test_every_path_selects() -> None:
    assert {path for *_, path in possible_selections()} == set(top_k_paths.PATHS)


@pytest.mark.parametrize(("case", "k", "shape", "path"), possible_selections())
def test_selections(case: str, k: int, shape: str, path: str, rng: np.random.Generator) -> None:
    select(case, k, LIMITS[shape], path, rng)


@pytest.mark.parametrize(("case", "k", "shape", "path"), possible_selections(LENGTHS))
def test_ragged_selections(case: str, k: int, shape: str, path: str, rng: np.random.Generator) -> None:
    """The lengths of the rows are far apart, too."""
    descs = selection_descs(case, k)
    x, values, indices = (
        sparse_tensor(desc.sizes, f"u{desc.element.size}", desc.strides or ()) for desc in descs
    )
    lengths = sparse_tensor(LENGTHS.sizes, np.uint16, LENGTHS.strides)
    content = fill(x, rng)
    lengths[...] = [[700], [3], [300]]
    desc = RaggedTopKDesc(*descs, 1, k, AxisDirection.DECREASING, LENGTHS, 0)
    operands = {
        "input_tensor": x,
        "sequence_lengths_tensor": lengths,
        "output_value_tensor": values,
        "output_index_tensor": indices,
    }
    run_plan(emulator.get_device(), plan_top_k(desc, LIMITS[shape], path=path), operands)
    expected_values, expected_indices = ragged_top_k(content, lengths.copy(), k, 1)
    assert_identical(values.copy(), expected_values)
    assert_identical(indices.copy(), expected_indices.astype(np.uint32))


def test_parts_of_a_column(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks read one column: all blocks but the first begin past 2**32."""
    monkeypatch.setattr(top_k_filter, "_MIN_STRETCH", 1024)
    monkeypatch.setattr(top_k_arg_max, "_SHARED_MIN_ROW_BYTES", 1024)
    monkeypatch.setattr(top_k_arg_max, "_MIN_STRETCH_BYTES", 1024)
    monkeypatch.setattr(top_k_columns, "_MIN_STRETCH", 1024)
    for k, path in ((6, "block_filter"), (1, "arg_max"), (6, "columns")):
        plan = select("columns of several tiles", k, GPU, path, rng)
        launch = next(step for step in plan.steps if isinstance(step, KernelLaunch))
        assert math.prod(launch.grid) > 1


@pytest.mark.parametrize("path", ["block_radix", "grid_radix"])
def test_many_of_a_column(path: str, rng: np.random.Generator) -> None:
    """More results than a network sorts are listed by index, from loads of several elements."""
    select("columns of several tiles", top_k_radix._NETWORK_MAX_K + 1, GPU, path, rng)


def select(case: str, k: int, limits: Limits, path: str, rng: np.random.Generator) -> Plan:
    """Select by a path, compare the results, and return the plan."""
    axis = SELECTIONS[case][1]
    options = TopKOptions(k, axis, path=path)
    descs = selection_descs(case, k)
    x, values, indices = (
        sparse_tensor(desc.sizes, f"u{desc.element.size}", desc.strides or ()) for desc in descs
    )
    content = fill(x, rng)
    plan = plan_top_k(top_k_desc(*descs, options), limits, path=path)
    names = ("input_tensor", "output_value_tensor", "output_index_tensor")
    run_plan(emulator.get_device(), plan, dict(zip(names, (x, values, indices), strict=True)))
    expected_values, expected_indices = top_k(content, k, axis)
    assert_identical(values.copy(), expected_values)
    assert_identical(indices.copy(), expected_indices.astype(np.uint32))
    return plan


# ---- GRU


@pytest.mark.parametrize("path", gru_paths.PATHS)
@pytest.mark.parametrize("name", MEMBERS)
@pytest.mark.parametrize("num_packed", [1, 0])
def test_layers(name: str, path: str, num_packed: int, rng: np.random.Generator) -> None:
    """One tensor with strides past 2**32 along every dimension, or all except the innermost."""
    options = Options(BIDIRECTIONAL)
    # More hidden units than a tile of the CPU's paths has: the next tile begins past 2**32 as well. A
    # recurrence weight of this H, with D 3H H elements, would need more addresses than a process has.
    hidden = 33 if gru_limits(path) is CPU and name != "r" else 6
    # A block of a single step has four sequences: the sequences of the next block begin past 2**32, too.
    lengths = [1, 0, 1, 1, 1] if path in ONE_STEP_PATHS else [2, 3]
    sizes = (3, len(lengths), 5, hidden)
    arrays = random_layer(rng, sizes, options, dtype=dtypes_of(path)[0], lengths=lengths, path=path)
    run_wide_layer(arrays, options, name, path, num_packed)


@pytest.mark.parametrize("path", ["block", "serial"])
@pytest.mark.parametrize("dtype", [np.int64, np.uint8])
def test_lengths_of_another_type(dtype: type, path: str, rng: np.random.Generator) -> None:
    """The kernels convert these lengths first."""
    options = Options()
    arrays = random_layer(rng, (3, 2, 5, 6), options, dtype=dtypes_of(path)[0], lengths=[2, 3])
    arrays = replace(arrays, lengths=arrays.lengths.astype(dtype))
    run_wide_layer(arrays, options, "lengths", path, 0)


@pytest.mark.parametrize("name", ["input", "hidden_init", "output_sequence", "output_single"])
@pytest.mark.parametrize("num_packed", [1, 0])
def test_layers_at_once(name: str, num_packed: int, rng: np.random.Generator) -> None:
    """A tensor of a wave with strides past 2**32."""
    case = Case(gru_stack(3, 3, 2, 5, 6), limits=GPU)
    operands = operands_of(case, rng)
    member = f"{name}_tensor"
    given = operands[member]
    operands[member] = wide = sparse_tensor(given.shape, given.dtype, wide_strides(given.shape, num_packed))
    wide[...] = given
    kind = case.descriptor.layers[0].input_tensor.data_type
    tensors = tuple((n, described(wide, kind) if n == member else one) for n, one in case.descriptor.tensors)
    plan = plan_gru(replace(case.descriptor, tensors=tensors), GPU)
    run_plan(emulator.get_device(), plan, operands)
    require_precise(case, {**operands, member: wide.copy()})


def run_wide_layer(arrays: Weights, options: Options, name: str, path: str, num_packed: int) -> None:
    """Run a layer in which one tensor has wide strides, and compare."""
    num_directions = options.num_directions
    num_steps, batch, _ = arrays.x.shape
    hidden = arrays.r.shape[-1]
    operands = {n: a for n in MEMBERS if (a := getattr(arrays, n, None)) is not None}
    operands["sequence"] = np.zeros((num_steps, num_directions, batch, hidden), arrays.x.dtype)
    operands["single"] = np.zeros((num_directions, batch, hidden), arrays.x.dtype)
    given = operands[name]
    wide = sparse_tensor(given.shape, given.dtype, wide_strides(given.shape, num_packed))
    wide[...] = given
    operands[name] = wide
    tensors = {
        MEMBERS[n]: four_dimensional(described(a, DataType[a.dtype.name.upper()]))
        for n, a in operands.items()
    }
    desc = GruDesc(
        **tensors,
        activation_descs=options.all_activations,
        direction=options.direction,
        linear_before_reset=options.linear_before_reset,
    )
    flags = ExecutionFlags(arrays.allows_tf32)
    plan = plan_gru(desc, gru_limits(path), flags=flags, path=path)
    run_plan(emulator.get_device(), plan, {MEMBERS[n]: a for n, a in operands.items()})
    got = {n: operands[n].copy() for n in ("sequence", "single")}
    assert_as_precise_as_numpy(got, arrays, options)


def gru_limits(path: str) -> Limits:
    return CPU if path in ("panels", "serial") else replace(GPU, num_multiprocessors=8)


def four_dimensional(desc: TensorDesc) -> TensorDesc:
    """The descriptor with dimensions of size 1 before its own."""
    missing = 4 - len(desc.sizes)
    return TensorDesc(desc.data_type, (1,) * missing + desc.sizes, (0,) * missing + desc.element_strides)
