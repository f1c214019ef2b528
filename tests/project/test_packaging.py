"""Built and installed packages have everything they need, in particular the kernels."""

import os
import re
import runpy
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

import cudml

ROOT = Path(__file__).resolve().parents[2]
PROBE = "import cudml; from cudml.devices.sources import kernel_root; print(kernel_root())"


def files_below(folder: Path, under: str) -> set[str]:
    """Every file of a folder of the checkout, by its name in an archive that has the folder at `under`."""
    made = {"__pycache__", "_api", "_plots"}  # by the interpreter, and by a build of the site
    found = (path for path in folder.rglob("*") if path.is_file() and not made & set(path.parts))
    return {f"{under}/{path.relative_to(folder).as_posix()}" for path in found}


def under(names: Iterable[str], *folders: str) -> set[str]:
    """The names that lie in one of some folders."""
    return {name for name in names if name.startswith(tuple(f"{folder}/" for folder in folders))}


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel built from it, as `python -m build` makes them for a release."""
    target = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,), (wheel,) = target.glob("*.tar.gz"), target.glob("*.whl")
    return sdist, wheel


def probe(*path: Path, where: Path) -> Path:
    """Where a new interpreter with its own path finds the kernels."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    done = subprocess.run(
        [sys.executable, "-c", PROBE], check=True, capture_output=True, text=True, cwd=where, env=environment
    )
    return Path(done.stdout.strip())


def test_wheel_holds_the_package_and_the_kernels(archives: tuple[Path, Path]) -> None:
    names = set(zipfile.ZipFile(archives[1]).namelist())
    expected = files_below(ROOT / "cudml", "cudml") | files_below(ROOT / "kernels", "cudml/kernels")
    assert under(names, "cudml") == expected
    assert any(name.endswith("simt.h") for name in names)


def test_sdist_holds_everything(archives: tuple[Path, Path]) -> None:
    with tarfile.open(archives[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames() if archive.getmember(name).isfile()}
    folders = ("cudml", "kernels", "proof", "tests", "docs", "examples", "bench")
    expected = {name for folder in folders for name in files_below(ROOT / folder, folder)}
    assert under(names, *folders) == expected
    files = {"README", "CHANGELOG", "CODE_OF_CONDUCT", "CONTRIBUTING", "SECURITY"}
    assert {"pyproject.toml", "CITATION.cff", "LICENSE", *(f"{name}.md" for name in files)} <= names
    assert {"hatch_build.py", ".ci/run", ".github/workflows/ci.yml", "recipe/recipe.yaml"} <= names


def test_the_release_is_of_one_version(archives: tuple[Path, Path]) -> None:
    """The archives, the changelog and the citation file have the package's version."""
    version = re.escape(cudml.__version__)
    assert re.search(rf"^version: {version}$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert re.search(rf"^## {version}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert all(f"cudml-{cudml.__version__}" in archive.name for archive in archives)


@pytest.fixture(scope="module")
def told(archives: tuple[Path, Path]) -> str:
    """The wheel's metadata, which an index and pip read."""
    with zipfile.ZipFile(archives[1]) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
        return wheel.read(name).decode()


def test_extras_are_those_of_users(told: str) -> None:
    """The other two let one command install a checkout with the needs of its tests or its site."""
    readme = (ROOT / "README.md").read_text()
    table = readme[readme.index("## Install") : readme.index("## Operators")]
    of_users = {name for names in re.findall(r"'\.\[([\w,]+)\]'", table) for name in names.split(",")}
    assert {"all", "cuda13"} <= of_users
    assert set(re.findall(r"^Provides-Extra: (.*)$", told, re.MULTILINE)) == of_users | {"docs", "test"}


def test_the_extra_all_has_every_adapter(told: str) -> None:
    """It has the adapters that users install, without CuPy's extras, which exclude each other."""
    needed: dict[str, set[str]] = {}
    for requirement, extra in re.findall(r"^Requires-Dist: (.*); extra == '(\w+)'$", told, re.MULTILINE):
        needed.setdefault(extra, set()).add(requirement)
    adapters = needed.keys() & {path.stem for path in (ROOT / "cudml").iterdir()}
    assert {"dask", "jax", "onnx", "torch"} <= adapters
    assert needed["all"] == set().union(*(needed[name] for name in adapters))


def test_links_of_the_description_work_on_an_index(told: str) -> None:
    """Links to files of the repository are text until the repository has an address."""
    hook = runpy.run_path(str(ROOT / "hatch_build.py"))["for_an_index"]
    readme = (ROOT / "README.md").read_text()
    assert told.endswith(hook(readme, None))
    links = re.compile(r"\]\(([^)]+)\)")
    assert any(not link.startswith("https://") for link in links.findall(readme))
    assert links.findall(told)
    assert all(link.startswith("https://") for link in links.findall(told))
    absolute = hook(readme, "https://example.org/cudml/")
    assert "(https://example.org/cudml/blob/main/docs/settings.md)" in absolute
    assert len(links.findall(absolute)) == len(links.findall(readme))


@pytest.mark.slow
def test_the_demo_runs_from_the_wheel_in_an_empty_environment(
    archives: tuple[Path, Path], tmp_path: Path
) -> None:
    """NumPy is taken from this environment, so that no index is asked."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv/bin/python"
    pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", archives[1]]
    subprocess.run(pip, check=True, capture_output=True)
    (packages,) = (tmp_path / "venv/lib").glob("python*/site-packages")
    here = Path(np.__file__).parents[1]
    for path in here.glob("numpy*"):
        (packages / path.name).symlink_to(path)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [tmp_path / "venv/bin/cudml", "demo", "--device", "cpu"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "all 21 outputs are as expected"


def test_installed_package_finds_its_own_kernels(archives: tuple[Path, Path], tmp_path: Path) -> None:
    zipfile.ZipFile(archives[1]).extractall(tmp_path / "site")
    assert probe(tmp_path / "site", where=tmp_path) == tmp_path / "site/cudml/kernels"


def test_editable_install_finds_the_kernels_of_the_checkout(tmp_path: Path) -> None:
    """An editable install is a .pth file, which puts the checkout on the path."""
    build = f"import hatchling.build as b; b.build_editable({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", build], check=True, capture_output=True, cwd=ROOT)
    wheel = zipfile.ZipFile(next(tmp_path.glob("*.whl")))
    (pth,) = (name for name in wheel.namelist() if name.endswith(".pth"))
    assert probe(Path(wheel.read(pth).decode().strip()), where=tmp_path) == ROOT / "kernels"
