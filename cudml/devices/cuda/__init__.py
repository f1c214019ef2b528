"""The CUDA device: builds kernels with CuPy's `RawModule` and launches them; CuPy is imported here alone.

`device.py` finds GPUs and knows their arrays, `sharing.py` takes those of other libraries, `program.py` makes
plans ready to run, `kernel.py` builds.
"""

from cudml.devices.cuda.device import CudaDevice, Status, get_device, is_own, number_of, status, take

__all__ = ["CudaDevice", "Status", "get_device", "is_own", "number_of", "status", "take"]
