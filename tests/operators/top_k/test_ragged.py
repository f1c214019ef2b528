"""Ragged rows: only the first elements of each row count; results missing to k have an index and a value."""

from dataclasses import replace

import numpy as np
import pytest

import cudml
from cudml.devices import Device, emulator
from cudml.dtypes import INTEGERS
from cudml.enums import AxisDirection, DataType
from cudml.operators.top_k.operator import RaggedTopKDesc, plan
from cudml.operators.top_k.paths import PATHS
from cudml.operators.top_k.rows import worst_value
from cudml.plans import Limits
from cudml.tensors import TensorDesc
from proof.oracle.top_k import BFLOAT16, ragged_top_k
from tests.support import assert_identical, to_device, to_numpy
from tests.support.kernel_cases import CPU, GPU
from tests.support.random_arrays import edge_values
from tests.support.top_k_runs import Options, dirty_workspace, element_type, output_sizes

#: A device with several blocks for each row, and one with few blocks, which take row after row.
SIX, ONE = replace(GPU, num_multiprocessors=6), replace(GPU, num_multiprocessors=1)

#: Number of rows, longest row, k, and the paths to take.
CASES = (
    (300, 21, 3, {"thread_list", "warp_select", "serial"}),
    (40, 64, 16, {"warp_select", "warp_sort", "serial"}),
    (9, 900, 300, {"warp_sort", "block_filter"}),
    (9, 2100, 300, {"block_sort", "block_filter"}),
    (5, 2100, 700, {"block_sort"}),
    (90, 250, 1, {"arg_max", "columns", "serial", "serial_arg_max"}),
    (6, 9001, 1, {"arg_max", "serial_arg_max"}),
    (6, 4501, 30, {"columns", "block_filter", "block_radix", "grid_radix", "serial"}),
    (6, 5001, 700, {"block_radix", "cluster", "grid_radix", "groups", "serial"}),
    (4, 9001, 300, {"cluster"}),
    (6, 700, 700, {"block_filter", "block_radix", "serial"}),
    (2, 80_000, 20, {"block_filter", "cluster", "groups"}),
)


def some_lengths(num_rows: int, longest: int, k: int, rng: np.random.Generator) -> np.ndarray:
    """Random lengths, and each special one: below k, 0, the whole row, k, negative, and beyond the row."""
    lengths = rng.integers(-2, longest + 3, num_rows)
    special = (k - 1, 0, longest, k, -1, longest + 1)[:num_rows]
    lengths[: len(special)] = special
    return lengths


def check(x: np.ndarray, lengths: np.ndarray, options: Options, limits: Limits) -> bool:
    """Compare a path with the oracle, if it can do this."""
    kind, sizes, out = element_type(x), x.shape, output_sizes(x.shape, options)
    axis = options.axis % x.ndim
    desc = RaggedTopKDesc(
        TensorDesc(kind, sizes),
        TensorDesc(kind, out),
        TensorDesc(options.index_type, out),
        axis,
        options.k,
        AxisDirection.DECREASING if options.largest else AxisDirection.INCREASING,
        TensorDesc.of(np.broadcast_to(lengths, (*sizes[:axis], 1, *sizes[axis + 1 :]))),
        worst_value(TensorDesc(kind, sizes).element, is_largest=options.largest),
    )
    try:
        chosen = plan(desc, limits, options.nan_last, path=options.path)
    except ValueError:
        return False
    expected = ragged_top_k(x, lengths, options.k, axis, largest=options.largest, nan_last=options.nan_last)
    values = np.full(out, 7).astype(x.dtype)
    indices = np.full(out, 77, f"u{TensorDesc(options.index_type, (1,)).element.size}")
    device = emulator.get_device()
    device.load(chosen)([x, lengths, values, indices], dirty_workspace(device, chosen))
    assert_identical(values, expected[0])
    assert_identical(indices, expected[1].astype(indices.dtype))
    return True


def test_a_path_of_rows_of_one_length() -> None:
    x, lengths = np.zeros((3, 900), np.float32), np.full((3, 1), 900)
    assert not check(x, lengths, Options(100, path="block_keep"), SIX)


