"""The CUDA device: builds kernels with CuPy's `RawModule` and launches them; no other file imports CuPy.

CuPy launches whatever it is given, so what it leaves unchecked is checked here, when a plan is loaded
and never again: the kernel's parameters (by the compiler, `kernel_text.py`), an empty grid (CuPy would
launch one block), a cooperative grid that does not fit (CuPy would shrink it), and the hash of every
file a kernel includes (CuPy's disk cache would miss an edit). Scalars travel as the bytes of
`Params.pack`; a Python number never reaches a kernel.
"""

import math
import operator
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from cudml.devices import Array, Layout, Program, capture, cublas
from cudml.devices.guards import check_kernel, check_launch
from cudml.devices.kernel_text import kernel_text
from cudml.devices.sources import kernel_root
from cudml.errors import CompilerError, DeviceError
from cudml.plans import Copy, Fill, KernelLaunch, Limits, MatMul, Plan, Step

#: The oldest GPUs that the CUDA 13 compiler still knows.
MIN_COMPUTE_CAPABILITY = 75

#: CUDA guarantees clusters of this many blocks wherever there are clusters; more is a special request.
PORTABLE_CLUSTER_BLOCKS = 8

#: Dynamic shared storage that a kernel may use without being granted more.
DEFAULT_SHARED_BYTES = 48 * 1024

# Numbers of `cudaError`, `CUfunction_attribute` and DLPack's `DLDeviceType`, and the streams that cannot be
# captured: the handles of CUDA's legacy default stream.
_ERROR_INSUFFICIENT_DRIVER = 35
_ERROR_NO_DEVICE = 100
_MAX_THREADS_PER_BLOCK = 0
_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14
_DLPACK_CUDA = (2, 13)
_LEGACY_STREAMS = (0, 1)

# What a step is run with: the addresses or arrays of operands and workspaces, and the stream or None.
_Run = Callable[[Sequence[Any], Any], None]


@dataclass(frozen=True)
class Status:
    """Whether CUDA can be used on this machine, and what was found or what is missing."""

    usable: bool
    reason: str


@cache
def status() -> Status:
    """Look once whether there is a usable GPU; never raises.

    Examples
    --------
    >>> from cudml.devices import cuda
    >>> cuda.status().reason  # doctest: +SKIP
    'no CUDA driver, or one too old for this CuPy'
    """
    try:
        import cupy
    except ModuleNotFoundError as error:
        if error.name == "cupy":
            return Status(False, "CuPy is not installed: pip install 'cudml[cuda13]' or 'cudml[cuda12]'")
        return Status(False, f"CuPy cannot be imported: {error}")
    except Exception as error:  # a NumPy it was not built for, a cache folder it cannot make, ...
        return Status(False, f"CuPy cannot be imported: {type(error).__name__}: {error}")
    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
        found = [_compute_capability(runtime, number) for number in range(count)]
    except Exception as error:
        return Status(False, _driver_problem(error))
    if not any(capability >= MIN_COMPUTE_CAPABILITY for capability in found):
        told = ", ".join(f"cuda:{n} has {c / 10:.1f}" for n, c in enumerate(found)) or "there is none"
        return Status(
            False, f"no CUDA device of compute capability {MIN_COMPUTE_CAPABILITY / 10} or more: {told}"
        )
    told = ", ".join(f"cuda:{n} of compute capability {c / 10:.1f}" for n, c in enumerate(found))
    return Status(True, told)


def _driver_problem(error: Exception) -> str:
    code = getattr(error, "status", None)
    if code == _ERROR_INSUFFICIENT_DRIVER:
        return "no CUDA driver, or one too old for this CuPy"
    if code == _ERROR_NO_DEVICE:
        return "a CUDA driver, but no CUDA device that this process may see"
    return f"the CUDA driver is broken: {type(error).__name__}: {error}"


def _compute_capability(runtime: Any, number: int) -> int:
    # CuPy has no names for these two.
    major, minor = (int(runtime.deviceGetAttribute(code, number)) for code in (75, 76))
    return 10 * major + minor


