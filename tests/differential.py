"""Random calls against independent implementations, as many as asked for:

    python -m tests.differential --operator top_k --cases 10000

Case number i of a seed is the same in every run, so `--seed` and `--start` repeat or resume. Each case
goes through the descriptor or the array function, in layouts with gaps, and is compared with the oracle
and, where it has the operator for the type, with ONNX Runtime.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

import cudml
from cudml import AxisDirection, TensorDesc
from cudml.devices import Device, emulator, get_device
from proof.oracle.reverse_subsequences import reverse_lanes
from proof.oracle.top_k import BFLOAT16, top_k
from tests.support import assert_identical, to_device
from tests.support.onnx_adapter import Call, gru_by_its_formulas, run_array_function, run_descriptor
from tests.support.random_arrays import Placed, memory_with, place, random_layout, values_of

INTEGERS = tuple(np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64))
ALL_11 = (*INTEGERS, *map(np.dtype, ("float16", "float32", "float64")))

#: Types for which every ONNX Runtime has a CPU kernel.
ONNXRUNTIME_TOP_K = tuple(map(np.dtype, ("float32", "float64", "int32", "int64")))


def run_onnxruntime(call: Call, num_outputs: int) -> list[np.ndarray]:
    """A node's outputs by ONNX Runtime's CPU provider."""
    names = [f"input{i}" if array is not None else "" for i, array in enumerate(call.inputs)]
    given = {name: array for name, array in zip(names, call.inputs, strict=True) if name}
    outputs = [f"output{i}" for i in range(num_outputs)]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
    ]
    graph = helper.make_graph(
        [helper.make_node(call.op, names, outputs, **call.attrs)],
        "node",
        infos,
        [onnx.ValueInfoProto(name=name) for name in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", call.opset)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, given)


def random_shape(rng: np.random.Generator, *, max_rank: int, may_be_empty: bool) -> tuple[int, ...]:
    """Up to about 3000 elements in up to `max_rank` dimensions, now and then a long one or an empty one."""
    rank = int(rng.integers(1, max_rank + 1))
    longest = 3000 if rank == 1 else max(2, int(2 * 3000 ** (1 / rank)))
    shape = [int(size) for size in np.exp(rng.uniform(0, np.log(longest + 1), rank))]
    if may_be_empty and rng.random() < 0.05:
        shape[rng.integers(rank)] = 0
    return tuple(shape)


def run_compiled(
    rng: np.random.Generator,
    device: Device,
    make: Callable[[dict[str, TensorDesc]], Any],
    inputs: dict[str, Any],
    outputs: dict[str, np.ndarray],
) -> None:
    """Run a descriptor over a device's arrays; outputs must be the expected ones, their gaps unwritten.

    `outputs` are the expected values by member; `make` builds the descriptor from its tensors.
    """
    places = {
        member: place(rng, device, random_layout(rng, expected.shape), expected.dtype)
        for member, expected in outputs.items()
    }
    bound = inputs | {member: placed.view for member, placed in places.items()}
    desc = make({member: TensorDesc.of(view) for member, view in bound.items()})
    cudml.compile_operator(desc, device=device).dispatch(**bound)
    for member, expected in outputs.items():
        assert_identical(places[member].packed, memory_with(places[member], expected))


def place_out(rng: np.random.Generator, device: Device, expected: np.ndarray) -> Placed | None:
    """An `out` argument, in half of the cases."""
    if rng.integers(2):
        return None
    return place(rng, device, random_layout(rng, expected.shape, negative=True), expected.dtype)


def check_result(got: Any, expected: np.ndarray, out: Placed | None) -> None:
    """An array function's result, which lies in `out` if that was given."""
    assert_identical(got, expected)
    if out is not None:
        assert_identical(out.packed, memory_with(out, expected))


# top_k


