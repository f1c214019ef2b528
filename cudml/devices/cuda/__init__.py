"""The CUDA device: builds kernels with CuPy's `RawModule` and launches them; only this package imports CuPy.

`device.py` finds GPUs and handles their arrays, `sharing.py` takes arrays of other libraries, `program.py`
loads plans, `graphs.py` records their repeated steps, and `kernel.py` builds kernels.
"""

from cudml.devices.cuda.device import (
    CudaDevice,
    Status,
    devices,
    get_device,
    is_own,
    number_of,
    operand_maker,
    plain,
    status,
    take,
)
from cudml.devices.cuda.kernel import pointer
from cudml.devices.cuda.streams import StreamHandle

__all__ = [
    "CudaDevice",
    "Status",
    "StreamHandle",
    "devices",
    "get_device",
    "is_own",
    "number_of",
    "operand_maker",
    "plain",
    "pointer",
    "status",
    "take",
]
