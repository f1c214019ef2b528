"""`cudml.jax` beside the array functions and JAX's own, under `jit`, `vmap` and `export`, on a CPU."""

import itertools
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'cudml[jax]'")

import jax.numpy as jnp  # noqa: E402
from jax import export  # noqa: E402

import cudml  # noqa: E402
import cudml.jax as adapter  # noqa: E402
from cudml.devices.emulator.build import compiler  # noqa: E402
from cudml.jax import calls  # noqa: E402
from tests.support import assert_identical  # noqa: E402

TYPES = ["bool", "int8", "uint16", "int32", "float16", "bfloat16", "float32"]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("mode", ["largest", "smallest"])
def test_top_k_is_that_of_the_array_function(dtype: str, mode: Any, rng: np.random.Generator) -> None:
    a = jnp.asarray(rng.integers(-4, 5, (3, 20, 4))).astype(dtype)
    for axis in (0, 1, -1):
        result = jax.jit(lambda a, axis=axis: adapter.top_k(a, 2, axis=axis, mode=mode))(a)
        values, indices = cudml.top_k(np.asarray(a), 2, axis=axis, mode=mode)
        assert_identical(np.asarray(result.values), values)
        assert_identical(np.asarray(result.indices), indices.astype(np.int32))


def test_top_k_ranks_nan_as_jax_does_or_as_asked() -> None:
    a = jnp.array([1.0, jnp.nan, jnp.inf, 2.0, jnp.nan])
    assert adapter.top_k(a, 4).indices.tolist() == jax.lax.top_k(a, 4)[1].tolist()
    assert adapter.top_k(a, 4, nan="last").indices.tolist() == [2, 3, 0, 1]


#: Both infinities, zeros and NaNs of both signs, and numbers; ranked by cudml and by JAX.
SPECIAL = np.array([-0.0, 0.0, np.nan, 1.0, -np.nan, -np.inf, 0.0, np.inf, -1.0, np.nan, -0.0], np.float32)


def test_ties_are_more_than_those_of_jax() -> None:
    """The docstring says this of `jax.lax.top_k`."""
    ours = adapter.top_k(jnp.asarray(SPECIAL), SPECIAL.size).indices.tolist()
    theirs = jax.lax.top_k(jnp.asarray(SPECIAL), SPECIAL.size)[1].tolist()
    assert ours == [2, 4, 9, 7, 3, 0, 1, 6, 10, 8, 5]
    assert theirs == [2, 9, 7, 3, 1, 6, 0, 10, 8, 5, 4]


def test_numpy_s_arrays_are_taken_as_jax_takes_them() -> None:
    """Without types of 64 bits unless these are enabled."""
    a = np.array([3.0, 1.0, 2.0, 5.0])
    for got, right in zip(adapter.top_k(a, 2), jax.lax.top_k(a, 2), strict=True):
        assert_identical(np.asarray(got), np.asarray(right))
    layer = [np.ones(shape) for shape in ((5, 2, 3), (1, 12, 3), (1, 12, 4))]
    assert adapter.gru(*layer).sequence.dtype == jnp.float32


