"""The profile of a session: times of ONNX Runtime's parts and cudml's nodes, in ONNX Runtime's format."""

import itertools
import json
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnxruntime


class Profile:
    """The events since a session was made, in microseconds from then, as ONNX Runtime writes them."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._start = time.time_ns()
        self._numbers = itertools.count()
        self._events: list[dict[str, Any]] = []

    def next_prefix(self) -> str:
        """The prefix of another part's file, which must differ from files made in the same millisecond."""
        return f"{self._prefix}_{self._start}_{next(self._numbers)}"

    def add(self, name: str, op: str, began: int) -> None:
        """A node that cudml has run since a time; on a GPU, the time of its launch."""
        event = {
            "cat": "Node",
            "pid": os.getpid(),
            "tid": threading.get_native_id(),
            "dur": (time.time_ns() - began) // 1000,
            "ts": (began - self._start) // 1000,
            "ph": "X",
            "name": f"{name}_kernel_time",
            "args": {"op_name": op, "provider": "cudml"},
        }
        self._events.append(event)

    def end(self, parts: Iterable[onnxruntime.InferenceSession]) -> str:
        """Write the file, with the events of the parts in place of their own files; return its name."""
        for part in parts:
            later = (part.get_profiling_start_time_ns() - self._start) // 1000
            own = Path(part.end_profiling())
            events = json.loads(own.read_text())
            own.unlink()
            self._events += [{**event, "ts": event["ts"] + later} for event in events]
        self._events.sort(key=lambda event: event["ts"])
        seconds, rest = divmod(self._start, 10**9)
        made = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(seconds))
        name = f"{self._prefix}_{made}_{rest // 10**6:03}.json"
        Path(name).write_text(json.dumps(self._events))
        return name
