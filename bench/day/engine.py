"""Run steps one after the other, each within its limit, and note in a folder what became of them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.day.steps import COMMIT, FOLDER, RESUME, Step, found

ROOT = Path(__file__).resolve().parents[2]

#: How a step ended: it found nothing wrong; it found something; its time was up; the machine lacks something.
DONE, FAILED, STOPPED, SKIPPED = "done", "failed", "stopped", "skipped"

#: Seconds that a step gets to report after its time is up, and the fewest with which a step is begun.
GRACE = 8.0
_LEAST = 3.0

#: Bytes of a step's output that are kept, half of them from its beginning.
MAX_LOG_BYTES = 4 << 20

#: Begins the line of a command in the log.
_COMMAND = "== "

#: Every process: no buffered output is lost, and JAX leaves memory of the GPU to others.
_ENVIRONMENT = {"PYTHONUNBUFFERED": "1", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


@dataclass(frozen=True)
class Ended:
    """The outcome of a step; `told` is the end of its output, or the missing requirement."""

    state: str
    seconds: float
    told: str

    @property
    def is_final(self) -> bool:
        """Whether the step is left out when the day goes on."""
        return self.state in (DONE, FAILED)


class OtherOriginError(Exception):
    """The folder has results of another GPU or other sources."""


class Day:
    """A day in a folder: what became of its steps, and their output.

    `origin` tells apart results that must not be mixed. `runner` is a module that runs the module named after
    it over a stand-in for a GPU; checkers are left out then.
    """

    def __init__(
        self, number: int, folder: Path, origin: Mapping[str, str], runner: Sequence[str] = ()
    ) -> None:
        self._folder = folder
        self._origin = dict(origin)
        self._runner = tuple(runner)
        self._state = folder / f"day{number}.json"
        self._log = folder / f"day{number}.log"
        self.ended: dict[str, Ended] = self._read()

    def _read(self) -> dict[str, Ended]:
        if not self._state.exists():
            return {}
        kept = json.loads(self._state.read_text())
        if kept["origin"] != self._origin:
            different = [
                f"{name} {kept['origin'].get(name)}, not {value}"
                for name, value in self._origin.items()
                if kept["origin"].get(name) != value
            ]
            raise OtherOriginError(f"{self._folder} has results of {'; '.join(different)}")
        return {name: Ended(**ended) for name, ended in kept["steps"].items()}

    def _note(self, name: str, ended: Ended) -> None:
        self.ended[name] = ended
        steps = {name: asdict(ended) for name, ended in self.ended.items()}
        own = self._state.with_suffix(".tmp")
        own.write_text(json.dumps({"origin": self._origin, "steps": steps}, indent=1) + "\n")
        own.replace(self._state)

    def run(
        self, steps: Sequence[Step], seconds: float, again: Sequence[str], tell: Callable[[str], None]
    ) -> None:
        """Run the steps that did not end before, and those to be run `again`, within `seconds` in all.

        The time that a step leaves goes to the steps after it, by their shares.
        """
        end = time.monotonic() + seconds
        for step in steps:
            if step.name in again:
                self.ended.pop(step.name, None)
                if step.journal:
                    (self._folder / step.journal).unlink(missing_ok=True)
        waiting = [step for step in steps if not (step.name in self.ended and self.ended[step.name].is_final)]
        while waiting:
            step, left = waiting[0], end - time.monotonic()
            limit = left * step.seconds / sum(one.seconds for one in waiting)
            waiting.pop(0)
            if missing := "" if self._runner else step.missing:
                ended = Ended(SKIPPED, 0.0, f"not found: {missing}")
            elif limit < _LEAST:
                ended = Ended(STOPPED, 0.0, "no time was left to begin it")
            else:
                tell(f"{step.name}: at most {limit:.0f} s")
                ended = self._run(step, limit, step.name in again)
            self._note(step.name, ended)
            tell(f"{step.name}: {ended.state} after {ended.seconds:.0f} s\n{ended.told}")

    def _run(self, step: Step, limit: float, from_start: bool) -> Ended:
        """Run a step to its end, and begin it again after faults."""
        begun = time.monotonic()
        command = self._command(step, from_start)
        with self._log.open("ab") as log:
            start = log.tell()
            while True:
                before = self._journal_bytes(step)
                log.write(f"\n{_COMMAND}{' '.join(command)}\n".encode())
                log.flush()
                code = _limited(command, log.fileno(), begun + limit - time.monotonic())
                if code in (0, None) or self._journal_bytes(step) <= before:
                    break
        told = self._shortened(start)
        if code is None:
            return Ended(STOPPED, time.monotonic() - begun, told)
        return Ended(FAILED if code else DONE, time.monotonic() - begun, told)

    def _command(self, step: Step, from_start: bool) -> list[str]:
        values = {FOLDER: str(self._folder), COMMIT: self._origin["commit"]}
        command = []
        for word in step.command:
            for name, value in values.items():
                word = word.replace(name, value)
            command.append(word)
        if from_start and RESUME in command:
            command.remove(RESUME)
        checker = () if self._runner else found(step.checker) or ()
        runner = ("-m", *self._runner) if self._runner else ("-m",)
        return [*checker, sys.executable, *runner, *command]

    def _journal_bytes(self, step: Step) -> int:
        path = self._folder / step.journal
        return path.stat().st_size if step.journal and path.exists() else 0

    def _shortened(self, start: int) -> str:
        """Keep the beginning and the end of the output from a place on; returns its last lines."""
        written = self._log.read_bytes()
        output = written[start:]
        if len(output) > MAX_LOG_BYTES:
            half = MAX_LOG_BYTES // 2
            left_out = f"\n[{len(output) - 2 * half} bytes left out]\n".encode()
            output = output[:half] + left_out + output[-half:]
            self._log.write_bytes(written[:start] + output)
        lines = [line for line in output.decode(errors="replace").splitlines() if line.strip()]
        return "\n".join(line[-300:] for line in lines[-4:] if not line.startswith(_COMMAND))


def _limited(command: Sequence[str], output: int, seconds: float) -> int | None:
    """The exit code of a command; None if its time was up.

    The command is interrupted then, as by Ctrl-C, and soon killed with all that it started.
    """
    process = subprocess.Popen(
        command,
        stdout=output,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        cwd=ROOT,
        env={**os.environ, **_ENVIRONMENT},
        start_new_session=True,
    )
    try:
        return process.wait(max(seconds - GRACE, seconds / 2))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(min(GRACE, seconds / 2))
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
