"""Arrays of other libraries as arguments on the CUDA device over the stand-in; results go back by value."""

import ctypes
import sys
import types
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from cudml.devices.cuda import sharing
from tests.devices.cuda.stand_in.cases import the_stand_in

#: Byte offset of the flags in a versioned DLPack tensor, and the flag of read-only memory.
_FLAGS_OFFSET, _READ_ONLY = 24, 1

#: The stream that a library of the tests works on.
OTHER_STREAM = 0x7100


class WithInterface:
    """An array that has only `__cuda_array_interface__`."""

    def __init__(self, array: Any, stream: int | None = None, *, is_read_only: bool = False) -> None:
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "strides": array.strides,
            "typestr": array.dtype.str,
            "data": (array.data.ptr, is_read_only),
            "version": 3,
            "stream": stream,
        }


class WithDlpack:
    """An array that has only DLPack, with versions or without; records the streams it is given."""

    def __init__(self, array: Any, *, is_read_only: bool = False, is_old: bool = False) -> None:
        self.array, self.is_read_only, self.is_old = array, is_read_only, is_old
        self.streams: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.array.data.device_id

    def __dlpack__(self, *, stream: int, **versions: Any) -> Any:
        if self.is_old:
            if versions:
                raise TypeError(f"unexpected arguments {versions}")
            capsule = self.array.__dlpack__(stream=-1)
        else:
            capsule = self.array.__dlpack__(stream=-1, max_version=(1, 0))
            pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
            pointer_of.argtypes, pointer_of.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
            address = pointer_of(capsule, b"dltensor_versioned")
            ctypes.c_uint64.from_address(address + _FLAGS_OFFSET).value |= _READ_ONLY * self.is_read_only
        self.streams.append(stream)
        return capsule


class WithBoth(WithDlpack):
    """An old tensor of DLPack whose interface says whether it may be written."""

    def __init__(self, array: Any, *, is_read_only: bool) -> None:
        super().__init__(array, is_old=True)
        self.__cuda_array_interface__ = WithInterface(
            array, is_read_only=is_read_only
        ).__cuda_array_interface__


def on_another_device() -> dict[str, Any]:
    """Calls on arrays of cuda:1 that have only the interface, while cuda:0 is current: where kernels were
    launched, on which memory, and what was copied."""
    import cupy

    import cudml

    with cupy.cuda.Device(1):
        a, out = cupy.ndarray((4, 6), np.float32), cupy.ndarray((4, 6), np.float32)
    stand_in = the_stand_in()
    stand_in.record(8, 8)
    result = cudml.slice(WithInterface(a), (0, 0), (4, 6), (1, 1), out=(given := WithInterface(out)))
    launches = stand_in.launches()
    # The driver copies a whole array; a reversal takes a kernel.
    stand_in.record(8, 8)
    turned = cudml.slice(WithInterface(a), (3, 5), (4, 6), (-1, -1))
    with_out = cudml.slice(WithInterface(a), (3, 5), (4, 6), (-1, -1), out=given)
    launches += stand_in.launches()
    return {
        "is out": result is given and with_out is given,
        "launches": [
            (launch.device, [int.from_bytes(word, "little") for word in launch.arguments])
            for launch in launches
        ],
        "copies": [call for call in stand_in.calls() if call.startswith(("memcpy", "malloc"))],
        "a": a.data.ptr,
        "out": out.data.ptr,
        "turned": (turned.data.ptr, turned.data.device_id),
        "converted on": _devices_of_conversions(),
        "current": cupy.cuda.runtime.getDevice(),
    }


def _devices_of_conversions() -> list[int]:
    """The devices of the launches for a layer of cuda:1 whose lengths have to be converted first."""
    import cupy

    import cudml
    from tests.devices.cuda.stand_in.products import cublas

    with cupy.cuda.Device(1):
        layer = [cupy.ndarray(s, np.float32) for s in ((3, 2, 4), (1, 24, 4), (1, 24, 8))]
        lengths = cupy.ndarray((2,), np.int64)
    with cublas():
        the_stand_in().record()
        cudml.gru(*layer, sequence_lengths=lengths)
    return sorted({launch.device for launch in the_stand_in().launches()})


