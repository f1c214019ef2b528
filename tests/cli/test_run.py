"""`cudml run`: a model on files, a report of what ran where, and errors."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from cudml.cli import main as cli

MODEL = """<ir_version: 10, opset_import: ["" : 21]>
g (float[4] scores, float[T, 1, 2] x)
=> (float[2] best, int64[2] places, float[T, 1, 1, 1] y, string[2, 1] ba) {
  k = Constant<value_ints = [2]>()  ab = Constant<value = string[2, 1] {"a", "b"}>()
  [select] best, places = TopK(scores, k)
  [layer] y = GRU <hidden_size = 1, clip = 5.0> (x, w, r)
  [text] ba = ReverseSequence <batch_axis = 1, time_axis = 0> (ab, k) }"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    model = onnx.parser.parse_model(MODEL)
    for name, shape in (("w", (1, 3, 2)), ("r", (1, 3, 1))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(shape, np.float32), name))
    onnx.save(model, tmp_path / "model.onnx")
    np.save(tmp_path / "scores.npy", np.array([1, 5, 5, 2], np.float32))
    np.save(tmp_path / "x.npy", np.zeros((3, 1, 2), np.float32))
    return tmp_path / "model.onnx"


def arguments(model: Path) -> list[str]:
    inputs = [f"--input={name}={model.parent / name}.npy" for name in ("scores", "x")]
    return ["run", str(model), *inputs]


def test_report_says_where_each_node_ran_and_what_came(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments(model)) == 0
    printed = capsys.readouterr()
    assert [line.split() for line in printed.out.splitlines()] == [
        ["select", "TopK", "cudml"],
        ["layer", "GRU", "cudml"],
        ["text", "ReverseSequence", "ONNX", "Runtime", "string", "is", "not", "supported"],
        ["best", "float32", "2", "[5.", "5.]"],
        ["places", "int64", "2", "[1", "2]"],
        ["y", "float32", "3x1x1x1", "[[[[0.]]]", "[[[0.]]]", "[[[0.]]]]"],
        ["ba", "object", "2x1", "[['b']", "['a']]"],
    ]


def test_outputs_are_saved(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*arguments(model), "--ops=", f"--output={tmp_path / 'made/here'}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["best", "places", "y", "ba"]
    for line in lines[:3]:
        name, *_, file = line.split()
        assert Path(file) == tmp_path / f"made/here/{name}.npy"
    assert np.load(tmp_path / "made/here/places.npy").tolist() == [1, 2]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({1: "scores.npy"}, "scores.npy is not an ONNX model"),
        ({2: "--input=scores"}, "--input is 'scores', must be NAME=FILE.npy"),
        ({2: "--input=scores=model.onnx"}, "model.onnx is not an .npy file"),
        ({2: "--input=z=scores.npy"}, "feeds has z, must be of scores, x"),
        ({2: "--input=scores=x.npy"}, "input scores is of shape (3, 1, 2), must be of (4,)"),
        ({2: "--ops=LSTM"}, "ops has LSTM, must be of GRU, ReverseSequence, Slice, TopK"),
        ({2: "--ops="}, "feeds lacks scores"),
    ],
)
def test_errors(
    changed: dict[int, str],
    message: str,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(model.parent)
    given = arguments(model)
    for position, text in changed.items():
        given[position] = text
    assert cli.main(given) == cli.EXIT_FAILED
    printed = capsys.readouterr()
    assert printed.err.startswith("cudml: ")
    assert message in printed.err
    assert printed.out == ""


def test_a_missing_file_is_named(model: Path) -> None:
    command = [sys.executable, "-m", "cudml.cli", "run", "none.onnx"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == cli.EXIT_FAILED
    assert done.stderr == "cudml: [Errno 2] No such file or directory: 'none.onnx'\n"


def test_without_onnxruntime_the_extra_is_named(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("cudml.onnx")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert cli.main(arguments(model)) == cli.EXIT_FAILED
    assert "onnxruntime is not installed: pip install 'cudml[onnx]'" in capsys.readouterr().err
