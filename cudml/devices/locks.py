"""Locks that do not outlast a fork: the child has one thread, and no other would ever release them."""

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager


class Lock:
    """A lock that is free in a forked child, whoever held it in the parent.

    So whatever is written under it must be of use at every step.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock in a `with` block, also where that goes on in a child forked inside of it."""
        with self._lock:
            yield

    def renew(self) -> None:
        """Be free."""
        self._lock = threading.Lock()


_locks: "weakref.WeakSet[Lock]" = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_locks):
        lock.renew()


os.register_at_fork(after_in_child=_renew_all)