def test_top_k_takes_jax_s_arguments_by_name() -> None:
    a = jnp.array([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]])
    for got in (
        adapter.top_k(a, k=1, axis=0),
        adapter.top_k(operand=a, k=1, axis=0, sorted=False),
        jax.jit(adapter.top_k, static_argnames=("k", "axis"))(a, k=1, axis=0),
    ):
        assert got.indices.tolist() == [[0, 1, 1]] == jax.lax.top_k(a, k=1, axis=0)[1].tolist()


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_lengths_say_what_counts(axis: int, rng: np.random.Generator) -> None:
    """Also under `vmap` of both, of one of them, and as a list or a number."""
    a = rng.integers(0, 5, (4, 5, 6)).astype(np.float32)
    sizes = [4, 5, 6]
    sizes[axis] = 1
    lengths = rng.integers(0, 7, sizes).astype(np.int32)
    expected = cudml.top_k(a, 3, axis=axis, nan="greatest", lengths=lengths)
    found = jax.jit(lambda a, n: adapter.top_k(a, 3, axis=axis, lengths=n))(a, lengths)
    for got, right in zip(found, expected, strict=True):
        assert np.array_equal(got, right)
    many = jnp.stack([a, a[:, ::-1], -a])
    for in_axes, given in (((0, None), lengths), ((0, 0), jnp.stack([lengths, lengths * 0, lengths]))):
        mapped = jax.vmap(lambda a, n: adapter.top_k(a, 3, axis=axis, lengths=n), in_axes=in_axes)(
            many, given
        )
        for number, part in enumerate(np.asarray(many)):
            one = lengths if in_axes[1] is None else np.asarray(given)[number]
            for got, right in zip(mapped, cudml.top_k(part, 3, axis=axis, lengths=one), strict=True):
                assert np.array_equal(got[number], right)
    # Lengths of fewer dimensions than the operand, one for each element of a batch.
    counts = jnp.array([[1], [2], [5]])
    mapped = jax.vmap(lambda a, n: adapter.top_k(a, 3, lengths=n))(many, counts)
    for number, part in enumerate(np.asarray(many)):
        right = cudml.top_k(part, 3, lengths=np.asarray(counts[number]))
        assert np.array_equal(mapped.indices[number], right.indices)
    row = jnp.array([1.0, 5.0, 7.0])
    assert adapter.top_k(row, 1, lengths=2).indices.tolist() == [1]
    assert adapter.top_k(row, 1, lengths=[1]).indices.tolist() == [0]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_top_k_of_batches(axis: int, rng: np.random.Generator) -> None:
    """`vmap` over each dimension, once and twice, and over a batch without elements."""
    a = jnp.asarray(rng.integers(0, 5, (4, 5, 6, 7)).astype(np.float32))
    for batch in range(3):
        mapped = jax.vmap(lambda a: adapter.top_k(a, 2, axis=axis), in_axes=batch)(a)
        parts = np.moveaxis(np.asarray(a), batch, 0)
        for number, part in enumerate(parts):
            for got, right in zip(mapped, cudml.top_k(part, 2, axis=axis), strict=True):
                assert np.array_equal(got[number], right)
    twice = jax.vmap(jax.vmap(lambda a: adapter.top_k(a, 2, axis=axis)))(a)
    expected = cudml.top_k(np.asarray(a), 2, axis=axis if axis < 0 else axis + 2)
    for got, right in zip(twice, expected, strict=True):
        assert np.array_equal(got, right)
    assert jax.vmap(lambda a: adapter.top_k(a, 2))(a[:0]).values.shape == (0, 5, 6, 2)


@pytest.mark.parametrize("has_all", [True, False])
def test_gru_is_that_of_the_array_function(has_all: bool, rng: np.random.Generator) -> None:
    shapes = {"x": (6, 5, 3), "w": (2, 12, 3), "r": (2, 12, 4), "b": (2, 24), "h0": (2, 5, 4)}
    arrays: Any = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    arrays["sequence_lengths"] = rng.integers(0, 7, 5).astype(np.int32)
    if not has_all:
        arrays = {name: arrays[name] for name in ("x", "w", "r")}
    options: Any = {"direction": "bidirectional", "linear_before_reset": True, "clip": 0.3}
    result = jax.jit(lambda arrays: adapter.gru(**arrays, **options))(arrays)
    for got, right in zip(result, cudml.gru(**arrays, **options), strict=True):
        assert_identical(np.asarray(got), right)


LAYER = {
    "x": (5, 3, 2),
    "w": (2, 12, 2),
    "r": (2, 12, 4),
    "b": (2, 24),
    "h0": (2, 3, 4),
    "sequence_lengths": (3,),
}


def layer_arrays(rng: np.random.Generator, *batches: int) -> dict[str, np.ndarray]:
    made = {name: rng.standard_normal((*batches, *shape), dtype=np.float32) for name, shape in LAYER.items()}
    made["sequence_lengths"] = rng.integers(0, 6, made["sequence_lengths"].shape).astype(np.int32)
    return made


@pytest.mark.parametrize(
    "batched",
    [{"x"}, {"h0"}, {"sequence_lengths"}, {"x", "h0", "sequence_lengths"}, {"w"}, {"b", "x"}, set(LAYER)],
    ids=lambda names: "-".join(sorted(names)),
)
def test_gru_of_batches(batched: set[str], rng: np.random.Generator) -> None:
    """A batch of any of the arrays, along another of their axes, is what single calls give."""
    many, one = layer_arrays(rng, 4), layer_arrays(rng)
    given = [many[name] if name in batched else one[name] for name in LAYER]
    given[0] = np.moveaxis(given[0], 0, -1) if "x" in batched else given[0]
    in_axes = [None if name not in batched else -1 if name == "x" else 0 for name in LAYER]
    run = lambda *arrays: adapter.gru(*arrays, direction="bidirectional", clip=0.7)  # noqa: E731
    found = jax.jit(jax.vmap(run, in_axes=in_axes))(*given)
    for number in range(4):
        arrays: Any = {name: many[name][number] if name in batched else one[name] for name in LAYER}
        expected = cudml.gru(**arrays, direction="bidirectional", clip=0.7)
        for got, right in zip(found, expected, strict=True):
            assert_identical(np.asarray(got[number]), right)


