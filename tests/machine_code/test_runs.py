"""The machine code of every kernel instance for sm_90, run: its results, and that it writes nothing else.

Skipped where CuPy, NVRTC or nvdisasm is not installed: `pip install --group nvrtc`.
"""

import functools
import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from cudml.dtypes import BITS_BY_SIZE, ExtendedType
from cudml.enums import DataType, ExecutionFlags
from cudml.operators.gru.activations import Activation
from cudml.operators.slice.box import PLANES_MAX_ITEM_BYTES
from cudml.operators.top_k.lanes import SELECT_MAX_KS, SELECT_SHAPES
from cudml.plans import KernelLaunch
from proof.instances import batches
from proof.sass.compiler import unavailable
from proof.sass.plan import HOPPER, memory_of, run_plan
from tests.operators.test_sanitized import CASES
from tests.support.kernel_cases import (
    Case,
    copy,
    expected,
    gru,
    gru_stack,
    operands_of,
    require_precise,
    reversal,
    top_k,
)

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

ON_A_GPU = {name: case for name, case in CASES.items() if case.limits.warp_lanes == 32}

_BATCHES = [pytest.param(batch, id=batch[0].name_expression) for batch in batches(HOPPER.limits)]


@pytest.mark.parametrize("case", ON_A_GPU.values(), ids=ON_A_GPU)
def test_cases(case: Case, rng: np.random.Generator) -> None:
    require_right(case, rng)


@pytest.mark.parametrize("batch", _BATCHES)
def test_instances(batch: list[KernelLaunch], rng: np.random.Generator) -> None:
    for instance in batch:
        require_right(cases_of_instances()[instance.source, instance.name_expression], rng)


#: Size of a word -> the type of a floating-point number of it.
FLOATS_BY_SIZE = {2: DataType.FLOAT16, 4: DataType.FLOAT32, 8: DataType.FLOAT64}


@functools.cache
def cases_of_instances() -> dict[tuple[str, str], Case]:
    """A small case for each kernel instance that a plan can choose."""
    found: dict[tuple[str, str], Case] = {}
    for case in candidates():
        for launch in case.launches():
            found.setdefault((launch.source, launch.name_expression), case)
    return found


