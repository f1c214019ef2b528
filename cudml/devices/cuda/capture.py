"""Memory that a captured CUDA graph goes on using after the call that was captured.

A replay writes to the addresses of the captured call. Its outputs are the caller's to keep; what the call
took for itself would go back to CuPy's pool at its end and be given to somebody else before a replay. So it
is tied to the memory of the outputs: a graph is of no use without these, and nothing says when a graph
itself is gone. Memory that takes no attributes (another library's, or not of a pool) cannot be followed,
and the scratch then stays for the life of the process.

Captured calls of different outputs have their own scratch, so that their graphs may be replayed at the same
time. Those of the same outputs share it, as they cannot: both would write there. So capturing again takes
nothing more, and graphs of all captures stay right.
"""

from collections.abc import Sequence
from typing import Any

from cudml.devices.locks import Lock

#: The attribute of CuPy's `PooledMemory` that has what lives as long.
_ATTRIBUTE = "_cudml_captured"


class _Kept:
    """What lives as long as some memory: scratch by the addresses of the outputs, and other arrays."""

    def __init__(self) -> None:
        self.scratch: dict[tuple[int, ...], list[Any]] = {}
        self.arrays: list[Any] = []


_lock = Lock()

#: What stays for good.
_for_good = _Kept()


def former_scratch(outputs: Sequence[Any], num_bytes: int) -> Any | None:
    """Scratch of an earlier captured call of the same outputs, if there is as much."""
    with _lock.held():
        kept = _kept_with([array.data.mem for array in outputs])[0]
        for former in kept.scratch.get(_places(outputs), ()):
            if former.nbytes >= num_bytes:
                return former[:num_bytes]
    return None


def keep_scratch(made: Any, outputs: Sequence[Any]) -> None:
    """Let scratch of a captured call live as long as the memory of its outputs, for later captures, too."""
    with _lock.held():
        for kept in _kept_with([array.data.mem for array in outputs]):
            kept.scratch.setdefault(_places(outputs), []).append(made)


def _places(outputs: Sequence[Any]) -> tuple[int, ...]:
    return tuple(array.data.ptr for array in outputs)


def keep(made: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Let arrays that a captured call made live as long as the memory of its outputs.

    Those that are views of inputs or outputs are not the call's own: kept by an output they could keep it
    alive for ever.
    """
    owners = [array.data.mem for array in outputs]
    others = {id(memory) for memory in (*owners, *(array.data.mem for array in inputs))}
    own = [array for array in made if id(array.data.mem) not in others]
    if own:
        with _lock.held():
            for kept in _kept_with(owners):
                kept.arrays.extend(own)


def _kept_with(owners: Sequence[Any]) -> list[_Kept]:
    """What lives as long as each of these."""
    try:
        for owner in owners:
            if not hasattr(owner, _ATTRIBUTE):
                setattr(owner, _ATTRIBUTE, _Kept())
        return [getattr(owner, _ATTRIBUTE) for owner in owners]
    except AttributeError:
        return [_for_good]
