"""GRU against its formulas: every option, on every path, in every thread order."""

import itertools
import math
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cudml
from cudml.devices import Device, emulator
from cudml.operators.gru.activations import ACTIVATIONS, Activation
from cudml.operators.gru.paths import PATHS
from cudml.plans import Fill, Plan
from tests.support import assert_identical, marks_of, schedules
from tests.support.gru_runs import (
    BACKWARD,
    BIDIRECTIONAL,
    FORWARD,
    MEMBERS,
    ONE_STEP_PATHS,
    Options,
    assert_as_precise_as_numpy,
    dtypes_of,
    random_layer,
    run_gru,
)
from tests.support.random_arrays import Layout, random_layout

DIRECTIONS = (FORWARD, BACKWARD, BIDIRECTIONAL)

every_path = pytest.mark.parametrize("path", [pytest.param(path, marks=marks_of(path)) for path in PATHS])
every_path_and_type = pytest.mark.parametrize(
    ("path", "dtype"),
    [pytest.param(path, dtype, marks=marks_of(path)) for path in PATHS for dtype in dtypes_of(path)],
)
both_orders = pytest.mark.parametrize("linear_before_reset", [True, False], ids=["after", "before"])
every_direction = pytest.mark.parametrize("direction", DIRECTIONS, ids=lambda d: d.name)


@every_path_and_type
@both_orders
@every_direction
def test_every_option(device: Device, rng: np.random.Generator, path, linear_before_reset, direction, dtype):
    options = Options(direction, linear_before_reset)
    arrays = random_layer(rng, (4, 5, 3, 21), options, dtype=dtype, lengths=[4, 2, 0, 9, 1], path=path)
    got = run_gru(device, arrays, options, path=path)
    assert_as_precise_as_numpy(got, arrays, options)
    assert not got["sequence"][:, :, 2].any()
    assert not got["single"][:, 2].any()


@every_path
@pytest.mark.parametrize(
    ("bias", "h0", "lengths"), list(itertools.product([False, True], [False, True], [None, [3, 1]]))
)
def test_optional_inputs(device: Device, rng: np.random.Generator, path, bias, h0, lengths):
    options = Options(BIDIRECTIONAL)
    arrays = random_layer(rng, (3, 2, 4, 9), options, bias=bias, h0=h0, lengths=lengths, path=path)
    assert_as_precise_as_numpy(run_gru(device, arrays, options, path=path), arrays, options)


@every_path
@both_orders
def test_each_output_alone_is_the_same(device: Device, rng: np.random.Generator, path, linear_before_reset):
    options = Options(BIDIRECTIONAL, linear_before_reset)
    arrays = random_layer(rng, (3, 2, 4, 17), options, lengths=[3, 0], path=path)
    both = run_gru(device, arrays, options, path=path)
    for name in both:
        alone = run_gru(device, arrays, options, path=path, outputs=(name,))
        assert_identical(alone[name], both[name])


#: Around the sizes of a thread's units, a warp's units, a chunk of columns of each kernel, and more than one
#: pass.
HIDDEN_SIZES = (1, 2, 7, 8, 31, 33, 96, 97, 100, 129, 257)


@every_path
@pytest.mark.parametrize("hidden", HIDDEN_SIZES)
def test_hidden_sizes(device: Device, rng: np.random.Generator, path, hidden):
    options = Options(FORWARD)
    arrays = random_layer(rng, (3, 3, 5, hidden), options, path=path)
    assert_as_precise_as_numpy(run_gru(device, arrays, options, path=path), arrays, options)


class OneElementOn(Layout):
    """A packed array that begins one element into its memory."""

    def view(self, packed: Any) -> Any:
        return packed[1:].reshape(self.shape)

    @property
    def packed_size(self) -> int:
        return math.prod(self.shape) + 1


