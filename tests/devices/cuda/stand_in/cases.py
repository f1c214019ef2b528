"""Code that tests run on the CUDA device over the stand-in, in a separate process; results are values."""

import os
import threading
import types
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from cudml.plans import Copy, Fill, KernelLaunch, Plan, Workspace
from tests.devices.cuda.stand_in import Launch, StandIn, load
from tests.support.params import params_of

KERNELS = Path(__file__).resolve().parent.parent / "kernels"
NUM_ITEMS = 300

_stand_in: StandIn


def start(cache_folder: str) -> None:
    """Load the stand-in before anything else in the process."""
    global _stand_in
    os.environ["CUPY_CACHE_DIR"] = cache_folder
    _stand_in = load()


def the_stand_in() -> StandIn:
    """The stand-in that `start` loaded."""
    return _stand_in


def scale_launch(**changes: Any) -> KernelLaunch:
    """A launch of `scale.cu`; another `variant` is another kernel instance."""
    values: dict[str, Any] = {
        "source": str(KERNELS / "scale.cu"),
        "function": "scale",
        "template": ("Float32", changes.pop("variant", 0)),
        "grid": (3, 1, 1),
        "block": (128, 1, 1),
        "buffers": ("a", "bias", "out"),
        "params": params_of(
            bias_index=("Int32", -2),
            num_items=("Int64", NUM_ITEMS),
            factor=("Float32", 2.5),
            unused=("UInt32", (7, 8, 9)),
        ),
    }
    return KernelLaunch(**(values | changes))


#: Bytes of the parameters of `scale`: three pointers, then the struct.
SCALE_SIZES = (8, 8, 8, 32)


def scale_plan(*steps: Any, workspaces: tuple[Workspace, ...] = (), **changes: Any) -> Plan:
    """A plan of the operands of `scale.cu`; without steps, with only its launch."""
    return Plan("TEST", ("a", "bias", "out"), steps or (scale_launch(**changes),), workspaces, ("out",))


def operands(device: Any) -> list[Any]:
    return [device.empty((NUM_ITEMS,), np.float32) for _ in range(3)]


def addresses(arrays: list[Any]) -> list[int]:
    return [array.data.ptr for array in arrays]


def launch_once(plan: Plan, number: int = 0) -> tuple[list[Launch], list[int], int]:
    """The launches of a program that ran once, the addresses of its operands and of its workspace."""
    from cudml.devices import cuda

    device = cuda.get_device(number)
    program = device.load(plan)
    arrays = operands(device)
    workspace = device.empty((plan.temporary_bytes,), np.uint8) if plan.temporary_bytes else None
    _stand_in.record(*SCALE_SIZES)
    program(arrays, workspace)
    return _stand_in.launches(), addresses(arrays), workspace.data.ptr if workspace is not None else 0


def calls_of_a_warm_program(plan: Plan) -> list[str]:
    """The calls of the driver and the runtime by the second call of a program."""
    from cudml.devices import cuda

    device = cuda.get_device(0)
    program = device.load(plan)
    arrays = operands(device)
    workspace = device.empty((plan.temporary_bytes,), np.uint8)
    program(arrays, workspace)
    _stand_in.record()
    program(arrays, workspace)
    return _stand_in.calls()


def launch_on_another_device() -> tuple[list[Launch], int, int]:
    """The launches of a program of cuda:1 called while cuda:0 is current, the stream that is current on
    cuda:1, and the device that is current afterwards."""
    import cupy

    from cudml.devices import cuda

    device = cuda.get_device(1)
    program = device.load(scale_plan())
    arrays = operands(device)
    with cupy.cuda.Device(1):
        stream = cupy.cuda.Stream(non_blocking=True)
        stream.use()
    try:
        _stand_in.record(*SCALE_SIZES)
        program(arrays, None)
    finally:
        with cupy.cuda.Device(1):
            cupy.cuda.Stream.null.use()
    return _stand_in.launches(), stream.ptr, cupy.cuda.runtime.getDevice()


