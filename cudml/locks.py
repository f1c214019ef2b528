"""Locks and forks: a forked child has a single thread, so a lock that another thread held is never released.

A fork renews the package's own locks in the child. For the locks of other libraries and of Python, such as
those of modules, there is one lock that a fork waits for.
"""

import os
import weakref
from _thread import RLock, allocate_lock
from importlib import import_module

# `import cudml` imports this module, which is why it imports neither `typing` nor `threading`: either would
# take longer than the rest. Type checkers assume True.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Any


class Lock:
    """A lock that is free in a forked child, even if it was held in the parent.

    The data it protects must therefore be valid after every single step.
    """

    def __init__(self) -> None:
        self._lock = allocate_lock()
        _locks.add(self)

    def held(self) -> "AbstractContextManager[bool]":
        """Hold the lock in a `with` block; a child forked inside the block may leave it, too.

        The interpreter's own lock does so in one step, where Ctrl-C finds it either free or in the block.
        """
        return self._lock

    def renew(self) -> None:
        """Replace the lock by a free one."""
        self._lock = allocate_lock()


_locks: "weakref.WeakSet[Lock]" = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_locks):
        lock.renew()


os.register_at_fork(after_in_child=_renew_all)

#: Held by code that must not be copied half done: it holds a lock of a library, which would never be released
#: in a child, or has open files that a child must not keep.
no_fork = RLock()
os.register_at_fork(before=no_fork.acquire, after_in_parent=no_fork.release, after_in_child=no_fork.release)


def import_unforked(name: str) -> "Any":
    """Import a module; a fork by another thread waits until the import is finished.

    Python never releases a module's lock in a child if a thread that the child does not have was importing
    the module. The child would wait for it forever on its own import.

    No module may call this while it is imported itself: its thread would wait for the thread that holds
    `no_fork`, which may be waiting for that module.
    """
    with no_fork:
        return import_module(name)