@every_path_and_type
@pytest.mark.parametrize("hidden", [8, 100, 260])
def test_weights_at_odd_addresses(device: Device, rng: np.random.Generator, path, dtype, hidden):
    """The rows' length allows loads of several weights, the address does not."""
    options = Options(FORWARD)
    arrays = random_layer(rng, (2, 2, 4, hidden), options, dtype=dtype, path=path)
    layouts = {"r": OneElementOn((), (), (), arrays.r.shape)}
    # A CPU forgives many misaligned loads; its check mode reports them.
    with emulator.schedule(check=True) if hidden == 8 else nullcontext():
        got = run_gru(device, arrays, options, path=path, layouts=layouts)
    assert_identical(got["sequence"], run_gru(device, arrays, options, path=path)["sequence"])


#: Paths whose own kernels multiply the states; a library's order of sums depends on the shape.
OWN_PRODUCTS = [path for path in PATHS if path != "products"]


@pytest.mark.parametrize("path", [pytest.param(path, marks=marks_of(path)) for path in OWN_PRODUCTS])
@both_orders
@pytest.mark.parametrize("batch", [1, 2, 3, 37])
def test_a_sequence_alone_has_the_same_bits(
    device: Device, rng: np.random.Generator, path, linear_before_reset, batch
):
    options = Options(BIDIRECTIONAL, linear_before_reset)
    # One input: its product is rounded once, in whatever shape the library multiplies.
    arrays = random_layer(rng, (3, batch, 1, 10), options, lengths=rng.integers(0, 4, batch), path=path)
    together = run_gru(device, arrays, options, path=path)
    n = int(rng.integers(batch))
    one = replace(arrays, x=arrays.x[:, [n]], h0=arrays.h0[:, [n]], lengths=arrays.lengths[[n]])
    alone = run_gru(device, one, options, path=path)
    assert_identical(alone["sequence"][:, :, 0], together["sequence"][:, :, n])
    assert_identical(alone["single"][:, 0], together["single"][:, n])


#: Multiprocessors and bytes of shared storage: one block or two a direction, many rounds, many passes, fixed
#: items, weights that are partly or all in global memory.
SMALL_DEVICES = {
    "block": ((1, 4096), (2, 8192), (7, 65536), (16, 232448)),
    "grid": ((2, 8192), (3, 16384), (4, 32768), (7, 65536), (16, 232448), (18, 232448)),
    "matrix_grid": ((5, 65536), (9, 32768), (12, 65536), (27, 32768), (40, 232448)),
    "panels": ((1, 4096), (2, 4096), (16, 4096)),
    "products": ((1, 4096), (16, 4096)),
    "rounded_products": ((1, 163840), (4, 114688), (16, 163840)),
    "serial": ((1, 4096), (2, 4096), (16, 4096)),
    "split_products": ((1, 98304), (4, 83968), (16, 98304)),
    "step": ((1, 4096), (16, 4096)),
}


@every_path
@both_orders
def test_device_does_not_change_the_bits(device: Device, rng: np.random.Generator, path, linear_before_reset):
    options = Options(FORWARD, linear_before_reset)
    arrays = random_layer(rng, (3, 5, 1, 130), options, lengths=[3, 2, 3, 0, 1], path=path)
    results = []
    for num_multiprocessors, shared_bytes in SMALL_DEVICES[path]:
        limits = replace(
            device.limits, num_multiprocessors=num_multiprocessors, shared_bytes_per_block=shared_bytes
        )
        results.append(run_gru(device, arrays, options, path=path, limits=limits))
    assert_as_precise_as_numpy(results[0], arrays, options)
    for result in results[1:]:
        for name in result:
            assert_identical(result[name], results[0][name])