def test_gru_of_batches_of_batches(rng: np.random.Generator) -> None:
    """The inner batch is of x, the outer one of the weights."""
    x, given = rng.standard_normal((3, 5, 3, 2), dtype=np.float32), layer_arrays(rng, 2)
    layers = jax.vmap(jax.vmap(adapter.gru, in_axes=(0, None, None)), in_axes=(None, 0, 0))
    arrays = [given[name][:, :1] for name in ("w", "r")]
    found = layers(x, *arrays)
    for outer, inner in itertools.product(range(2), range(3)):
        for got, right in zip(found, cudml.gru(x[inner], *(a[outer] for a in arrays)), strict=True):
            assert_identical(np.asarray(got[outer, inner]), right)


def exported(function: Any, *arguments: Any, platforms: Sequence[str] | None = None) -> bytes:
    checks = [export.DisabledSafetyCheck.custom_call(f"cudml_{name}") for name in ("top_k", "gru")]
    made = export.export(jax.jit(function), disabled_checks=checks, platforms=platforms)(*arguments)
    return bytes(made.serialize())


IMPORT_AND_RUN = """
import sys
import numpy as np
from jax import export
import cudml.jax

program = export.deserialize(bytearray(open(sys.argv[1], "rb").read()))
given = np.load(sys.argv[2])
results = program.call(*(given[name] for name in given.files))
np.savez(sys.argv[3], *results)
"""


