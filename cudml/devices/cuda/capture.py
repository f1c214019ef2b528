"""Memory that a captured CUDA graph still uses after the captured call has returned.

A replay writes to the addresses of the captured call. The caller keeps the outputs. Memory that the call
allocated for itself would return to CuPy's pool when the call ends, and could be in other use at a replay.
This memory is therefore tied to the memory of the outputs: a graph is useless without its outputs, and there
is no notification when a graph is destroyed. Memory objects that take no attributes (another library's, or
outside a pool) cannot be tracked; the scratch memory then stays for the life of the process.

Captured calls with different outputs have separate scratch memory, so that their graphs may be replayed at
the same time. Calls with the same outputs share it: their graphs cannot run at the same time anyway, because
both write the outputs. Capturing again therefore allocates nothing more, and the graphs of all captures stay
valid.
"""

from collections.abc import Sequence
from typing import Any

from cudml.locks import Lock

#: The attribute of CuPy's `PooledMemory` that holds the arrays that must live as long as the memory.
_ATTRIBUTE = "_cudml_captured"

#: Arrays that must live as long as some memory, by their part of a call and the addresses of its outputs.
_Kept = dict[tuple[int | None, tuple[int, ...]], list[Any]]

_lock = Lock()

#: Arrays that live as long as the process.
_for_good: _Kept = {}


def former_scratch(outputs: Sequence[Any], part: int, num_bytes: int) -> Any | None:
    """Scratch memory of an earlier captured call with the same outputs, if it is large enough."""
    with _lock.held():
        kept = _kept_with([array.data.mem for array in outputs])[0]
        for former in kept.get((part, _places(outputs)), ()):
            if former.nbytes >= num_bytes:
                return former[:num_bytes]
    return None


def keep_scratch(made: Any, outputs: Sequence[Any], part: int | None) -> None:
    """Let memory of a captured call live as long as its outputs' memory; later captures reuse it by part."""
    with _lock.held():
        for kept in _kept_with([array.data.mem for array in outputs]):
            kept.setdefault((part, _places(outputs)), []).append(made)


def _places(outputs: Sequence[Any]) -> tuple[int, ...]:
    return tuple(array.data.ptr for array in outputs)


def _kept_with(owners: Sequence[Any]) -> list[_Kept]:
    """The arrays that must live as long as each of the given memory objects."""
    try:
        for owner in owners:
            if not hasattr(owner, _ATTRIBUTE):
                setattr(owner, _ATTRIBUTE, {})
        return [getattr(owner, _ATTRIBUTE) for owner in owners]
    except AttributeError:
        return [_for_good]
