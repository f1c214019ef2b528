"""The command line: `cudml demo`, `dispatch MODEL.json`, `run MODEL.onnx`, `cache` and `info`."""

import argparse
import os
import platform
import re
import shutil
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from importlib import metadata
from io import TextIOWrapper, UnsupportedOperation
from pathlib import Path
from typing import TYPE_CHECKING

import cudml
from cudml import settings
from cudml.dxdispatch.memory import size_text
from cudml.enums import FeatureLevel
from cudml.errors import CompilerError, DeviceError, KernelError, ModelError, ProblemsError, SettingError

if TYPE_CHECKING:
    from cudml.devices import Device

#: Exit codes: success; results differ; error; Ctrl-C.
EXIT_GOOD, EXIT_DIFFERENT, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 2, 130

_SECONDS_BETWEEN_PROGRESS = 0.125

#: Control characters that a terminal may interpret, except line ends.
_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code: 0, 1 if results differ, 2 for errors, 130 for Ctrl-C."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent process
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names in models may not be printable
    try:
        options = _parser().parse_args(arguments)
        code: int = options.run(options)
        sys.stdout.flush()
    except (ModelError, ProblemsError, DeviceError, CompilerError, KernelError, SettingError) as error:
        _complain(error)
        return EXIT_FAILED
    except MemoryError as error:
        _complain(f"out of memory: {error}")
        return EXIT_FAILED
    except OSError as error:
        if not isinstance(
            error, BrokenPipeError
        ):  # a broken pipe only means that the reader of the output has left
            _complain(error)
        # Unwritten output must not fail again when Python flushes it at exit.
        with suppress(UnsupportedOperation):  # a stream that is no file
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except KeyboardInterrupt:
        _complain("interrupted")
        return EXIT_INTERRUPTED
    except Exception:
        # Python's own exit code for this, 1, says that results differ.
        _progress("")
        traceback.print_exc()
        return EXIT_FAILED
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cudml", description="DirectML's operators on NVIDIA GPUs, and without one on the CPU."
    )
    parser.add_argument("--version", action="version", version=f"cudml {cudml.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = commands.add_parser(
        "demo",
        help="run and check DirectML's worked examples and a realistic case per operator; show three uses",
        description="Runs every worked example of DirectML's documentation and a realistic case per "
        "operator, and shows expected next to actual results; then three uses, and times beside NumPy's. "
        "Exits with 1 if anything differs.",
    )
    demo.set_defaults(run=_demo)

    dispatch = commands.add_parser(
        "dispatch",
        help="run a DxDispatch model",
        description="Runs a JSON model of DxDispatch: its resources, dispatchables and commands.",
    )
    dispatch.add_argument("model", type=Path, metavar="MODEL.json")
    dispatch.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="save resources as DIR/RESOURCE.npy instead of printing them; also the base of writeFile paths",
    )
    dispatch.add_argument(
        "--iterations",
        type=_positive,
        metavar="N",
        help="time each dispatch N times after a warm-up: by CUDA events on a GPU, the host's clock on a CPU",
    )
    dispatch.add_argument(
        "--allow-outside",
        action="store_true",
        help="let the model read files outside its own folder, and write outside --output (default: "
        "the current folder)",
    )
    dispatch.add_argument(
        "--feature-level",
        choices=[str(level) for level in FeatureLevel],
        default=str(FeatureLevel.LEVEL_6_4),
        help="the feature level whose rules the operators must follow (default: %(default)s)",
    )
    dispatch.set_defaults(run=_dispatch)

    for command in (demo, dispatch):
        command.add_argument(
            "--device", help="cpu, cuda or cuda:N (default: the current GPU if there is one, else cpu)"
        )

    run = commands.add_parser(
        "run",
        help="run an ONNX model",
        description="Runs an ONNX model on arrays from files, and shows which nodes cudml ran: those of "
        "--ops. ONNX Runtime runs the others.",
    )
    run.add_argument("model", type=Path, metavar="MODEL.onnx")
    run.add_argument(
        "--input", action="append", default=[], metavar="NAME=FILE.npy", help="an input; once for each"
    )
    run.add_argument(
        "--output", type=Path, metavar="DIR", help="save outputs as DIR/NAME.npy instead of showing them"
    )
    run.add_argument(
        "--ops", metavar="OP,...", help="of GRU, TopK, ReverseSequence and Slice (default: all but Slice)"
    )
    run.set_defaults(run=_run)

    cache = commands.add_parser(
        "cache",
        help="show where compiled kernels are cached and how much space they take, or remove them",
        description="Shows where the CPU's compiled kernels are cached and how much space they take. "
        "CUDML_CACHE_DIR sets the folder, CUDML_CACHE_SIZE its maximum size. CuPy caches a GPU's kernels, in "
        "CUPY_CACHE_DIR.",
    )
    cache.add_argument("--clear", action="store_true", help="remove them; they are rebuilt when needed")
    cache.set_defaults(run=_cache)

    info = commands.add_parser(
        "info",
        help="show devices, versions, compiler, cache and settings",
        description="Shows devices, versions, compiler, cache and settings.",
    )
    info.set_defaults(run=_info)
    return parser


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least 1")
    return value