_devices: dict[int, "CudaDevice"] = {}
_devices_lock = threading.Lock()


def get_device(number: int | None = None) -> "CudaDevice":
    """The GPU of a number, None for the current one. The same object every time.

    Raises
    ------
    cudml.errors.DeviceError
        There is no usable GPU (says what is missing), or none of that number.
    """
    if not status().usable:
        raise DeviceError(f"CUDA cannot be used: {status().reason}")
    import cupy

    runtime = cupy.cuda.runtime
    if number is None:
        number = int(runtime.getDevice())
    with _devices_lock:
        if number not in _devices:
            if number >= (count := runtime.getDeviceCount()):
                raise DeviceError(f"cuda:{number} does not exist: this process sees {count} CUDA devices")
            if (capability := _compute_capability(runtime, number)) < MIN_COMPUTE_CAPABILITY:
                raise DeviceError(
                    f"cuda:{number} has compute capability {capability / 10:.1f}, "
                    f"{MIN_COMPUTE_CAPABILITY / 10} is the least"
                )
            _devices[number] = CudaDevice(number)
        return _devices[number]


def as_array(candidate: Any) -> Any | None:
    """The GPU array that an object holds, as a `cupy.ndarray` without a copy; None if it holds none.

    Taken are CuPy arrays, objects whose `__dlpack_device__` is CUDA, and objects with
    `__cuda_array_interface__`. Work queued on the producer's stream is waited for as CuPy does it: on the
    current stream through DLPack, by synchronising the stream that the interface names otherwise.

    Raises
    ------
    cudml.errors.DeviceError
        The object is a GPU array and CUDA cannot be used from here.
    """
    imported = sys.modules.get("cupy")
    if imported is not None and isinstance(candidate, imported.ndarray):
        return candidate
    exporter = getattr(candidate, "__dlpack_device__", None)
    if exporter is not None:
        if int(exporter()[0]) not in _DLPACK_CUDA:
            return None
        take = "from_dlpack"
    elif hasattr(candidate, "__cuda_array_interface__"):
        take = "asarray"
    else:
        return None
    if not status().usable:
        raise DeviceError(f"{type(candidate).__name__} is an array on a GPU: {status().reason}")
    import cupy

    return getattr(cupy, take)(candidate)