def read_only_arrays() -> dict[str, tuple[str, str, int]]:
    """Messages and launches for read-only and other arrays as an input and as an output."""
    import cupy

    import cudml

    def array() -> Any:
        return cupy.ndarray((4, 6), np.float32)

    stand_in = the_stand_in()
    found = {}
    for name, one in {
        "interface": WithInterface(array(), is_read_only=True),
        "dlpack": WithDlpack(array(), is_read_only=True),
        "old dlpack": WithDlpack(array(), is_old=True),
        "old dlpack with interface": WithBoth(array(), is_read_only=True),
        "writable interface": WithInterface(array()),
        "writable dlpack": WithDlpack(array()),
        "writable old dlpack with interface": WithBoth(array(), is_read_only=False),
    }.items():
        messages = []
        stand_in.record()
        for call in (
            lambda one=one: cudml.slice(one, (3, 5), (4, 6), (-1, -1)),
            lambda one=one: cudml.slice(array(), (3, 5), (4, 6), (-1, -1), out=one),
        ):
            try:
                call()
                messages.append("")
            except ValueError as error:
                messages.append(str(error))
        found[name] = (*messages, len(stand_in.launches()))
    return found


def order_of_streams(
    what: str, own: str, captured: bool = False, is_argument: bool = False
) -> dict[str, Any]:
    """The events, waits and launches, in order, of a call with an array of another library.

    The call's stream is the current one, or the argument.
    """
    import cupy

    import cudml
    from cudml.devices import take

    array, out = cupy.ndarray((4, 6), np.float32), cupy.ndarray((4, 6), np.float32)
    streams = {
        "default": cupy.cuda.Stream.null,
        "own": cupy.cuda.Stream(non_blocking=True),
        "other's": cupy.cuda.ExternalStream(OTHER_STREAM),
    }
    stream = streams[own]
    given: Any = {
        "interface": lambda: WithInterface(array, OTHER_STREAM),
        "interface without a stream": lambda: WithInterface(array),
        "dlpack": lambda: WithDlpack(array),
        "torch": lambda: torch.Tensor(array),
        "out": lambda: WithInterface(out, OTHER_STREAM),
        "dlpack out": lambda: WithDlpack(out),
        "torch out": lambda: torch.Tensor(out),
    }
    torch = types.SimpleNamespace(
        Tensor=type("Tensor", (WithDlpack,), {}),
        cuda=types.SimpleNamespace(current_stream=lambda n: types.SimpleNamespace(cuda_stream=OTHER_STREAM)),
    )
    sharing._last[0].clear()
    stand_in = the_stand_in()
    before = sys.modules.get("torch")
    sys.modules["torch"] = torch  # type: ignore[assignment]
    try:
        take(WithDlpack(array))
        one = given[what]()
        argument = stream.ptr if is_argument else None
        with nullcontext() if is_argument else stream:
            cudml.slice(array, (3, 5), (4, 6), (-1, -1), out=out)
            stand_in.set(captured_stream=stream.ptr if captured else 0)
            stand_in.record()
            if "out" in what.split():
                cudml.slice(array, (3, 5), (4, 6), (-1, -1), out=one, stream=argument)
            else:
                cudml.slice(one, (3, 5), (4, 6), (-1, -1), out=out, stream=argument)
            calls = stand_in.calls()
    finally:
        stand_in.set(captured_stream=0)
        if before is None:
            del sys.modules["torch"]
        else:
            sys.modules["torch"] = before
    names = {str(s.ptr): name for name, s in streams.items()} | {"1": "default"}
    events: dict[str, str] = {}
    steps = []
    for words in map(str.split, calls):
        at = names.get(words[words.index("stream") + 1]) if "stream" in words else None
        if words[0] == "eventRecord":
            events[words[1]] = f"all of {at}"
            steps.append(f"record {at}")
        elif words[0] == "streamWaitEvent":
            steps.append(f"{at} waits for {events[words[1]]}")
        elif words[0] == "cuLaunchKernel":
            steps.append(f"work on {at}")
        elif words[0] not in ("streamIsCapturing", "setDevice"):
            steps.append(words[0])
    asked = [{**names, "-1": "none"}.get(str(s), str(s)) for s in getattr(one, "streams", [])]
    return {"steps": steps, "asked": asked}


