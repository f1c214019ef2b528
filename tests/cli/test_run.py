"""`cudml run`: a model on files, a report of what ran where, and errors."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

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
    assert np.load(tmp_path / "made/here/ba.npy").tolist() == [["b"], ["a"]]  # no pickle, which load refuses


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["c", "a/b", "a_b"], "'a_b' is saved as a_b.npy, must be of a file that 'a/b' has not"),
        (["c", ".."], "'..' is saved as ...npy, must have a letter or a digit"),
        (["c", "/"], "'/' is saved as _.npy, must have a letter or a digit"),
        (["c", 300 * "n"], "must be of a name that a file can have (304 bytes long, more than 255)"),
        (["c", "folder"], "must be of a name that a file can have (OUT/folder.npy is a folder)"),
        (["c", "link"], "'link' is saved as link.npy, a link to OUT-other/link.npy, must be in OUT"),
    ],
)
def test_names_of_outputs_are_checked_before_a_byte_is_written(
    names: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", *names)]
    nodes = [helper.make_node("Neg", ["x"], [name]) for name in names]
    graph = helper.make_graph(nodes, "g", kinds[:1], kinds[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.zeros(2, np.float32))
    out, other = tmp_path / "out", tmp_path / "out-other"
    for folder in (out, other, out / "folder.npy"):
        folder.mkdir()
    (out / "link.npy").symlink_to(other / "link.npy")
    command = ["run", str(tmp_path / "m.onnx"), f"--input=x={tmp_path / 'x.npy'}", f"--output={out}"]
    assert cli.main(command) == cli.EXIT_FAILED
    assert message.replace("OUT", str(out)) in capsys.readouterr().err
    assert sorted(path.name for path in out.iterdir()) == ["folder.npy", "link.npy"]
    assert list(other.iterdir()) == []


def test_an_output_that_cannot_be_saved_is_named(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*arguments(model), f"--output={model}"]) == cli.EXIT_FAILED
    expected = f"cudml: {model}/best.npy: the file is not written (Not a directory), must be writable\n"
    assert capsys.readouterr().err == expected


def test_a_pipe_is_no_input(model: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    command = [sys.executable, "-m", "cudml", *arguments(model), f"--input=x={tmp_path / 'pipe'}"]
    done = subprocess.run([*command[:-2], command[-1]], capture_output=True, text=True, timeout=60)
    assert done.returncode == cli.EXIT_FAILED
    assert done.stderr.endswith("pipe', must be an .npy file that can be read (not a regular file)\n")


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("../w.bin", "'../w.bin' points outside the directory"),
        ("/w.bin", "should be a relative path, but it is an absolute path"),
        ("none.bin", "none.bin, but it is not regular file"),
    ],
)
def test_external_data_stays_in_the_models_folder(
    location: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model").mkdir()
    np.zeros(4, np.float32).tofile(tmp_path / "w.bin")
    weights = TensorProto(name="w", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value=location)
    kind = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    graph = helper.make_graph([helper.make_node("Neg", ["w"], ["y"])], "g", [], [kind], [weights])
    path = tmp_path / "model/m.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    assert cli.main(["run", str(path)]) == cli.EXIT_FAILED
    printed = capsys.readouterr().err
    assert printed.startswith(f"cudml: Session: {path} is not a complete model: ")
    assert message in printed


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({1: "scores.npy"}, "scores.npy is not an ONNX model"),
        ({2: "--input==scores.npy"}, "--input is '=scores.npy', must be NAME=FILE.npy"),
        ({1: "."}, "cudml: .: the file is unreadable (Is a directory), must be readable"),
        ({2: "--input=scores"}, "--input is 'scores', must be NAME=FILE.npy"),
        (
            {2: "--input=scores=model.onnx"},
            "--input scores is 'model.onnx', must be an .npy file th",
        ),
        (
            {2: "--input=scores=none.npy"},
            "'none.npy', must be an .npy file that can be read (No such file",
        ),
        (
            {2: "--input=scores=."},
            "--input scores is '.', must be an .npy file that can be read (not a",
        ),
        ({2: "--input=z=scores.npy"}, "--input has z, must be of scores, x"),
        ({2: "--input=x=scores.npy"}, "--input gives x as 'scores.npy' and '"),
        ({2: "--input=scores=x.npy"}, "input scores is of shape (3, 1, 2), must be of (4,)"),
        ({2: "--ops=LSTM"}, "ops has LSTM, must be of GRU, ReverseSequence, Slice, TopK"),
        (
            {2: "--ops=", 3: "--ops="},
            "--input NAME=FILE.npy is missing for\n"
            "  scores=float32 of shape (4,)\n  x=float32 of shape ('T', 1, 2)\n",
        ),
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
    command = [sys.executable, "-m", "cudml", "run", "none.onnx"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == cli.EXIT_FAILED
    reason = "the file is unreadable (No such file or directory), must be readable"
    assert done.stderr == f"cudml: none.onnx: {reason}\n"


def test_without_onnxruntime_the_extra_is_named(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("cudml.onnx")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert cli.main(arguments(model)) == cli.EXIT_FAILED
    assert (
        "cudml.onnx needs onnxruntime, which is not installed: pip install 'cudml[onnx]'"
        in capsys.readouterr().err
    )
