"""Compiling for the emulator: the keys of the cache, damaged and unusable caches, missing compilers."""

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cudml.devices import sources
from cudml.devices.emulator import build, cache_files, elf
from cudml.errors import CompilerError, SettingError
from cudml.plans import KernelLaunch
from tests.devices.emulator.support import KERNELS, launch
from tests.support.params import params_of

TEXT = """
#include "common/intrinsics.cuh"
#include "part.cuh"
struct Params { Int32 n; };
template <int Factor>
__global__ void scale(Int32* out, Params params) { out[threadIdx.x] = part(params.n) * Factor; }
"""


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A new kernel with a new header, so that it is in no cache."""
    (tmp_path / "part.cuh").write_text("__device__ int part(int n) { return n + 1; }\n")
    source = tmp_path / "scale.cu"
    source.write_text(TEXT)
    return source


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache with only the runtime in it, because that takes seconds to build."""
    runtime = build.runtime()
    monkeypatch.setattr(cache_files, "folder", cache_files.Folder())
    with tempfile.TemporaryDirectory(dir=runtime.parent.parent) as folder:
        place = Path(folder) / "emulator"
        place.mkdir()
        # A second name, not a copy, which would be loaded in addition to the one in this process.
        (place / runtime.name).hardlink_to(runtime)
        monkeypatch.setenv("CUDML_CACHE_DIR", folder)
        yield place


def run(source: Path, factor: int = 3) -> int:
    out = np.zeros(1, np.int32)
    launch(source, "scale", {"out": out}, params_of(n=("Int32", 6)), template=(factor,), block=1)
    return int(out[0])


def scale(source: Path) -> KernelLaunch:
    """The launch of `run`."""
    params = params_of(n=("Int32", 6))
    return KernelLaunch(str(source), "scale", (3,), (1, 1, 1), (1, 1, 1), ("out",), params)


def modules(cache: Path) -> dict[str, int]:
    """Name and inode of every module of a cache; a file built anew has another inode."""
    return {path.name: path.stat().st_ino for path in cache.glob("scale*.so")}


def test_a_module_is_built_once(kernel: Path, cache: Path) -> None:
    assert run(kernel) == 21
    first = modules(cache)
    assert len(first) == 1
    assert run(kernel) == 21
    assert modules(cache) == first
    assert run(kernel, factor=4) == 28
    assert len(modules(cache)) == 2
    assert not list(cache.glob("tmp*"))


def test_a_changed_header_builds_anew(kernel: Path, cache: Path) -> None:
    """A loaded module stays; the new one is for the next process."""
    before = build.module(scale(kernel))
    assert run(kernel) == 21
    (kernel.parent / "part.cuh").write_text("__device__ int part(int n) { return n + 2; }\n")
    assert build.module(scale(kernel)) != before
    assert len(modules(cache)) == 2
    assert run(kernel) == 21


