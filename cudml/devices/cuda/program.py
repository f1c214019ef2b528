"""Plans loaded on one GPU: everything that a step needs is looked up once, when the plan is loaded.

CuPy launches whatever it is given. What it does not check is checked here once per plan: the kernel's
parameters (by the compiler, `kernel_text.py`), an empty grid (CuPy would launch one block), a cooperative
grid that does not fit (CuPy would shrink it), and the hash of every included file (CuPy's disk cache would
miss an edit). Scalars are passed as the bytes of `Params.pack`; a Python number never reaches a kernel.
"""

import operator
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from cudml.devices.cuda import cublas, graphs
from cudml.devices.cuda.graphs import Run, pointer_of
from cudml.devices.cuda.kernel import Kernel, by_value
from cudml.devices.cuda.streams import StreamHandle, Streams
from cudml.devices.cuda.wait_reports import WaitReports
from cudml.devices.interface import Array, Program
from cudml.errors import DeviceError
from cudml.locks import Lock, import_unforked
from cudml.plans import WAIT_REPORT, Copy, Fill, KernelLaunch, Limits, MatMul, Plan, Step

# The bytes of workspaces, and the offset of each.
_Workspace = tuple[int, tuple[int, ...]]


class ProgramLoader:
    """Loads plans on the GPU with a number, within its limits; caches the kernels that it built.

    `scratch` and `zeros` are the device's.
    """

    def __init__(
        self,
        cupy: Any,
        number: int,
        limits: Limits,
        as_stream: Streams,
        scratch: Callable[..., Array],
        zeros: Callable[..., int],
    ) -> None:
        self._cupy = cupy
        self._as_stream = as_stream
        self._name = f"cuda:{number}"
        self._number = number
        self._limits = limits
        self._scratch = scratch
        self._zeros = zeros
        self._current_device: Callable[[], int] = cupy.cuda.runtime.getDevice
        self._kernels: dict[Hashable, Kernel] = {}
        self._build_lock = Lock()
        self._wait_reports: WaitReports | None = None
        self._makers: _Makers | None = None
        self._null = by_value(bytes(8))

    def load(self, plan: Plan) -> Program:
        """Build missing kernels, check every launch, and prepare the call.

        The program launches on the given stream (a CuPy stream, an object with `__cuda_stream__`, or an
        integer handle) or on the current stream of this GPU. It allocates only scratch that is not given,
        does not synchronise, and can be captured in a graph. The repeated steps of a long plan are a graph of
        the program's own (`graphs.py`).

        Raises CompilerError if a kernel does not compile or there is no compiler, ValueError if a launch
        cannot run on this GPU.
        """
        if self._current_device() == self._number:
            return self._load(plan)
        with self._cupy.cuda.Device(self._number):
            return self._load(plan)

    def _load(self, plan: Plan) -> Program:
        makers = self._makers or self._make_makers()
        only = plan.steps[0] if len(plan.steps) == 1 else None
        if (
            isinstance(only, KernelLaunch)
            and not only.cooperative
            and only.buffers[: len(plan.operands)] == plan.operands
            and not any(only.buffers[len(plan.operands) :])
        ):
            # By far the most frequent plan, so it has a fast path without lookups.
            function, params = self._kernel(only)
            params = (self._null,) * (len(only.buffers) - len(plan.operands)) + params
            return makers.launch_alone(function, only.grid, only.block, only.shared_bytes, params)
        starts, zero_starts = plan.offsets(), plan.offsets(left_zero=True)
        slots = {name: slot for slot, name in enumerate([*plan.operands, *starts, *zero_starts])}
        if isinstance(only, Copy) and not starts:
            return makers.copy_alone(self._prepare_copy(only, slots))
        # A plan may have the same step thousands of times.
        distinct = {id(step): step for step in plan.steps}
        prepared = {key: self._prepare_step(step, slots) for key, step in distinct.items()}
        steps = [prepared[id(step)] for step in plan.steps]
        cycle = plan.cycle
        if cycle is not None and (parts := graphs.split(cycle)) is not None:
            alone, size, count = parts
            repeated = steps[-cycle.length :]
            steps = steps[: cycle.first + alone * cycle.length]
            steps.append(graphs.Repeated(self._cupy, repeated, size, count))
        outputs = [plan.operands.index(output) for output in plan.outputs]
        scratch = plan.temporary_bytes, tuple(starts.values())
        zeros = plan.zero_bytes, tuple(zero_starts.values())
        return makers.all_steps(steps, outputs, scratch, zeros)

    def _make_makers(self) -> "_Makers":
        self._makers = _makers(
            self._cupy, self._number, self._as_stream, self._scratch, self._zeros, self._make_reports()
        )
        return self._makers

    def raise_reported(self) -> None:
        """`CudaDevice.raise_reported`."""
        reports = self._wait_reports
        if reports is not None and reports.gave_up.value:
            reports.raise_reported()

    def _make_reports(self) -> WaitReports:
        with self._build_lock.held():
            self._wait_reports = self._wait_reports or WaitReports(self._cupy)
        return self._wait_reports

    def _prepare_step(self, step: Step, slots: dict[str, int]) -> Run:
        if isinstance(step, KernelLaunch):
            return self._prepare_launch(step, slots)
        if isinstance(step, MatMul):
            return self._prepare_matmul(step, slots)
        if isinstance(step, Copy):
            return self._prepare_copy(step, slots)
        return self._prepare_fill(step, slots)

    def _prepare_launch(self, launch: KernelLaunch, slots: dict[str, int]) -> Run:
        function, params = self._kernel(launch)
        grid, block, shared_bytes = launch.grid, launch.block, launch.shared_bytes
        cooperative = launch.cooperative
        # A step's arguments are picked from the buffers and these values.
        report = self._make_reports().address_for(launch) if launch.waits else 0
        fixed = (self._null, by_value(report.to_bytes(8, "little")), *params)
        null = len(slots)
        own = {None: null, WAIT_REPORT: null + 1}
        order = [own[name] if name in own else slots[str(name)] for name in launch.buffers]
        order += range(null + 2, null + 2 + len(params))
        pick = operator.itemgetter(*order) if len(order) > 1 else lambda all_: tuple(all_[i] for i in order)

        def run(buffers: Sequence[Any], stream: Any) -> None:
            function(grid, block, pick((*buffers, *fixed)), shared_bytes, stream, cooperative)

        return run

    def _prepare_matmul(self, step: MatMul, slots: dict[str, int]) -> Run:
        a, b, out = slots[step.a], slots[step.b], slots[step.out]
        # The buffer of a workspace is an address. Without a workspace, a is passed and not used.
        workspace = slots[step.a if step.workspace is None else step.workspace]
        m, n, k = step.m, step.n, step.k
        if not m or not n:
            return lambda buffers, stream: None
        if max(m, n, k) > cublas.MAX_SIZE:
            raise ValueError(f"{step}: cuBLAS takes sizes up to {cublas.MAX_SIZE}")
        try:
            binding = import_unforked("cupy_backends.cuda.libs.cublas")
            get_handle = cublas.handles(binding.__file__, self._number).get
            multiply = cublas.product(binding.__file__, step)
        except (AttributeError, ImportError, OSError, DeviceError) as error:
            raise DeviceError(
                f"cuBLAS cannot be used on {self._name} ({error}): pip install 'cudml[cuda13]' or "
                "'cudml[cuda12]' brings it"
            ) from error
        current_stream = self._cupy.cuda.get_current_stream

        def run(buffers: Sequence[Any], stream: Any) -> None:
            chosen = current_stream() if stream is None else stream
            multiply(
                get_handle(),
                chosen.ptr,
                pointer_of(buffers[a]),
                pointer_of(buffers[b]),
                pointer_of(buffers[out]),
                buffers[workspace],
            )

        return run

    def _prepare_fill(self, step: Fill, slots: dict[str, int]) -> Run:
        slot, num_bytes, value = slots[step.buffer], step.num_bytes, step.value
        memset = self._cupy.cuda.runtime.memsetAsync
        current_stream = self._cupy.cuda.get_current_stream

        def run(buffers: Sequence[Any], stream: Any) -> None:
            chosen = current_stream() if stream is None else stream
            memset(pointer_of(buffers[slot]), value, num_bytes, chosen.ptr)

        return run

    def _prepare_copy(self, step: Copy, slots: dict[str, int]) -> Run:
        source, target, num_bytes = slots[step.source], slots[step.target], step.num_bytes
        source_offset, target_offset = step.source_offset, step.target_offset
        runtime, current_stream = self._cupy.cuda.runtime, self._cupy.cuda.get_current_stream
        copy, kind = runtime.memcpyAsync, runtime.memcpyDefault  # managed and pinned memory are taken, too

        def run(buffers: Sequence[Any], stream: Any) -> None:
            chosen = current_stream() if stream is None else stream
            to = pointer_of(buffers[target]) + target_offset
            from_ = pointer_of(buffers[source]) + source_offset
            copy(to, from_, num_bytes, kind, chosen.ptr)

        return run

    def _kernel(self, launch: KernelLaunch) -> tuple[Any, tuple[Any, ...]]:
        """The built kernel's function, and the struct that it takes, if any; the device allows the launch."""
        instance = launch.instance
        params = launch.params.pack()
        kernel = self._kernels.get(instance)
        if kernel is None:
            # In CuPy, concurrent threads would each compile the kernel; here one does and the others wait.
            with self._build_lock.held():
                kernel = self._kernels.get(instance) or Kernel(self._cupy, launch)
                self._kernels[instance] = kernel
        kernel.allow(launch, self._limits, self._name)
        return kernel.function, (by_value(params),) if params else ()