@pytest.mark.parametrize("dtype", dtypes_of("block"))
@both_orders
def test_a_chunk_in_shared_storage_changes_no_bits(
    device: Device, rng: np.random.Generator, dtype, linear_before_reset
):
    """The fourth chunk of a block's weights, which the plans for early GPUs do not keep in registers."""
    options = Options(FORWARD, linear_before_reset)
    arrays = random_layer(rng, (3, 2, 1, 100), options, dtype=dtype, path="block")
    launched: list[str] = []

    def noted(plan: Plan) -> Plan:
        launched.append(plan.steps[-1].name_expression)
        return plan

    all_limits = (replace(device.limits, compute_capability=cc) for cc in (75, 90))
    stored, kept = (
        run_gru(device, arrays, options, path="block", limits=limits, change=noted) for limits in all_limits
    )
    assert [name.rpartition(" ")[2] for name in launched] == ["3>", "4>"]
    for name in kept:
        assert_identical(stored[name], kept[name])


@both_orders
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    "sizes", [(5, 13, 7, 40), (3, 1, 300, 64), (2, 4, 20, 19), (9, 6, 1, 7), (7, 8, 260, 20)]
)
def test_copied_weights_change_no_bits(rng: np.random.Generator, sizes, dtype, linear_before_reset):
    """Calls for single steps change none either: a decoder that streams on a CPU gets the same results."""
    options = Options(FORWARD, linear_before_reset)
    arrays = random_layer(rng, sizes, options, dtype=dtype)
    cpu = emulator.get_device()
    with emulator.schedule(warp_lanes=1):
        copied, read = (run_gru(cpu, arrays, options, path=path) for path in ("panels", "serial"))
        for name in copied:
            assert_identical(copied[name], read[name])
        if dtype != np.float32:  # the state is rounded between calls
            return
        state = arrays.h0
        for step, x in enumerate(arrays.x):
            y, state = cudml.gru(
                x[None], arrays.w, arrays.r, arrays.b, state, linear_before_reset=linear_before_reset
            )
            assert_identical(y[0], copied["sequence"][step])


@every_path
@both_orders
def test_every_schedule_gives_the_same_bits(rng: np.random.Generator, path, linear_before_reset):
    options = Options(BIDIRECTIONAL, linear_before_reset)
    device = emulator.get_device()
    arrays = random_layer(rng, (3, 3, 1, 19), options, lengths=[3, 1, 2], path=path)
    expected = run_gru(device, arrays, options, path=path)
    for context in schedules():
        with context:
            got = run_gru(device, arrays, options, path=path)
        for name in got:
            assert_identical(got[name], expected[name])


@every_path_and_type
@both_orders
def test_strided_tensors(device: Device, rng: np.random.Generator, path, linear_before_reset, dtype):
    """Permuted, with gaps, reversed; broadcast inputs. Memory between an output's elements is unchanged."""
    options = Options(BIDIRECTIONAL, linear_before_reset)
    arrays = random_layer(rng, (3, 2, 4, 9), options, dtype=dtype, lengths=[3, 1], path=path)
    expected = run_gru(device, arrays, options, path=path)
    for _ in range(3):
        layouts = {
            name: random_layout(rng, array.shape, negative=True)
            for name, array in {**vars(arrays), **expected}.items()
            if name in MEMBERS
        }
        got = run_gru(device, arrays, options, path=path, layouts=layouts)
        for name in got:
            assert_identical(np.ascontiguousarray(got[name]), expected[name])


@every_path
def test_broadcast_inputs(device: Device, rng: np.random.Generator, path):
    options = Options(FORWARD)
    arrays = random_layer(rng, (3, 4, 2, 6), options, path=path)
    arrays = replace(
        arrays,
        x=np.broadcast_to(arrays.x[:, :1], arrays.x.shape).copy(),
        h0=np.broadcast_to(arrays.h0[:, :1], arrays.h0.shape).copy(),
        b=np.broadcast_to(arrays.b[:, :1], arrays.b.shape).copy(),
    )
    expected = run_gru(device, arrays, options, path=path)
    num_steps = arrays.x.shape[0]
    layouts = {
        "x": Layout((num_steps, 1, 2), (slice(None),) * 3, (0, 1, 2), (num_steps, 4, 2)),
        "h0": Layout((1, 1, 6), (slice(None),) * 3, (0, 1, 2), (1, 4, 6)),
        "b": Layout((1, 1), (slice(None),) * 2, (0, 1), (1, 36)),
    }
    got = run_gru(device, arrays, options, path=path, layouts=layouts)
    for name in got:
        assert_identical(got[name], expected[name])


