"""The folder of compiled kernels: its owner, the files that are not loaded, and the messages."""

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cudml import SettingError, settings
from cudml.devices.emulator import build as compiling
from cudml.devices.emulator import cache_files, elf
from cudml.devices.emulator.processes import Scratch

ROOT = Path(__file__).resolve().parents[3]
CONTENT = b"what a compiler wrote"
NAME = "kernel.so"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where an empty cache will be."""
    monkeypatch.setenv("CUDML_CACHE_DIR", str(tmp_path / "parent" / "cache"))
    monkeypatch.setattr(cache_files, "folder", cache_files.Folder())
    return tmp_path / "parent" / "cache" / "emulator"


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    """Set the umask for one test."""
    before = os.umask(0o022)
    os.umask(before)
    yield os.umask
    os.umask(before)


def build(scratch: Scratch, path: Path) -> None:
    path.write_bytes(CONTENT)


def sealed(content: bytes) -> bytes:
    return content + hashlib.sha256(content).digest()


def plant(place: Path) -> Path:
    """A file in the cache's format, with other content than `build` writes."""
    place.mkdir(parents=True)
    (place / NAME).write_bytes(sealed(b"evil"))
    return place / NAME


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def run_python(script: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """Run a script; a variable that is None is not set."""
    given = {**os.environ, **environment}
    known = {name: value for name, value in given.items() if value is not None}
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=known, cwd=ROOT)


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o077, 0o177])
def test_what_is_made_is_the_users_alone(place: Path, umask: Callable[[int], int], mask: int) -> None:
    umask(mask)
    path = cache_files.cached(NAME, build)
    cache_files.keep_beside("kernel.cpp", b"text")
    assert path == place / NAME
    assert path.read_bytes() == sealed(CONTENT)
    for folder in (place, place.parent, place.parent.parent):
        assert mode(folder) == 0o700
    assert mode(path) == mode(place / "kernel.cpp") == 0o600


@pytest.mark.parametrize("which", ["cache", "emulator"])
@pytest.mark.parametrize("shared", [0o770, 0o707])
def test_a_folder_that_others_can_write_is_not_used(place: Path, which: str, shared: int) -> None:
    planted = plant(place)
    folder = place if which == "emulator" else place.parent
    folder.chmod(shared)
    path = cache_files.cached(NAME, build)
    assert path.read_bytes() == sealed(CONTENT)
    assert mode(path.parent) == 0o700
    assert planted.read_bytes() == sealed(b"evil")
    assert sorted(p.name for p in place.iterdir()) == [NAME]
    message = re.escape(f"{folder} has mode 0{shared:o}: others can write it")
    with pytest.warns(RuntimeWarning, match=message) as caught:
        cache_files.folder.warn()
    assert len(caught) == 1
    assert cache_files.cached(NAME, lambda scratch, path: pytest.fail("built again")) == path