class _Makers(NamedTuple):
    """The functions that make the programs of a GPU.

    `launch_alone` takes a kernel's function, grid, block, shared bytes and last arguments, `copy_alone` a
    prepared copy. `all_steps` takes prepared steps, the numbers of the operands that they write, and the
    bytes and the offsets of the workspaces, first workspaces in scratch, then workspaces left zero.
    """

    launch_alone: Callable[[Any, tuple[int, ...], tuple[int, ...], int, tuple[Any, ...]], Program]
    copy_alone: Callable[[Run], Program]
    all_steps: Callable[[Sequence[Run], Sequence[int], _Workspace, _Workspace], Program]


def _makers(
    cupy: Any,
    number: int,
    as_stream: Streams,
    scratch: Callable[..., Array],
    zeros: Callable[..., int],
    reports: WaitReports,
) -> _Makers:
    """The makers of a GPU, made once: programs share the variables of this function."""
    current_device, device, stream_type = cupy.cuda.runtime.getDevice, cupy.cuda.Device, cupy.cuda.Stream
    gave_up, raise_reported = reports.gave_up, reports.raise_reported

    def launch_alone(
        function: Any,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        shared_bytes: int,
        params: tuple[Any, ...],
    ) -> Program:
        def run(
            operands: Sequence[Array], workspace: Array | None, stream: Any = None, shift: int = 0
        ) -> None:
            if gave_up.value:
                raise_reported()
            if stream is not None and (type(stream) is not stream_type or stream.device_id != number):
                stream = stream if type(stream) is StreamHandle else as_stream(stream)
            arguments = [*operands, *params]
            if shift:
                arguments[0] = operands[0].data + shift
            if current_device() == number:
                function(grid, block, arguments, shared_bytes, stream)
            else:
                with device(number):
                    function(grid, block, arguments, shared_bytes, stream)

        return run

    # Like `all_steps` of one step, without lists of steps and buffers: a slice takes 12 % less time.
    def copy_alone(copy: Run) -> Program:
        def run(
            operands: Sequence[Array], workspace: Array | None, stream: Any = None, shift: int = 0
        ) -> None:
            if gave_up.value:
                raise_reported()
            if stream is not None and (type(stream) is not stream_type or stream.device_id != number):
                stream = stream if type(stream) is StreamHandle else as_stream(stream)
            if shift:
                operands = (operands[0].data.ptr + shift, *operands[1:])
            if current_device() == number:
                copy(operands, stream)
            else:
                with device(number):
                    copy(operands, stream)

        return run

    def all_steps(
        steps: Sequence[Run], outputs: Sequence[int], temporary: _Workspace, left_zero: _Workspace
    ) -> Program:
        (num_bytes, offsets), (num_zeros, zero_offsets) = temporary, left_zero

        def run(
            operands: Sequence[Array], workspace: Array | None, stream: Any = None, shift: int = 0
        ) -> None:
            if gave_up.value:
                raise_reported()
            if stream is not None and (type(stream) is not stream_type or stream.device_id != number):
                stream = stream if type(stream) is StreamHandle else as_stream(stream)
            if shift:
                operands = (operands[0].data.ptr + shift, *operands[1:])
            if workspace is None and num_bytes:
                workspace = scratch(num_bytes, [operands[output] for output in outputs], stream)
            base = 0 if workspace is None else workspace.data.ptr
            buffers = (*operands, *[base + offset for offset in offsets])
            if num_zeros:
                base = zeros(num_zeros, [operands[output] for output in outputs], stream)
                buffers += tuple([base + offset for offset in zero_offsets])
            if current_device() == number:
                for step in steps:
                    step(buffers, stream)
            else:
                with device(number):
                    for step in steps:
                        step(buffers, stream)

        return run

    return _Makers(launch_alone, copy_alone, all_steps)
