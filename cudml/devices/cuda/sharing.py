"""CuPy arrays that share GPU memory of other libraries, and the ordering with those libraries' streams.

Work goes to the current stream of the array's GPU, after the work that the library has queued: DLPack is
given that stream, and a stream named by a CUDA array interface is waited for by an event, never by the host.
Afterwards, the library's stream waits for the work, so that the library may read results and overwrite
arguments. The library's stream is the one that the interface names, else torch's current stream, else CUDA's
legacy default stream, because DLPack does not name it. Unless that stream is known to be the stream of the
work itself, the memory is also held until the work is done, because its library might reuse it earlier. Held
memory is released by the next call that shares an array after the work is done.

While the stream is captured in a graph, none of this is done: the program that launches the graph orders it
and keeps the arrays alive.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from threading import get_ident
from typing import Any

from cudml.devices import dlpack
from cudml.devices.cuda.driver import relaxed_capture
from cudml.devices.cuda.streams import LEGACY_STREAMS, StreamHandle, Streams
from cudml.devices.exchange import ExchangeError, Exported, Form, Taken, cuda_array
from cudml.devices.interface import Layout
from cudml.locks import Lock

#: The protocols' handle of the legacy default stream. CuPy's handle of it, 0, is ambiguous in the protocols.
_LEGACY_STREAM = 1

#: DLPack's handle for "no ordering".
_NO_ORDER = -1

#: The protocol that names a stream.
_INTERFACE = "__cuda_array_interface__"

_lock = Lock()

#: Events recorded after work, with the owners of the memory that the work uses.
_held: list[tuple[Any, list[Any]]] = []

#: Shared memory of the last work of each thread on the legacy default stream, which has no event yet: the
#: owners by address, by the numbers of the GPU and the thread. An event that is recorded later serves as
#: well. No event is needed while calls share the same memory: its new owner replaces the former owner.
_last: defaultdict[int, dict[int, dict[int, Any]]] = defaultdict(dict)
_nothing: dict[int, Any] = {}


def number_of(cupy: Any, candidate: Any, where: tuple[int, int] | None) -> int:
    """The number of the GPU whose memory an object shares; `where` is its `dlpack.device_of`."""
    if where is not None and where[0] != dlpack.MANAGED:
        return where[1]
    # Managed memory and the CUDA array interface do not name the GPU, but the address does.
    address = dlpack.exported(candidate, _NO_ORDER).address if where else cuda_array(candidate).address
    if not address:  # an empty array may be anywhere
        return int(cupy.cuda.runtime.getDevice())
    number = int(cupy.cuda.runtime.pointerGetAttributes(address).device)
    if number < 0:
        raise ExchangeError(f"at address {address:#x}, which is in no GPU's memory")
    return number


def take(cupy: Any, candidate: Any, where: tuple[int, int] | None) -> Taken:
    """The CuPy array that shares the memory of an object, ordered by its GPU's current stream.

    Raises ExchangeError if the object shares no memory, or elements that CuPy does not support.
    """
    number = number_of(cupy, candidate, where)
    with cupy.cuda.Device(number):
        stream = cupy.cuda.get_current_stream()
        is_captured = _is_captured(cupy, stream.ptr)
        if _held and not is_captured:
            _let_go()
        if where is not None:
            exported = dlpack.exported(candidate, _NO_ORDER if is_captured else _protocol_handle(stream.ptr))
            exported = exported._replace(number=number, stream=_stream_of(candidate, number))
        else:
            exported = cuda_array(candidate)._replace(number=number)
            if exported.stream is not None and not is_captured:
                _wait(cupy, stream.ptr, exported.stream)
        return Taken(_array(cupy, exported), exported)


def operand_maker(cupy: Any) -> Callable[[Any, Any, bool], tuple[Any, dict[int, Any] | None] | None]:
    """A quick `take` for DLPack tensors on the current GPU and a stream of it; None for others.

    It makes an operand of a program instead of an array: an address with its `layout`, as of
    `Device.address_and_layout`. Work on the operand needs `order_after` instead of `sharing`. If everything
    happens on the legacy default stream, `hold` is enough; its argument for a call with this operand alone is
    returned beside the operand.
    """
    memory_of, current_device = cupy.cuda.UnownedMemory, cupy.cuda.runtime.getDevice
    current_stream, read_only = cupy.cuda.get_current_stream, dlpack.READ_ONLY

    class Operand(cupy.cuda.MemoryPointer):  # type: ignore[misc]
        __slots__ = ("form", "layout", "stream")

        @property
        def data(self) -> Any:
            return self

        @property
        def address(self) -> int:
            return int(self.ptr)

        @property
        def owner(self) -> Any:
            return self

    def make(candidate: Any, stream: Any, is_written: bool) -> tuple[Any, dict[int, Any] | None] | None:
        try:
            kind, number = candidate.__dlpack_device__()
            if kind != dlpack.CUDA or number != current_device():
                return None
            handle = (current_stream() if stream is None else _streams(cupy, number)(stream)).ptr
            names_stream = _is_tensor(candidate.__class__) or hasattr(candidate, _INTERFACE)
            other = _stream_of(candidate, number) if names_stream else None
            if handle not in LEGACY_STREAMS:
                is_held = False
                if _is_captured(cupy, handle):
                    return None
            else:
                is_held = other is None or other == _LEGACY_STREAM
            capsule = candidate.__dlpack__(stream=handle or _LEGACY_STREAM, max_version=dlpack.VERSION)
            address, form, flags = dlpack.read_versioned(capsule)
            if not address or (is_written and flags & read_only):
                return None
            if is_held:
                # Held memory is not reused, so the same address is the same memory.
                held = _last[number].get(get_ident(), _nothing)
                operand: Any = held.get(address)
                if type(operand) is Operand and operand.form is form:
                    return operand, held if len(held) == 1 else {address: operand}
            elif _held:
                _let_go()
            low = form.low
            operand = Operand(memory_of(address + low, form.num_bytes, capsule, number), -low)
            operand.form, operand.layout, operand.stream = form, _layout_of(form, number), other
        except Exception:  # `take` raises the error, if there is one
            return None
        return operand, {address: operand} if is_held else None

    return make


@cache
def _streams(cupy: Any, number: int) -> Streams:
    return Streams(cupy, number)


@lru_cache(maxsize=1024)
def _layout_of(form: Form, number: int) -> Layout:
    return form.shape, None if form.is_packed else form.strides, form.dtype, True, number


@contextmanager
def sharing(cupy: Any, number: int, shared: Collection[Exported]) -> Iterator[None]:
    """A context in which a GPU is current; the owners of shared memory then wait for the work done in it."""
    with cupy.cuda.Device(number):
        try:
            yield
        finally:
            order_after(cupy, number, cupy.cuda.get_current_stream(), shared)


def order_after(cupy: Any, number: int, stream: Any, shared: Collection[Any]) -> None:
    """Let the owners of shared memory, each an `Exported` or an operand, wait for the work on a stream."""
    own = _protocol_handle(stream.ptr)
    waiting = {exported.stream or _LEGACY_STREAM for exported in shared} - {own}
    owners = [exported.owner for exported in shared if exported.stream != own]
    if not (waiting or owners) or _is_captured(cupy, stream.ptr):
        return
    if own == _LEGACY_STREAM and not waiting:
        holder(cupy, number)({e.address: e.owner for e in shared if e.stream != own})
        return
    event = _recorded(cupy, stream)
    for other in waiting:
        cupy.cuda.runtime.streamWaitEvent(other, event.ptr)
    with _lock.held():
        _held.append((event, owners))


@cache
def holder(cupy: Any, number: int) -> Callable[[dict[int, Any]], None]:
    """`Device.hold` for work queued on the legacy default stream of a GPU, the current one."""
    last = _last[number]

    def hold(shared: dict[int, Any]) -> None:
        thread = get_ident()
        former = last.get(thread)
        if former is shared or former == shared:
            return
        if former is None or former.keys() != shared.keys():
            # For every thread, because some may have ended. A thread adds its memory only after its work was
            # queued.
            formers = [last.pop(one, {}) for one in [*last]]
            if formers:
                event = _recorded(cupy, cupy.cuda.Stream.null)
                with _lock.held():
                    _held.append((event, formers))
        last[thread] = shared
        if _held:
            _let_go()

    return hold


def _recorded(cupy: Any, stream: Any) -> Any:
    event = cupy.cuda.Event(disable_timing=True)
    event.record(stream)
    return event


def _let_go() -> None:
    """Release held memory whose work is done."""
    with _lock.held(), relaxed_capture():
        done = [entry for entry in _held if entry[0].done]
        for entry in done:
            _held.remove(entry)
    # Leaving this function frees the memory, outside the lock.


def _wait(cupy: Any, stream: int, other: int) -> None:
    """Let a stream wait for the work queued on another one, given by its protocol handle."""
    if _protocol_handle(stream) == other:
        return
    event = _recorded(cupy, StreamHandle(other))
    cupy.cuda.runtime.streamWaitEvent(stream, event.ptr)


def _protocol_handle(stream: int) -> int:
    return stream or _LEGACY_STREAM


def _is_captured(cupy: Any, stream: int) -> bool:
    return stream not in LEGACY_STREAMS and bool(cupy.cuda.runtime.streamIsCapturing(stream))


def _stream_of(candidate: Any, number: int) -> int | None:
    """The stream on which the library of a DLPack tensor works, or None if unknown."""
    if _is_tensor(candidate.__class__):
        current_stream = sys.modules["torch"].cuda.current_stream
        return _protocol_handle(int(current_stream(number).cuda_stream))
    if not hasattr(candidate, _INTERFACE):
        return None
    return cuda_array(candidate).stream


@lru_cache(maxsize=256)
def _is_tensor(kind: type) -> bool:
    """Whether a type is PyTorch's tensor, without importing PyTorch: no tensor exists before its import."""
    torch = sys.modules.get("torch")
    return torch is not None and issubclass(kind, torch.Tensor)


def _array(cupy: Any, exported: Exported) -> Any:
    form, low = exported.form, exported.form.low
    if not exported.address:
        return cupy.ndarray(form.shape, form.dtype)
    memory = cupy.cuda.UnownedMemory(exported.address + low, form.num_bytes, exported.owner, exported.number)
    place = cupy.cuda.MemoryPointer(memory, -low)
    try:
        return cupy.ndarray(form.shape, form.dtype, place, form.strides)
    except (TypeError, ValueError) as error:
        raise ExchangeError(f"of dtype {form.dtype}, which CuPy does not support ({error})") from error