def memory_that_is_held(how: str) -> list[int]:
    """How many arrays of another library are alive after each of four calls, which take one array each that
    the caller does not keep: two calls while their work is pending, one after the work is done, and one on
    the stream that the array names, or on another library's stream if it names none."""
    import gc
    import weakref

    import cupy

    import cudml

    sharing._held.clear()
    stand_in = the_stand_in()
    made: list[weakref.ref[Any]] = []
    out = cupy.ndarray((4, 6), np.float32)

    def array(stream: int | None = None) -> Any:
        one = cupy.ndarray((4, 6), np.float32)
        given: Any = WithInterface(one, stream) if how == "interface" else WithDlpack(one)
        made.append(weakref.ref(one))
        return given

    def num_alive() -> int:
        gc.collect()
        return sum(one() is not None for one in made)

    cudml.slice(array(), (3, 5), (4, 6), (-1, -1), out=out)
    sharing._last[0].clear()
    sharing._held.clear()

    def call() -> int:
        cudml.slice(array(), (3, 5), (4, 6), (-1, -1), out=out)
        return num_alive()

    counts = []
    with cupy.cuda.Stream(non_blocking=True):
        stand_in.set(pending_events=1)
        counts += [call(), call()]
        stand_in.set(pending_events=0)
        counts += [call()]
    sharing._held.clear()
    gc.collect()
    with cupy.cuda.ExternalStream(OTHER_STREAM):
        stand_in.set(pending_events=1)
        cudml.slice(array(OTHER_STREAM), (3, 5), (4, 6), (-1, -1), out=out)
        stand_in.set(pending_events=0)
        counts.append(num_alive())
    sharing._held.clear()
    return counts


def memory_that_is_held_on_the_default_stream() -> list[int]:
    """How many arrays are alive after each of four calls on the default stream: two with the same array and
    one with another array while the work is pending, and one with a third array after it is done."""
    import gc
    import weakref

    import cupy

    import cudml

    sharing._held.clear()
    sharing._last[0].clear()
    stand_in = the_stand_in()
    made: list[weakref.ref[Any]] = []
    out = cupy.ndarray((4, 6), np.float32)

    def array() -> Any:
        made.append(weakref.ref(one := cupy.ndarray((4, 6), np.float32)))
        return one

    def call(one: Any) -> int:
        cudml.slice(WithDlpack(one), (3, 5), (4, 6), (-1, -1), out=out)
        del one
        gc.collect()
        return sum(array() is not None for array in made)

    call(array())
    sharing._last[0].clear()
    gc.collect()
    stand_in.set(pending_events=1)
    one = array()
    counts = [call(one), call(one)]
    del one
    counts.append(call(array()))
    stand_in.set(pending_events=0)
    counts.append(call(array()))
    sharing._held.clear()
    return counts


def warm_calls_of_others() -> dict[str, bool]:
    """For each function and kind of array: whether an equal call plans nothing and reads the given memory."""
    from unittest.mock import patch

    import cupy

    import cudml
    from cudml.functions.calls import ArrayFunction
    from tests.devices.cuda.stand_in.products import cublas

    class Subclass(cupy.ndarray):  # type: ignore[misc]
        pass

    x, lengths = cupy.ndarray((5, 7), np.float32), cupy.ndarray((5, 1), np.int32)
    layer = [cupy.ndarray(s, np.float32) for s in ((3, 2, 4), (1, 24, 4), (1, 24, 8))]
    kinds: dict[str, Callable[[Any], Any]] = {
        "subclass": lambda array: array.view(Subclass),
        "dlpack": WithDlpack,
        "interface": WithInterface,
    }
    calls: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
        "top_k": lambda kind: cudml.top_k(kind(x), 3),
        "slice": lambda kind: cudml.slice(kind(x), (0, 0), (5, 3)),
        "reverse_subsequences": lambda kind: cudml.reverse_subsequences(kind(x), kind(lengths)),
        "gru": lambda kind: cudml.gru(*map(kind, layer)),
    }
    found = {}
    stand_in = the_stand_in()
    with cublas():
        for name, kind in kinds.items():
            for function, call in calls.items():
                call(kind)
                with patch.object(ArrayFunction, "_loaded", side_effect=AssertionError("planned again")):
                    stand_in.record(8, 8, 8)
                    call(kind)
                (launch,) = stand_in.launches()
                read = {int.from_bytes(word, "little") for word in launch.arguments}
                found[f"{function} of {name}"] = bool(read & {array.data.ptr for array in (x, *layer)})
    return found


