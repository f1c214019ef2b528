"""The memory still available to this process, according to Linux and the process's limits."""

import resource
from collections.abc import Iterator
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_STATM = Path("/proc/self/statm")
_CGROUP = Path("/proc/self/cgroup")
_CGROUP_ROOT = Path("/sys/fs/cgroup")


def free_bytes() -> int | None:
    """Bytes that this process can still allocate; None if the system reports nothing.

    The minimum of the machine's available memory and what the process's control groups and RLIMIT_AS leave.
    """
    return min((max(bytes_left, 0) for bytes_left in _all_left()), default=None)


def size_text(num_bytes: int) -> str:
    """Format a number of bytes in the largest unit that gives at least 1: `16.0 GiB`."""
    size = float(num_bytes)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{num_bytes} bytes" if unit == "bytes" else f"{size:.1f} {unit}"


def _all_left() -> Iterator[int]:
    for line in _lines(_MEMINFO):
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) * 1024
    yield from _left_of_cgroups()
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most != resource.RLIM_INFINITY:
        for line in _lines(_STATM):
            yield most - int(line.split()[0]) * resource.getpagesize()


def _left_of_cgroups() -> Iterator[int]:
    """Memory left in each control group (version 2) of the process; page-cache pages count as free."""
    for line in _lines(_CGROUP):
        if not line.startswith("0::/"):
            continue
        group = _CGROUP_ROOT / line.removeprefix("0::/")
        for folder in (group, *group.parents):
            most, used = _lines(folder / "memory.max"), _lines(folder / "memory.current")
            if most and used and most[0].isdecimal():
                statistics = dict(entry.split() for entry in _lines(folder / "memory.stat"))
                yield int(most[0]) - int(used[0]) + int(statistics.get("inactive_file", 0))


def _lines(path: Path) -> list[str]:
    """The lines of a kernel file; none if it is missing."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
