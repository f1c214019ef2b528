"""Measure every path of a scan's points on the GPU: the table from which a planner's choices are made."""

import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bench.prediction.scan import Point, Row, Scan
from bench.sources import Source
from bench.targets import Target
from bench.timing import Timer
from cudml.devices import Device, LaunchTooLargeError
from cudml.executable import load
from cudml.plans import Limits, Plan

#: The cache state that is measured, as in the tables of results.
_CACHE = "cold"

#: The bytes of outputs before a path runs, so that elements that it does not write are seen.
_FILL = 0xA5


def origin_of(target: Target, cache: str = _CACHE) -> str:
    """Where times come from: the GPU, what built the kernels, the commit, the state of the L2."""
    told = {"driver": "driver", "nvrtc": "NVRTC", "cupy": "CuPy", "commit": "commit"}
    known = [f"{name} {target.environment[key]}" for key, name in told.items() if target.environment.get(key)]
    return ", ".join([f"Measured on {target.name}", *known, f"L2 {cache}"])


def _plan_by(point: Point, limits: Limits, path: str) -> Plan:
    return point.plan(path, limits)


class PathTimer:
    """Times the paths of points on one GPU."""

    def __init__(self, target: Target, timer: Timer, device: Device, seconds: float) -> None:
        self._target = target
        self._timer = timer
        self._device = device
        self._seconds = seconds

    def row_of(self, scan: Scan[Any], point: Point) -> Row[Any]:
        """The chosen path, and the time of each path that can compute the point.

        Raises
        ------
        WrongResultError
            The paths do not agree.
        """
        xp = self._target.xp
        drawn = point.drawn(Source(xp, 1))
        operands = {
            name: drawn[name].view("uint8") if name in drawn else xp.asarray(memory)
            for name, memory in point.operands().items()
        }
        times: dict[str, float] = {}
        results: dict[str, Mapping[str, Any]] = {}
        for name in scan.plans(point, self._device.limits):
            try:
                plan, program = load(_plan_by, point, self._device, (name,))
            except LaunchTooLargeError:
                continue
            call = partial(program, *self._arguments(plan, operands))
            for output in plan.outputs:
                operands[output][...] = _FILL
            call()
            results[name] = {output: operands[output].copy() for output in plan.outputs}
            times[name] = round(self._timer.measure(call, _CACHE, self._seconds).median_us, 2)
        point.check(operands, results)
        return Row(point, scan.chosen(point, self._device.limits), times)

    def _arguments(self, plan: Plan, operands: Mapping[str, Any]) -> tuple[list[Any], Any]:
        num_bytes = plan.temporary_bytes
        workspace = self._target.xp.empty(num_bytes, "uint8") if num_bytes else None
        return [operands[name] for name in plan.operands], workspace


def measured_rows(
    scan: Scan[Any], points: list[Any], paths: PathTimer, table: Path, origin: str, resumes: bool
) -> Iterator[Row[Any]]:
    """Measure points, and keep each in the table at once.

    If `resumes`, points that a table of the same origin has are left out; otherwise their rows are replaced.
    """
    kept_origin, kept = scan.read(table)
    rows = {row.point: row for row in kept} if kept_origin == origin else {}
    for point in points:
        if not (resumes and point in rows):
            rows[point] = paths.row_of(scan, point)
            own = table.with_suffix(".tmp")
            own.write_text(scan.table_text(origin, rows.values()))
            os.replace(own, table)
            yield rows[point]