def refused(plan: Plan, **settings: int) -> tuple[str, str]:
    """The type and text of the error that loading the plan raises, nothing having been launched."""
    from cudml.devices import cuda

    _stand_in.set(**settings)
    _stand_in.record()
    try:
        cuda.get_device(0).load(plan)
    except Exception as error:
        return type(error).__name__, str(error)
    finally:
        _stand_in.set(resident_blocks=2, max_threads_of_kernel=1024, active_clusters=15, cluster_status=0)
    return "", ""


def calls_of_loading(*plans: tuple[int, Plan]) -> list[str]:
    """The driver's calls when plans are loaded in order, each on the device with a number."""
    from cudml.devices import cuda

    _stand_in.record()
    for number, plan in plans:
        cuda.get_device(number).load(plan)
    return _stand_in.calls()


def calls_of_loading_at_once(plan: Plan, num_threads: int) -> list[str]:
    """The driver's calls when threads load the same plan at the same time."""
    from cudml.devices import cuda

    device = cuda.get_device(0)
    barrier = threading.Barrier(num_threads)

    def load_plan(_: int) -> None:
        barrier.wait()
        device.load(plan)

    _stand_in.record()
    with ThreadPoolExecutor(num_threads) as pool:
        list(pool.map(load_plan, range(num_threads)))
    return _stand_in.calls()


def arguments_from_threads(
    num_threads: int, num_calls: int
) -> tuple[set[tuple[int, ...]], set[tuple[int, ...]]]:
    """The pointers that threads passed to one program at the same time, and the pointers of the launches."""
    from cudml.devices import cuda

    device = cuda.get_device(0)
    program = device.load(scale_plan())
    arrays = [operands(device) for _ in range(num_threads)]

    def call(own: list[Any]) -> None:
        for _ in range(num_calls):
            program(own, None)

    _stand_in.record(*SCALE_SIZES)
    with ThreadPoolExecutor(num_threads) as pool:
        list(pool.map(call, arrays))
    arrived = {
        tuple(int.from_bytes(pointer, "little") for pointer in launch.arguments[:3])
        for launch in _stand_in.launches()
    }
    return {tuple(addresses(own)) for own in arrays}, arrived


def filled_bytes(value: int, num_bytes: int) -> tuple[list[str], bytes]:
    """The calls of a plan that fills the start of a workspace, and the workspace's bytes."""
    from cudml.devices import cuda

    device = cuda.get_device(0)
    plan = scale_plan(
        Fill("scratch", num_bytes, value), workspaces=(Workspace("first", 8), Workspace("scratch", 64))
    )
    program = device.load(plan)
    workspace = device.empty((plan.temporary_bytes,), np.uint8)
    workspace.set(np.full(plan.temporary_bytes, 0xEE, np.uint8))
    arrays = operands(device)
    _stand_in.record()
    program(arrays, workspace)
    calls = _stand_in.calls()
    return calls, workspace.get().tobytes()


def lengths_and_boxes_of_the_host() -> dict[str, Any]:
    """Lengths that are not arrays, as passed to the kernels, and the launches of a box of nine dimensions."""
    import cupy

    import cudml
    from cudml.devices import cuda
    from cudml.functions.arguments import lengths_on

    device = cuda.get_device(0)
    a = cupy.ndarray((3, 5), np.int16)
    _stand_in.record()
    listed = lengths_on("f", device, [[2], [9], [0]], (), 5)
    number = lengths_on("f", device, 2**70, (3,), 5)
    results = [cudml.reverse_subsequences(a, lengths) for lengths in ([[2], [9], [0]], 4)]
    nine = cupy.ndarray((3,) * 9, np.int8)
    cudml.slice(nine, (0,) * 9, (2,) * 9)
    _stand_in.record()
    box = cudml.slice(nine, (0,) * 9, (2,) * 9)
    return {
        "list": (type(listed).__name__, listed.dtype.name, listed.shape),
        "number": (number.dtype.name, number.shape),
        "results": [(type(result).__module__.split(".")[0], result.shape) for result in results],
        "box": (box.shape, len(_stand_in.launches())),
    }


