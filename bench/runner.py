"""Run cases: check the result, time cudml and its peers, yield rows."""

import importlib
import re
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bench.cases import Case, Inputs, OperatorBench, Peer, WrongResultError
from bench.results import Row
from bench.sources import Source
from bench.targets import Target, from_jax, from_torch, installed
from bench.timing import Timer
from cudml.devices import emulator

OPERATORS = ("top_k", "gru", "slice", "reverse_subsequences")


@dataclass(frozen=True)
class Options:
    """`names` is matched anywhere in a case's name; `deadline` is on time.monotonic's clock.

    Cases in `done`, as operator and name, are left out, and so are peers that need a module of `without`.
    """

    quick: bool = False
    names: re.Pattern[str] = re.compile("")
    peers: bool = False
    without: frozenset[str] = frozenset()
    seconds: float = 0.2
    deadline: float = float("inf")
    done: frozenset[tuple[str, str]] = frozenset()


class Runner:
    """Runs operators on one device; `problems` collects failures, `tell` receives progress.

    `num_cases` counts the cases that were selected.
    """

    def __init__(self, target: Target, timer: Timer, options: Options, tell: Callable[[str], None]) -> None:
        self.problems: list[str] = []
        self.num_cases = 0
        self._target = target
        self._timer = timer
        self._options = options
        self._tell = tell
        self._told: set[str] = set()

    def run(self, operator: str) -> Iterator[Row]:
        """Rows of every selected case, as they are measured."""
        module: Any = importlib.import_module(f"bench.{operator}")
        for case in module.CASES:
            if self._selected(case):
                self.num_cases += 1
                if (operator, case.name) in self._options.done:
                    continue
                with emulator.schedule(workers=1):  # because NumPy uses one thread
                    rows = list(self._run_case(operator, module, case))
                yield from rows

    def _selected(self, case: Case) -> bool:
        small_enough = case.quick or not (self._options.quick or self._target.kind == "cpu")
        return small_enough and self._options.names.search(case.name) is not None

    def _run_case(self, operator: str, module: OperatorBench, case: Case) -> Iterator[Row]:
        where = f"{operator}, {case.name}"
        if time.monotonic() > self._options.deadline:
            self._tell(f"{where}: left out, no time left")
            return
        self._tell(where)
        try:
            inputs = module.make(case, Source(self._target.xp, zlib.crc32(case.name.encode()) % 1000))
        except MemoryError as error:  # CuPy's error is one, too
            self.problems.append(f"{where}: {error}")
            return
        calls: dict[str, tuple[Callable[[], Any], Peer]] = {
            "cudml": (lambda: module.run(case, inputs), Peer(lambda case, inputs: None))
        }
        try:
            if self._options.peers:
                calls |= self._peers(operator, module, case, inputs, where)
            for implementation, (call, peer) in calls.items():
                yield from self._measure(operator, module, case, inputs, implementation, call, peer)
        finally:
            calls.clear()
            inputs.clear()
            self._release_memory()

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._tell(text)

    def _peers(
        self, operator: str, module: OperatorBench, case: Case, inputs: dict[str, Any], where: str
    ) -> dict[str, tuple[Callable[[], Any], Peer]]:
        calls = {}
        for name, peer in module.PEERS.items():
            if self._target.kind not in peer.devices or self._options.without.intersection(peer.needs):
                continue
            if not installed(peer.needs):
                self._tell_once(f"{operator}: {name} is left out, it needs {', '.join(peer.needs)}")
                continue
            try:
                call = peer.prepare(case, inputs)
            except Exception as error:
                self.problems.append(f"{where}, preparing {name}: {type(error).__name__}: {error}")
                continue
            if call is not None:
                calls[name] = (call, peer)
        return calls

    def _measure(
        self,
        operator: str,
        module: OperatorBench,
        case: Case,
        inputs: dict[str, Any],
        implementation: str,
        call: Callable[[], Any],
        peer: Peer,
    ) -> Iterator[Row]:
        try:
            check = module.check if peer.is_checked or not peer.contract else peer.check
            checked = self._check(check, case, inputs, implementation, call) if check else ""
            timings = {
                cache: self._timer.measure(call, cache, self._options.seconds, by_host=peer.has_own_stream)
                for cache in self._timer.caches
            }
        except WrongResultError as error:
            self.problems.append(f"{operator}, {case.name}, {implementation}: WRONG RESULT: {error}")
            return
        except Exception as error:
            self.problems.append(
                f"{operator}, {case.name}, {implementation}: {type(error).__name__}: {error}"
            )
            return
        by_host = ["timed by the host's clock"] if peer.has_own_stream else []
        for cache, timing in timings.items():
            yield Row(
                operator=operator,
                case=case.name,
                implementation=implementation,
                cache=cache,
                median_us=timing.median_us,
                p20_us=timing.p20_us,
                p80_us=timing.p80_us,
                repeats=timing.repeats,
                host_us=timing.host_us,
                bytes_moved=module.bytes_moved(case),
                steps=module.steps(case) if hasattr(module, "steps") else 0,
                checked=checked,
                contract=", ".join([*filter(None, [peer.contract]), *by_host]),
                device=self._target.name,
                **self._target.environment,
            )

    def _check(
        self,
        check: Callable[[Any, Inputs, Any], str],
        case: Case,
        inputs: Inputs,
        implementation: str,
        call: Any,
    ) -> str:
        """The result of the comparison; a peer that differs is still timed, and its row says so."""
        try:
            return check(case, inputs, _arrays(call()))
        except WrongResultError as error:
            if implementation == "cudml":
                raise
            return f"differs: {error}"

    def _release_memory(self) -> None:
        if self._target.kind == "cuda":
            self._target.xp.get_default_memory_pool().free_all_blocks()
            if installed(("torch",)):
                import torch

                torch.cuda.empty_cache()


def _arrays(result: Any) -> Any:
    """Convert the tensors of a result, of torch or JAX, to arrays of NumPy or CuPy."""
    if isinstance(result, (tuple, list)):
        return tuple(_arrays(part) for part in result)
    library = type(result).__module__.partition(".")[0]
    if library == "torch":
        return from_torch(result)
    return from_jax(result) if library in ("jax", "jaxlib") else result
