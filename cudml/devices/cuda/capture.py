"""Memory that a captured CUDA graph goes on using after the call that was captured.

A replay writes to the addresses of the captured call. Its outputs are the caller's to keep; what the call
took for itself would go back to CuPy's pool at its end and be given to somebody else before a replay. So it
is tied to the memory of the outputs: a graph is of no use without these, and nothing says when a graph
itself is gone. Memory that takes no attributes (another library's, or not of a pool) cannot be followed,
and the scratch then stays for the life of the process.

Every captured call has its own scratch, so that graphs may be replayed at the same time.
"""

import threading
from collections.abc import Sequence
from typing import Any

#: The attribute of CuPy's `PooledMemory` that has what lives as long.
_ATTRIBUTE = "_cudml_captured"

_lock = threading.Lock()

#: What stays for good.
_kept: list[Any] = []


def keep(made: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Let arrays that a captured call made live as long as the memory of its outputs.

    Those that are views of inputs or outputs are not the call's own: kept by an output they could keep it
    alive for ever.
    """
    owners = [array.data.mem for array in outputs]
    others = {id(memory) for memory in (*owners, *(array.data.mem for array in inputs))}
    own = [array for array in made if id(array.data.mem) not in others]
    if not own:
        return
    with _lock:
        try:
            for owner in owners:
                if not hasattr(owner, _ATTRIBUTE):
                    setattr(owner, _ATTRIBUTE, [])
            for owner in owners:
                getattr(owner, _ATTRIBUTE).extend(own)
        except AttributeError:
            _kept.extend(own)
