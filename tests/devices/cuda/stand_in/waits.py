"""Waits that kernels gave up, and grids that do not fit, over the stand-in; results go back by value.

The stand-in runs no kernels, so what a kernel writes into its report is written here, at the address that
its launch was given.
"""

from typing import Any

import numpy as np

from cudml.devices import get_device
from cudml.devices.waits import WaitReport
from tests.devices.cuda.stand_in.cases import the_stand_in

#: Pointers of `top_k_grid_radix`; the report's is the last.
NUM_POINTERS = 8


def error_of_the_next_call(which: str) -> dict[str, Any]:
    """A warm top-k of one long row gives up, launched by a call or by a replayed graph: the next call's error
    and driver calls, and those of the one after that."""
    import cupy

    import cudml

    x, short = cupy.ndarray((1, 1 << 21), np.float32), cupy.ndarray((8, 64), np.float32)
    calls = {
        "top_k": lambda: cudml.top_k(x, 100),
        "slice": lambda: cudml.slice(short, (0, 1), (8, 32)),
        "raise_reported": get_device("cuda").raise_reported,
    }
    for run in calls.values():
        run()
    stand_in = the_stand_in()
    stand_in.record(*[8] * NUM_POINTERS)
    calls["top_k"]()
    (launch,) = stand_in.launches()
    report = WaitReport.from_address(int.from_bytes(launch.arguments[-1], "little"))
    report.block, report.wait = 2, 1
    _word_at(report.any).value = 1
    stand_in.record()
    raised = _error_of(calls[which])
    asked = stand_in.calls()
    stand_in.record()
    afterwards = _error_of(calls[which])
    return {
        "raised": raised,
        "asked": asked,
        "afterwards": afterwards,
        "launches": len(stand_in.launches()),
        "blocks": launch.grid[0],
        "is_cooperative": launch.cooperative,
    }


def _word_at(address: int) -> Any:
    import ctypes

    return ctypes.c_uint32.from_address(address)


def _error_of(run: Any) -> str:
    try:
        run()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


#: (length, k) of a row of top-k that a GPU with room computes by a cooperative grid or by clusters, and the
#: name of the stand-in's setting that takes the room away.
ROWS = {"grid": ((1 << 21, 110), "resident_blocks"), "cluster": ((1 << 16, 2048), "active_clusters")}


def launches_where_none_fits(kind: str) -> dict[str, tuple[str, list[str], list[bool]]]:
    """The errors of calls whose first plan has no room, the driver's occupancy functions that they called,
    and whether their launches are cooperative."""
    import cupy

    import cudml
    from tests.devices.cuda.stand_in.products import cublas

    (length, k), setting = ROWS[kind]
    row = cupy.ndarray((1, length), np.float32)
    layer = [cupy.ndarray(shape, np.float16) for shape in ((3, 8, 4), (1, 2880, 4), (1, 2880, 960))]
    desc = cudml.TopK1Desc(
        cudml.TensorDesc(cudml.DataType.FLOAT32, (1, length)),
        cudml.TensorDesc(cudml.DataType.FLOAT32, (1, k)),
        cudml.TensorDesc(cudml.DataType.UINT32, (1, k)),
        1,
        k,
        cudml.AxisDirection.DECREASING,
    )

    def dispatch() -> None:
        operator = cudml.compile_operator(desc, device="cuda")
        results = cupy.ndarray((1, k), np.float32), cupy.ndarray((1, k), np.uint32)
        operator.dispatch(input_tensor=row, output_value_tensor=results[0], output_index_tensor=results[1])

    calls = {
        "top_k": lambda: cudml.top_k(row, k),
        "dispatch": dispatch,
        "adapter": lambda: _top_k_of_numpy(row, k),
    }
    if kind == "grid":
        calls["gru"] = lambda: cudml.gru(*layer)
    stand_in = the_stand_in()
    stand_in.set(**{setting: 0})
    try:
        with cublas():
            found = {}
            for name, run in calls.items():
                stand_in.record()
                error = _error_of(run)
                asked = [call.split()[0] for call in stand_in.calls() if call.startswith("cuOccupancy")]
                found[name] = error, asked, [launch.cooperative for launch in stand_in.launches()]
            return found
    finally:
        stand_in.set(resident_blocks=2, active_clusters=15)


def _top_k_of_numpy(row: Any, k: int) -> Any:
    """`numpy.top_k` of a CuPy array, as NumPy 2.6 calls it once cudml is installed there."""
    import cupy

    import cudml

    def top_k(a: Any, k: int, /, **options: Any) -> Any: ...

    top_k.__module__ = "numpy"
    undo = cudml.install_cupy()
    try:
        # The option makes the call differ from the array function's own, whose plan is known.
        return row.__array_function__(top_k, (cupy.ndarray,), (row, k), {"mode": "smallest"})
    finally:
        undo()