class CudaDevice:
    """One GPU through CuPy; `get_device` makes it. Implements `cudml.devices.Device`.

    Outputs and workspaces come from CuPy's allocator. Kernels are built once for each device; what is
    loaded may be run from any thread.
    """

    has_fixed_arrays = True

    def __init__(self, number: int) -> None:
        import cupy

        self.name = f"cuda:{number}"
        self.number = number
        self._cupy = cupy
        self._ndarray = cupy.ndarray
        self._current_device: Callable[[], int] = cupy.cuda.runtime.getDevice
        self._kernels: dict[tuple[str, str], _Kernel] = {}
        self._build_lock = threading.Lock()
        self._limits = self._read_limits()

    @property
    def limits(self) -> Limits:
        """What the driver says of this GPU."""
        return self._limits

    def _read_limits(self) -> Limits:
        runtime = self._cupy.cuda.runtime

        def attribute(name: str) -> int:
            return int(runtime.deviceGetAttribute(getattr(runtime, f"cudaDevAttr{name}"), self.number))

        capability = _compute_capability(runtime, self.number)
        return Limits(
            num_multiprocessors=attribute("MultiProcessorCount"),
            max_threads_per_block=attribute("MaxThreadsPerBlock"),
            shared_bytes_per_block=attribute("MaxSharedMemoryPerBlockOptin"),
            shared_bytes_per_multiprocessor=attribute("MaxSharedMemoryPerMultiprocessor"),
            registers_per_multiprocessor=attribute("MaxRegistersPerMultiprocessor"),
            max_threads_per_multiprocessor=attribute("MaxThreadsPerMultiProcessor"),
            max_cluster_blocks=PORTABLE_CLUSTER_BLOCKS if capability >= 90 else 1,
            l2_bytes=attribute("L2CacheSize"),
            compute_capability=capability,
        )

    def empty(self, shape: tuple[int, ...], dtype: Any, stream: Any = None) -> Array:
        """A new uninitialised C-contiguous `cupy.ndarray` on this GPU, in the stream's order."""
        if stream is None and self._current_device() == self.number:
            return self._ndarray(shape, dtype)
        with self._cupy.cuda.Device(self.number), self._made_current(stream):
            return self._ndarray(shape, dtype)

    def allocator(self, arrays: Sequence[tuple[tuple[int, ...], Any]]) -> Callable[[], list[Array]]:
        """What `empty` does for several shapes and dtypes, in the order of the current stream."""
        ndarray, number, current_device = self._ndarray, self.number, self._current_device
        device = self._cupy.cuda.Device
        # CuPy finds a scalar type sooner than a dtype; those that say less than the dtype stay.
        dtypes = [np.dtype(dtype) for _, dtype in arrays]
        kinds = [dtype.type if np.dtype(dtype.type) == dtype else dtype for dtype in dtypes]
        wanted = tuple((shape, kind) for (shape, _), kind in zip(arrays, kinds, strict=True))

        def allocate() -> list[Array]:
            if current_device() == number:
                return [ndarray(shape, dtype) for shape, dtype in wanted]
            with device(number):
                return [ndarray(shape, dtype) for shape, dtype in wanted]

        if len(wanted) != 2:
            return allocate
        (first_shape, first), (second_shape, second) = wanted

        def allocate_two() -> list[Array]:  # a loop takes longer than its two turns
            if current_device() == number:
                return [ndarray(first_shape, first), ndarray(second_shape, second)]
            return allocate()

        return allocate_two

    def owns(self, array: Any) -> bool:
        """Whether it is a `cupy.ndarray` in this GPU's memory."""
        return isinstance(array, self._ndarray) and array.data.device_id == self.number

    def address(self, array: Array) -> int:
        """Address of element (0, ..., 0)."""
        return int(array.data.ptr)

    def describe(self, array: Any) -> tuple[int, Layout]:
        """The address, and the rest in one hashable value; TypeError for all but a `cupy.ndarray`."""
        if type(array) is not self._ndarray:
            raise TypeError(f"{self.name} takes cupy.ndarray, got {type(array).__name__}")
        memory = array.data
        strides = None if array._c_contiguous else array.strides
        return memory.ptr, (array.shape, strides, array.dtype, True, memory.device_id)

    def copy_bytes(self, source: Array, destination: Array, num_bytes: int, stream: Any = None) -> None:
        """Queue a copy of bytes within this GPU."""
        runtime = self._cupy.cuda.runtime
        with self._cupy.cuda.Device(self.number):
            chosen = self._cupy.cuda.get_current_stream() if stream is None else as_stream(stream)
            runtime.memcpyAsync(
                destination.data.ptr, source.data.ptr, num_bytes, runtime.memcpyDeviceToDevice, chosen.ptr
            )

    def keep_captured(
        self,
        made: Sequence[Array],
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        stream: Any = None,
    ) -> None:
        """While the stream is captured, let what a call made live as long as its outputs (`capture.py`)."""
        cuda = self._cupy.cuda
        handle = (cuda.get_current_stream(self.number) if stream is None else as_stream(stream)).ptr
        if handle in _LEGACY_STREAMS or not cuda.runtime.streamIsCapturing(handle):
            return
        # Memory of CUDA's own asynchronous pool is allocated and freed by nodes of the graph.
        capture.keep([a for a in made if not isinstance(a.data.mem, cuda.MemoryAsync)], inputs, outputs)

    def _made_current(self, stream: Any) -> AbstractContextManager[Any]:
        """A context in which CuPy's allocator and cuBLAS use the stream; None changes nothing."""
        if stream is None:
            return nullcontext()
        chosen = as_stream(stream)
        entered: AbstractContextManager[Any] = (
            chosen if hasattr(chosen, "__enter__") else self._cupy.cuda.Stream.from_external(chosen)
        )
        return entered

    def load(self, plan: Plan) -> Program:
        """Build what is not built yet, check every launch, and prepare the call.

        The program launches on the given stream (a CuPy stream, an object with `__cuda_stream__`, or the
        integer handle) or on the current stream of this GPU, allocates nothing, synchronises nothing, and
        can be captured in a graph.

        Raises
        ------
        cudml.errors.CompilerError
            A kernel does not compile (with the compiler's log), or there is no compiler.
        ValueError
            A launch cannot run on this GPU; says what would fit.
        """
        with self._cupy.cuda.Device(self.number):
            return self._prepare(plan)

    def _prepare(self, plan: Plan) -> Program:
        slots = {name: slot for slot, name in enumerate([*plan.operands, *plan.offsets()])}
        offsets = tuple(plan.offsets().values())
        current_device, number, device = self._current_device, self.number, self._cupy.cuda.Device
        stream_type = self._cupy.cuda.Stream

        only = plan.steps[0] if len(plan.steps) == 1 else None
        if isinstance(only, KernelLaunch) and only.buffers == plan.operands and not only.cooperative:
            # By far the most frequent plan, so it has a path with nothing to look up.
            kernel = self._kernel(only)
            function, params = kernel.function, kernel.params(only)
            grid, block, shared_bytes = only.grid, only.block, only.shared_bytes

            def launch_alone(operands: Sequence[Array], workspace: Array | None, stream: Any = None) -> None:
                if stream is not None and type(stream) is not stream_type:
                    stream = as_stream(stream)
                if current_device() == number:
                    function(grid, block, (*operands, *params), shared_bytes, stream)
                else:
                    with device(number):
                        function(grid, block, (*operands, *params), shared_bytes, stream)

            return launch_alone
        if isinstance(only, Copy) and not offsets:
            copy = self._prepare_copy(only, slots)

            def copy_alone(operands: Sequence[Array], workspace: Array | None, stream: Any = None) -> None:
                if stream is not None and type(stream) is not stream_type:
                    stream = as_stream(stream)
                if current_device() == number:
                    copy(operands, stream)
                else:
                    with device(number):
                        copy(operands, stream)

            return copy_alone

        steps = [self._prepare_step(step, slots) for step in plan.steps]

        def run_steps(operands: Sequence[Array], workspace: Array | None, stream: Any = None) -> None:
            if stream is not None and type(stream) is not stream_type:
                stream = as_stream(stream)
            base = 0 if workspace is None else workspace.data.ptr
            buffers = (*operands, *[base + offset for offset in offsets])
            if current_device() == number:
                for step in steps:
                    step(buffers, stream)
            else:
                with device(number):
                    for step in steps:
                        step(buffers, stream)

        return run_steps

    def _prepare_step(self, step: Step, slots: dict[str, int]) -> _Run:
        if isinstance(step, KernelLaunch):
            return self._prepare_launch(step, slots)
        if isinstance(step, MatMul):
            return self._prepare_matmul(step, slots)
        if isinstance(step, Copy):
            return self._prepare_copy(step, slots)
        return self._prepare_fill(step, slots)

    def _prepare_launch(self, launch: KernelLaunch, slots: dict[str, int]) -> _Run:
        kernel = self._kernel(launch)
        function, params = kernel.function, kernel.params(launch)
        grid, block, shared_bytes = launch.grid, launch.block, launch.shared_bytes
        cooperative = launch.cooperative
        # A step's arguments are picked out of the buffers and these two.
        fixed = (_by_value(bytes(8)), *params)
        null = len(slots)
        order = [null if name is None else slots[name] for name in launch.buffers]
        order += range(null + 1, null + 1 + len(params))
        pick = operator.itemgetter(*order) if len(order) > 1 else lambda all_: tuple(all_[i] for i in order)

        def run(buffers: Sequence[Any], stream: Any) -> None:
            function(grid, block, pick((*buffers, *fixed)), shared_bytes, stream, cooperative)

        return run

    def _prepare_matmul(self, step: MatMul, slots: dict[str, int]) -> _Run:
        a, b, out = slots[step.a], slots[step.b], slots[step.out]
        m, n, k = step.m, step.n, step.k
        if not m or not n:
            return lambda buffers, stream: None
        if max(m, n, k) > cublas.MAX_SIZE:
            raise ValueError(f"{step}: cuBLAS takes sizes up to {cublas.MAX_SIZE}")
        try:
            from cupy_backends.cuda.libs import cublas as binding

            get_handle = self._cupy.cuda.device.get_cublas_handle  # each thread has its own
            get_handle()  # made here, because making one allocates
            multiply = cublas.product(binding.__file__, step)
        except (AttributeError, ImportError, OSError, RuntimeError) as error:
            raise DeviceError(
                f"cuBLAS cannot be used on {self.name} ({error}): pip install 'cudml[cuda13]' or "
                "'cudml[cuda12]' brings it"
            ) from error
        current_stream = self._cupy.cuda.get_current_stream

        def run(buffers: Sequence[Any], stream: Any) -> None:
            chosen = current_stream() if stream is None else stream
            multiply(
                get_handle(), chosen.ptr, _pointer(buffers[a]), _pointer(buffers[b]), _pointer(buffers[out])
            )

        return run

    def _prepare_fill(self, step: Fill, slots: dict[str, int]) -> _Run:
        slot, num_bytes, value = slots[step.buffer], step.num_bytes, step.value
        memset = self._cupy.cuda.runtime.memsetAsync
        current_stream = self._cupy.cuda.get_current_stream

        def run(buffers: Sequence[Any], stream: Any) -> None:
            chosen = current_stream() if stream is None else stream
            memset(_pointer(buffers[slot]), value, num_bytes, chosen.ptr)

        return run

    def _prepare_copy(self, step: Copy, slots: dict[str, int]) -> _Run:
        source, target, num_bytes = slots[step.source], slots[step.target], step.num_bytes
        source_offset, target_offset = step.source_offset, step.target_offset
        runtime, current_stream = self._cupy.cuda.runtime, self._cupy.cuda.get_current_stream
        copy, kind = runtime.memcpyAsync, runtime.memcpyDeviceToDevice

        def run(buffers: Sequence[Any], stream: Any) -> None:
            chosen = current_stream() if stream is None else stream
            to, from_ = _pointer(buffers[target]) + target_offset, _pointer(buffers[source]) + source_offset
            copy(to, from_, num_bytes, kind, chosen.ptr)

        return run

    def _kernel(self, launch: KernelLaunch) -> "_Kernel":
        """The built kernel instance, on the current device, after the checks of this launch."""
        check_launch(launch, self._limits, self.name)
        text = kernel_text((launch,))
        with self._build_lock:
            # CuPy lets every thread that comes first compile; here one does and the others wait.
            kernel = self._kernels.get((text, launch.name_expression))
            if kernel is None:
                kernel = _Kernel(self._cupy, launch, text)
                self._kernels[text, launch.name_expression] = kernel
            kernel.grant(launch)
        kernel.check(launch, self._limits, self.name)
        return kernel