def _device(name: str | None) -> "Device":
    from cudml.devices import get_device
    from cudml.devices.emulator.schedule import environment_schedule

    try:
        environment_schedule()
        return get_device(name)
    except ValueError as error:
        raise DeviceError(str(error)) from None


def _named(device: "Device", asked: str | None) -> str:
    """The device's name and, if the CPU was not asked for, why no GPU is used."""
    from cudml.devices import cuda

    if asked is not None or device.name != "cpu":
        return device.name
    return f"{device.name} ({cuda.status().reason})"


def _demo(options: argparse.Namespace) -> int:
    from cudml.cli import demo, shows
    from cudml.devices import emulator

    device = _device(options.device)
    print(f"cudml {cudml.__version__} on {_named(device, options.device)}", flush=True)
    outcomes = []
    # On a CPU, too, run a GPU's kernels rather than those that are faster on a CPU.
    with emulator.schedule(warp_lanes=32):
        for number, case in enumerate(demo.CASES, 1):
            _progress(f"{number} of {len(demo.CASES)}: {case.name}")
            outcomes.append(demo.run_case(case, device))
    _progress("")
    print(_table(demo.rows(outcomes)))
    for outcome in outcomes[-len(demo.REAL_CASES) :]:
        first, again = outcome.first_seconds, outcome.seconds
        print(f"{outcome.case}: {first:.2f} s the first time, {1000 * again:.1f} ms again, checks included")
    checks = [check for outcome in outcomes for check in outcome.checks]
    for make in shows.SHOWS:
        show = make(device)
        print("\n".join(["", show.title, *(f"  {line}" for line in show.lines)]), flush=True)
        checks += show.checks
    print(f"\n{_table(shows.times(device))}\n")
    num_different = sum(not check.is_good for check in checks)
    if num_different:
        print(f"{num_different} of {len(checks)} outputs differ")
        return EXIT_DIFFERENT
    print(f"all {len(checks)} outputs are as expected")
    return EXIT_GOOD


def _dispatch(options: argparse.Namespace) -> int:
    from cudml.dxdispatch.model import load_model
    from cudml.dxdispatch.run import run_model

    model = load_model(options.model, allow_outside=options.allow_outside)
    device = _device(options.device)
    level = next(level for level in FeatureLevel if str(level) == options.feature_level)
    print(f"Running on {_named(device, options.device)}", file=sys.stderr)
    run_model(
        model,
        device,
        feature_level=level,
        output=options.output,
        iterations=options.iterations,
        allow_outside=options.allow_outside,
        echo=lambda line: print(_printable(line)),
        progress=_progress,
    )
    return EXIT_GOOD