def test_a_folder_of_another_user_is_not_used(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = plant(place)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert cache_files.cached(NAME, build) != planted
    with pytest.warns(RuntimeWarning, match=rf"cache belongs to user {os.getuid()}"):
        cache_files.folder.warn()


@pytest.mark.parametrize("shared", [0o777, 0o775, 0o757])
def test_a_folder_that_others_can_replace_is_not_used(place: Path, shared: int) -> None:
    planted = plant(place)
    place.parent.parent.chmod(shared)
    assert cache_files.cached(NAME, build) != planted
    with pytest.warns(RuntimeWarning, match=rf"parent has mode 0{shared:o}: others can replace"):
        cache_files.folder.warn()


@pytest.mark.parametrize("shared", [0o1777, 0o1775])
def test_nobody_else_can_replace_a_folder_in_a_sticky_one(place: Path, shared: int) -> None:
    place.mkdir(parents=True)
    place.chmod(0o700)
    place.parent.chmod(0o700)
    place.parent.parent.chmod(shared)
    assert cache_files.cached(NAME, build) == place / NAME


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
@pytest.mark.parametrize("mode_of_parent", [0o755, 0o1777])
@pytest.mark.parametrize("is_link", [False, True])
def test_a_folder_whose_parent_belongs_to_another_user_is_not_used(
    place: Path, monkeypatch: pytest.MonkeyPatch, mode_of_parent: int, is_link: bool
) -> None:
    planted = plant(place)
    parent = place.parent.parent
    if is_link:
        parent = parent.with_name("others")
        parent.mkdir()
        (parent / "link").symlink_to(f"../{place.parent.parent.name}")
        monkeypatch.setenv("CUDML_CACHE_DIR", str(parent / "link" / place.parent.name))
        found = cache_files.cached(NAME, lambda scratch, path: pytest.fail("not found"))
        assert found.samefile(planted)
    parent.chmod(mode_of_parent)
    os.chown(parent, 1234, 1234)
    assert not cache_files.cached(NAME, build).samefile(planted)
    with pytest.warns(RuntimeWarning, match=rf"{parent.name} belongs to user 1234, who can replace"):
        cache_files.folder.warn()


def test_in_a_sticky_folder_as_tmp_is_nobody_can_replace_it(place: Path) -> None:
    place.mkdir(parents=True)
    place.parent.parent.chmod(0o1777)
    assert cache_files.cached(NAME, build) == place / NAME


@pytest.mark.parametrize("kind", ["pipe", "link", "written by others", "folder"])
def test_only_a_file_of_the_users_own_is_loaded(place: Path, kind: str) -> None:
    planted = plant(place)
    if kind == "written by others":
        planted.chmod(0o620)
    else:
        other = planted.rename(planted.with_name("other.so"))
        make = {
            "pipe": os.mkfifo,
            "link": lambda path: path.symlink_to(other),
            "folder": lambda path: path.mkdir(),
        }
        make[kind](planted)
    start = time.monotonic()
    path = cache_files.cached(NAME, build)
    assert time.monotonic() - start < 10
    assert path.read_bytes() == sealed(CONTENT)
    assert (path == planted) == (kind != "folder")


def test_what_killed_builds_left_is_removed_when_it_is_old(place: Path) -> None:
    place.mkdir(parents=True)
    for name in ("tmpold", "tmpyoung"):
        (place / name).mkdir()
        (place / name / "kernel.cpp").write_text("text")
    day = 24 * 3600
    os.utime(place / "tmpold", (time.time() - 2 * day,) * 2)
    os.utime(place / "tmpyoung", (time.time() - day / 2,) * 2)
    cache_files.cached(NAME, build)
    assert sorted(path.name for path in place.iterdir()) == [NAME, "tmpyoung"]


def test_a_relative_base_of_the_system_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDML_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/cache")
    assert settings.cache_dir() == Path.home() / ".cache" / "cudml"


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ("kernels", r"CUDML_CACHE_DIR is 'kernels', must be an absolute path$"),
        ("./x", r"CUDML_CACHE_DIR is './x', must be an absolute path$"),
        (
            "~nosuchuser/x",
            r"CUDML_CACHE_DIR is '~nosuchuser/x', must be an absolute path; there is no such home",
        ),
    ],
)
def test_a_relative_cache_folder_is_refused(
    chosen: str, message: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDML_CACHE_DIR", chosen)
    with pytest.raises(SettingError, match=message):
        cache_files.cached(NAME, build)


CALL = """
import os, pwd, tempfile, warnings
import numpy as np, cudml

def unknown(*_):
    raise KeyError("unknown user")

def make(suffix=None, prefix=None, dir=None):
    return os.environ["PREPARED"] if prefix == "cudml-" else make_any(suffix, prefix, dir)

make_any, tempfile.mkdtemp, pwd.getpwuid = tempfile.mkdtemp, make, unknown
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    values = cudml.slice(np.arange(5), (1,), (2,))  # the user's line
print(values.tolist(), [(w.filename, w.lineno, str(w.message)) for w in caught])
"""


@pytest.fixture
def prepared(tmp_path: Path) -> str:
    """A folder with both runtimes, which take many seconds to build."""
    folder = tmp_path / "prepared"
    folder.mkdir(0o700)
    for is_checked in (False, True):
        shutil.copy(compiling.runtime(is_checked=is_checked), folder)
    return str(folder)


def test_without_a_home_a_temporary_folder_does(prepared: str) -> None:
    done = run_python(CALL, HOME=None, XDG_CACHE_HOME=None, CUDML_CACHE_DIR=None, PREPARED=prepared)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[1, 2] ")
    assert "the cache folder in the home folder cannot be used (there is no home folder)" in done.stdout
    assert "Set CUDML_CACHE_DIR to use another folder" in done.stdout
    assert not Path(prepared).exists()


@pytest.mark.parametrize("options", ["warp_lanes=32", "check"])
def test_the_warning_points_at_the_users_line(tmp_path: Path, options: str, prepared: str) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = run_python(CALL, CUDML_CACHE_DIR=str(blocked), CUDML_EMULATOR=options, PREPARED=prepared)
    line = next(n for n, text in enumerate(CALL.splitlines(), 1) if "user's line" in text)
    assert done.returncode == 0, done.stderr
    assert f"[('<string>', {line}, 'the cache folder {blocked} cannot be used" in done.stdout


def test_a_fork_leaves_the_temporary_folder_to_its_parent(place: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from cudml.devices.emulator import cache_files\n"
        "path = cache_files.folder.path()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    signal.alarm(60)\n"
        "    print(cache_files.folder.path(), flush=True)\n"
        "    sys.exit()\n"
        "os.waitpid(child, 0)\n"
        "print(path, path.is_dir())\n"
    )
    place.mkdir(parents=True)
    place.chmod(0o777)
    of_child, path, was_there = run_python(script).stdout.split()
    assert was_there == "True"
    assert of_child != path
    assert not Path(path).exists()
    assert not Path(of_child).exists()


def test_threads_that_fall_back_at_once_share_a_folder(place: Path) -> None:
    place.mkdir(parents=True)
    place.chmod(0o777)
    barrier = threading.Barrier(8)

    def path(_: int) -> Path:
        barrier.wait()
        return cache_files.folder.path()

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(path, range(8)))
    with pytest.warns(RuntimeWarning, match="others can write it"):
        cache_files.folder.warn()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache_files.folder.warn()
    (folder,) = found
    assert mode(folder) == 0o700


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_long_compiling_is_said_in_one_line(
    seconds: float, place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cache_files, "_QUIET_SECONDS", seconds)
    monkeypatch.setattr(cache_files, "_announcement", cache_files._Announcement())

    def slow(scratch: Scratch, path: Path) -> None:
        time.sleep(0.3)
        build(scratch, path)

    for name in ("a.so", "b.so"):
        cache_files.cached(name, slow)
    line = "cudml: compiling kernels for the CPU; the first time, this takes up to a minute\n"
    assert capfd.readouterr().err == ("" if seconds else line)


