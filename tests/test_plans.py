"""Plans as values: the bytes of parameters, the offsets of workspaces, and the printed text."""

import ctypes
import importlib
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudml.plans import (
    Copy,
    Cycle,
    Fill,
    KernelLaunch,
    MatMul,
    ParamStruct,
    Plan,
    Workspace,
    ceil_div,
    round_up,
)
from proof.instances import operators, random_launches
from proof.sass.architectures import ARCHITECTURES
from tests.support.params import params_of

HOPPER = next(a.limits for a in ARCHITECTURES if a.number == 90)

C_KINDS = {
    "Int32": (ctypes.c_int32, -3),
    "UInt32": (ctypes.c_uint32, 2**32 - 1),
    "Int64": (ctypes.c_int64, -(2**40)),
    "UInt64": (ctypes.c_uint64, 2**64 - 1),
    "Float32": (ctypes.c_float, 1.5),
}

#: DML_TEMPORARY_BUFFER_ALIGNMENT of DirectML.h.
TEMPORARY_BUFFER_ALIGNMENT = 256


@given(st.lists(st.tuples(st.sampled_from(sorted(C_KINDS)), st.integers(1, 3)), min_size=1, max_size=9))
def test_parameters_are_packed_as_c_lays_out_a_struct(members: list[tuple[str, int]]) -> None:
    fields, given_members, values = [], {}, []
    for i, (kind, count) in enumerate(members):
        c_kind, value = C_KINDS[kind]
        fields.append((f"member{i}", c_kind * count))
        values.append((c_kind * count)(*[value] * count))
        given_members[f"member{i}"] = (kind, value if count == 1 else (value,) * count)
    structure = type("Structure", (ctypes.Structure,), {"_fields_": fields})
    assert params_of(**given_members).pack() == bytes(structure(*values))


@given(
    st.lists(st.tuples(st.sampled_from(sorted(C_KINDS)), st.booleans()), min_size=1, max_size=9),
    st.integers(1, 4),
)
def test_arrays_may_be_given_by_their_first_values(members: list[tuple[str, bool]], count: int) -> None:
    """The numbers of values come in any order, because the layout for each number is kept."""
    declared = [f"{kind} member{i}" + f"[{count}]" * is_array for i, (kind, is_array) in enumerate(members)]
    struct = ParamStruct(*declared)

    def values(num_values: int, num_zeros: int = 0) -> dict[str, Any]:
        return {
            f"member{i}": (C_KINDS[kind][1],) * num_values + (0,) * num_zeros
            if is_array
            else C_KINDS[kind][1]
            for i, (kind, is_array) in enumerate(members)
        }

    for n in (count, 0, *range(count)):
        assert struct.pack(values(n)) == ParamStruct(*declared).pack(values(n, count - n))


@pytest.mark.parametrize("given_values", [((1,), (1, 2)), ((1, 2, 3, 4), (1, 2, 3, 4)), ((), (1, 2, 3))])
def test_arrays_of_other_numbers_of_values_are_refused(given_values: tuple[tuple[int, ...], ...]) -> None:
    struct = ParamStruct("Int64 sizes[3], strides[3]")
    with pytest.raises(ValueError, match=r"must be \[3, 3\], or as many of every array: ParamStruct"):
        struct.pack(dict(zip(("sizes", "strides"), given_values, strict=True)))


@pytest.mark.parametrize("operator", operators())
def test_arrays_of_every_launch_are_whole_or_equally_long(operator: str) -> None:
    """`pack` checks it only for the first launch of a total number of values."""
    for launch in itertools.islice(random_launches(operator, HOPPER, np.random.default_rng(0)), 300):
        counts = [count for _, _, count in launch.params.struct.members]
        lengths = [len(field.values) for field in launch.params.fields]
        assert lengths == counts or len({n for n, c in zip(lengths, counts, strict=True) if c > 1}) == 1


@given(st.lists(st.integers(0, 2000), max_size=5))
def test_workspaces_are_aligned_and_apart_in_the_temporary_resource(sizes: list[int]) -> None:
    pieces = tuple(Workspace(f"piece{i}", size) for i, size in enumerate(sizes))
    plan = Plan("OP", (), (), pieces)
    starts = plan.offsets()
    assert list(starts) == [piece.name for piece in pieces]
    assert all(start % TEMPORARY_BUFFER_ALIGNMENT == 0 for start in starts.values())
    places = [(starts[piece.name], starts[piece.name] + piece.num_bytes) for piece in pieces]
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(places))
    last = max((end for _, end in places), default=0)
    assert last <= plan.temporary_bytes < last + TEMPORARY_BUFFER_ALIGNMENT


