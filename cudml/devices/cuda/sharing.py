"""CuPy arrays that share GPU memory of other libraries, and the ordering with those libraries' streams.

Work goes to the current stream of the array's GPU, after the work that the library has queued: DLPack is
given that stream, and a stream named by a CUDA array interface is waited for by an event, never by the host.
Afterwards, the library's stream waits for the work, so that it may read results and overwrite arguments. The
library's stream is the one that the interface names, else torch's current stream, else CUDA's legacy default
stream, because DLPack does not name it. Unless that is the stream of the work itself, the memory is also held
until the work is done, because its library might reuse it earlier. Held memory is released by the next call
that shares an array after the work is done.

While the stream is captured in a graph, none of this is done: the program that launches the graph orders it
and keeps the arrays alive.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from cudml.devices import dlpack
from cudml.devices.cuda.driver import relaxed_capture
from cudml.devices.cuda.streams import LEGACY_STREAMS
from cudml.devices.exchange import ExchangeError, Exported, Taken, cuda_array
from cudml.devices.locks import Lock
from cudml.tensors import byte_extent

#: The protocols' handle of the legacy default stream. CuPy's, 0, is ambiguous to them.
_LEGACY_STREAM = 1

#: DLPack's handle for "no ordering".
_NO_ORDER = -1

_lock = Lock()

#: Events recorded after work, with the owners of the memory that the work uses.
_held: list[tuple[Any, list[Any]]] = []


def number_of(cupy: Any, candidate: Any, where: tuple[int, int] | None) -> int:
    """The number of the GPU whose memory an object shares; `where` is its `dlpack.device_of`."""
    if where is not None and where[0] != dlpack.MANAGED_TYPE:
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

    Raises
    ------
    cudml.devices.exchange.ExchangeError
        The object shares no memory, or elements that CuPy does not support.
    """
    number = number_of(cupy, candidate, where)
    with cupy.cuda.Device(number):
        stream = cupy.cuda.get_current_stream()
        is_captured = _is_captured(cupy, stream.ptr)
        if not is_captured:
            _let_go()
        if where is not None:
            exported = dlpack.exported(candidate, _NO_ORDER if is_captured else _protocol_handle(stream.ptr))
            exported = replace(exported, number=number, stream=_stream_of(candidate, number))
        else:
            exported = replace(cuda_array(candidate), number=number)
            if exported.stream is not None and not is_captured:
                _wait(cupy, stream.ptr, exported.stream)
        return Taken(_array(cupy, exported), exported)


@contextmanager
def sharing(cupy: Any, number: int, shared: Sequence[Exported]) -> Iterator[None]:
    """A context around work on shared memory on one GPU; the owners' streams then wait for the work."""
    try:
        yield
    finally:
        with cupy.cuda.Device(number):
            _order_after(cupy, cupy.cuda.get_current_stream(), shared)


def _order_after(cupy: Any, stream: Any, shared: Sequence[Exported]) -> None:
    own = _protocol_handle(stream.ptr)
    if _is_captured(cupy, stream.ptr):
        return
    waiting = {exported.stream or _LEGACY_STREAM for exported in shared} - {own}
    owners = [exported.owner for exported in shared if exported.stream != own]
    if not waiting and not owners:
        return
    event = cupy.cuda.Event(disable_timing=True)
    event.record(stream)
    for other in waiting:
        cupy.cuda.runtime.streamWaitEvent(other, event.ptr)
    with _lock.held():
        _held.append((event, owners))


def _let_go() -> None:
    """Release held memory whose work is done."""
    if not _held:
        return
    with _lock.held(), relaxed_capture():
        done = [entry for entry in _held if entry[0].done]
        for entry in done:
            _held.remove(entry)
    # Leaving this function frees the memory, outside the lock.


def _wait(cupy: Any, stream: int, other: int) -> None:
    """Let a stream wait for the work queued on another one, given by its protocol handle."""
    if _protocol_handle(stream) == other:
        return
    event = cupy.cuda.Event(disable_timing=True)
    event.record(cupy.cuda.ExternalStream(other))
    cupy.cuda.runtime.streamWaitEvent(stream, event.ptr)


def _protocol_handle(stream: int) -> int:
    return stream or _LEGACY_STREAM


def _is_captured(cupy: Any, stream: int) -> bool:
    return stream not in LEGACY_STREAMS and bool(cupy.cuda.runtime.streamIsCapturing(stream))


def _stream_of(candidate: Any, number: int) -> int | None:
    """The stream on which the library of a DLPack tensor works, or None if unknown."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(candidate, torch.Tensor):
        return _protocol_handle(int(torch.cuda.current_stream(number).cuda_stream))
    if not hasattr(candidate, "__cuda_array_interface__"):
        return None
    return cuda_array(candidate).stream


def _array(cupy: Any, exported: Exported) -> Any:
    if not exported.address:
        return cupy.ndarray(exported.shape, exported.dtype)
    item_bytes = exported.dtype.itemsize
    low, high = byte_extent(exported.shape, exported.strides, item_bytes)
    memory = cupy.cuda.UnownedMemory(exported.address + low, high - low, exported.owner, exported.number)
    place = cupy.cuda.MemoryPointer(memory, -low)
    try:
        return cupy.ndarray(exported.shape, exported.dtype, place, exported.strides)
    except (TypeError, ValueError) as error:
        raise ExchangeError(f"of dtype {exported.dtype}, which CuPy does not support ({error})") from error