def check_top_k(rng: np.random.Generator, device: Device) -> None:
    through_descriptor = bool(rng.integers(2))
    types = (*INTEGERS, np.dtype("float16"), np.dtype("float32"))
    if not through_descriptor:
        types = (*types, np.dtype("float64"), BFLOAT16, np.dtype(bool))
    dtype = types[rng.integers(len(types))]
    shape = random_shape(rng, max_rank=4, may_be_empty=False)
    axis = int(rng.integers(len(shape)))
    k = int(rng.choice([1, shape[axis], rng.integers(1, shape[axis] + 1), min(shape[axis], 8)]))
    largest = bool(rng.integers(2))
    layout = random_layout(rng, shape, negative=not through_descriptor, broadcast=True)
    placed = place(rng, device, layout, dtype)
    x = values_of(placed)
    values, indices = top_k(x, k, axis, largest=largest, nan_last=not through_descriptor)
    if dtype in ONNXRUNTIME_TOP_K and not np.isnan(x).any():
        attrs = {"axis": axis, "largest": int(largest)}
        call = Call("TopK", 11, (np.ascontiguousarray(x), np.array([k])), attrs)
        for ours, theirs in zip((values, indices), run_onnxruntime(call, 2), strict=True):
            assert_identical(theirs, ours)
    if through_descriptor:
        index_type = rng.choice(["uint32", "uint64"])
        run_compiled(
            rng,
            device,
            lambda tensors: cudml.TopK1Desc(
                **tensors,
                axis=axis,
                k=k,
                axis_direction=AxisDirection.DECREASING if largest else AxisDirection.INCREASING,
            ),
            {"input_tensor": placed.view},
            {"output_value_tensor": values, "output_index_tensor": indices.astype(index_type)},
        )
        return
    mode = "largest" if largest else "smallest"
    outs = [place_out(rng, device, values), place_out(rng, device, indices)]
    out = None if None in outs else tuple(placed.view for placed in outs)
    result = cudml.top_k(placed.view, k, axis=axis - len(shape) * int(rng.integers(2)), mode=mode, out=out)
    for got, expected, where in zip(result, (values, indices), outs, strict=True):
        check_result(got, expected, where if out else None)


# slice


def random_range(rng: np.random.Generator, size: int, *, max_step: int, negative: bool) -> range:
    """Some of the indices below `size`, at least one if there are any."""
    if size == 0:
        return range(0)
    first, last = sorted(rng.integers(size, size=2).tolist())
    step = int(rng.integers(1, max_step + 1))
    found = range(first, last + 1, step)
    return found[::-1] if negative and rng.integers(2) else found


def check_slice(rng: np.random.Generator, device: Device) -> None:
    kind = rng.choice(["SLICE", "SLICE1", "array function"])
    types = (
        ALL_11 if kind != "array function" else (*ALL_11, BFLOAT16, np.dtype(bool), np.dtype("complex128"))
    )
    dtype = types[rng.integers(len(types))]
    is_function = kind == "array function"
    shape = random_shape(rng, max_rank=8, may_be_empty=is_function)
    placed = place(rng, device, random_layout(rng, shape, negative=is_function, broadcast=True), dtype)
    x = values_of(placed)
    ranges = [random_range(rng, size, max_step=4, negative=kind != "SLICE") for size in shape]
    expected = x[np.ix_(*ranges)]
    if dtype in ALL_11:
        call = slice_call(x, ranges)
        assert_identical(run_onnxruntime(call, 1)[0], expected)
    offsets, steps = tuple(r.start for r in ranges), tuple(r.step for r in ranges)
    if is_function:
        out = place_out(rng, device, expected)
        got = cudml.slice(placed.view, offsets, expected.shape, steps, out=None if out is None else out.view)
        check_result(got, expected, out)
        return

    def make(tensors: dict[str, TensorDesc]) -> Any:
        if kind == "SLICE":
            return cudml.SliceDesc(**tensors, offsets=offsets, sizes=expected.shape, strides=steps)
        # A window may reach further than the output, on the side where reading ends.
        starts, ends = [], []
        for found, size in zip(ranges, shape, strict=True):
            low, high = min(found), max(found)
            ends.append(int(rng.integers(high, size)) if found.step > 0 else high)
            starts.append(low if found.step > 0 else int(rng.integers(0, low + 1)))
        return cudml.Slice1Desc(
            **tensors,
            input_window_offsets=tuple(starts),
            input_window_sizes=tuple(end - start + 1 for start, end in zip(starts, ends, strict=True)),
            input_window_strides=steps,
        )

    run_compiled(rng, device, make, {"input_tensor": placed.view}, {"output_tensor": expected})


def slice_call(x: np.ndarray, ranges: list[range]) -> Call:
    """ONNX's Slice of some indices of each dimension."""
    # Where a range goes down to index 0, its end is before every index; -1 would count from the back.
    ends = [r.stop if r.stop >= 0 else -(2**31) for r in ranges]
    steps = [r.step for r in ranges]
    parts = ([r.start for r in ranges], ends, list(range(x.ndim)), steps)
    return Call("Slice", 13, (np.ascontiguousarray(x), *(np.array(part, np.int64) for part in parts)))


# reverse_subsequences