#: Every activation, with parameters other than the defaults if it has any.
ACTIVATION_PARAMETERS = {1: (0.7,), 2: (0.6, 0.3)}


@every_path
@both_orders
@pytest.mark.parametrize("info", list(ACTIVATIONS.values()), ids=lambda info: info.onnx_name)
def test_every_activation_at_either_place(
    device: Device, rng: np.random.Generator, path, linear_before_reset, info
):
    parameters = ACTIVATION_PARAMETERS.get(len(info.parameters), ())
    for activation in (Activation(info.operator_type, parameters), Activation(info.onnx_name)):
        for activations in ((activation, Activation.tanh()), (Activation.sigmoid(), activation)):
            options = Options(FORWARD, linear_before_reset, activations)
            # One step: over several, gates without a bound make chaos of any rounding.
            arrays = random_layer(rng, (1, 32, 3, 11), options, path=path)
            assert_as_precise_as_numpy(run_gru(device, arrays, options, path=path), arrays, options)


@every_path
def test_directions_have_their_own_activations(device: Device, rng: np.random.Generator, path):
    four = (
        Activation.hard_sigmoid(0.3, 0.4), Activation.softsign(), Activation.sigmoid(), Activation.elu(0.5)
    )  # fmt: skip
    options = Options(BIDIRECTIONAL, True, four)
    arrays = random_layer(rng, (3, 2, 3, 8), options, path=path)
    assert_as_precise_as_numpy(run_gru(device, arrays, options, path=path), arrays, options)


@every_path_and_type
@both_orders
@pytest.mark.parametrize("clip", [0.05, 0.7])
def test_inputs_of_activations_are_clipped(
    device: Device, rng: np.random.Generator, path, dtype, linear_before_reset, clip
):
    four = Activation.sigmoid(), Activation.tanh(), Activation.hard_sigmoid(0.3, 0.4), Activation.linear(2, 1)
    options = Options(BIDIRECTIONAL, linear_before_reset, four, clip)
    arrays = random_layer(rng, (3, 4, 3, 9), options, dtype=dtype, path=path)
    arrays = replace(arrays, x=arrays.x * 8)
    got = run_gru(device, arrays, options, path=path)
    assert_as_precise_as_numpy(got, arrays, options)
    # No input is above 1000: the bound changes nothing, and is no other kernel's rounding.
    wide, none = (run_gru(device, arrays, replace(options, clip=c), path=path) for c in (1000, math.inf))
    assert_identical(wide["sequence"], none["sequence"])
    arrays.x[0, 0] = np.nan
    spoiled = run_gru(device, arrays, options, path=path)
    assert np.isnan(spoiled["sequence"][0, 0, 0]).all()
    assert_identical(spoiled["sequence"][:, :, 1:], got["sequence"][:, :, 1:])


@every_path
@both_orders
@pytest.mark.parametrize("scale", [1000.0, -1e20, np.inf])
def test_saturating_inputs(device: Device, rng: np.random.Generator, path, linear_before_reset, scale):
    options = Options(FORWARD, linear_before_reset)
    arrays = random_layer(rng, (3, 2, 1, 5), options, path=path)
    with np.errstate(over="ignore"):
        x = np.where(arrays.x > 0, np.float32(scale), arrays.x).astype(arrays.x.dtype)
    assert_as_precise_as_numpy(
        run_gru(device, replace(arrays, x=x), options, path=path), replace(arrays, x=x), options
    )


