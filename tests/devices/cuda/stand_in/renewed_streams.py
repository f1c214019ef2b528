"""Zeros of streams with a reused handle or thread, over the stand-in; results go back by value."""

import threading
from typing import Any

from tests.devices.cuda.stand_in.zeros import Calls


def pieces_of_a_renewed_handle() -> dict[str, Any]:
    """The handles of a stream and of one made after the first was destroyed, and the addresses of their
    calls' zeros."""
    import cupy

    call, stream = Calls(), cupy.cuda.Stream(non_blocking=True)
    handles, pieces = [stream.ptr], [call(8, stream)]
    del stream
    stream = cupy.cuda.Stream(non_blocking=True)
    handles.append(stream.ptr)
    pieces += [call(8, stream), call(8, stream.ptr)]
    return {"handles": handles, "pieces": pieces}


def pieces_of_renewed_threads() -> dict[str, Any]:
    """The identifiers of successive threads, and the addresses of the zeros on their default streams."""
    call = Calls()
    threads: list[int] = []
    pieces: list[int] = []

    def run() -> None:
        threads.append(threading.get_ident())
        pieces.append(call(8, 2))

    for _ in range(8):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    return {"threads": threads, "pieces": pieces}