@pytest.mark.parametrize("function", ["top_k", "gru"])
def test_an_exported_program_runs_in_another_process(
    function: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    """Its sizes were symbolic, and it was exported for more than one platform."""
    steps, batch = export.symbolic_shape("T, N")
    if function == "top_k":
        arrays: Any = {
            "a": rng.integers(0, 5, (4, 30)).astype(np.float32),
            "n": np.arange(30, dtype=np.int32),
        }
        expected: Any = cudml.top_k(arrays["a"], 3, axis=0, nan="greatest", lengths=arrays["n"])
        kinds = [jax.ShapeDtypeStruct((steps, batch), np.float32), jax.ShapeDtypeStruct((batch,), np.int32)]
        made = exported(
            lambda a, n: adapter.top_k(a, 3, axis=0, lengths=n), *kinds, platforms=("cpu", "cuda")
        )
    else:
        arrays = layer_arrays(rng)
        options: Any = {
            "direction": "bidirectional",
            "activations": ["Sigmoid", "LeakyRelu"] * 2,
            "clip": 0.5,
        }
        expected = cudml.gru(**arrays, **options)
        shapes = LAYER | {"x": (steps, batch, 2), "h0": (2, batch, 4), "sequence_lengths": (batch,)}
        kinds = [jax.ShapeDtypeStruct(shape, arrays[name].dtype) for name, shape in shapes.items()]
        made = exported(lambda *arrays: adapter.gru(*arrays, **options), *kinds)
    (tmp_path / "program").write_bytes(made)
    np.savez(tmp_path / "given.npz", **arrays)
    names = [str(tmp_path / name) for name in ("program", "given.npz", "results.npz")]
    subprocess.run([sys.executable, "-c", IMPORT_AND_RUN, *names], check=True, timeout=300)
    with np.load(names[2]) as results:
        for name, right in zip(results.files, expected, strict=True):
            wanted = right.astype(np.int32) if right.dtype == np.int64 else right
            assert_identical(results[name], wanted)


def test_a_k_above_a_symbolic_size_is_an_error_of_the_program() -> None:
    (size,) = export.symbolic_shape("N")
    made = exported(lambda a: adapter.top_k(a, 3), jax.ShapeDtypeStruct((size,), np.float32))
    program = export.deserialize(bytearray(made))
    assert program.call(jnp.array([1.0, 3.0, 2.0])).indices.tolist() == [1, 2, 0]
    with pytest.raises(
        jax.errors.JaxRuntimeError, match="INVALID_ARGUMENT: top_k: k is 3, must be from 0 to"
    ):
        jax.block_until_ready(program.call(jnp.array([1.0, 2.0])))


@pytest.mark.parametrize(
    ("error", "message", "changes"),
    [
        (ValueError, r"h0 is of shape \(1, 3, 4\), must be .*\(1, N, 4\)", {"h0": (1, 3, 4)}),
        (ValueError, r"h0 is of shape \(1, T, 4\), must be .*\(1, N, 4\)", {"h0": (1, "T", 4)}),
        (
            TypeError,
            "a size of w is I, must be a number: only T and N, the first two of x",
            {"w": (1, 12, "I")},
        ),
        (TypeError, "a size of x is I, must be a number", {"x": ("T", "N", "I")}),
    ],
)
def test_symbolic_sizes_of_a_layer_are_checked(error: type[Exception], message: str, changes: Any) -> None:
    names = dict(zip(("T", "N", "I"), export.symbolic_shape("T, N, I"), strict=True))
    shapes = {"x": ("T", "N", 2), "w": (1, 12, 2), "r": (1, 12, 4), "h0": (1, "N", 4)} | changes
    kinds = [
        jax.ShapeDtypeStruct([names.get(size, size) for size in shape], np.float32)
        for shape in shapes.values()
    ]
    with pytest.raises(error, match=message):
        exported(lambda x, w, r, h0: adapter.gru(x, w, r, h0=h0), *kinds)


LAYOUTS = [
    ("Buffer", calls._Buffer, {}),
    ("Args", calls._Items, {"items": "args"}),
    ("Rets", calls._Items, {"items": "rets"}),
    ("Attrs", calls._Attrs, {"items": "attrs"}),
    ("Api_Version", calls._ApiVersion, {}),
    ("Error_Create_Args", calls._ErrorCreate, {}),
    ("Stream_Get_Args", calls._StreamGet, {}),
    ("Api", calls._Api, {"error_create": "XLA_FFI_Error_Create", "stream_get": "XLA_FFI_Stream_Get"}),
    ("CallFrame", calls._CallFrame, {}),
    ("ByteSpan", calls._ByteSpan, {}),
    ("Metadata", calls._Metadata, {}),
    ("Metadata_Extension", calls._MetadataExtension, {}),
    ("Extension_Base", calls._Extension, {}),
]


def test_layouts_are_those_of_xla_s_header(tmp_path: Path) -> None:
    """Every member that is known by name is where a C++ compiler places it."""
    header = Path(jax.ffi.include_dir(), "xla/ffi/api/c_api.h")
    checks, count = [], 0
    for name, layout, other_names in LAYOUTS:
        for member, *_ in layout._fields_:
            member_in_c = other_names.get(member, member)
            is_unused = name == "Api" and member not in (*other_names, "api_version", "struct_size")
            if not is_unused:
                offset = getattr(layout, member).offset
                checks.append(f"static_assert(offsetof(XLA_FFI_{name}, {member_in_c}) == {offset});")
                count += 1
    for code, dtype in calls._DTYPES.items():
        letter = {"b": "PRED", "i": "S", "u": "U", "f": "F", "V": "BF"}[dtype.kind]
        bits = "" if dtype.kind == "b" else str(8 * dtype.itemsize)
        checks.append(f"static_assert(XLA_FFI_DataType_{letter}{bits} == {code});")
    checks.append(f"static_assert(XLA_FFI_Extension_Metadata == {calls._METADATA});")
    assert count > 40
    (tmp_path / "layouts.cpp").write_text("\n".join(["#include <cstddef>", f'#include "{header}"', *checks]))
    command = [*compiler().command, "-std=c++17", "-fsyntax-only", str(tmp_path / "layouts.cpp")]
    subprocess.run(command, check=True, timeout=120)


def test_another_version_of_xla_s_interface_is_refused_when_imported(tmp_path: Path) -> None:
    """It is not refused when XLA starts, which would then have no backend."""
    header = Path(jax.ffi.include_dir(), "xla/ffi/api/c_api.h")
    calls.check_version(header)
    other = tmp_path / "c_api.h"
    other.write_text(re.sub(r"(XLA_FFI_API_MAJOR) \d+", r"\1 1", header.read_text()))
    with pytest.raises(ImportError, match="is of version 1 in this jaxlib, must be 0: install a newer cudml"):
        calls.check_version(other)


def test_what_fails_in_a_call_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise MemoryError("no more")

    monkeypatch.setattr(cudml.functions.top_k, "top_k", fail)
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL: MemoryError: no more"):
        jax.block_until_ready(adapter.top_k(jnp.arange(3.0), 2))


def test_gradients_are_refused_with_what_has_them() -> None:
    """Of both functions, also compiled and mapped; the code that the error advises has JAX's gradient."""
    a = jnp.array([3.0, 1.0, 2.0, 5.0])

    def best(a: Any) -> Any:
        return adapter.top_k(a, 2).values.sum()

    for function in (best, jax.jit(best), lambda a: jax.vmap(best)(a[None]).sum()):
        with pytest.raises(
            TypeError, match=r"^top_k: cudml computes no gradients: .*stop_gradient\(operand\)"
        ):
            jax.grad(function)(a)
    layer = [jnp.ones(shape) for shape in ((5, 2, 3), (1, 12, 3), (1, 12, 4))]
    with pytest.raises(TypeError, match=r"^gru: cudml computes no gradients"):
        jax.grad(lambda x: adapter.gru(x, *layer[1:]).single.sum())(layer[0])

    def taken(a: Any) -> Any:
        return jnp.take_along_axis(a, adapter.top_k(jax.lax.stop_gradient(a), 2).indices, -1).sum()

    assert jax.grad(taken)(a).tolist() == [1, 0, 0, 1]
    assert jax.grad(taken)(a).tolist() == jax.grad(lambda a: jax.lax.top_k(a, 2)[0].sum())(a).tolist()


def test_lengths_of_a_layer_may_be_a_list_or_a_number() -> None:
    layer = [jnp.ones(shape) for shape in ((5, 2, 3), (1, 12, 3), (1, 12, 4))]
    for lengths, counts in (([3, 5], [3, 5]), (4, [4, 4])):
        found = adapter.gru(*layer, sequence_lengths=lengths).single
        assert_identical(
            np.asarray(found), np.asarray(adapter.gru(*layer, None, None, np.array(counts)).single)
        )


def test_arguments_are_left_as_they_are() -> None:
    a = jnp.arange(12.0)
    before = np.array(a)
    result = adapter.top_k(a, 12)
    jax.block_until_ready(result)
    assert np.array_equal(a, before)
    assert result.values.tolist() == before[::-1].tolist()


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ValueError, "k is 9, must be from 0 to the size of axis 0", lambda a: adapter.top_k(a, 9)),
        (ValueError, "mode is 'x'", lambda a: adapter.top_k(a, 1, mode="x")),
        (ValueError, "nan is 'x'", lambda a: adapter.top_k(a, 1, nan="x")),
        (
            TypeError,
            "top_k: operand is of dtype complex64",
            lambda a: adapter.top_k(a.astype("complex64"), 1),
        ),
        (
            TypeError,
            "k is a jax.*, must be an integer that is known when the call is traced: static_argnames='k' of",
            lambda a: adapter.top_k(a, a[0].astype(int)),
        ),
        (TypeError, "k is a float, must be an integer that is known", lambda a: adapter.top_k(a, 2.5)),
        (
            ValueError,
            r"lengths is of shape \(3,\), must be of a shape that broadcasts to \(1,\)",
            lambda a: adapter.top_k(a, 1, lengths=jnp.arange(3)),
        ),
        (TypeError, "lengths is of dtype float32", lambda a: adapter.top_k(a, 1, lengths=a[:1])),
        (np.exceptions.AxisError, "axis 1 is out of bounds", lambda a: adapter.top_k(a, 1, axis=1)),
        (ValueError, r"x is of shape \(4,\), must be", lambda a: adapter.gru(a, a, a)),
        (TypeError, "operand is an int, .*: the array comes before", lambda a: adapter.top_k(2, a)),
        (TypeError, "largest is no argument, must be mode=", lambda a: adapter.top_k(a, 1, largest=True)),
        (TypeError, "argument 3 is 0, must be given by its name", lambda a: adapter.top_k(a, 1, 0)),
        (TypeError, "gru: hx is no argument, must be h0=", lambda a: adapter.gru(a, a, a, hx=a)),
        (ValueError, "; mode='smallest' selects the smallest", lambda a: adapter.top_k(a, -1)),
        (TypeError, "operand is a list, must be a JAX array", lambda a: adapter.top_k([1.0], 1)),
        (TypeError, "clip is '1', must be a number above 0", lambda a: adapter.gru(a, a, a, clip="1")),
        (TypeError, "w is None, must be an array", lambda a: adapter.gru(a, None, a)),
    ],
)
def test_errors_come_when_a_call_is_traced(error: type[Exception], message: str, call: Any) -> None:
    with pytest.raises(error, match=message):
        jax.jit(call)(jnp.zeros(4))