@pytest.mark.parametrize("ingredient", ["_cpu", "_own_text", "compiler"])
def test_what_else_a_module_depends_on(
    ingredient: str, kernel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another CPU, another emulator or another compiler version uses separate files."""
    before = build.module(scale(kernel))
    changed = {
        "_cpu": "another CPU",
        "_own_text": b"another emulator",
        "compiler": build.Compiler(build.compiler().command, "another version"),
    }[ingredient]
    monkeypatch.setattr(build, ingredient, lambda: changed)
    after = build.module(scale(kernel))
    assert after != before
    assert after.exists()


@pytest.mark.parametrize("damage", ["empty", "truncated", "flipped"])
def test_a_damaged_file_is_built_anew(damage: str, kernel: Path, cache: Path) -> None:
    path = build.module(scale(kernel))
    data = path.read_bytes()
    path.unlink()  # a loaded file must not change under its process
    flipped = data[:1000] + bytes([data[1000] ^ 1]) + data[1001:]
    path.write_bytes({"empty": b"", "truncated": data[: len(data) // 2], "flipped": flipped}[damage])
    assert run(kernel) == 21
    assert path.read_bytes()[:1000] == data[:1000]
    assert len(path.read_bytes()) == len(data)


def test_an_unusable_cache_is_said_once_and_done_without(
    kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("CUDML_CACHE_DIR", str(blocked))
    monkeypatch.setattr(cache_files, "folder", cache_files.Folder())
    with pytest.warns(RuntimeWarning, match=r"the cache folder .*file cannot be used") as caught:
        assert run(kernel) == 21
    assert len([w for w in caught if "cache folder" in str(w.message)]) == 1
    assert "CUDML_CACHE_DIR" in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(kernel, factor=5) == 35
    assert blocked.read_text() == "not a folder"


def test_several_threads_build_at_once(kernel: Path, cache: Path) -> None:
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(run(kernel))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [21] * 4
    assert len(modules(cache)) == 1


def test_no_compiler_says_what_to_install(kernel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDML_CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: None)
    build._compiler.cache_clear()
    with pytest.raises(CompilerError, match=r"no C\+\+ compiler found .*pip install 'cudml\[cpu\]'"):
        run(kernel)


@pytest.mark.parametrize("command", ["/nonexistent/c++ -flag", "false"])
def test_a_wrong_compiler_setting_is_named(
    command: str, kernel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDML_CXX", command)
    message = rf"CUDML_CXX is '{re.escape(command)}', which cannot be run .*install"
    with pytest.raises(CompilerError, match=message):
        run(kernel)


def test_an_invalid_command_line_is_reported_with_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDML_CXX", "'x")
    with pytest.raises(
        SettingError, match=r"CUDML_CXX is \"'x\", must be a command line, quoted .*quotation"
    ):
        build.compiler()


def test_the_compiler_of_the_setting_is_used(
    kernel: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    wrapper = tmp_path / "my compiler"
    command = " ".join(build.compiler().command)
    wrapper.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec {command} "$@"\n')
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CUDML_CXX", f"'{wrapper}' -DEXTRA=1")
    build.module(scale(kernel))
    assert all("-DEXTRA=1" in line for line in log.read_text().splitlines())


def test_an_error_in_the_text_shows_the_compilers_message(kernel: Path, cache: Path) -> None:
    kernel.write_text(TEXT.replace("part(params.n)", "prat(params.n)"))
    with pytest.raises(CompilerError, match=r"scale\.cu scale<3> does not compile:") as caught:
        run(kernel)
    assert "scale.cu:6" in str(caught.value)
    assert "prat" in str(caught.value)
    assert not modules(cache)


def test_sources_can_be_kept(kernel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDML_KEEP_SOURCE", "1")
    module = build.module(scale(kernel))
    assert "SIMT_EXPORT(scale<3>)" in module.with_suffix(".cpp").read_text()


def test_includes_are_followed(kernel: Path) -> None:
    names = [path.name for path in sources.reached_files(str(kernel))]
    assert names == ["scale.cu", "intrinsics.cuh", "types.cuh", "part.cuh"]
    every = {path.suffix for path in sources.kernel_root().rglob("*.cu*")}
    assert every == {".cu", ".cuh"}


def test_the_cache_follows_the_users_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from cudml import settings

    monkeypatch.delenv("CUDML_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert settings.cache_dir() == tmp_path / "cudml"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert settings.cache_dir() == Path.home() / ".cache" / "cudml"
    monkeypatch.setenv("CUDML_CACHE_DIR", "~/kept")
    assert settings.cache_dir() == Path.home() / "kept"


def compiler_like(folder: Path, text: str) -> str:
    """A compiler that answers --version, and does `text` for everything else."""
    script = folder / "like-c++"
    script.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec echo "like-c++ 1.0"\n{text}\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("true", r"like-c\+\+ \(CUDML_CXX\) reports success, but what it wrote is nothing; install g\+\+"),
        (
            "echo \"fatal error: 'atomic' file not found\" >&2; exit 1",
            r"(?s)the emulator's runtime does not compile:.*'atomic' file not found.*incomplete or too old",
        ),
    ],
    ids=["compiles nothing", "has no library"],
)
def test_a_broken_compiler_says_what_to_install(
    text: str, message: str, kernel: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDML_CXX", compiler_like(tmp_path, text))
    with pytest.raises(CompilerError, match=message):
        run(kernel)


def test_what_a_broken_compiler_wrote_is_not_kept(
    kernel: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once repaired, the same compiler builds a module that runs."""
    broken = tmp_path / "broken"
    broken.write_text("")
    write = 'while [ "$1" != -o ]; do shift; done; echo not an ELF file > "$2"'
    text = f'if [ -e {broken} ]; then {write}; else exec {" ".join(build.compiler().command)} "$@"; fi'
    monkeypatch.setenv("CUDML_CXX", compiler_like(tmp_path, text))
    with pytest.raises(CompilerError, match=r"like-c\+\+ \(CUDML_CXX\) reports success, but .* not an ELF"):
        run(kernel)
    broken.unlink()
    assert run(kernel) == 21


def test_what_cannot_be_loaded_is_not_kept(kernel: Path, cache: Path) -> None:
    path = build.module(scale(kernel))
    path.unlink()
    path.write_bytes(b"text" + hashlib.sha256(b"text").digest())
    with pytest.raises(CompilerError, match=r"cannot be loaded: .*\(CUDML_CXX\) .*\(CUDML_CACHE_DIR\)"):
        run(kernel)
    assert run(kernel) == 21


def test_a_library_is_looked_at_before_it_is_kept(kernel: Path, cache: Path, tmp_path: Path) -> None:
    whole = build.module(scale(kernel)).read_bytes()
    assert "simt_kernel" in elf.exported_symbols(whole)
    assert "simt_launch" not in elf.exported_symbols(whole)  # taken from the runtime
    another_machine = whole[:18] + bytes([whole[18] ^ 0xFF]) + whole[19:]
    a_program = whole[:16] + b"\2" + whole[17:]
    for data, message in (
        (b"", "not an ELF file"),
        (whole[:40], "not an ELF file"),
        (whole[:2000], "truncated"),
        (another_machine, "for another machine"),
        (a_program, "not a shared library"),
    ):
        with pytest.raises(ValueError, match=message):
            elf.exported_symbols(data)
    (tmp_path / "library").write_bytes(whole)
    with pytest.raises(ValueError, match="a shared library without simt_launch"):
        elf.require_symbol(tmp_path / "library", "simt_launch")


def test_a_full_disk(kernel: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler is the first to notice; if the temporary folder is full, too, the error says so."""
    full = 'echo "cannot write $*: No space left on device" >&2; exit 1'
    other = " ".join(build.compiler().command)
    in_cache = f'case "$*" in *{cache}/tmp*) {full};; esac\nexec {other} "$@"'
    monkeypatch.setenv("CUDML_CXX", compiler_like(tmp_path, in_cache))
    with pytest.warns(RuntimeWarning, match=r"cannot be used \(No space left on device\)"):
        assert run(kernel) == 21
    monkeypatch.setattr(cache_files, "folder", cache_files.Folder())
    monkeypatch.setenv("CUDML_CXX", compiler_like(tmp_path, full))
    message = r"compiled kernels cannot be stored: .*No space left on device.*CUDML_CACHE_DIR or TMPDIR"
    with pytest.warns(RuntimeWarning, match="cannot be used"), pytest.raises(CompilerError, match=message):
        run(kernel, factor=4)


def test_no_temporary_folder_either(kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("CUDML_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr(cache_files, "folder", cache_files.Folder())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(CompilerError, match="compiled kernels cannot be stored"):
        run(kernel)


def test_several_processes_build_at_once(kernel: Path, cache: Path) -> None:
    script = (
        "from cudml.devices.emulator import build\n"
        "from cudml.plans import *\n"
        f"print(build.module({scale(kernel)!r}))"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    answers = {process.communicate()[0].strip() for process in processes}
    assert len(answers) == 1
    assert modules(cache).keys() == {Path(answer).name for answer in answers}
    assert not list(cache.glob("tmp*"))
    assert run(kernel) == 21


@pytest.mark.skipif(
    not (shutil.which("aarch64-linux-gnu-g++") and shutil.which("qemu-aarch64")),
    reason="needs aarch64-linux-gnu-g++ and qemu-aarch64",
)
def test_the_other_architecture(tmp_path: Path) -> None:
    """The context switch is written per instruction set."""
    program = tmp_path / "standalone"
    runtime = tmp_path / "runtime.cpp"
    runtime.write_text(build.runtime_source())
    includes = [f"-I{build.SIMT / 'overlay'}", f"-I{build.SIMT}", f"-I{sources.kernel_root()}"]
    flags = ["-std=c++17", "-O2", "-static", "-pthread", "-ffp-contract=off"]
    files = [str(KERNELS / "standalone.cpp"), str(runtime), "-o", str(program)]
    subprocess.run(["aarch64-linux-gnu-g++", *flags, *includes, *files], check=True)
    result = subprocess.run(["qemu-aarch64", str(program)], capture_output=True, text=True, timeout=120)
    assert result.stdout == "every order is right\n"
    assert result.returncode == 0


@pytest.mark.skipif(not shutil.which("clang++"), reason="clang++ is not installed")
def test_another_compiler(kernel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDML_CXX", "clang++")
    assert run(kernel) == 21


@pytest.mark.skipif(not build.importlib.util.find_spec("ziglang"), reason="ziglang is not installed")
def test_the_compiler_of_the_cpu_extra(kernel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDML_CXX", raising=False)
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    assert build.compiler().command[1:] == ("-m", "ziglang", "c++")
    assert run(kernel) == 21