class _Kernel:
    """One kernel instance loaded on one device."""

    def __init__(self, cupy: Any, launch: KernelLaunch, text: str) -> None:
        self._driver = cupy.cuda.driver
        self._shared_bytes = DEFAULT_SHARED_BYTES
        options = ("--std=c++17", f"-I{kernel_root()}")
        compile_error = cupy.cuda.compiler.CompileException
        told = f"{launch.source}: {launch.name_expression}"

        def build() -> Any:
            module = cupy.RawModule(code=text, options=options, name_expressions=(launch.name_expression,))
            raw = module.get_function(launch.name_expression)
            return raw, raw.kernel

        try:
            try:
                self._raw, self.function = build()
            except OSError as error:
                _warn_of_cache(str(error))
                with _cache_in_memory():
                    self._raw, self.function = build()
        except compile_error as error:
            raise CompilerError(f"{told} does not compile:\n{error.get_message()}") from error
        except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
            raise DeviceError(f"{told} cannot be loaded: {error}") from error
        except RuntimeError as error:  # CuPy finds no NVRTC, or no headers of CUDA
            raise CompilerError(
                f"{told} cannot be compiled ({error}): pip install 'cudml[cuda13]' or 'cudml[cuda12]' "
                "brings the compiler and its headers"
            ) from error

    def grant(self, launch: KernelLaunch) -> None:
        """Let the kernel have the shared storage and the cluster of this launch, on this device."""
        if launch.shared_bytes > self._shared_bytes:
            self._raw.max_dynamic_shared_size_bytes = launch.shared_bytes
            self._shared_bytes = launch.shared_bytes
        if launch.cluster_blocks > PORTABLE_CLUSTER_BLOCKS:
            self._driver.funcSetAttribute(self.function.ptr, _NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)

    def check(self, launch: KernelLaunch, limits: Limits, device: str) -> None:
        """Refuse what this kernel cannot be launched with on this device."""
        max_threads = self._driver.funcGetAttribute(_MAX_THREADS_PER_BLOCK, self.function.ptr)
        resident_blocks = 0
        if launch.cooperative:
            resident_blocks = self._driver.occupancyMaxActiveBlocksPerMultiprocessor(
                self.function.ptr, math.prod(launch.block), launch.shared_bytes
            )
        check_kernel(launch, limits, device, max_threads, resident_blocks)

    def params(self, launch: KernelLaunch) -> tuple[Any, ...]:
        """The kernel's last argument, ready to be passed; nothing for a kernel without a struct."""
        return (_by_value(launch.params.pack()),) if launch.params.fields else ()


