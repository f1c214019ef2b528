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

    x, short = cupy.ndarray((1, 1 << 19), np.float32), cupy.ndarray((8, 64), np.float32)
    calls = {
        "top_k": lambda: cudml.top_k(x, 50),
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


def grids_where_none_fits() -> dict[str, tuple[str, list[bool]]]:
    """The errors of calls whose grids would not be resident, and whether their launches are cooperative."""
    import cupy

    import cudml
    from tests.devices.cuda.stand_in.products import cublas

    row = cupy.ndarray((1, 1 << 19), np.float32)
    layer = [cupy.ndarray(shape, np.float16) for shape in ((3, 8, 4), (1, 3072, 4), (1, 3072, 1024))]
    desc = cudml.TopK1Desc(
        cudml.TensorDesc(cudml.DataType.FLOAT32, (1, 1 << 19)),
        cudml.TensorDesc(cudml.DataType.FLOAT32, (1, 60)),
        cudml.TensorDesc(cudml.DataType.UINT32, (1, 60)),
        1,
        60,
        cudml.AxisDirection.DECREASING,
    )

    def dispatch() -> None:
        operator = cudml.compile_operator(desc, device="cuda")
        results = cupy.ndarray((1, 60), np.float32), cupy.ndarray((1, 60), np.uint32)
        operator.dispatch(input_tensor=row, output_value_tensor=results[0], output_index_tensor=results[1])

    calls = {
        "top_k": lambda: cudml.top_k(row, 60),
        "gru": lambda: cudml.gru(*layer),
        "dispatch": dispatch,
    }
    stand_in = the_stand_in()
    stand_in.set(resident_blocks=0)
    try:
        with cublas():
            found = {}
            for name, run in calls.items():
                stand_in.record()
                error = _error_of(run)
                found[name] = error, [launch.cooperative for launch in stand_in.launches()]
            return found
    finally:
        stand_in.set(resident_blocks=2)