def refused_at_an_odd_address() -> tuple[str, str, list[str]]:
    """An address that is no multiple of the item size, the error for an array there, and calls before it."""
    import cupy

    import cudml

    array = cupy.ndarray((4,), np.float32, cupy.ndarray((64,), np.uint8).data + 2)
    _stand_in.record()
    try:
        cudml.top_k(array, 1)
    except ValueError as error:
        calls = [call for call in _stand_in.calls() if not call.startswith("setDevice")]
        return hex(array.data.ptr), str(error), calls
    return "", "", []


def refused_on_several_devices() -> dict[str, str]:
    """The errors of calls whose second array is on another device than the first, by the second's device."""
    import cupy

    import cudml

    a = cupy.ndarray((3, 4), np.float32)
    with cupy.cuda.Device(1):
        others = {"gpu": cupy.ndarray((3, 1), np.int32), "cpu": np.zeros((3, 1), np.int32)}
    messages = {}
    for where, lengths in others.items():
        try:
            cudml.reverse_subsequences(a, lengths)
        except (TypeError, ValueError) as error:
            messages[where] = f"{type(error).__name__}: {error}"
    return messages


def array_facts() -> dict[str, Any]:
    """The device's answers about its own and other arrays."""
    import cupy

    from cudml.devices import cuda

    first, second = cuda.get_device(0), cuda.get_device(1)
    array = first.empty((4, 3), np.int16)
    other = second.empty((4, 3), np.int16)
    address, layout = first.address_and_layout(array)
    turned_address, turned = first.address_and_layout(array.T)
    try:
        first.address_and_layout(np.zeros(3))
        message = ""
    except TypeError as error:
        message = str(error)
    made = second.allocator([((2, 3), "int16"), ((0,), np.float32)])()
    return {
        "made": [(one.shape, str(one.dtype), one.data.device_id) for one in made],
        "same": first is cuda.get_device(0),
        "current": cuda.get_device(None).name,
        "device_of_other": other.data.device_id,
        "current_after": cupy.cuda.runtime.getDevice(),
        "owns": (first.owns(array), first.owns(other), first.owns(np.zeros(3))),
        "address": (first.address(array), array.data.ptr, address, turned_address),
        "layout": layout,
        "turned": turned,
        "other_layout_differs": second.address_and_layout(other)[1] != layout,
        "message": message,
        "empty": first.empty((0, 3), np.int16).shape,
    }


def copied_bytes() -> tuple[list[str], bytes]:
    """The calls of a `copy_bytes` of 10 bytes to a target of zeros, and the target's bytes."""
    import cupy

    from cudml.devices import cuda

    device = cuda.get_device(0)
    source, target = (device.empty((16,), np.uint8) for _ in range(2))
    source.set(np.arange(16, dtype=np.uint8))
    target.set(np.zeros(16, np.uint8))
    _stand_in.record()
    device.copy_bytes(source, target, 10, cupy.cuda.ExternalStream(0x7020))
    calls = _stand_in.calls()
    return calls, target.get().tobytes()