def candidates() -> Iterator[Case]:
    for size, element in BITS_BY_SIZE.items():
        if size <= 8:
            for sizes, axis, k, path in (
                *(((300, 20), 1, k, "thread_list") for k in (1, 2, 3, 4)),
                ((300, 20), 1, 1, "arg_max"),
                ((9, 200), 1, 1, "arg_max"),
                ((9, 260), 1, 1, "arg_max"),
                ((3, 9001), 1, 1, "arg_max"),
                *(
                    ((length, 20), 0, k, "columns")
                    for length in (700, 3000)
                    for k in (9, 30, 60, 100)
                    if k <= (128 if size < 8 else 32)
                ),
                ((37, 60), 1, 60, "warp_sort"),
                ((9, 250), 1, 140, "warp_sort"),
                ((3, 900), 1, 100, "warp_sort"),
                ((3, 900), 1, 200, "warp_sort"),
                ((3, 900), 1, 300, "warp_sort"),
                ((3, 900), 1, 600, "warp_sort"),
                *(
                    ((3, length), 1, k, "block_sort")
                    for length in (1501, 4001)
                    for k in (60, 130, 300)
                    if size < 8
                ),
                *(
                    ((3, length), 1, 700, "block_sort")
                    for length in (1501, 4001, 6001, 8001, 12_001)
                    if length < {1: 12_288, 2: 12_288, 4: 6144, 8: 0}[size]
                ),
                ((3, 9001), 1, 50, "block_filter"),
                *(((3, length), 1, k, "block_keep") for length, k in ((4001, 500), (9001, 3000))),
                ((3, 9001), 1, 50, "groups"),
                ((2, 9001), 1, 300, "cluster"),
                ((3, 5001), 1, 100, "block_radix"),
                ((2, 5001), 1, 50, "grid_radix"),
            ):
                for length_type in (None,) if path == "block_keep" else (None, DataType.INT32):
                    rows = top_k(sizes, k, element, axis=axis, length_type=length_type)
                    yield Case(rows, path, HOPPER.limits)
                    if path == "cluster":  # of four blocks, of two and of one
                        for num_multiprocessors in (9, 4, 2):
                            limits = replace(HOPPER.limits, num_multiprocessors=num_multiprocessors)
                            yield Case(rows, path, limits)
                    if path == "block_radix":  # lists in memory
                        yield Case(rows, path, replace(HOPPER.limits, shared_bytes_per_block=16384))
            # More rows than are sorted whole.
            for length_type in (None, DataType.INT32):
                rows = top_k((13, 250), 40, element, length_type=length_type)
                yield Case(rows, "warp_sort", replace(HOPPER.limits, num_multiprocessors=1))
        if size in FLOATS_BY_SIZE:
            for k, length_type in itertools.product((1, 2, 3, 4), (None, DataType.INT32)):
                rows = top_k((300, 20), k, FLOATS_BY_SIZE[size], length_type=length_type)
                yield Case(rows, "thread_list", HOPPER.limits)
        # Few rows, which may have more lanes each, and many.
        for shapes, most in zip(SELECT_SHAPES.get(size, ()), SELECT_MAX_KS, strict=False):
            for shape, num_multiprocessors, length_type in itertools.product(
                shapes, (HOPPER.limits.num_multiprocessors, 1), (None, DataType.INT32)
            ):
                limits = replace(HOPPER.limits, num_multiprocessors=num_multiprocessors)
                num_rows = 3 if num_multiprocessors > 1 else 40
                rows = top_k((num_rows, shape.capacity - 3), most - 1, element, length_type=length_type)
                yield Case(rows, "warp_select", limits)
        for desc, path in (
            (copy((3, 6000), element, (1, 3), offsets=(0, 1), out_pad=1), "gather"),
            (copy((40, 40, 20), element, (2, -3, 9)), "gather"),
            (copy((2, 66_000), element, (1, -2)), "gather"),
            (reversal((9, 301), element, 1, pad=1), "lanes"),
            (reversal((3, 20, 150), element, 1, one_length_a_row=True), "rows"),
            (reversal((30, 70), element, 0, pad=3), "columns"),
            (reversal((300, 7), element, 1), "boxes"),
            (reversal((300, 7), element, 1, pad=1), "gather"),
            (reversal((1900, 5, 7), element, 1), "boxes"),
            (reversal((3000, 3), element, 0), "columns"),
        ):
            yield Case(desc, path, HOPPER.limits)
        yield Case(copy((5000,), element, (1,), offsets=(3,)), "runs", HOPPER.limits)
        yield Case(copy((260, 70), element, (1, -1), strides=(1, 263)), "transpose", HOPPER.limits)
        for pixel in (2, 3, 4) if size <= PLANES_MAX_ITEM_BYTES else ():
            for sizes, strides in (((pixel, 400), (1, pixel)), ((400, pixel), (1, 400))):
                pixels = copy((3, *sizes), element, (1, 1, 1), strides=(1601, *strides))
                yield Case(pixels, "planes", HOPPER.limits)
    others = (Activation.hard_sigmoid(0.2, 0.5), Activation.tanh())
    standard = (Activation.sigmoid(), Activation.tanh())
    for data_type, activations, is_linear, path in itertools.product(
        (DataType.FLOAT32, DataType.FLOAT16, ExtendedType.BFLOAT16),
        (standard, others),
        (True, False),
        ("block", "grid", "matrix_grid", "products", "split_products", "rounded_products"),
    ):
        is_single = data_type is DataType.FLOAT32
        flags = ExecutionFlags(path == "rounded_products")
        of_type = {"matrix_grid": not is_single, "split_products": is_single, "rounded_products": is_single}
        if of_type.get(path, True):
            layer = gru(
                3, 3, 2, 40, data_type=data_type, activations=activations, linear_before_reset=is_linear
            )
            yield Case(layer, path, HOPPER.limits, flags=flags)
            # One, three and four chunks of weights in registers; the layer above has two.
            for hidden in (10, 70, 100) if path == "block" else ():
                layer = gru(
                    3,
                    3,
                    2,
                    hidden,
                    data_type=data_type,
                    activations=activations,
                    linear_before_reset=is_linear,
                )
                yield Case(layer, path, HOPPER.limits)
            # With few multiprocessors, or more units than one pass has, a block has several sequences, rounds
            # or passes: items are not fixed. With matrix instructions, a block has more units. Split products
            # have more chunks than shared storage.
            few = {
                "matrix_grid": ((3, 40, 2), (20, 40, 2), (20, 40, 3)),
                "block": ((3, 136, 1),),
                "split_products": ((3, 40, 1), (3, 198, 1), (66, 200, 132)),
                "rounded_products": ((3, 40, 1), (3, 330, 1), (66, 200, 132)),
            }
            for batch, hidden, number in few.get(path, ((3, 40, 1),)):
                layer = gru(
                    3,
                    batch,
                    2,
                    hidden,
                    data_type=data_type,
                    activations=activations,
                    linear_before_reset=is_linear,
                )
                yield Case(layer, path, replace(HOPPER.limits, num_multiprocessors=number), flags=flags)
        for batch in (1, 6) if path == "block" else ():
            layer = gru(
                1, batch, 12, 40, data_type=data_type, activations=activations, linear_before_reset=is_linear
            )
            yield Case(layer, "step", HOPPER.limits)
        if path == "grid":
            layers = gru_stack(
                2, 4, 3, 2, 20, data_type=data_type, activations=activations, linear_before_reset=is_linear
            )
            for number in (HOPPER.limits.num_multiprocessors, 4):
                yield Case(layers, "wave", replace(HOPPER.limits, num_multiprocessors=number))
    yield Case(gru(3, 3, 2, 40, length_type=DataType.INT64), limits=HOPPER.limits)


def require_right(case: Case, rng: np.random.Generator) -> None:
    """The oracle's outputs; each byte is written once, and no gap is written."""
    plan = case.plan()
    operands = operands_of(case, rng)
    memory = {name: memory_of(operands[name]) for name in plan.operands}
    buffers = run_plan(plan, memory)
    for name in plan.outputs:
        array, written = operands[name], buffers[name].written
        assert written is not None
        covered = np.zeros_like(written)
        bytes_of = np.lib.stride_tricks.as_strided(
            covered, (*array.shape, array.itemsize), (*array.strides, 1)
        )
        bytes_of[...] = 1
        np.testing.assert_array_equal(written, covered, err_msg=f"{name}: stores to each byte")
    if case.operator == "gru":
        require_precise(case, operands)
        return
    assert {name: memory[name].tobytes() for name in plan.outputs} == expected(case, operands)