NON_ASCII = """
import os
from pathlib import Path
from cudml.devices.emulator import build
from cudml.plans import KernelLaunch, Params, ParamStruct
source = Path(os.fsdecode(b"{folder}")) / "kernel.cu"
launch = KernelLaunch(str(source), "scale", (3,), (1, 1, 1), (1, 1, 1), ("out",), Params(ParamStruct(), {}))
os.write(1, os.fsencode(build.module(launch)))
"""


@pytest.mark.parametrize("is_utf8", ["0", "1"])
def test_paths_need_not_be_ascii_in_an_ascii_locale(tmp_path: Path, is_utf8: str) -> None:
    folder = tmp_path / "\u00fcn\u00ef"
    folder.mkdir()
    text = '#include "common/intrinsics.cuh"\ntemplate <int kFactor>\n'
    text += "__global__ void scale(Int32* out) { out[0] = kFactor; }\n"
    (folder / "kernel.cu").write_text(text)
    kept = folder / "cache" / "emulator"
    kept.mkdir(parents=True)
    shutil.copy(compiling.runtime(), kept)  # which takes seconds to build
    escaped = "".join(f"\\x{byte:02x}" for byte in os.fsencode(folder))
    locale = {"LC_ALL": "POSIX", "PYTHONUTF8": is_utf8, "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(ROOT)}
    done = run_python(NON_ASCII.replace("{folder}", escaped), CUDML_CACHE_DIR=str(folder / "cache"), **locale)
    assert done.returncode == 0, done.stderr
    assert elf.exported_symbols(Path(done.stdout).read_bytes()) >= {"simt_kernel"}