def check_reverse_subsequences(rng: np.random.Generator, device: Device) -> None:
    is_function = bool(rng.integers(2))
    types = (*ALL_11, BFLOAT16, np.dtype(bool), np.dtype("complex128")) if is_function else ALL_11
    dtype = types[rng.integers(len(types))]
    shape = random_shape(rng, max_rank=5, may_be_empty=is_function)
    axis = int(rng.integers(len(shape)))
    placed = place(rng, device, random_layout(rng, shape, negative=is_function, broadcast=True), dtype)
    x = values_of(placed)
    lengths = random_lengths(rng, shape, axis, signed=is_function)
    length_shape = tuple(1 if i == axis else size for i, size in enumerate(shape))
    expected = reverse_lanes(x, np.broadcast_to(lengths, length_shape), axis)
    is_one_a_batch = axis < 2 <= x.ndim and lengths.size == lengths.shape[1 - axis]
    if is_one_a_batch and 0 not in shape and dtype in ALL_11:
        # 0 and 1 change nothing; some ONNX Runtimes give zeros for 0 (issue 28490 there).
        clamped = np.clip(lengths.reshape(-1).astype(np.int64), 1, shape[axis])
        attrs = {"time_axis": axis, "batch_axis": 1 - axis}
        inputs = np.ascontiguousarray(x), np.broadcast_to(clamped, shape[1 - axis])
        assert_identical(run_onnxruntime(Call("ReverseSequence", 10, inputs, attrs), 1)[0], expected)
    bound_lengths = to_device(device, lengths)
    if is_function:
        out = place_out(rng, device, expected)
        signed_axis = axis - len(shape) * int(rng.integers(2))
        got = cudml.reverse_subsequences(placed.view, bound_lengths, signed_axis, out=out and out.view)
        check_result(got, expected, out)
        return
    run_compiled(
        rng,
        device,
        lambda tensors: cudml.ReverseSubsequencesDesc(**tensors, axis=axis),
        {
            "input_tensor": placed.view,
            "sequence_lengths_tensor": np.broadcast_to(bound_lengths, length_shape),
        },
        {"output_tensor": expected},
    )


def random_lengths(
    rng: np.random.Generator, shape: tuple[int, ...], axis: int, *, signed: bool
) -> np.ndarray:
    """Lengths for lanes along an axis, of a shape that broadcasts to the lanes', and at times too long."""
    sizes = [1 if i == axis else size for i, size in enumerate(shape)]
    if axis < 2 <= len(shape) and rng.integers(3) == 0:
        sizes = [size if i == 1 - axis else 1 for i, size in enumerate(sizes)]  # as ONNX has them
    else:
        sizes = [1 if rng.random() < 0.1 else size for size in sizes]
    types = ("int32", "int64", "uint64") if signed else ("uint32", "uint64")
    dtype = np.dtype(types[rng.integers(len(types))])
    return rng.integers(-2 if dtype.kind == "i" else 0, shape[axis] + 3, sizes).astype(dtype)


# gru

#: Continuous activations, so that a rounding error stays small. The gates' activations lie between 0 and 1,
#: so that a step lessens the errors of earlier steps.
GATE_ACTIVATIONS = ("Sigmoid", "HardSigmoid")
HIDDEN_ACTIVATIONS = (
    *GATE_ACTIVATIONS,
    *("Affine", "Elu", "LeakyRelu", "Relu", "ScaledTanh", "Softplus", "Softsign", "Tanh"),
)
NUM_PARAMETERS = {"HardSigmoid": 2, "LeakyRelu": 1, "Elu": 1, "ScaledTanh": 2, "Affine": 2}

#: ONNX Runtime's own bounds for float32 (its checkers.cc).
ONNXRUNTIME_BOUNDS = {"atol": 1e-5, "rtol": 1e-4}

#: Minimum number of states of a layer, because the error of a few states says little.
MIN_STATES = 500

#: Number of further inputs on which the error of a layer in float32 is measured.
NUM_DRAWS = 4


def check_gru(rng: np.random.Generator, device: Device) -> None:
    call = random_gru(rng)
    exact = gru_by_its_formulas(call)
    # DirectML's descriptor has no clip.
    run = run_descriptor if "clip" not in call.attrs and rng.integers(2) else run_array_function
    got = run(call, device)
    dtype = call.inputs[0].dtype
    for ours, true in zip(got, exact, strict=True):
        assert (ours.shape, ours.dtype) == (true.shape, dtype)
    found, usual = mean_error([(got, exact)]), error_of_numpy(rng, call, exact)
    assert found <= 2 * usual, f"{run.__name__} of {call.attrs}: error {found:.3g}, NumPy has {usual:.3g}"
    if dtype == np.float32:
        for theirs, true in zip(run_onnxruntime(call, 2), exact, strict=True):
            np.testing.assert_allclose(theirs, true, **ONNXRUNTIME_BOUNDS)