def calls_that_are_found(on: str) -> dict[str, tuple[bool, bool]]:
    """For each function and kind of array: whether an equal call that writes outputs of that kind, in the
    order of a stream, normalises nothing, and whether its only launch has that stream and all the memory."""
    from unittest.mock import patch

    import cupy

    import cudml

    x, lengths = cupy.ndarray((5, 7), np.float32), cupy.ndarray((5, 1), np.int32)
    best, turned = cupy.ndarray((5, 3), np.float32), cupy.ndarray((5, 7), np.float32)
    places = cupy.ndarray((5, 3), np.int64)
    stream = cupy.cuda.Stream(non_blocking=True)
    current, argument, handle = {
        "the default stream": (cupy.cuda.Stream.null, None, 0),
        "a current stream": (stream, None, stream.ptr),
        "a stream": (cupy.cuda.Stream.null, stream, stream.ptr),
        "a handle": (cupy.cuda.Stream.null, stream.ptr, stream.ptr),
    }[on]
    kinds: dict[str, Callable[[Any], Any]] = {"cupy": lambda array: array, "dlpack": WithDlpack}
    calls: dict[str, tuple[Callable[[Callable[[Any], Any]], Any], list[Any]]] = {
        "top_k": (
            lambda kind: cudml.top_k(kind(x), 3, out=(kind(best), kind(places)), stream=argument),
            [x, best, places],
        ),
        "slice": (
            lambda kind: cudml.slice(kind(x), (4, 6), (5, 7), (-1, -1), out=kind(turned), stream=argument),
            [turned],  # a slice shifts the pointer of its input
        ),
        "reverse_subsequences": (
            lambda kind: cudml.reverse_subsequences(
                kind(x), kind(lengths), out=kind(turned), stream=argument
            ),
            [x, lengths, turned],
        ),
    }
    found = {}
    stand_in = the_stand_in()
    with current:
        for name, kind in kinds.items():
            for function, (call, arrays) in calls.items():
                call(kind)
                is_found = True
                stand_in.record(*[8] * len(arrays), *[8] * (function == "slice"))
                with patch("cudml.functions.calls.all_on_device", side_effect=AssertionError("not found")):
                    try:
                        call(kind)
                    except AssertionError:
                        is_found = False
                launched = [
                    (launch.stream, {int.from_bytes(word, "little") for word in launch.arguments})
                    for launch in stand_in.launches()
                ]
                memory = {array.data.ptr for array in arrays}
                is_right = len(launched) == 1 and launched[0][0] == handle and memory <= launched[0][1]
                found[f"{function} of {name}"] = is_found, is_right
    return found


def calls_of_torch(handle: int) -> dict[str, Any]:
    """A warm `cudml.torch.topk` while a stream is PyTorch's current one: what it asks of the driver, whether
    its launch has that stream and the addresses of the tensors, and which streams DLPack was asked for."""
    import cudml.torch
    from tests.support import gpu_tensors

    stand_in = the_stand_in()
    with gpu_tensors.tensors() as tensors:
        assert isinstance(tensors, gpu_tensors.StandInTensors)
        tensors.current = types.SimpleNamespace(ptr=handle)
        a = tensors.on_gpu(np.zeros((4, 300), np.float32))
        cudml.torch.topk(a, 5)
        tensors.asked.clear()
        stand_in.record(8, 8, 8)
        found = cudml.torch.topk(a, 5)
    (launch,) = stand_in.launches()
    written = [int.from_bytes(word, "little") for word in launch.arguments]
    return {
        "calls": [call.split()[0] for call in stand_in.calls()],
        "is right": (launch.stream, written) == (handle, [one.data_ptr() for one in (a, *found)]),
        "asked": tensors.asked,
    }


def refused_objects() -> dict[str, str]:
    """The errors for objects that do not keep to the protocols."""
    import cupy

    import cudml

    array = cupy.ndarray((4, 6), np.float32)

    def interface(**changes: Any) -> Any:
        return types.SimpleNamespace(
            __cuda_array_interface__=WithInterface(array).__cuda_array_interface__ | changes
        )

    found = {}
    for name, one in {
        "mask": interface(mask=interface()),
        "order": interface(typestr=">f4"),
        "stream 0": interface(stream=0),
        "host": interface(data=(0x1000, False)),
        "no data": types.SimpleNamespace(__cuda_array_interface__={"shape": (1,)}),
        "strides": interface(strides=(4,)),
    }.items():
        try:
            cudml.slice(one, (3, 5), (4, 6), (-1, -1))
        except TypeError as error:
            found[name] = str(error)
    return found