def _run(options: argparse.Namespace) -> int:
    from cudml.cli.run import RunError, run_model

    ops = None if options.ops is None else [name for name in options.ops.split(",") if name]
    try:
        tables = run_model(options.model, options.input, ops=ops, output=options.output, progress=_progress)
    except RunError as error:
        _complain(error)
        return EXIT_FAILED
    _progress("")
    for table in filter(None, tables):
        print(_printable(_table(table)))
    return EXIT_GOOD


def _cache(options: argparse.Namespace) -> int:
    from cudml.devices.emulator import cache_size

    try:
        place = settings.cache_dir()
    except FileNotFoundError as error:
        raise DeviceError(f"there is no cache folder: {error}") from None
    if options.clear:
        removed = cache_size.clear(place / "emulator")
        print(f"removed {_files_text([file.num_bytes for file in removed])} from {place}")
        return EXIT_GOOD
    files = list(cache_size.kept_files(place / "emulator"))
    rows = [
        ("place", str(place)),
        ("size", _files_text([file.num_bytes for file in files])),
        ("at most", size_text(settings.cache_bytes())),
    ]
    if files:
        rows.append(("oldest", f"last used {_day(min(file.last_used for file in files))}"))
    print(_table(rows))
    return EXIT_GOOD


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def _files_text(sizes: Sequence[int]) -> str:
    return f"{len(sizes)} files, {size_text(sum(sizes))}"


def _info(options: argparse.Namespace) -> int:
    from cudml.devices import cuda, sources

    rows = [
        ("cudml", cudml.__version__),
        ("Python", f"{platform.python_version()}, {platform.system()} {platform.machine()}"),
        *[(name, _version(name)) for name in ("numpy", "cupy-cuda12x", "cupy-cuda13x", "cupy")],
        ("CUDA", cuda.status().reason),
        ("host compiler", _compiler_text()),
        ("kernels", str(sources.kernel_root())),
        ("cache", _cache_text()),
        *sorted((name, _setting_text(name)) for name in os.environ if name.startswith("CUDML_")),
    ]
    print(_table([row for row in rows if row[1]]))
    return EXIT_GOOD


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _compiler_text() -> str:
    from cudml.devices.emulator import build

    try:
        compiler = build.compiler()
    except (CompilerError, SettingError) as error:
        return str(error)
    return f"{' '.join(compiler.command)}: {compiler.version.splitlines()[0]}"


def _cache_text() -> str:
    try:
        folder = settings.cache_dir()
    except (OSError, SettingError) as error:
        return str(error)
    sizes = []
    for parent, _, names in os.walk(folder):
        for name in names:
            # Another process may just have removed the file.
            with suppress(FileNotFoundError):
                sizes.append(os.lstat(os.path.join(parent, name)).st_size)
    return f"{folder}: {_files_text(sizes)}"


def _setting_text(name: str) -> str:
    from cudml.devices.emulator.schedule import environment_schedule

    value = os.environ[name]
    if name == "CUDML_EMULATOR":
        try:
            environment_schedule()
        except ValueError as error:
            return f"{value} (invalid: {error})"
    return value


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Format rows as columns, each as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


class _Progress:
    """Show a line on a terminal that the next one overwrites, "" to clear it; elsewhere do nothing."""

    def __init__(self) -> None:
        self._next_time = 0.0

    def __call__(self, text: str) -> None:
        # Limit the rate, because timed code also goes through here.
        if not sys.stderr.isatty() or (text and time.monotonic() < self._next_time):
            return
        self._next_time = time.monotonic() + _SECONDS_BETWEEN_PROGRESS if text else 0.0
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[K{_printable(text)[:width]}", end="", file=sys.stderr, flush=True)


_progress = _Progress()


def _printable(text: str) -> str:
    """Escape control characters: names from a model must not control the terminal."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def _complain(text: object) -> None:
    """Print an error on standard error."""
    _progress("")
    print(_printable(f"cudml: {text}"), file=sys.stderr)