@pytest.mark.parametrize("dtype", dtypes_of("matrix_grid"))
@both_orders
def test_states_above_2(device: Device, rng: np.random.Generator, dtype, linear_before_reset):
    """Blocks exchange such states in words of their own: one of a pair, both or neither."""
    options = Options(BIDIRECTIONAL, linear_before_reset)
    arrays = random_layer(rng, (4, 10, 1, 37), options, dtype=dtype, path="matrix_grid")
    h0 = arrays.h0 * rng.choice([0.1, 4], arrays.h0.shape)
    h0[:, 1] = rng.uniform(-1, 1, h0[:, 1].shape)
    arrays = replace(arrays, h0=h0.astype(dtype))
    got = run_gru(device, arrays, options, path="matrix_grid")
    assert_as_precise_as_numpy(got, arrays, options)


@both_orders
def test_chunks_in_registers_and_shared_storage_by_turns(
    device: Device, rng: np.random.Generator, linear_before_reset
):
    """Blocks of two tiles of 1000 units keep every other chunk of weights in shared storage; of one, none."""
    options = Options(FORWARD, linear_before_reset)
    path = "matrix_grid"
    arrays = random_layer(rng, (2, 1, 1, 1000), options, path=path)
    plans: list[Plan] = []

    def keep(chosen: Plan) -> Plan:
        plans.append(chosen)
        return chosen

    two, one = (
        run_gru(
            device,
            arrays,
            options,
            path=path,
            limits=replace(device.limits, num_multiprocessors=blocks, shared_bytes_per_block=232448),
            change=keep,
        )
        for blocks in (32, 63)
    )
    assert [chosen.steps[-1].template[3] for chosen in plans] == [2, 1]
    assert_as_precise_as_numpy(two, arrays, options)
    for name in two:
        assert_identical(two[name], one[name])


@every_path
@both_orders
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["x", "h0"])
def test_one_bad_sequence_stays_alone(
    device: Device, rng: np.random.Generator, path, linear_before_reset, bad, where
):
    options = Options(BIDIRECTIONAL, linear_before_reset)
    arrays = random_layer(rng, (3, 5, 1, 11), options, path=path)
    expected = run_gru(device, arrays, options, path=path)
    array = getattr(arrays, where).copy()
    array[..., 2, :] = bad
    got = run_gru(device, replace(arrays, **{where: array}), options, path=path)
    others = [0, 1, 3, 4]
    for name in got:
        assert_identical(got[name][..., others, :], expected[name][..., others, :])
    if np.isnan(bad):
        assert np.isnan(got["single"][:, 2]).all()


@every_path
@both_orders
def test_negative_zero_is_a_state_like_any_other(
    device: Device, rng: np.random.Generator, path, linear_before_reset
):
    options = Options(FORWARD, linear_before_reset, (Activation.sigmoid(), Activation.relu()))
    arrays = random_layer(rng, (4, 2, 3, 12), options, path=path)
    arrays = replace(arrays, h0=np.full_like(arrays.h0, -0.0))
    assert_as_precise_as_numpy(run_gru(device, arrays, options, path=path), arrays, options)


@every_path
@both_orders
@every_direction
def test_one_step(device: Device, rng: np.random.Generator, path, linear_before_reset, direction):
    options = Options(direction, linear_before_reset)
    arrays = random_layer(rng, (1, 3, 2, 20), options, lengths=[1, 0, 5], path=path)
    assert_as_precise_as_numpy(run_gru(device, arrays, options, path=path), arrays, options)