@cache
def _by_value_type() -> Any:
    from cupy.cuda.function import CPointer

    class ByValue(CPointer):  # type: ignore[misc]
        """Bytes in host memory as one argument of a kernel; CuPy passes their address to the driver."""

        def __init__(self, data: bytes) -> None:
            self._bytes = np.frombuffer(data, np.uint8).copy()
            super().__init__(_address_of(self._bytes))

    return ByValue


def _by_value(data: bytes) -> Any:
    return _by_value_type()(data)


class _StreamHandle:
    """The integer handle of a stream, as CuPy's launch and `Stream.from_external` take it."""

    __slots__ = ("ptr",)

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr


def as_stream(stream: Any) -> Any:
    """Something with the handle of a stream in `ptr`, from CuPy's, another library's, or an integer."""
    if hasattr(stream, "ptr"):
        return stream
    if isinstance(stream, int) and not isinstance(stream, bool):
        return _StreamHandle(stream)
    if hasattr(stream, "__cuda_stream__"):
        return _StreamHandle(int(stream.__cuda_stream__()[1]))
    raise TypeError(
        "stream must be None, a CuPy stream, an object with __cuda_stream__ or an integer handle, "
        f"got {type(stream).__name__}"
    )


def _pointer(buffer: Any) -> int:
    return buffer if type(buffer) is int else buffer.data.ptr


def _address_of(storage: np.ndarray) -> int:
    return int(storage.__array_interface__["data"][0])


@cache
def _warn_of_cache(problem: str) -> None:
    warnings.warn(f"CuPy's kernel cache cannot be used, kernels are compiled anew: {problem}", stacklevel=2)


@contextmanager
def _cache_in_memory() -> Iterator[None]:
    before = os.environ.get("CUPY_CACHE_IN_MEMORY")
    os.environ["CUPY_CACHE_IN_MEMORY"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["CUPY_CACHE_IN_MEMORY"]
        else:
            os.environ["CUPY_CACHE_IN_MEMORY"] = before