def random_gru(rng: np.random.Generator) -> Call:
    """A layer with any options, lengths of 0 among them, and weights as frameworks draw them."""
    num_steps, batch, num_inputs = (int(n) for n in rng.integers(1, (10, 7, 25)))
    hidden = int(np.exp(rng.uniform(0, np.log(150))))
    direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
    num_directions = 2 if direction == "bidirectional" else 1
    batch = max(batch, MIN_STATES // (num_steps * num_directions * hidden))
    dtype = rng.choice(["float32", "float16"])
    bound = hidden**-0.5

    def weights(*shape: int) -> np.ndarray:
        return rng.uniform(-bound, bound, (num_directions, *shape)).astype(dtype)

    inputs = (
        rng.standard_normal((num_steps, batch, num_inputs)).astype(dtype),
        weights(3 * hidden, num_inputs),
        weights(3 * hidden, hidden),
        weights(6 * hidden) if rng.integers(2) else None,
        rng.integers(0, num_steps + 1, batch).astype(np.int32) if rng.integers(2) else None,
        rng.standard_normal((num_directions, batch, hidden)).astype(dtype) if rng.integers(2) else None,
    )
    attrs = {"direction": direction, "hidden_size": hidden, "linear_before_reset": int(rng.integers(2))}
    if rng.integers(2):
        names = [str(rng.choice(k)) for k in (GATE_ACTIVATIONS, HIDDEN_ACTIVATIONS) * num_directions]
        counts = [NUM_PARAMETERS.get(name, 0) for name in names]
        attrs["activations"] = names
        for name, count in (("activation_alpha", 1), ("activation_beta", 2)):
            values = [float(rng.uniform(0.1, 1)) for n in counts if n >= count]
            attrs |= {name: values} if values else {}
    if rng.random() < 0.25:
        attrs["clip"] = float(rng.uniform(0.1, 2))
    return Call("GRU", 14, inputs, attrs, wanted=(True, True))


def error_of_numpy(rng: np.random.Generator, call: Call, exact: list[np.ndarray]) -> float:
    """NumPy's mean error in float32 for these inputs and others, so that it is not small by luck."""
    x, *others = call.inputs
    draws = [
        replace(call, inputs=(rng.standard_normal(x.shape).astype(x.dtype), *others))
        for _ in range(NUM_DRAWS)
    ]
    wide = [exact, *map(gru_by_its_formulas, draws)]
    narrow = [[a.astype(x.dtype) for a in gru_by_its_formulas(c, np.float32)] for c in (call, *draws)]
    return mean_error(list(zip(narrow, wide, strict=True)))


def mean_error(pairs: list[tuple[list[np.ndarray], list[np.ndarray]]]) -> float:
    """The mean error relative to the size of the results, over all outputs of some calls.

    One mean error is never twice another by chance, as the largest error may be, while one wrong element
    of a thousand raises the mean far more.
    """
    means = []
    for outputs, exact in pairs:
        results, true = (np.concatenate([a.ravel() for a in arrays]) for arrays in (outputs, exact))
        size = abs(true) + np.mean(abs(true))
        means.append(np.mean(abs(results - true) / np.where(size, size, 1)))
    return float(np.mean(means))


CHECKS: dict[str, Callable[[np.random.Generator, Device], None]] = {
    "top_k": check_top_k,
    "gru": check_gru,
    "slice": check_slice,
    "reverse_subsequences": check_reverse_subsequences,
}


class Repeatable:
    """Says how to repeat the case that fails inside."""

    def __init__(self, operator: str, seed: int, number: int) -> None:
        self.operator, self.seed, self.number = operator, seed, number

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            print(
                f"\n{self.operator}: case {self.number} failed; to repeat: python -m tests.differential "
                f"--operator {self.operator} --seed {self.seed} --start {self.number} --cases 1",
                flush=True,
            )


def run_cases(
    operator: str, seed: int, numbers: range, device: Device, *, show_progress: bool = False
) -> None:
    """Run some of a seed's cases; the first that differs raises."""
    started = time.monotonic()
    for number in numbers:
        rng = np.random.default_rng((seed, number))
        # On the CPU: mostly the kernels of a GPU, and at times a CPU's default kernels.
        warp_lanes = 32 if rng.integers(4) else 1
        with Repeatable(operator, seed, number), emulator.schedule(warp_lanes=warp_lanes):
            CHECKS[operator](rng, device)
        if show_progress:
            done = number - numbers.start + 1
            rate = done / (time.monotonic() - started)
            print(f"\r{operator}: {done} of {len(numbers)} cases, {rate:.0f} a second", end="", flush=True)


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__.split("\n")[0])
    parser.add_argument("--operator", choices=CHECKS, action="append", help="default: all of them")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")
    parser.add_argument("--start", type=int, default=0, help="the first case's number")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    options = parser.parse_args(arguments)
    seed = int(np.random.SeedSequence().generate_state(1)[0]) if options.seed is None else options.seed
    numbers = range(options.start, options.start + options.cases)
    print(f"seed {seed}, device {options.device}", flush=True)
    for operator in options.operator or CHECKS:
        run_cases(operator, seed, numbers, get_device(options.device), show_progress=sys.stdout.isatty())
        print(f"\r{operator}: {len(numbers)} cases, no difference", flush=True)


if __name__ == "__main__":
    main()
