"""The CUDA device: builds kernels with CuPy's `RawModule` and launches them; CuPy is imported here alone.

`device.py` finds GPUs and knows their arrays, `program.py` makes plans ready to run, `kernel.py` builds.
"""

from cudml.devices.cuda.device import CudaDevice, Status, as_array, get_device, status

__all__ = ["CudaDevice", "Status", "as_array", "get_device", "status"]
