"""The order in which queued work is done: as late as it may be, or another one that is legal, by a seed."""

import random
from collections.abc import Callable, Iterable, Iterator

#: Work in one piece returns None. Work in parts yields the seconds of each; between two of them, other work
#: may be done.
Work = Callable[[], Iterator[float] | None]


class Operation:
    """A piece of work of a GPU and what must be done before it; `end` is when it is done, in seconds."""

    __slots__ = ("after", "device", "end", "is_done", "is_running", "name", "seconds", "work")

    def __init__(self, name: str, device: int, work: Work | None, after: Iterable["Operation"]) -> None:
        self.name = name
        self.device = device
        self.work = work
        before = [*after]
        self.after = [one for one in before if not one.is_done]
        self.is_done = self.is_running = False
        self.seconds, self.end = 0.0, max((one.end for one in before), default=0.0)


class Order:
    """The queued operations of all GPUs.

    Without a seed, an operation is done only when the host waits for it or for what comes after it. With one,
    operations that may be done are done at any time, and between the parts of others.
    """

    def __init__(self, seed: int | None) -> None:
        self.seed = seed
        self._random = random.Random(seed)
        self._waiting: dict[Operation, None] = {}
        self._failed: Callable[[int, BaseException], None] = lambda device, error: None

    def on_failure(self, report: Callable[[int, BaseException], None]) -> None:
        """Have a function called with the GPU and the error of work that fails."""
        self._failed = report

    def choose(self, seed: int | None) -> None:
        """Order the work from now on by another seed."""
        self.seed, self._random = seed, random.Random(seed)

    def add(self, operation: Operation) -> Operation:
        """Queue an operation."""
        self._waiting[operation] = None
        if self.seed is not None:
            self._do_some()
        return operation

    def complete(self, operation: Operation | None) -> None:
        """Do an operation and what must be done before it."""
        chain = [] if operation is None else [operation]
        while chain:
            if chain[-1].is_done:
                chain.pop()
            elif chain[-1].is_running:
                raise RuntimeError(f"{chain[-1].name} waits for itself")
            elif before := [one for one in chain[-1].after if not one.is_done]:
                chain.append(before[0] if self.seed is None else self._random.choice(before))
            else:
                self._do(chain[-1])
        if self.seed is not None:
            self._do_some()

    def complete_all(self, device: int) -> None:
        """Do all that is queued for a GPU."""
        for operation in [*self._waiting]:
            if operation.device == device:
                self.complete(operation)

    def advance(self, operation: Operation | None) -> bool:
        """Do one piece of the work that an operation waits for; returns whether it was done before."""
        if operation is None or operation.is_done:
            return True
        while before := [one for one in operation.after if not one.is_done]:
            operation = before[0]
        if not operation.is_running:
            self._do(operation)
        return False

    def _do_some(self) -> None:
        """Do some of the operations that may be done now, or none."""
        while self._random.random() < 0.5:
            ready = self._ready()
            if not ready:
                return
            self._do(self._random.choice(ready))

    def _ready(self) -> list[Operation]:
        return [one for one in self._waiting if not one.is_running and all(b.is_done for b in one.after)]

    def _do(self, operation: Operation) -> None:
        operation.is_running = True
        try:
            parts = operation.work() if operation.work is not None else None
            if parts is not None:
                for seconds in parts:
                    operation.seconds += seconds
                    if self.seed is not None:
                        self._do_some()
        except Exception as error:
            self._failed(operation.device, error)
        operation.end = max([operation.end, *(one.end for one in operation.after)]) + operation.seconds
        operation.is_done, operation.is_running = True, False
        operation.work = None
        operation.after = []
        self._waiting.pop(operation, None)
