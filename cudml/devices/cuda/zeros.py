"""Memory of one GPU that is zero, and that kernels leave zero for the next call: counters and the like.

Work on a stream runs in order, so all calls on a stream share a piece. Streams are told apart by the
driver's number: a new stream may get the handle of a destroyed one, whose kernels may still run. A replay of
a captured graph may run beside its stream, so a captured call has a piece of its own, tied to the outputs as
its scratch is (`capture.py`). Pieces are cut from chunks that were zero before they were first used, and are
never given back, 256 bytes or more for each stream: no call waits, and nothing is launched but the kernels.
Only kernels that always end use them, and leave them zero even if they give up a wait.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cudml.devices.cuda import capture
from cudml.devices.cuda.driver import stream_id
from cudml.devices.cuda.streams import LEGACY_STREAMS
from cudml.devices.interface import Array
from cudml.locks import Lock

_CHUNK_BYTES = 1 << 20
_LEAST_BYTES = 256

#: Stands for the number of the legacy default stream, which need not be queried.
_LEGACY = -1

#: The scratch slots of a captured call for its zeros: cut from a chunk, and filled by the graph.
_PART, _PART_TO_FILL = -2, -3


class Zeros:
    """Hands out memory that is zero; `scratch` is the device's."""

    def __init__(self, cupy: Any, number: int, scratch: Callable[..., Array]) -> None:
        self._cupy = cupy
        self._number = number
        self._scratch = scratch
        self._current_stream = cupy.cuda.get_current_stream
        self._is_capturing = cupy.cuda.runtime.streamIsCapturing
        # Address and size by `stream_id`, or _LEGACY.
        self._of_stream: dict[int, tuple[int, int]] = {}
        self._chunks: list[Array] = []
        self._used = 0  # of the last chunk
        self._lock = Lock()

    def address(self, num_bytes: int, outputs: Sequence[Array], stream: Any = None) -> int:
        """The address of `num_bytes` zeros for the kernels of one call that writes outputs on the stream."""
        handle = (self._current_stream(self._number) if stream is None else stream).ptr
        if handle in LEGACY_STREAMS:
            key = _LEGACY
        elif self._is_capturing(handle):
            return self._of_graph(num_bytes, outputs, stream)
        else:
            key = stream_id(handle)
        address, size = self._of_stream.get(key, (0, 0))
        if size < num_bytes:
            with self._lock.held():
                piece = self._cut(num_bytes)
                if piece is None:
                    piece = self._cut_from_new_chunk(num_bytes)
            address = piece.data.ptr
            self._of_stream[key] = address, piece.nbytes
        return address

    def _of_graph(self, num_bytes: int, outputs: Sequence[Array], stream: Any) -> int:
        piece = capture.former_scratch(outputs, _PART, num_bytes)
        if piece is None:
            with self._lock.held():
                piece = self._cut(num_bytes)
            if piece is None:
                # A chunk cannot be made while a graph is captured. The graph sets this piece to zero itself.
                piece = self._scratch(num_bytes, outputs, stream, part=_PART_TO_FILL)
                chosen = self._current_stream(self._number) if stream is None else stream
                self._cupy.cuda.runtime.memsetAsync(piece.data.ptr, 0, num_bytes, chosen.ptr)
            else:
                capture.keep_scratch(piece, outputs, _PART)
        return int(piece.data.ptr)

    def _cut(self, num_bytes: int) -> Array | None:
        """A piece of the last chunk; None if too little is left of it."""
        # A power of two, so that all pieces of a stream together have at most twice the size of the largest.
        size = max(_LEAST_BYTES, 1 << (num_bytes - 1).bit_length())
        if not self._chunks or self._chunks[-1].nbytes < self._used + size:
            return None
        first, self._used = self._used, self._used + size
        return self._chunks[-1][first : first + size]

    def _cut_from_new_chunk(self, num_bytes: int) -> Array:
        """A piece of a new chunk, which keeps enough for captured calls."""
        cupy = self._cupy
        with cupy.cuda.Device(self._number):
            # Zero before any stream uses it.
            stream = cupy.cuda.Stream(non_blocking=True)
            with stream:
                chunk = cupy.ndarray((max(_CHUNK_BYTES, 16 * num_bytes),), np.uint8)
                cupy.cuda.runtime.memsetAsync(chunk.data.ptr, 0, chunk.nbytes, stream.ptr)
            stream.synchronize()
            self._chunks.append(chunk)
            self._used = 0
            return self._cut(num_bytes)
