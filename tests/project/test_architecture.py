"""The layers, the files of an operator and the kernels' dialect, as CONTRIBUTING.md states them."""

import ast
import re
import sys
from pathlib import Path

import pytest

import cudml
from cudml.operators import OPERATORS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "cudml"
KERNELS = ROOT / "kernels"

#: How the first lines of a kernel file begin, and the maximum length of these lines.
HEADER_WORDS = ("Computes", "Idea", "Ownership", "Requires", "Chosen when")
MAX_HEADER_COLUMNS = 100
MAX_COLUMNS = 110

#: The parts of the package that each part may import, lowest first. A part that is not listed is a front end:
#: it may import everything, and no listed part may import it.
LAYERS = {
    "enums": set(),
    "dtypes": {"enums"},
    "tensors": {"dtypes", "enums", "errors"},
    "errors": set(),
    "locks": set(),
    "checks": {"dtypes", "enums", "errors", "tensors"},
    "overlap": set(),
    "plans": set(),
    "settings": {"errors"},
    "operators": {"checks", "dtypes", "enums", "errors", "operators", "plans", "tensors"},
    "devices": {"devices", "dtypes", "enums", "errors", "locks", "plans", "settings", "tensors"},
    "bindings": {"checks", "devices", "errors", "overlap", "tensors"},
    "executable": {"devices", "plans", "settings"},
    "compiled": {"bindings", "devices", "enums", "errors", "executable", "operators", "plans"},
    "functions": {
        *(
            "checks",
            "devices",
            "dtypes",
            "enums",
            "errors",
            "executable",
            "functions",
            "operators",
            "overlap",
        ),
        *("plans", "tensors"),
    },
}

#: Which packages outside the standard library a part of cudml may import at all.
THIRD_PARTY = {
    "devices/cuda/": {"cupy", "cupy_backends", "numpy"},
    "devices/dlpack.py": {"ml_dtypes"},
    "cupy.py": {"cupy"},
    "torch/": {"torch"},
    "dask.py": {"dask"},
    "jax/": {"jax", "ml_dtypes"},
    "onnx/": {"cupy", "google", "onnx", "onnxruntime"},
}
NUMPY_FREE = set(LAYERS) - {"devices", "functions"} | {"__init__"}
#: Standard modules that reach a shared library or a compiler, and where they are allowed.
HOST_ONLY = {
    "ctypes": (
        "devices/emulator/",
        "devices/cuda/cublas.py",
        "devices/cuda/driver.py",
        "devices/cuda/wait_reports.py",
        "devices/dlpack.py",
        "devices/shortcuts.py",
        "devices/waits.py",
        "jax/calls.py",
    ),
    "subprocess": ("devices/emulator/",),
}


def python_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def kernel_files() -> list[Path]:
    return sorted([*KERNELS.rglob("*.cu"), *KERNELS.rglob("*.cuh")])


def operators() -> list[str]:
    """The names that an operator's files share."""
    return sorted({row.room for row in OPERATORS.values()})


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


#: Where a function may import, and why a forked child never waits for that import.
IMPORTS_IN_FUNCTIONS = {
    "cli/": "a command has one thread",
}

#: The functions that import the module of a name.
IMPORTERS = {"import_module", "import_unforked"}


