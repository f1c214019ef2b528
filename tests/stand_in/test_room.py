"""A GPU without room for a cluster, or for a cooperative grid: other kernels compute the same.

The stand-in refuses a launch for which there is no room, so a plan that did not ask would raise.
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cudml
from tests.stand_in import OVER_STAND_IN, the_stand_in
from tests.stand_in.test_onnx import session_of

pytestmark = OVER_STAND_IN

#: All 132 multiprocessors in groups of at most seven: no group holds a cluster of eight large blocks.
SEVENS = (*(7,) * 18, 6)

#: The launch that computes a row of top-k with room -> the row's length, k, the settings of a GPU without
#: room, and whether a launch is of that kind.
KINDS: dict[str, tuple[int, int, dict[str, Any], Callable[[Any], bool]]] = {
    "cluster": (65_536, 2048, {"gpcs": SEVENS}, lambda launch: launch.cluster_blocks > 1),
    "cooperative grid": (32_768, 5000, {"cooperative_blocks": 0}, lambda launch: launch.is_cooperative),
}

#: Plans are cached by shape, and each call must have a new shape.
_lengths = itertools.count(0, 64)


def _by_function(row: Any, k: int) -> Any:
    return cudml.top_k(row, k)


def _by_dispatch(row: Any, k: int) -> Any:
    import cupy

    outputs = cupy.empty((1, k), np.float32), cupy.empty((1, k), np.uint32)
    tensors = [cudml.TensorDesc.of(array) for array in (row, *outputs)]
    desc = cudml.TopK1Desc(*tensors, axis=1, k=k, axis_direction=cudml.AxisDirection.DECREASING)
    operator = cudml.compile_operator(desc, device="cuda")
    operator.dispatch(input_tensor=row, output_value_tensor=outputs[0], output_index_tensor=outputs[1])
    return outputs


def _by_onnx(row: Any, k: int) -> Any:
    session = session_of(
        f"(float[M, N] x) => (float[M, K] v, int64[M, K] i) "
        f"{{ k = Constant<value_ints = [{k}]>() v, i = TopK(x, k) }}"
    )
    found = session.run_named({"x": row})
    return found["v"], found["i"]


def _by_numpy(row: Any, k: int) -> Any:
    """As NumPy 2.6 calls CuPy."""
    import cupy

    def top_k(a: Any, k: int) -> Any: ...

    top_k.__module__ = "numpy"
    undo = cudml.install_cupy()
    try:
        return row.__array_function__(top_k, (cupy.ndarray,), (row, k), {})
    finally:
        undo()


@pytest.mark.parametrize("call", [_by_function, _by_dispatch, _by_onnx, _by_numpy])
@pytest.mark.parametrize("kind", KINDS)
def test_another_plan_computes_what_there_is_no_room_for(
    kind: str, call: Callable[[Any, int], Any], monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    import cupy

    length, k, without, is_of_kind = KINDS[kind]
    made = the_stand_in()
    for has_room in (True, False):
        for name, value in {} if has_room else without.items():
            monkeypatch.setattr(made.settings, name, value)
        values = rng.permutation(length + next(_lengths)).astype(np.float32)
        with made.launches() as launched:
            got, places = call(cupy.asarray(values[None]), k)
            results = got.get(), places.get()
        kinds = [is_of_kind(launch) for launch, _ in launched]
        assert any(kinds) == has_room, [launch.function.name for launch, _ in launched]
        best = np.argsort(-values)[:k]
        assert np.array_equal(results[1], best[None])
        assert np.array_equal(results[0], values[best][None])
