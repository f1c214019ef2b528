"""The free memory, according to the kernel's files."""

import resource
from pathlib import Path

import pytest

from cudml.dxdispatch import memory


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The kernel's files, all of them missing."""
    for name in ("_MEMINFO", "_STATM", "_CGROUP", "_CGROUP_ROOT"):
        monkeypatch.setattr(memory, name, tmp_path / name)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return tmp_path


def test_nothing_tells(files: Path) -> None:
    assert memory.free_bytes() is None


def test_the_machine_tells_what_is_available(files: Path) -> None:
    (files / "_MEMINFO").write_text("MemTotal:  90 kB\nMemFree:  1 kB\nMemAvailable:   50 kB\n")
    assert memory.free_bytes() == 50 << 10


def test_the_tightest_control_group_counts_and_file_pages_are_free(files: Path) -> None:
    (files / "_MEMINFO").write_text("MemAvailable:   5000 kB\n")
    (files / "_CGROUP").write_text("0::/job/step\n")
    for name, most, used, inactive in (("job", "1000000", 400000, 50000), ("job/step", "max", 300000, 0)):
        group = files / "_CGROUP_ROOT" / name
        group.mkdir(parents=True)
        (group / "memory.max").write_text(f"{most}\n")
        (group / "memory.current").write_text(f"{used}\n")
        (group / "memory.stat").write_text(f"anon 5\ninactive_file {inactive}\n")
    assert memory.free_bytes() == 650000


def test_the_limit_of_addresses_counts(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = resource.getpagesize()
    (files / "_STATM").write_text("30 9 9 9 9 9 9\n")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (100 * page, 100 * page))
    assert memory.free_bytes() == 70 * page
    (files / "_STATM").write_text("130 9 9 9 9 9 9\n")
    assert memory.free_bytes() == 0


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (17179869180, "16.0 GiB"),
        (3 << 50, "3072.0 TiB"),
    ],
)
def test_sizes_are_reported_in_a_unit_that_fits(num_bytes: int, text: str) -> None:
    assert memory.size_text(num_bytes) == text