def copied_by_a_plan(*others: Any, number: int = 0, on_stream: bool = False) -> dict[str, Any]:
    """The calls of a plan that copies bytes 3 to 13 of its second operand to byte 5 of its third, which
    is zeros, before other steps; and the third operand's content. cuda:0 is current."""
    import cupy

    from cudml.devices import cuda

    device = cuda.get_device(number)
    step = Copy("bias", "out", 10, source_offset=3, target_offset=5)
    program = device.load(scale_plan(step, *others))
    arrays = [device.empty((16,), np.uint8) for _ in range(3)]
    for array, first in zip(arrays, (100, 0, 0), strict=True):
        array.set(
            np.arange(first, first + 16, dtype=np.uint8) if array is not arrays[2] else np.zeros(16, np.uint8)
        )
    with cupy.cuda.Device(number):
        streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
        streams[0].use()
    try:
        _stand_in.record()
        program(arrays, None, *([streams[1].ptr] if on_stream else []))
        calls = _stand_in.calls()
    finally:
        with cupy.cuda.Device(number):
            cupy.cuda.Stream.null.use()
    return {
        "calls": [call for call in calls if not call.startswith("setDevice")],
        "stream": streams[on_stream].ptr,
        "current": cupy.cuda.runtime.getDevice(),
        "bytes": arrays[2].get().tobytes(),
    }


def device_errors() -> dict[str, str]:
    """The messages for devices that are not there or too old."""
    from cudml.devices import cuda

    found = {}
    for name, number, settings in (
        ("beyond", 9, {}),
        ("old", 2, {"num_devices": 3, "compute_capability": 70}),
    ):
        _stand_in.set(**settings)
        try:
            cuda.get_device(number)
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
        finally:
            _stand_in.set(num_devices=2, compute_capability=90)
    return found


def device_beside_an_old_one() -> tuple[str, str]:
    """The chosen device if the current one, cuda:0, is too old, and the messages about both."""
    from cudml.devices import cuda
    from cudml.devices.cuda import device

    devices, usable = dict(device.devices), list(device._usable)
    device.devices.clear()
    device._usable.clear()
    _stand_in.set(num_devices=2, old_device=0)
    try:
        return cuda.get_device(None).name, cuda.status().reason
    finally:
        _stand_in.set(old_device=-1)
        device.devices.update(devices)
        device._usable[:] = usable


def load_without(what: str) -> tuple[list[str], str]:
    """Warnings and the error when two plans are loaded while CuPy's cache or compiler is out of order."""
    import cupy
    from cupy.cuda import compiler

    from cudml.devices import cuda

    def fail(*arguments: Any, **options: Any) -> Any:
        raise OSError("[Errno 30] Read-only file system") if what == "cache" else RuntimeError("no libnvrtc")

    backend, raw_module = compiler._kernel_cache_backend, cupy.RawModule
    message = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if what == "cache":
                compiler._kernel_cache_backend = types.SimpleNamespace(load=fail, save=fail)
            else:
                cupy.RawModule = fail
            for variant in range(2):
                cuda.get_device(0).load(scale_plan(variant=100 + 10 * len(what) + variant))
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
        finally:
            compiler._kernel_cache_backend, cupy.RawModule = backend, raw_module
    return [str(warning.message) for warning in caught], message


def timed_launch(number: int) -> tuple[float, list[str], str]:
    """The seconds of a launch by the device's own clock, the calls that measure it, and the clock's name."""
    from cudml.devices import cuda

    device = cuda.get_device(number)
    program, arrays = device.load(scale_plan()), operands(device)
    program(arrays, None)
    _stand_in.record(*SCALE_SIZES)
    seconds = device.time(lambda: program(arrays, None))
    return seconds, [call.split()[0] for call in _stand_in.calls()], device.clock


def compiler_options() -> tuple[tuple[str, ...], str]:
    """The options and the text that CuPy hands to NVRTC when the device builds a kernel."""
    from cupy.cuda import compiler

    from cudml.devices import cuda

    seen: list[tuple[tuple[str, ...], str]] = []
    program = compiler._NVRTCProgram

    class Seen(program):  # type: ignore[misc, valid-type]
        """Notes what is compiled."""

        def compile(self, options: Any = (), log_stream: Any = None) -> Any:
            seen.append((tuple(options), self.src))
            return super().compile(options, log_stream)

    compiler._NVRTCProgram = Seen
    try:
        cuda.get_device(0).load(scale_plan(variant=103))
    finally:
        compiler._NVRTCProgram = program
    return next(entry for entry in seen if "scale.cu" in entry[1])
