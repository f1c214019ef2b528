"""Paths of a model: they stay in its folder and in the output's, whatever links lie there."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudml import ModelError
from cudml.cli import main as cli
from cudml.devices import get_device
from cudml.dxdispatch.files import OutsideError, open_inside, write_inside
from cudml.dxdispatch.model import load_model
from cudml.dxdispatch.run import run_model
from tests.dxdispatch.test_model import with_change, written


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for the model, next to one that does not belong to it and has a file of 25 elements."""
    (tmp_path / "model").mkdir()
    (tmp_path / "other").mkdir()
    for place in ("model", "other"):
        np.save(tmp_path / place / "input.npy", np.arange(1, 26, dtype=np.float32))
    return tmp_path / "model"


def reading(path: str) -> dict[str, Any]:
    return with_change("resources", "input", "initialValues", value={"sourcePath": path})


def writing(path: str) -> dict[str, Any]:
    command = {"type": "writeFile", "resource": "output", "targetPath": path}
    return with_change("commands", 1, value=command)


def outside_paths(folder: Path, name: str) -> list[str]:
    """Paths that begin in `folder` and lead to `name` in the folder next to it; creates links for that."""
    (folder / "link").symlink_to(folder.parent / "other")
    (folder / "back").symlink_to("..")
    (folder / f"link-{name}").symlink_to(folder.parent / "other" / name)
    other = folder.parent / "other" / name
    return [f"../other/{name}", str(other), f"link/{name}", f"back/other/{name}", f"link-{name}"]


def test_files_outside_the_models_folder_are_read_only_where_that_is_allowed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in outside_paths(folder, "input.npy"):
        model = written(folder, reading(path))
        with pytest.raises(ModelError) as caught:
            load_model(model)
        assert caught.value.path == "resources.input.initialValues.sourcePath"
        assert caught.value.got == f"a path to {folder.parent}/other/input.npy"
        assert "--allow-outside" in caught.value.expected
        assert cli.main(["dispatch", str(model), "--device", "cpu", "--allow-outside"]) == 0
        assert capsys.readouterr().out == "Resource 'output': 7, 9, 12, 14, 17, 19\n"


def test_the_current_folder_is_looked_in_where_the_model_lies_above_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sub").mkdir()
    os.rename(folder / "input.npy", folder / "sub/a.npy")
    monkeypatch.chdir(folder / "sub")
    load_model(written(folder, reading("a.npy")))
    monkeypatch.chdir(folder.parent / "other")
    with pytest.raises(ModelError, match=f"is a path to {folder.parent}/other/input.npy, must be a file in"):
        load_model(written(folder, reading("input.npy")))
    load_model(written(folder, reading("input.npy")), allow_outside=True)


def test_a_path_outside_that_has_no_file_names_the_option_too(folder: Path) -> None:
    for path in ("../none.npy", "/none.npy"):
        with pytest.raises(ModelError, match=r"is a path to /.*none.npy, must be .*--allow-outside"):
            load_model(written(folder, reading(path)))
    with pytest.raises(ModelError, match=r"sourcePath is 'none.npy', must be a file in [^ ]*$"):
        load_model(written(folder, reading("none.npy")))


def test_links_that_stay_inside_are_followed(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub/link.npy").symlink_to("../input.npy")
    (folder / "again").symlink_to("sub")
    load_model(written(folder, reading("again/link.npy")))
    model = load_model(written(folder, writing("again/new/a.bin")))
    run_model(model, get_device("cpu"), output=folder, echo=lambda line: None)
    assert (folder / "sub/new/a.bin").stat().st_size == 24


def test_files_outside_the_output_are_written_only_where_that_is_allowed(
    folder: Path, tmp_path: Path
) -> None:
    for path in outside_paths(folder, "result.bin"):
        target = tmp_path / "other/result.bin"
        target.write_text("mine")
        model = load_model(written(tmp_path, writing(path)))
        lines: list[str] = []
        with pytest.raises(ModelError) as caught:
            run_model(model, get_device("cpu"), output=folder, echo=lines.append)
        assert caught.value.path == "commands[1].targetPath"
        assert caught.value.got == f"a path to {target}"
        assert "--allow-outside" in caught.value.expected
        assert target.read_text() == "mine"
        assert lines == []
        run_model(model, get_device("cpu"), output=folder, allow_outside=True, echo=lines.append)
        assert target.stat().st_size == 24


def test_without_output_the_current_folder_is_the_one_to_stay_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(ModelError, match=r"^commands\[1\]\.targetPath is a path to "):
        run_model(load_model(written(folder, writing("../a.npy"))), get_device("cpu"))
    run_model(load_model(written(folder, writing("a.npy"))), get_device("cpu"), echo=lambda line: None)
    assert np.load("a.npy").tolist() == [7, 9, 12, 14, 17, 19]


def test_what_a_print_saves_follows_no_link_out_either(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other/x.npy").write_text("mine")
    (folder / "output.npy").symlink_to(tmp_path / "other/x.npy")
    model = load_model(
        written(tmp_path, with_change("commands", 0, value={"type": "print", "resource": "output"}))
    )
    with pytest.raises(ModelError, match=r"^commands\[0\]\.resource is a path to "):
        run_model(model, get_device("cpu"), output=folder)
    assert (tmp_path / "other/x.npy").read_text() == "mine"


def test_a_link_put_there_meanwhile_is_not_followed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between resolving a path and opening it, a folder on the way becomes a link."""
    (folder / "sub").mkdir()
    np.save(folder / "sub/input.npy", np.zeros(25, np.float32))
    resolve = os.path.realpath

    def realpath(path: Any) -> str:
        place = resolve(path)
        if place.startswith(f"{folder}/sub/"):
            os.rename(folder / "sub", folder / f"sub-{len(os.listdir(folder))}")
            (folder / "sub").symlink_to(tmp_path / "other")
        return place

    monkeypatch.setattr(os.path, "realpath", realpath)
    with pytest.raises(OSError, match="Not a directory"):
        open_inside(folder, folder / "sub/input.npy", allow_outside=False)
    monkeypatch.undo()
    os.unlink(folder / "sub")
    (folder / "sub").mkdir()
    monkeypatch.setattr(os.path, "realpath", realpath)
    with pytest.raises(OSError, match="Not a directory"):
        write_inside(folder, folder / "sub/a.bin", lambda file: file.write(b"x"), allow_outside=False)
    assert os.listdir(tmp_path / "other") == ["input.npy"]


def test_a_write_that_fails_leaves_the_former_file_and_no_other(folder: Path) -> None:
    (folder / "a.bin").write_text("mine")

    def write(file: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_inside(folder, folder / "a.bin", write, allow_outside=False)
    assert sorted(os.listdir(folder)) == ["a.bin", "input.npy"]
    assert (folder / "a.bin").read_text() == "mine"


def test_only_regular_files_are_read(folder: Path) -> None:
    os.mkfifo(folder / "pipe.bin")
    (folder / "folder.bin").mkdir()
    (folder / "loop.bin").symlink_to("loop.bin")
    for name, reason in [("pipe.bin", "regular file"), ("folder.bin", "regular file"), ("loop.bin", "")]:
        with pytest.raises(ModelError, match=f"sourcePath is '{name}', must be a file .*{reason}"):
            load_model(written(folder, reading(name)))


def test_the_root_contains_every_path(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    with open_inside(Path("/"), tmp_path / "a", allow_outside=False) as file:
        assert file.read() == b"abc"
    with pytest.raises(OutsideError):
        open_inside(tmp_path / "a", tmp_path / "ab", allow_outside=False)
