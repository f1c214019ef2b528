"""Every intrinsic that the emulator offers, against NumPy, in every thread order."""

import re

import ml_dtypes
import numpy as np
import pytest

from cudml.devices import emulator, sources
from tests.devices.emulator.support import EVERY_ORDER, launch
from tests.support.params import params_of

NUM_THREADS = 96
NUM_BLOCKS = 3
NUM = NUM_THREADS * NUM_BLOCKS
#: Rows that the kernel `floats` writes.
NUM_FLOAT_ROWS = 29

every_order = pytest.mark.parametrize(("order", "seed"), EVERY_ORDER)


def table(rows: list[np.ndarray]) -> np.ndarray:
    """Expected rows as the kernels store them: the value's bits in the low bytes of 64."""
    result = np.zeros((len(rows), NUM), np.uint64)
    for row, values in zip(result, rows, strict=True):
        row.view(values.dtype)[:: 8 // values.itemsize] = values
    return result


def assert_rows_equal(got: np.ndarray, expected: list[np.ndarray]) -> None:
    wanted = table(expected)
    assert got.shape == wanted.shape
    different = np.argwhere(got != wanted)
    assert not len(different), (
        f"row {different[0][0]} column {different[0][1]}: {got[tuple(different[0])]:#x}, "
        f"expected {wanted[tuple(different[0])]:#x}"
    )


def some_uint64(rng: np.random.Generator) -> np.ndarray:
    """Random words, sparse ones, and the corner cases."""
    words = rng.integers(0, 2**64, NUM, np.uint64) >> rng.integers(0, 64, NUM, np.uint64)
    words[:6] = (0, 1, 2**63, 2**64 - 1, 2**31, 2**32)
    return words


def bits_of(word: int, width: int) -> str:
    return format(word & (2**width - 1), f"0{width}b")


def elementwise(function: object, dtype: type, *arrays: np.ndarray) -> np.ndarray:
    """A Python function of ints over arrays; its results modulo the dtype's size."""
    mask = 2 ** (8 * np.dtype(dtype).itemsize) - 1
    values = [function(*map(int, each)) & mask for each in zip(*arrays, strict=True)]  # type: ignore[operator]
    return np.array(values, f"u{np.dtype(dtype).itemsize}").view(dtype)


def byte_perm(low: int, high: int, selector: int) -> int:
    data = (high << 32 | low).to_bytes(8, "little")
    picked = [(selector >> 4 * i) & 15 for i in range(4)]
    return int.from_bytes(
        bytes((255 if data[n & 7] >> 7 else 0) if n & 8 else data[n & 7] for n in picked), "little"
    )


@every_order
def test_integer_functions(order: str, seed: int, rng: np.random.Generator) -> None:
    a, b = some_uint64(rng), some_uint64(rng)[::-1].copy()
    c = rng.integers(0, 2**32, NUM, np.uint64)
    c[::2] &= 0x3F
    out = np.zeros((32, NUM), np.uint64)
    with emulator.schedule(order, seed):
        buffers = {"a": a, "b": b, "c": c, "out": out}
        launch("functions.cu", "integers", buffers, params_of(n=("Int64", NUM)), grid=3, block=NUM_THREADS)
    x, y, s = (v.astype(np.uint32) for v in (a, b, c))
    ix, iy, ia, ib = x.view(np.int32), y.view(np.int32), a.view(np.int64), b.view(np.int64)
    expected = [
        elementwise(lambda v: v.bit_count(), np.int32, x),
        elementwise(lambda v: v.bit_count(), np.int32, a),
        elementwise(lambda v: 32 - v.bit_length(), np.int32, x),
        elementwise(lambda v: 64 - v.bit_length(), np.int32, a),
        elementwise(lambda v: (v & -v).bit_length(), np.int32, x),
        elementwise(lambda v: (v & -v).bit_length(), np.int32, a),
        elementwise(lambda v: int(bits_of(v, 32)[::-1], 2), np.uint32, x),
        elementwise(lambda v: int(bits_of(v, 64)[::-1], 2), np.uint64, a),
        elementwise(byte_perm, np.uint32, x, y, s),
        elementwise(lambda lo, hi, n: (hi << 32 | lo) << (n % 32) >> 32, np.uint32, x, y, s),
        elementwise(lambda lo, hi, n: (hi << 32 | lo) >> (n % 32), np.uint32, x, y, s),
        elementwise(lambda lo, hi, n: (hi << 32 | lo) << min(n, 32) >> 32, np.uint32, x, y, s),
        elementwise(lambda lo, hi, n: (hi << 32 | lo) >> min(n, 32), np.uint32, x, y, s),
        elementwise(lambda v, w: v * w >> 32, np.int32, ix, iy),
        elementwise(lambda v, w: v * w >> 32, np.uint32, x, y),
        elementwise(lambda v, w: v * w >> 64, np.int64, ia, ib),
        elementwise(lambda v, w: v * w >> 64, np.uint64, a, b),
        x,
        ix,
        ia,
        np.minimum(ix, iy),
        np.maximum(ix, iy),
        np.minimum(a, b),
        np.maximum(x, b),
        (x.view(np.int16) >> 15).view(np.uint32),
        np.maximum(x.view(np.uint16) + y.view(np.uint16), s.view(np.uint16)).view(np.uint32),
        *[a] * 6,
    ]
    assert_rows_equal(out, expected)


def saturated(values: np.ndarray, dtype: type) -> np.ndarray:
    info = np.iinfo(dtype)
    values = np.where(np.isnan(values), 0, values.astype(np.float64))
    return np.clip(values, info.min, info.max).astype(dtype)


def some_floats(rng: np.random.Generator) -> np.ndarray:
    """Random bits without NaN, and the corner cases."""
    values = rng.integers(0, 2**32, NUM, np.uint32).view(np.float32)
    values[np.isnan(values)] = 1.0
    values[: NUM // 2] = rng.normal(0, 3, NUM // 2)
    corners = (0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, np.inf, -np.inf, 2.0**31, -(2.0**31), 2.0**32, 1e-45)
    values[: len(corners)] = corners
    return values


@every_order
@np.errstate(all="ignore")
def test_float_functions(order: str, seed: int, rng: np.random.Generator) -> None:
    a, b = some_floats(rng), rng.permutation(some_floats(rng))
    a[-1], b[-2] = np.nan, np.nan
    out = np.zeros((NUM_FLOAT_ROWS, NUM), np.uint64)
    with emulator.schedule(order, seed):
        buffers = {"a": a, "b": b, "c": b, "out": out}
        launch("functions.cu", "floats", buffers, params_of(n=("Int64", NUM)), grid=3, block=NUM_THREADS)
    ia, ib = a.view(np.int32), b.view(np.int32)
    ua, ub = a.view(np.uint32), b.view(np.uint32)
    halves = (ua & 0xFFFF).astype(np.uint16).view(np.float16)
    to_half = a.astype(np.float16)
    to_half.view(np.uint16)[np.isnan(to_half)] = 0x7FFF
    to_bfloat = a.astype(ml_dtypes.bfloat16).view(np.uint16)
    to_bfloat[np.isnan(a)] = 0x7FFF
    expected = [
        np.fmin(a, b),
        np.fmax(a, b),
        a + b,
        a - b,
        a * b,
        a / b,
        a / b,
        np.float32(1) / a,
        np.sqrt(np.abs(a)),
        np.float32(1) / np.sqrt(np.abs(a)),
        np.where(np.isnan(a), 0, np.clip(a, 0, 1)).astype(np.float32),
        *(saturated(f(a), np.int32) for f in (np.rint, np.trunc, np.floor, np.ceil)),
        *(saturated(f(a), np.uint32) for f in (np.rint, np.trunc, np.floor, np.ceil)),
        ia.astype(np.float32),
        ua.astype(np.float32),
        (ia.astype(np.int64) * ib).astype(np.float32),
        (ua.astype(np.uint64) * ub).astype(np.float32),
        (a.astype(np.float64) * b).astype(np.float32),
        to_half,
        to_bfloat,
        halves.astype(np.float32),
    ]
    got = np.delete(out, (2, 3), axis=0)  # the fused multiply-adds have a test of their own
    for row, values in enumerate(expected):
        if values.dtype.kind == "f":
            # Nobody promises which NaN comes out, nor which zero from min, max and __saturatef.
            stored = got[row].view(values.dtype)[:: 8 // values.itemsize]
            both = np.isnan(stored) & np.isnan(values)
            if row in (0, 1, 10):
                both |= (stored == 0) & (values == 0)
            stored[both], values[both] = 0, 0
    assert_rows_equal(got, expected)


@every_order
def test_fused_multiply_add_rounds_once(order: str, seed: int, rng: np.random.Generator) -> None:
    a, b, c = (rng.integers(-(2**20), 2**20, NUM).astype(np.float32) for _ in range(3))
    out = np.zeros((NUM_FLOAT_ROWS, NUM), np.uint64)
    with emulator.schedule(order, seed):
        buffers = {"a": a, "b": b, "c": c, "out": out}
        launch("functions.cu", "floats", buffers, params_of(n=("Int64", NUM)), grid=3, block=NUM_THREADS)
    exact = a.astype(np.float64) * b + c  # 41 bits at most
    for row in (2, 3):
        np.testing.assert_array_equal(out[row].view(np.float32)[::2], exact.astype(np.float32))
    assert (a * b + c != exact.astype(np.float32)).any()


@every_order
def test_storage_is_read_in_another_type(order: str, seed: int, rng: np.random.Generator) -> None:
    """A C++ compiler may assume that this never happens, unless it is told otherwise."""
    written, before = (rng.integers(-1000, 1000, NUM).astype(np.float32) for _ in range(2))
    storage, out = before.copy(), np.zeros(NUM, np.float32)
    buffers = {"bits": written.view(np.uint32), "words": storage, "floats": storage, "out": out}
    with emulator.schedule(order, seed):
        n = params_of(n=("Int64", NUM))
        launch("functions.cu", "read_as_another_type", buffers, n, grid=3, block=NUM_THREADS)
    np.testing.assert_array_equal(out, written - before)


@every_order
def test_fast_float_functions(order: str, seed: int, rng: np.random.Generator) -> None:
    """Within two units of the last place of the correctly rounded value: the host's library is that good."""
    a = rng.uniform(-5, 5, NUM).astype(np.float32)
    b = rng.uniform(0.01, 100, NUM).astype(np.float32)
    out = np.zeros((14, NUM), np.uint64)
    with emulator.schedule(order, seed):
        buffers = {"a": a, "b": b, "out": out}
        launch("functions.cu", "fast_floats", buffers, params_of(n=("Int64", NUM)), grid=3, block=NUM_THREADS)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    expected = [
        np.exp(wide_a),
        10**wide_a,
        np.log(wide_b),
        np.log2(wide_b),
        np.log10(wide_b),
        np.sin(wide_a),
        np.cos(wide_a),
        np.tan(wide_a),
        wide_b**wide_a,
        np.tanh(wide_a),
        None,
        1 / np.sqrt(wide_b),
        np.exp2(wide_a),
        1 / wide_b,
    ]
    for row, values in enumerate(expected):
        if values is None:
            assert (np.abs(out[row].view(np.float64) * np.sqrt(wide_b) - 1) < 1e-15).all()
        else:
            got = out[row].view(np.float32)[::2]
            ulp = np.spacing(np.abs(values).astype(np.float32))
            assert (np.abs(got - values) <= 2 * ulp).all(), f"row {row}"


@np.errstate(all="ignore")
def test_functions_of_both_float_types(rng: np.random.Generator) -> None:
    """float32 gives float32, and the other half of its place stays 0; within two units of the last place."""
    a = rng.uniform(-5, 5, NUM).astype(np.float32)
    b = rng.uniform(0.01, 100, NUM).astype(np.float32)
    a[:6] = np.nan, np.inf, -np.inf, -0.0, 2.5, -2.5
    out = np.zeros((36, NUM), np.uint64)
    buffers = {"a": a, "b": b, "out": out}
    launch("functions.cu", "overloads", buffers, params_of(n=("Int64", NUM)), grid=3, block=NUM_THREADS)
    for dtype, rows in ((np.float32, out[:18]), (np.float64, out[18:])):
        x, y = a.astype(np.longdouble), b.astype(np.longdouble)
        classes = np.isnan(a) | np.isinf(a) << 1 | np.isfinite(a) << 2 | np.signbit(a) << 3
        expected = [
            np.ceil(x),
            np.floor(x),
            np.trunc(x),
            np.copysign(np.floor(np.abs(x) + 0.5), x),
            np.abs(x),
            np.abs(x),
            np.sqrt(y),
            np.exp(x),
            np.log(y),
            np.sin(x),
            np.tanh(x),
            y**x,
            np.fmin(x, y),
            np.fmax(x, y),
            np.copysign(y, x),
            x * y + x,
            x * 8,
        ]
        for row, values in enumerate(expected):
            got = rows[row].view(dtype)[:: 8 // np.dtype(dtype).itemsize]
            finite = np.isfinite(values)
            np.testing.assert_array_equal(got[~finite], values[~finite].astype(dtype), f"row {row}")
            ulp = np.spacing(np.abs(values[finite]).astype(dtype))
            assert (np.abs(got[finite] - values[finite]) <= 2 * ulp).all(), f"row {row}"
            assert dtype == np.float64 or not (rows[row] >> 32).any(), f"row {row} is no float32"
        np.testing.assert_array_equal(rows[17], classes.astype(np.uint64))


@every_order
@np.errstate(all="ignore")
def test_half_precision(order: str, seed: int, rng: np.random.Generator) -> None:
    a, b, c = (rng.integers(0, 2**16, NUM, np.uint16) for _ in range(3))
    out = np.zeros((15, NUM), np.uint16)
    with emulator.schedule(order, seed):
        buffers = {"a": a, "b": b, "c": c, "out": out}
        launch("half.cu", "halves", buffers, params_of(n=("Int64", NUM)), grid=3, block=NUM_THREADS)
    ha, hb, hc = (v.view(np.float16) for v in (a, b, c))
    wide = [v.astype(np.longdouble) for v in (ha, hb, hc)]  # 64 bits: sums of half products are exact
    # float16 spans 2^-24 to 2^16, a product 2^-48: a rounding of 64 bits can hide a tie from a double only.
    fma = (wide[0] * wide[1] + wide[2]).astype(np.float16)
    fma_b = (wide[1] * wide[2] + wide[0]).astype(np.float16)
    single = ha.astype(np.float32)
    expected = [
        ha + hb,
        ha - hb,
        ha * hb,
        ha / hb,
        -ha,
        np.abs(ha),
        fma,
        (single * np.float32(3)).astype(np.float16),
        (np.float32(1) / single).astype(np.float16),
        fma,
        fma_b,
        hb + hc,
        ha * hb,
        fma_b,
    ]
    for row, values in enumerate(expected):
        got = out[row].view(np.float16)
        same = (out[row] == values.view(np.uint16)) | (np.isnan(got) & np.isnan(values))
        assert same.all(), f"row {row}: {got[~same][0]} instead of {values[~same][0]}"
    flags = (ha == hb) * 1 | (ha < hb) * 2 | (ha > hb) * 4 | np.isnan(ha) * 8
    np.testing.assert_array_equal(out[14], flags)


@pytest.mark.parametrize(
    ("cpp", "dtype"),
    [
        ("Int32", np.int32),
        ("UInt32", np.uint32),
        ("Int64", np.int64),
        ("UInt64", np.uint64),
        ("Float32", np.float32),
        ("Float64", np.float64),
    ],
)
@pytest.mark.parametrize(("width", "amount"), [(32, 1), (32, 31), (16, 5), (8, 3), (4, 7), (1, 1)])
def test_shuffles(cpp: str, dtype: type, width: int, amount: int, rng: np.random.Generator) -> None:
    x = rng.integers(0, 2**31, NUM).astype(dtype)
    lanes = np.arange(NUM) % 32
    start = lanes - lanes % width
    thread = np.arange(NUM) % NUM_THREADS
    sources = [
        start + (amount + thread) % width,
        np.where(lanes - amount < start, lanes, lanes - amount),
        np.where(lanes + amount >= start + width, lanes, lanes + amount),
        np.where((lanes ^ amount) >= start + width, lanes, lanes ^ amount),
    ]
    warp_start = np.arange(NUM) // 32 * 32
    expected = np.stack([x[warp_start + source] for source in sources])
    for order, seed in EVERY_ORDER:
        out = np.zeros((4, NUM), dtype)
        params = params_of(mask=("UInt32", 0), width=("Int32", width), amount=("Int32", amount))
        with emulator.schedule(order, seed, strict=True):
            buffers = {"x": x, "out": out}
            launch("collectives.cu", "shuffles", buffers, params, template=(cpp,), grid=3, block=NUM_THREADS)
        np.testing.assert_array_equal(out, expected, f"{order} {seed}")


@every_order
@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0x0000FFFF, 0x5A5A1234, 0x00000001])
def test_votes_matches_and_reductions(order: str, seed: int, mask: int, rng: np.random.Generator) -> None:
    x = rng.integers(-(2**31), 2**31, NUM).astype(np.int32)
    x[:64] = rng.integers(0, 3, 64)  # equal values, so that matches happen
    x[64:96] |= 5  # a warp with all predicates set
    out = np.zeros((15, NUM), np.int32)
    with emulator.schedule(order, seed):
        params = params_of(mask=("UInt32", mask), width=("Int32", 0), amount=("Int32", 0))
        launch("collectives.cu", "votes", {"x": x, "out": out}, params, grid=3, block=NUM_THREADS)
    expected = np.zeros((15, NUM), np.uint32)
    for start in range(0, NUM, 32):
        inside = np.array([mask >> lane & 1 for lane in range(32)], bool)
        for chosen in (inside, ~inside):
            lanes = np.flatnonzero(chosen)
            if not len(lanes):
                continue
            v = x[start + lanes]
            u = v.view(np.uint32)
            bits = np.uint32(1) << lanes.astype(np.uint32)
            odd = (v & 1).astype(bool)
            all_equal = len(set(v & 4)) == 1
            expected[:, start + lanes] = np.stack(
                [
                    np.full(len(lanes), value) if np.ndim(value) == 0 else value
                    for value in (
                        bits[odd].sum(),
                        odd.all(),
                        odd.any(),
                        np.array([bits[v == one].sum() for one in v]),
                        bits.sum() if all_equal else 0,
                        all_equal,
                        u.sum(dtype=np.uint32),
                        u.sum(dtype=np.uint32),
                        v.min().view(np.uint32),
                        u.min(),
                        v.max().view(np.uint32),
                        u.max(),
                        np.bitwise_and.reduce(u),
                        np.bitwise_or.reduce(u),
                        np.bitwise_xor.reduce(u),
                    )
                ]
            ).astype(np.uint32)
    np.testing.assert_array_equal(out.view(np.uint32), expected)


NO_PARAMS = params_of(mask=("UInt32", 0), width=("Int32", 0), amount=("Int32", 0))


@every_order
@pytest.mark.parametrize("num_threads", [1, 31, 32, 96, 1024])
def test_block_barriers(order: str, seed: int, num_threads: int, rng: np.random.Generator) -> None:
    x = rng.integers(0, 100, (NUM_BLOCKS, num_threads), np.int32)
    x[1] |= 1  # a block in which all, and one in which no predicate holds
    x[2] &= ~1
    out = np.zeros((4, NUM_BLOCKS, num_threads), np.int32)
    with emulator.schedule(order, seed, strict=True, guard=True, poison=0x7FC00000):
        buffers = {"x": x, "out": out}
        launch("collectives.cu", "barriers", buffers, NO_PARAMS, grid=3, block=num_threads, shared_bytes=4096)
    odd = x & 1
    per_block = [x[:, ::-1], odd.any(1)[:, None], odd.all(1)[:, None], odd.sum(1)[:, None]]
    np.testing.assert_array_equal(out, np.stack([np.broadcast_to(v, x.shape) for v in per_block]))


@every_order
def test_named_barriers(order: str, seed: int, rng: np.random.Generator) -> None:
    x = rng.integers(0, 100, 128, np.int32)
    out = np.zeros((4, 128), np.int32)
    with emulator.schedule(order, seed):
        buffers = {"x": x, "out": out}
        launch("collectives.cu", "named_barriers", buffers, NO_PARAMS, block=128, shared_bytes=4096)
    rolled = np.roll(x.reshape(2, 64), -1, axis=1).ravel()
    np.testing.assert_array_equal(out, [np.ones(128), rolled, rolled + 1, rolled + 2])


@every_order
@pytest.mark.parametrize("cluster_blocks", [2, 4, 8])
def test_clusters(order: str, seed: int, cluster_blocks: int, rng: np.random.Generator) -> None:
    x = rng.integers(0, 100, (3, cluster_blocks, 64), np.int32)
    out = np.zeros((2, *x.shape), np.int32)
    params = params_of(mask=("UInt32", 0), width=("Int32", 0), amount=("Int32", cluster_blocks))
    options = {"block": 64, "shared_bytes": 4096, "cluster_blocks": cluster_blocks}
    with emulator.schedule(order, seed, strict=True):
        launch("collectives.cu", "clusters", {"x": x, "out": out}, params, grid=3 * cluster_blocks, **options)
    ranks = np.broadcast_to(np.arange(cluster_blocks)[:, None], x.shape)
    np.testing.assert_array_equal(out, [ranks, np.roll(x, -1, axis=1)])


@every_order
@pytest.mark.parametrize(("num_blocks", "num_threads"), [(1, 64), (5, 40), (16, 1)])
def test_barrier_of_a_cooperative_grid(order: str, seed: int, num_blocks: int, num_threads: int) -> None:
    rounds, n = 4, num_blocks * num_threads
    counter, values, out = np.zeros(1, np.uint32), np.zeros(n, np.int32), np.zeros((rounds, n), np.int32)
    params = params_of(mask=("UInt32", 0), width=("Int32", 0), amount=("Int32", rounds))
    with emulator.schedule(order, seed, strict=True):
        buffers = {"counter": counter, "values": values, "out": out}
        options = {"grid": num_blocks, "block": num_threads, "cooperative": True}
        launch("collectives.cu", "grid_rounds", buffers, params, **options)
    shifted = (np.arange(n) + num_threads) % n
    np.testing.assert_array_equal(out, shifted + np.arange(rounds)[:, None])


@pytest.mark.parametrize("num_quads", [1, 64, 70])
def test_copies_of_quads_come_when_they_are_waited_for(num_quads: int, rng: np.random.Generator) -> None:
    """They come no earlier, except a copy after which 64 more have started."""
    x = rng.random((2, 2, 4 * num_quads), np.float32)
    early, late = np.zeros_like(x), np.zeros_like(x)
    params = params_of(num_floats=("Int64", 4 * num_quads))
    buffers = {"x": x, "early": early, "late": late}
    launch("quad_copies.cu", "quad_copies", buffers, params, block=2, shared_bytes=4480)
    np.testing.assert_array_equal(late, x)
    num_early = 4 * max(0, num_quads - 64)
    np.testing.assert_array_equal(early[..., :num_early], x[..., :num_early])
    np.testing.assert_array_equal(early[0, :, num_early:], -1)
    np.testing.assert_array_equal(early[1, :, num_early:], x[0, :, num_early:])


@pytest.mark.parametrize("num_stages", [1, 2, 3, 7])
def test_copies_in_stages_come_when_their_stage_is_waited_for(
    num_stages: int, rng: np.random.Generator
) -> None:
    """All but the two last stages have come when two may be late, and all when none may."""
    x = rng.random((num_stages, 2, 8), np.float32)
    early, late = np.zeros_like(x), np.zeros_like(x)
    params = params_of(num_stages=("Int32", num_stages))
    buffers = {"x": x, "early": early, "late": late}
    launch("staged_copies.cu", "staged_copies", buffers, params, block=2, shared_bytes=512)
    np.testing.assert_array_equal(late[..., :5], x[..., :5])
    there = max(0, num_stages - 2)
    np.testing.assert_array_equal(early[:there, :, :5], x[:there, :, :5])
    np.testing.assert_array_equal(early[there:, :, :5], -1)


OPERATIONS = (np.add, np.minimum, np.maximum, np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.add)
COUNTERS = 7


@pytest.mark.parametrize("memory", ["on_global", "on_shared"])
@pytest.mark.parametrize(
    ("cpp", "dtype", "operations"),
    [
        ("Int32", np.int32, range(7)),
        ("UInt32", np.uint32, range(7)),
        ("UInt64", np.uint64, range(7)),
        ("Int64", np.int64, (1, 2)),
        ("Float32", np.float32, (0,)),
        ("Float64", np.float64, (0,)),
    ],
)
def test_atomics(memory: str, cpp: str, dtype: type, operations: range, rng: np.random.Generator) -> None:
    # Small enough for exact sums in float32.
    values = rng.integers(0, 2**16, NUM).astype(dtype)
    first = rng.integers(0, 2**16, (NUM_BLOCKS, COUNTERS)).astype(dtype)
    for operation in operations:
        expected = first.copy()
        for i, value in enumerate(values):
            block = i // NUM_THREADS if memory == "on_shared" else 0
            counter = expected[block, i % COUNTERS]
            expected[block, i % COUNTERS] = OPERATIONS[operation](counter, value)
        for order, seed in EVERY_ORDER:
            counters = first.copy()
            with emulator.schedule(order, seed):
                params = params_of(operation=("Int32", operation))
                buffers = {"x": values, "counters": counters}
                options = {"template": (cpp,), "grid": NUM_BLOCKS, "block": NUM_THREADS, "shared_bytes": 64}
                launch("atomics.cu", memory, buffers, params, **options)
            np.testing.assert_array_equal(counters, expected, f"operation {operation}, {order} {seed}")


@every_order
def test_atomics_return_the_old_value(order: str, seed: int) -> None:
    counters, out = np.zeros(9, np.uint32), np.zeros((8, NUM), np.uint32)
    with emulator.schedule(order, seed):
        params = params_of(operation=("Int32", 0))
        launch("atomics.cu", "tickets", {"counters": counters, "out": out}, params, grid=3, block=NUM_THREADS)
    ascending = np.arange(NUM)
    for row in (0, 5, 6):
        np.testing.assert_array_equal(np.sort(out[row]), ascending)
    for row in (1, 7):
        np.testing.assert_array_equal(np.sort(out[row].view(np.int32)), ascending - NUM + 1)
    np.testing.assert_array_equal(np.sort(out[2]), np.sort(ascending % 10))  # 0 1 .. 9 0 1 ..
    np.testing.assert_array_equal(np.sort(out[3]), np.sort(-ascending % 10))  # 0 9 .. 1 0 9 ..
    # Every value put in comes out once, except the last, which stays.
    np.testing.assert_array_equal(np.sort([*out[4], counters[4]]), [0, *ascending])
    assert counters[8:].view(np.float32) == 1.5


@every_order
@pytest.mark.parametrize("way", [0, 1], ids=["acquire", "relaxed with fence"])
def test_waiting_for_the_thread_before(order: str, seed: int, way: int) -> None:
    flag, data = np.zeros(1, np.uint32), np.zeros(65, np.uint32)
    with emulator.schedule(order, seed):
        params = params_of(operation=("Int32", way))
        launch(
            "atomics.cu", "chain", {"flag": flag, "data": data}, params, grid=2, block=32, cooperative=True
        )
    np.testing.assert_array_equal(data, np.concatenate([[0], np.cumsum(np.arange(64))]))


@every_order
def test_vector_types(order: str, seed: int, rng: np.random.Generator) -> None:
    x = rng.integers(0, 2**32, (64, 4), np.uint32)
    out = np.zeros_like(x)
    with emulator.schedule(order, seed):
        params = params_of(operation=("Int32", 0))
        launch("atomics.cu", "vectors", {"x": x, "out": out}, params, grid=2, block=32)
    np.testing.assert_array_equal(out[1:], x[1:, ::-1])
    np.testing.assert_array_equal(out[0], [3, 3, 3, 32])


@pytest.mark.parametrize(("name", "least"), [("intrinsics", 11), ("matrix_intrinsics", 5)])
def test_the_twin_has_the_functions_of_the_device_header(name: str, least: int) -> None:
    """Two files with one name have the same functions for kernels, in the same order."""
    pattern = re.compile(r"__device__ __forceinline__ ([\w*]+(?: \*)?) ?(\w+)\(([^)]*)\)")

    def functions(text: str) -> list[tuple[str, str, list[str]]]:
        return [
            (result, name, [p.strip() for p in parameters.split(",") if p.strip() not in ("", "SIMT_PLACE")])
            for result, name, parameters in pattern.findall(text)
        ]

    overlay = emulator.build.SIMT / "overlay"
    device = functions((sources.kernel_root() / f"common/{name}.cuh").read_text())
    twin = functions((overlay / f"common/{name}.cuh").read_text())
    assert len(device) >= least
    assert sorted(map(str, device)) == sorted(map(str, twin))