@pytest.mark.parametrize("path", [path for path in PATHS if path != "block_keep"])
def test_every_path(path: str, rng: np.random.Generator) -> None:
    """Values that tie, NaN and the worst value itself among them, in both modes and orders of NaN."""
    num_done = 0
    for num_rows, longest, k, paths in CASES:
        if path not in paths:
            continue
        x = rng.integers(-9, 9, (num_rows, longest)).astype(np.float32)
        x[rng.random(x.shape) < 0.1] = np.nan
        x[rng.random(x.shape) < 0.1] = -np.inf
        x[rng.random(x.shape) < 0.1] = np.inf
        lengths = some_lengths(num_rows, longest, k, rng)
        for limits in (CPU,) if path.startswith("serial") else (SIX, ONE):
            for axis in (0, 1):
                options = Options(k, axis, bool(rng.integers(2)), bool(rng.integers(2)), path)
                given = (x, lengths[:, None]) if axis else (np.ascontiguousarray(x.T), lengths[None])
                num_done += check(*given, options, limits)
    assert num_done >= 4


@pytest.mark.parametrize("path", ["cluster", "groups"])
def test_missing_elements_are_not_ranked(path: str, rng: np.random.Generator) -> None:
    """All tie, so that they would fill a bucket of a row that has fewer elements than results."""
    x = rng.integers(0, 1 << 20, (1, 1106))
    compared = []
    for length in (400, 1106):
        with cudml.emulator_report() as report:
            assert check(x, np.array([[length]]), Options(1106, path=path), ONE)
        compared += [sum(launch.shared.bytes_read for launch in report.launches)]
    assert compared[0] < compared[1]


@pytest.mark.parametrize("dtype", ["uint8", "int16", "bfloat16", "float64", "int64"])
def test_other_widths(dtype: str, rng: np.random.Generator) -> None:
    """Kernels that load rows to shared storage by vectors, and a CPU's kernel."""
    kind = BFLOAT16 if dtype == "bfloat16" else np.dtype(dtype)
    for num_rows, longest, k in ((40, 64, 16), (9, 250, 40)):
        x = rng.choice(edge_values(kind), (num_rows, longest))
        for largest, limits in ((True, GPU), (False, GPU), (True, CPU), (False, CPU)):
            lengths = some_lengths(num_rows, longest, k, rng)[:, None]
            assert check(x, lengths, Options(k, 1, largest, largest), limits)
            columns = Options(min(k, 32), 0, largest, path=None if limits is CPU else "columns")
            assert check(np.ascontiguousarray(x.T), lengths.T, columns, limits)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_lengths_of_every_type(dtype: str, device: Device, rng: np.random.Generator) -> None:
    x = rng.integers(0, 40, (7, 40)).astype(np.float32)
    info = np.iinfo(dtype)
    lengths = np.array([[info.max], [0], [3], [39], [info.min], [40], [7]], dtype)
    got = cudml.top_k(to_device(device, x), 9, lengths=to_device(device, lengths))
    expected = ragged_top_k(x, lengths.astype(object).clip(0, 40).astype(int), 9, nan_last=True)
    assert_identical(to_numpy(got.values), expected[0])
    assert_identical(to_numpy(got.indices), expected[1])


@pytest.mark.parametrize("index_type", [DataType.UINT32, DataType.INT64])
@pytest.mark.parametrize("limits", [CPU, GPU], ids=["cpu", "gpu"])
def test_lengths_and_outputs_in_any_order(
    limits: Limits, index_type: DataType, rng: np.random.Generator
) -> None:
    """Strided, negative and broadcast lengths, and rows in several dimensions."""
    x = rng.integers(0, 9, (3, 30, 4, 2)).astype(np.int32)
    lengths = rng.integers(0, 33, (4, 1, 6, 2))
    for given in (
        lengths[:3, :, 1:5],
        lengths[2::-1, :, :4, ::-1],
        lengths[:1, :, :4],
        lengths[3:, :, 5:, :1],
    ):
        assert check(x, given, Options(5, 1, index_type=index_type), limits)


@pytest.mark.parametrize(
    ("path", "k"),
    [
        ("arg_max", 1),
        ("block_filter", 20),
        ("block_radix", 20),
        ("block_sort", 20),
        ("columns", 20),
        ("grid_radix", 20),
        ("thread_list", 3),
        ("warp_select", 16),
        ("warp_sort", 20),
    ],
)
def test_nothing_behind_the_length_is_read(path: str, k: int, rng: np.random.Generator) -> None:
    """Elements past a row's length are not loaded, though they outnumber the counted elements."""
    x, lengths = rng.random((3, 1000), np.float32), np.array([[5], [0], [90]])
    if path in ("columns", "thread_list"):
        x, lengths = x.T.copy(), lengths.T
    with emulator.schedule("forward"), cudml.emulator_report() as report:
        assert check(x, lengths, Options(k, 0 if lengths.shape[0] == 1 else 1, path=path), GPU)
    # Lanes without an element of their own repeat a load: sectors are counted, some of them for many loads.
    assert 0 < 32 * report.total("input_tensor").sectors_read <= x.nbytes / 3