def test_pieces_that_are_left_zero_are_not_in_the_temporary_resource() -> None:
    zeros = (Workspace("first", 300, is_left_zero=True), Workspace("second", 8, is_left_zero=True))
    plan = Plan("OP", (), (), (zeros[0], Workspace("third", 1), zeros[1]))
    assert (plan.offsets(), plan.temporary_bytes) == ({"third": 0}, 256)
    assert (plan.offsets(left_zero=True), plan.zero_bytes) == ({"first": 0, "second": 512}, 768)


#: Kernels that leave their counters zero even if they give up a wait: tests/operators/test_waits.py.
LEAVE_ZEROS = ("gru_step",)


def test_kernels_that_may_give_up_have_no_memory_to_leave_zero() -> None:
    """Only the kernels of `LEAVE_ZEROS` leave it zero when they give up."""
    functions = set()
    for name, module in operators().items():
        plan_of = importlib.import_module(f"cudml.operators.{name}.operator").plan
        for descriptor in module.descriptors():
            plan = plan_of(descriptor, HOPPER)
            zeros = plan.offsets(left_zero=True)
            for step in plan.steps:
                if isinstance(step, KernelLaunch) and zeros.keys() & set(step.buffers):
                    assert not step.waits or step.function in LEAVE_ZEROS
                    functions.add(step.function)
    assert "top_k_block_filter" in functions


@pytest.mark.parametrize("multiple", [1, 3, 16])
@pytest.mark.parametrize("value", [0, 1, 15, 16, 17, 2**60 + 1])
def test_rounding_up_is_exact(value: int, multiple: int) -> None:
    assert ceil_div(value, multiple) == value // multiple + (value % multiple > 0)
    assert round_up(value, multiple) == ceil_div(value, multiple) * multiple


def test_a_plan_prints_its_workspaces_and_every_step() -> None:
    launch = KernelLaunch(
        source="op/rows.cu",
        function="op_rows",
        template=("Float32", True, 4),
        grid=(7, 2, 1),
        block=(128, 1, 1),
        buffers=("input_tensor", None, "sums"),
        params=params_of(num_rows=("Int64", 5), sizes=("Int64", (2, 3))),
        shared_bytes=64,
        cooperative=True,
        cluster_blocks=2,
    )
    plain = KernelLaunch(
        "op/all.cu", "op_all", (), (1, 1, 1), (32, 1, 1), ("out",), params_of(n=("Int32", 1))
    )
    steps = (
        launch,
        plain,
        MatMul("x", "w", "sums", 2, 3, 4, "float16"),
        MatMul("x", "w", "sums", 2, 3, 4, "float32", allows_tf32=True),
        Fill("sums", 24, 255),
        Fill("sums", 8),
        Copy("input_tensor", "out", 40, source_offset=8, target_offset=16),
        Copy("input_tensor", "out", 40),
    )
    plan = Plan(
        "OP",
        ("input_tensor", "out"),
        steps,
        (Workspace("sums", 24), Workspace("one", 1, is_left_zero=True)),
        ("out",),
    )
    assert str(plan).splitlines() == [
        "OP(input_tensor, out)",
        "  sums: 24 bytes temporary",
        "  one: 1 bytes left zero",
        "  op/rows.cu op_rows<Float32, true, 4>  grid (7, 2, 1) block (128, 1, 1) shared 64 cooperative "
        "cluster 2  (input_tensor, None, sums)  num_rows=5 sizes=[2, 3]",
        "  op/all.cu op_all  grid (1, 1, 1) block (32, 1, 1) shared 0  (out)  n=1",
        "  matmul sums[2, 3] = x @ w.T over 4, float16",
        "  matmul sums[2, 3] = x @ w.T over 4, float32 as TF32",
        "  fill sums 24 bytes with 0xff",
        "  fill sums 8 bytes with 0x00",
        "  copy 40 bytes of input_tensor from 8 to out at 16",
        "  copy 40 bytes of input_tensor from 0 to out at 0",
    ]


@pytest.mark.parametrize(
    ("order", "cycle"),
    [
        ("", None),
        ("a", None),
        ("ab", None),
        ("aba", None),
        ("aa", Cycle(0, 1, 2)),
        ("baaa", Cycle(1, 1, 3)),
        ("cababab", Cycle(1, 2, 3)),
        ("bababab", Cycle(1, 2, 3)),
        ("abcabcd", None),
        ("dcbabcabc", Cycle(3, 3, 2)),
    ],
)
def test_steps_that_the_end_of_a_plan_repeats(order: str, cycle: Cycle | None) -> None:
    steps = {name: Fill(name, 4) for name in order}
    assert Plan("TEST", ("a",), tuple(steps[name] for name in order)).cycle == cycle


def test_equal_steps_are_no_repetition() -> None:
    assert Plan("TEST", ("a",), (Fill("a", 4), Fill("a", 4))).cycle is None