@every_path
def test_no_sequence_takes_a_step(device: Device, rng: np.random.Generator, path):
    options = Options(BIDIRECTIONAL)
    arrays = random_layer(rng, (3, 4, 2, 9), options, lengths=[0, 0, 0, 0], path=path)
    got = run_gru(device, arrays, options, path=path)
    assert not any(result.any() for result in got.values())


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_layer(data: st.DataObject) -> None:
    sizes = data.draw(st.tuples(*(st.integers(1, most) for most in (6, 6, 9, 40))))
    options = Options(data.draw(st.sampled_from(DIRECTIONS)), data.draw(st.booleans()))
    lengths = data.draw(st.none() | st.lists(st.integers(0, 7), min_size=sizes[1], max_size=sizes[1]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    path = data.draw(st.sampled_from(list(PATHS)))
    arrays = random_layer(
        rng, sizes, options, dtype=data.draw(st.sampled_from(dtypes_of(path))), bias=data.draw(st.booleans()),
        h0=data.draw(st.booleans()), lengths=lengths, path=path,
    )  # fmt: skip
    got = run_gru(emulator.get_device(), arrays, options, path=data.draw(st.sampled_from([None, path])))
    assert_as_precise_as_numpy(got, arrays, options)


#: Paths whose blocks also read the lengths of other blocks' items.
LENGTHS_OF_OTHERS = [path for path in PATHS if path not in ("serial", *ONE_STEP_PATHS)]


@pytest.mark.parametrize("path", [pytest.param(path, marks=marks_of(path)) for path in LENGTHS_OF_OTHERS])
@pytest.mark.parametrize("stride", [1, 2])
def test_lengths_that_change_under_way_change_nothing(
    device: Device, rng: np.random.Generator, path: str, stride: int
) -> None:
    """Blocks must agree on the lengths, so they read a copy made in stream order before they start."""
    options = Options(BIDIRECTIONAL)
    arrays = random_layer(rng, (4, 3, 3, 40), options, lengths=[4, 2, 3], path=path)
    layouts = {"lengths": Layout((3 * stride,), (slice(None, None, stride),), (0,), (3,))}

    def with_other_lengths(plan: Plan) -> Plan:
        """The plan, with the lengths overwritten before its last step, as by another stream."""
        change = Fill("sequence_lengths_tensor", 4)
        return plan._replace(steps=(*plan.steps[:-1], change, plan.steps[-1]))

    expected = run_gru(device, arrays, options, path=path)
    got = run_gru(device, arrays, options, path=path, layouts=layouts, change=with_other_lengths)
    for name in expected:
        assert_identical(got[name], expected[name])


@pytest.mark.parametrize("lanes", [1, 32])
@pytest.mark.parametrize("num_steps", [1, 6])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_errors_of_numpy_s_settings_stay_away(
    rng: np.random.Generator, lanes: int, num_steps: int, dtype: Any
) -> None:
    """An infinite product is a result like any other, even if NumPy's warnings are errors."""
    arrays = random_layer(rng, (num_steps, 2, 3, 40), Options(FORWARD), dtype=dtype)
    x, w = arrays.x.copy(), arrays.w.copy()
    x[0, 0], w[0, 0] = ml_dtypes.finfo(dtype).max, ml_dtypes.finfo(dtype).max
    x[0, 1] = np.inf
    with emulator.schedule(warp_lanes=lanes), np.errstate(all="ignore"):
        expected = cudml.gru(x, w, arrays.r, arrays.b, arrays.h0)
    with emulator.schedule(warp_lanes=lanes), np.errstate(all="raise"):
        got = cudml.gru(x, w, arrays.r, arrays.b, arrays.h0)
    for mine, quiet in zip(got, expected, strict=True):
        assert_identical(mine, quiet)


@pytest.mark.parametrize(("num_steps", "batch", "hidden"), [(20, 1, 256), (1, 1, 400), (256, 8, 128)])
def test_small_products_are_no_work_for_a_threaded_library(
    num_steps: int, batch: int, hidden: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NumPy's BLAS would start its threads, and wait for them where another process has the cores."""
    arrays = random_layer(rng, (num_steps, batch, hidden, hidden), Options(FORWARD))
    for name in ("matmul", "dot"):
        monkeypatch.setattr(np, name, lambda *_, **__: pytest.fail("a product by BLAS"))
    with emulator.schedule(warp_lanes=1):
        sequence, _ = cudml.gru(arrays.x, arrays.w, arrays.r, linear_before_reset=True)
    assert np.isfinite(sequence).all()