def taken_layouts() -> dict[str, Any]:
    """Arrays of several layouts that are shared: how each differs from the original."""
    import cupy
    import ml_dtypes

    from cudml.devices import take

    array = cupy.ndarray((4, 6), np.float32)
    found = {}
    arrays = {
        "packed": array,
        "backwards": array[::-1, ::-2],
        "turned": array.T,
        "one": array[1, 2],
        "empty": array[:0],
        "bool": array.view(np.bool_),
        "bfloat16": array.view(ml_dtypes.bfloat16),
        "complex": array.view(np.complex64),
    }
    for name, one in arrays.items():
        for how in (WithInterface, WithDlpack):
            if how is WithDlpack and name == "bfloat16":  # CuPy does not export it
                continue
            taken = take(how(one))
            assert taken is not None
            got = taken[0].array
            same_place = got.data.ptr == one.data.ptr or not one.size
            found[f"{name} {how.__name__}"] = (
                same_place,
                got.shape == one.shape,
                got.strides == one.strides or not one.size,
                got.dtype.itemsize == one.dtype.itemsize,
                got.dtype == one.dtype or name == "bfloat16",
            )
    return found


def calls_on_a_stream(how: str) -> dict[str, Any]:
    """For every function: the streams of launches and of allocations, where its results are, and which stream
    is current afterwards, for arrays of cuda:1 while cuda:0 is current."""
    import cupy

    import cudml
    from tests.devices.cuda.stand_in.products import cublas

    with cupy.cuda.Device(1):
        x = cupy.ndarray((4, 6), np.float32)
        lengths = cupy.ndarray((4, 1), np.int32)
        layer = [cupy.ndarray(s, np.float32) for s in ((3, 2, 4), (1, 24, 4), (1, 24, 8))]
        stream = cupy.cuda.Stream(non_blocking=True)
    given: Any = {
        "cupy": stream,
        "protocol": types.SimpleNamespace(__cuda_stream__=lambda: (0, stream.ptr)),
        "handle": stream.ptr,
    }[how]
    calls: dict[str, Callable[..., Any]] = {
        "top_k": lambda s: cudml.top_k(x, 2, stream=s)[0],
        "slice": lambda s: cudml.slice(x, (3, 5), (4, 6), (-1, -1), stream=s),
        "reverse_subsequences": lambda s: cudml.reverse_subsequences(x, lengths, stream=s),
        "gru": lambda s: cudml.gru(*layer, stream=s)[0],
    }
    taken_on = []

    def allocate(size: int) -> Any:
        taken_on.append(cupy.cuda.get_current_stream().ptr)
        return pool.malloc(size)

    found = {}
    stand_in = the_stand_in()
    pool = cupy.get_default_memory_pool()
    allocator = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(allocate)
    try:
        with cublas():
            for name, call in calls.items():
                for _ in range(2):  # planned, then found
                    taken_on.clear()
                    stand_in.record()
                    result = call(given)
                    launched_on = {launch.stream for launch in stand_in.launches()}
                    with cupy.cuda.Device(1):
                        current = cupy.cuda.get_current_stream().ptr
                    found[name] = (
                        launched_on == {stream.ptr},
                        set(taken_on) == {stream.ptr},
                        result.data.device_id,
                        current,
                        cupy.cuda.runtime.getDevice(),
                    )
    finally:
        cupy.cuda.set_allocator(allocator)
    return found


def refused_streams_of_functions() -> dict[str, str]:
    """The errors of functions for streams that are not the device's."""
    import cupy

    import cudml

    x = cupy.ndarray((4, 6), np.float32)
    with cupy.cuda.Device(1):
        elsewhere = cupy.cuda.Stream(non_blocking=True)
    found = {}
    for name, stream in {"event": cupy.cuda.Event(), "elsewhere": elsewhere}.items():
        try:
            cudml.top_k(x, 2, stream=stream)
        except (TypeError, ValueError) as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found
