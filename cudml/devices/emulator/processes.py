"""Compiler processes and their scratch folders, neither of which outlives the call that started them.

An exception such as KeyboardInterrupt stops the compilers of its call. In case this process is killed, each
folder has a guard: a shell that waits for the end of its standard input, which comes when the process ends
for any reason.
"""

import contextlib
import os
import queue
import secrets
import shutil
import signal
import subprocess
from collections.abc import Callable, Collection, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from threading import Thread, current_thread
from typing import Any, TypeVar

from cudml import locks

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

#: The script of the guard of folder $1. Each line that it reads is the process group that is running now.
_GUARD = """
trap '' TERM INT HUP
group=none
while read -r line; do
  [ "$line" = done ] && exit
  group=$line
done
[ "$group" = none ] || kill -s KILL -- "-$group"
rm -rf -- "$1" || rm -rf -- "$1"
"""

#: Starts a command after it has told the guard its process group, so that the guard can always end it.
_START = 'echo $$ >&0; exec "$@" </dev/null'

#: Exit codes of a shell that cannot run a command.
_CANNOT_RUN = (126, 127)

#: Compilers that run at once, more than there are CPUs: they wait for files, too.
_THREADS_BESIDE_CPUS = 4

#: Seconds after which a wait for threads is started again: Python can miss a signal that comes just before
#: it blocks.
_LOOK_SECONDS = 0.1

#: Write ends of the guards' pipes. A forked child must not keep them open.
_lifelines: set[int] = set()


def _close_lifelines() -> None:
    for lifeline in list(_lifelines):
        os.close(lifeline)
    _lifelines.clear()


os.register_at_fork(after_in_child=_close_lifelines)


def _start(command: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
    """Start a process.

    A child that is forked meanwhile would keep the process's ends of its pipes open, and this process would
    wait for that child, too.
    """
    with locks.no_fork:
        return subprocess.Popen(command, **options)


def output(command: Sequence[str]) -> bytes:
    """The output of a command.

    Raises OSError if the command cannot be run, CalledProcessError if it fails.
    """
    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    with _start(command, stdin=nothing, stdout=pipe, stderr=pipe) as process:
        try:
            printed, messages = process.communicate()
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, printed, messages)
    return bytes(printed)


class Scratch:
    """A new folder for one build, whose compilers run one after the other."""

    def __init__(self, path: Path, lifeline: int) -> None:
        self.path = path
        self._lifeline = lifeline

    def run(self, command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        """Run a command with its temporary files in this folder, and capture its standard error.

        Raises OSError if the command cannot be run.
        """
        # English messages, and no temporary files elsewhere.
        environment = {**os.environ, "LC_ALL": "C", "TMPDIR": str(self.path)}
        # In its own session, it does not receive the SIGINT of Ctrl-C; this process stops it.
        with _start(
            ["/bin/sh", "-c", _START, "sh", *command],
            stdin=self._lifeline,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,
        ) as process:
            batch = _batch.get() or _Batch()
            try:
                batch.add(process)
                _, messages = process.communicate()
                _tell(self._lifeline, "none")
                if process.returncode in _CANNOT_RUN:
                    raise OSError(messages.strip())
            except BaseException:
                _kill(process)
                raise
            finally:
                batch.remove(process)
        return subprocess.CompletedProcess(command, process.returncode, "", messages)


def _tell(lifeline: int, word: str) -> None:
    """Write a line to a guard, unless it has been killed."""
    with contextlib.suppress(BrokenPipeError):
        os.write(lifeline, f"{word}\n".encode())


def _kill(process: "subprocess.Popen[str]") -> None:
    """Kill a process and everything that it started."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def scratch(place: Path) -> Iterator[Scratch]:
    """A folder in `place` for the `with` block, gone after it or when this process ends."""
    path = place / f"tmp{secrets.token_hex(8)}"
    owner = os.getpid()
    with locks.no_fork:
        end, lifeline = os.pipe()
        _lifelines.add(lifeline)
    try:
        with _start(
            ["/bin/sh", "-c", _GUARD, "cudml-guard", str(path)],
            stdin=end,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ):
            try:
                path.mkdir(0o700)
                yield Scratch(path, lifeline)
            finally:
                # Not in a child that was forked inside the block.
                if os.getpid() == owner:
                    shutil.rmtree(path, ignore_errors=True)
                    _tell(lifeline, "done")
    finally:
        os.close(end)
        if lifeline in _lifelines:
            _lifelines.remove(lifeline)
            os.close(lifeline)


class _Batch:
    """The compilers that run for one call, in several threads."""

    def __init__(self) -> None:
        self._processes: set[subprocess.Popen[str]] = set()
        self.is_stopped = False

    def add(self, process: "subprocess.Popen[str]") -> None:
        # Added before the test: `stop` either finds the process in the set or has set the flag before.
        self._processes.add(process)
        if self.is_stopped:
            _kill(process)

    def remove(self, process: "subprocess.Popen[str]") -> None:
        self._processes.discard(process)

    def stop(self) -> None:
        self.is_stopped = True
        for process in list(self._processes):
            _kill(process)


_batch: ContextVar[_Batch | None] = ContextVar("cudml_compilers", default=None)


def build_together(build: Callable[[_Item], _Result], items: Collection[_Item]) -> list[_Result]:
    """Call `build(item)` for every item in threads; an exception in one stops the compilers of all.

    A single item gets a thread too, because the calling thread only waits, which Ctrl-C can interrupt. The
    threads are not those of `concurrent.futures`: the modules that it imports have functions that are called
    before and after a fork, and must not be imported while a fork waits for `locks.no_fork`.
    """
    batch = _Batch()
    numbered = enumerate(tuple(items))  # each thread takes the next one
    results: dict[int, _Result] = {}
    errors: list[BaseException] = []
    ended: set[Thread] = set()
    bell: queue.SimpleQueue[None] = queue.SimpleQueue()  # rung by each thread that ends

    def build_some() -> None:
        _batch.set(batch)
        try:
            for number, item in numbered:
                if batch.is_stopped:
                    return
                results[number] = build(item)
        except BaseException as error:
            errors.append(error)
            batch.stop()
        finally:
            ended.add(current_thread())
            bell.put(None)

    def wait_for(threads: Collection[Thread]) -> None:
        # `Thread.join` takes a thread for ended once an interrupt has come while it waited (Python 3.11).
        while not ended.issuperset(threads):
            with contextlib.suppress(queue.Empty):
                bell.get(timeout=_LOOK_SECONDS)

    num_threads = min(len(items), (os.cpu_count() or 1) + _THREADS_BESIDE_CPUS)
    threads = [Thread(target=build_some) for _ in range(num_threads)]
    try:
        for thread in threads:
            thread.start()
        wait_for(threads)
    except BaseException:
        batch.stop()
        raise
    finally:  # the compilers have ended, their folders are being removed
        wait_for([thread for thread in threads if thread.ident is not None])
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(items))]
