"""The size of the folder of compiled files: which files are removed or kept, and `cudml cache`."""

import os
import time
from pathlib import Path

import pytest

from cudml import SettingError, settings
from cudml.cli import main as cli
from cudml.devices.emulator import cache_files, cache_size

KIB = 1 << 10


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of this test's own: the folder with the compiled files."""
    monkeypatch.setenv("CUDML_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cache_files, "folder", cache_files.Folder())
    return tmp_path / "cache/emulator"


def name_of(number: int, suffix: str = "so") -> str:
    return f"kernel-{number:032x}.{suffix}"


def built(number: int, num_bytes: int = 100 * KIB) -> Path:
    """A file of the cache, built if it is not there."""
    return cache_files.cached(name_of(number), lambda _, path: path.write_bytes(bytes(num_bytes)))


def last_used(path: Path, seconds_ago: float) -> None:
    os.utime(path, (time.time() - seconds_ago,) * 2)


def numbers(place: Path) -> set[int]:
    return {int(file.path.stem[-32:], 16) for file in cache_size.kept_files(place)}


def test_a_build_drops_what_was_not_used_for_longest(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDML_CACHE_SIZE", "450K")
    for number in range(4):
        last_used(built(number), 1000 - 100 * number)
    built(0)  # found, and so the one that was used last
    built(4)
    assert numbers(place) == {0, 2, 3, 4}
    built(5)
    assert numbers(place) == {0, 3, 4, 5}


def test_a_cache_within_its_size_drops_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDML_CACHE_SIZE", "1M")
    for number in range(8):
        last_used(built(number), 1e6)
    assert numbers(place) == set(range(8))


def test_what_is_in_use_stays_though_the_size_is_smaller(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDML_CACHE_SIZE", "1K")
    for number in range(3):
        assert built(number).is_file()
    assert numbers(place) == {0, 1, 2}
    last_used(place / name_of(1), cache_size.IN_USE_SECONDS + 1)
    built(3)
    assert numbers(place) == {0, 2, 3}


def test_files_of_others_are_neither_counted_nor_removed(place: Path) -> None:
    built(1)
    others = {"notes.txt", "kernel.so", "0" * 32 + ".so", name_of(1, "o")}
    for name in others:
        (place / name).write_bytes(bytes(KIB))
        last_used(place / name, 1e6)
    (place / name_of(2)).symlink_to(place / "notes.txt")
    (place / name_of(3)).mkdir()
    cache_size.trim(place, 0)
    cache_size.clear(place)
    assert set(os.listdir(place)) == others | {name_of(2), name_of(3)}


def test_the_command_shows_place_size_bound_and_clears(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDML_CACHE_SIZE", "3M")
    assert cli.main(["cache"]) == 0
    assert capsys.readouterr().out.split() == (
        ["place", str(place.parent), "size", "0", "files,", "0", "bytes", "at", "most", "3.0", "MiB"]
    )
    for number in range(3):
        built(number, num_bytes=KIB * KIB // 2 - 32)
    last_used(place / name_of(1), 3 * 86400)
    (place / name_of(7, "cpp")).write_text("int x;")
    (place / "tmpabandoned").mkdir()
    assert cli.main(["cache"]) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert rows["size"] == "4 files, 1.5 MiB"
    day = time.strftime("%Y-%m-%d", time.localtime(time.time() - 3 * 86400))
    assert rows["oldest"].startswith(f"last used {day} ")
    assert cli.main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == f"removed 4 files, 1.5 MiB from {place.parent}\n"
    assert os.listdir(place) == []
    assert built(1).is_file()


def test_clearing_a_missing_cache_is_not_an_error(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == f"removed 0 files, 0 bytes from {place.parent}\n"
    assert not place.parent.exists()


def test_without_a_home_folder_there_is_no_cache_to_show(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDML_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert cli.main(["cache"]) == 2
    assert "there is no home folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "num_bytes"), [("", 1 << 30), ("0", 0), ("4096", 4096), ("10k", 10 * KIB), ("2G", 2 << 30)]
)
def test_sizes_are_read(text: str, num_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDML_CACHE_SIZE", text)
    assert settings.cache_bytes() == num_bytes


@pytest.mark.parametrize("text", ["G", "1.5G", "-1", "1 G", "2GB", "much", "²"])
def test_an_invalid_size_is_refused_before_anything_is_built(
    text: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDML_CACHE_SIZE", text)
    with pytest.raises(SettingError, match=r"^CUDML_CACHE_SIZE is '.*', must be a number of bytes"):
        built(1)
    assert cli.main(["cache"]) == 2
    assert capsys.readouterr().err.startswith("cudml: CUDML_CACHE_SIZE is ")
    assert not place.exists()