def imported_by_name(node: ast.AST) -> str | None:
    """The module that a call of one of `IMPORTERS` imports; empty if it is computed."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPORTERS):
        return None
    name = node.args[0]
    return str(name.value) if isinstance(name, ast.Constant) else ""


def imports(path: Path) -> set[str]:
    """Every module that a file imports anywhere, `cudml.x.y` written out for `from cudml.x import y`."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if name := imported_by_name(node):
            names.add(name)
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{relative(path)}:{node.lineno}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def part_of(path: Path) -> str:
    """`operators` for cudml/operators/gru/operator.py, `plans` for cudml/plans.py."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def test_every_layer_is_there() -> None:
    assert set(LAYERS) <= {part_of(path) for path in python_files()}


@pytest.mark.parametrize("path", python_files(), ids=relative)
def test_imports_point_downwards(path: Path) -> None:
    if part_of(path) not in LAYERS:
        return
    used = {name.split(".")[1] for name in imports(path) if name.startswith("cudml.")}
    assert used <= LAYERS[part_of(path)]


@pytest.mark.parametrize("path", python_files(), ids=relative)
def test_outside_packages_stay_where_they_belong(path: Path) -> None:
    where = path.relative_to(PACKAGE).as_posix()
    roots = {name.split(".")[0] for name in imports(path)}
    third_party = roots - set(sys.stdlib_module_names) - {"cudml"}
    allowed = set() if part_of(path) in NUMPY_FREE else {"numpy"}
    allowed |= set().union(*(names for folder, names in THIRD_PARTY.items() if where.startswith(folder)))
    assert third_party <= allowed
    for name, places in HOST_ONLY.items():
        assert name not in roots or where.startswith(places), f"{name} belongs to {places}"


@pytest.mark.parametrize("path", python_files(), ids=relative)
def test_functions_import_nothing(path: Path) -> None:
    """A forked child waits forever for a module that another thread of its parent was importing.

    `import_unforked` lets the fork wait instead. A module must not wait for that lock while it is imported:
    the thread that holds it may be waiting for the module.
    """
    if path.relative_to(PACKAGE).as_posix().startswith(tuple(IMPORTS_IN_FUNCTIONS)):
        return
    nodes = list(ast.walk(ast.parse(path.read_text())))
    functions = [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.Lambda))]
    inside = {node for function in functions for node in ast.walk(function)}
    allowed = "import_module" if relative(path) == "cudml/locks.py" else "import_unforked"
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            assert node not in inside, f"import in a function, line {node.lineno}"
        elif isinstance(node, ast.Call) and imported_by_name(node) is not None:
            expected = allowed if node in inside else "import_module"
            assert ast.unparse(node.func) == expected, f"line {node.lineno}"


@pytest.mark.parametrize("path", python_files(), ids=relative)
def test_modules_import_from_where_a_name_is_defined(path: Path) -> None:
    """`from cudml import top_k` takes the lock of `import_unforked` while the module is imported."""
    if relative(path) != "cudml/__init__.py":
        assert not {f"cudml.{name}" for name in cudml.__all__} & imports(path)


#: Modules that are called before a fork and after it. If one is imported while a fork waits for the import to
#: be finished, it is called after the fork alone, and releases a lock that it has not acquired.
CALLED_AROUND_FORKS = {"concurrent.futures", "logging"}


@pytest.mark.parametrize("path", python_files(), ids=relative)
def test_no_module_that_is_called_around_forks_is_imported(path: Path) -> None:
    if part_of(path) in LAYERS:
        assert not [name for name in imports(path) if name.startswith(tuple(CALLED_AROUND_FORKS))]


@pytest.mark.parametrize("name", operators())
def test_operator_has_its_six_places(name: str) -> None:
    for path in (ROOT / "proof/oracle", ROOT / "bench"):
        assert (path / f"{name}.py").is_file()
    for file in ("operator.py", "paths.py"):
        assert (PACKAGE / "operators" / name / file).is_file()
    assert list((ROOT / f"tests/operators/{name}").glob("test_*.py"))
    assert list((KERNELS / name).glob("*.cu"))


@pytest.mark.parametrize("name", operators())
def test_operator_is_in_the_readme(name: str) -> None:
    rows = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("|")]
    assert any(f"(kernels/{name})" in row and f"`cudml.{name}`" in row for row in rows)


@pytest.mark.parametrize("name", operators())
def test_operator_file_reads_in_one_order(name: str) -> None:
    """Descriptor, support table, check, plan."""
    line = {}
    for node in ast.parse((PACKAGE / f"operators/{name}/operator.py").read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name.endswith("Desc"):
            line.setdefault("Desc", node.lineno)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(t, ast.Name) and t.id.endswith("SUPPORT") for t in targets):
                line.setdefault("SUPPORT", node.lineno)
        elif isinstance(node, ast.FunctionDef) and node.name in ("check", "plan"):
            line[node.name] = node.lineno
    assert sorted(line, key=line.__getitem__) == ["Desc", "SUPPORT", "check", "plan"]


def test_kernel_folders_are_operators() -> None:
    folders = {path.name for path in KERNELS.iterdir() if path.is_dir()}
    assert folders == {"common", *operators()}


@pytest.mark.parametrize("path", kernel_files(), ids=relative)
def test_kernel_includes_common_and_its_own_folder(path: Path) -> None:
    folder = path.relative_to(KERNELS).parts[0]
    for include in re.findall(r"^\s*#\s*include\s+(.*)$", path.read_text(), re.MULTILINE):
        assert re.match(rf'"(common|{folder})/\w+\.cuh"', include), f"#include {include}"


#: The files with inline PTX, each with a twin in the emulator.
INTRINSICS = ("kernels/common/intrinsics.cuh", "kernels/common/matrix_intrinsics.cuh")


@pytest.mark.parametrize("path", kernel_files(), ids=relative)
def test_kernel_keeps_to_the_dialect(path: Path) -> None:
    if relative(path) in INTRINSICS:
        return
    text = re.sub(r"//[^\n]*", "", path.read_text())
    assert not re.search(r"\b__shared__\b", text), "shared storage goes through SHARED_STORAGE"
    assert not re.search(r"\b(asm|__asm__)\b", text), f"inline PTX lives in {' and '.join(INTRINSICS)}"
    assert not re.search(r"^\s*#\s*(if|ifdef|ifndef|elif)\b", text, re.MULTILINE), "one text for both devices"


@pytest.mark.parametrize("path", sorted(KERNELS.rglob("*.cu")), ids=relative)
def test_kernel_opens_with_five_lines(path: Path) -> None:
    lines = path.read_text().splitlines()
    for line, word in zip(lines, HEADER_WORDS, strict=False):
        assert re.match(rf"// {word}: \S", line)
        assert len(line) <= MAX_HEADER_COLUMNS
    assert not lines[len(HEADER_WORDS)].startswith("//")


@pytest.mark.parametrize("path", sorted(KERNELS.rglob("*.cu*")), ids=relative)
def test_lines_of_a_kernel_are_short(path: Path) -> None:
    """clang-format wraps code but no comments."""
    assert [line for line in path.read_text().splitlines() if len(line) > MAX_COLUMNS] == []


@pytest.mark.parametrize("path", sorted((ROOT / "proof").rglob("*.py")), ids=relative)
def test_proof_imports_neither_tests_nor_bench(path: Path) -> None:
    assert not {name.split(".")[0] for name in imports(path)} & {"bench", "tests"}
