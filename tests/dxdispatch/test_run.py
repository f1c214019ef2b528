"""Running models of DxDispatch: printing, saving, timing, and models that are refused at once."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from cudml import DescriptorError, KernelError, ModelError
from cudml.devices import Device, get_device
from cudml.dxdispatch.model import load_model
from cudml.dxdispatch.run import ITERATIONS_PER_WARM_UP, MAX_PRINTED, run_model
from tests.dxdispatch.test_model import SLICE_MODEL, lines_of, resource, with_change, written


def test_owned_inputs_come_from_the_bindings_of_the_dispatchable(device: Device, tmp_path: Path) -> None:
    model = with_change("dispatchables", "slice", "bindings", value={"InputTensor": "input"})
    model["dispatchables"]["slice"]["desc"]["InputTensor"]["Flags"] = "OWNED_BY_DML"
    model["commands"][0]["bindings"] = {"OutputTensor": ["output"]}
    assert lines_of(written(tmp_path, model), device) == ["Resource 'output': 7, 9, 12, 14, 17, 19"]


def test_commands_run_in_order_and_buffers_keep_what_was_written(device: Device, tmp_path: Path) -> None:
    model = with_change("commands", value=[SLICE_MODEL["commands"][i] for i in (1, 0, 1, 0, 1)])
    after = "Resource 'output': 7, 9, 12, 14, 17, 19"
    assert lines_of(written(tmp_path, model), device) == ["Resource 'output': 0, 0, 0, 0, 0, 0", after, after]


def test_a_command_to_write_may_be_in_another_case_and_give_dimensions(
    device: Device, tmp_path: Path
) -> None:
    write = {"type": "WRITEFILE", "resource": "output", "targetPath": "A.NPY", "dimensions": [3, 1, 2]}
    model = with_change("commands", 1, value=write)
    run_model(load_model(written(tmp_path, model)), device, output=tmp_path, echo=lambda line: None)
    assert np.load(tmp_path / "A.NPY").tolist() == [[[7, 9]], [[12, 14]], [[17, 19]]]


def test_dimensions_may_reach_to_the_end_of_the_buffer(device: Device, tmp_path: Path) -> None:
    """A buffer that is longer than its first values, as DxDispatch writes it."""
    model = with_change("resources", "output", value=resource("FLOAT32", [0], sizeInBytes=24))
    model["commands"][1] = {
        "type": "writeFile", "resource": "output", "targetPath": "a.npy", "dimensions": [2, 3]
    }  # fmt: skip
    run_model(load_model(written(tmp_path, model)), device, output=tmp_path, echo=lambda line: None)
    assert np.load(tmp_path / "a.npy").tolist() == [[7, 9, 12], [14, 17, 19]]


def test_verbose_printing_shows_place_value_and_bits(device: Device, tmp_path: Path) -> None:
    model = {
        "resources": {"r": resource("FLOAT16", [1, 0.5, *[-2] * 8, "nan"])},
        "dispatchables": {},
        "commands": [{"type": "print", "resource": "r", "verbose": True}],
    }
    (text,) = lines_of(written(tmp_path, model), device)
    lines = text.splitlines()
    assert lines[:3] == ["Resource 'r':", "[ 0] 1 (0x3C00)", "[ 1] 0.5 (0x3800)"]
    assert lines[10:] == ["[ 9] -2 (0xC000)", "[10] nan (0x7E00)"]


@pytest.mark.parametrize("verbose", [False, True])
def test_what_is_printed_of_a_long_resource_is_bounded(verbose: bool, device: Device, tmp_path: Path) -> None:
    model = {
        "resources": {
            name: resource("INT32", {"valueCount": count, "valueStart": 0, "valueDelta": 1})
            for name, count in (("all", MAX_PRINTED), ("part", 10_000_000))
        },
        "dispatchables": {},
        "commands": [{"type": "print", "resource": name, "verbose": verbose} for name in ("all", "part")],
    }
    whole, part = lines_of(written(tmp_path, model), device)
    separator = "\n" if verbose else ", "
    assert len(whole.split(separator)) == MAX_PRINTED + verbose
    assert "more" not in whole
    assert part.split(separator)[:-1] == whole.replace("'all'", "'part'").split(separator)
    assert part.split(separator)[-1] == f"... {10_000_000 - MAX_PRINTED} more; --output saves them all"


@pytest.mark.parametrize("iterations", [1, 25])
def test_dispatches_are_timed_after_a_warm_up(iterations: int, device: Device, tmp_path: Path) -> None:
    lines: list[str] = []
    shown: list[str] = []
    run_model(
        load_model(written(tmp_path, SLICE_MODEL)),
        device,
        iterations=iterations,
        echo=lines.append,
        progress=shown.append,
    )
    clock = "host clock" if device.name == "cpu" else "CUDA events"
    assert lines[1:] == ["Resource 'output': 7, 9, 12, 14, 17, 19"]
    pattern = (
        r"Dispatch 'slice': (\d+) iterations after (\d+) of warm-up, (.+) ms median, (.+) ms minimum \((.+)\)"
    )
    found = re.fullmatch(pattern, lines[0])
    assert found is not None
    warm_ups = max(1, iterations // ITERATIONS_PER_WARM_UP)
    assert (int(found[1]), int(found[2]), found[5]) == (iterations, warm_ups, clock)
    assert 0 < float(found[4]) <= float(found[3])
    # Once for the command itself, then each time that is timed or warms up.
    assert sum(text.startswith("Dispatch 'slice': ") for text in shown) == iterations + warm_ups
    assert shown[-1] == ""


def test_resources_are_saved_where_that_is_asked_for(device: Device, tmp_path: Path) -> None:
    model = with_change(
        "commands", 1, value={"type": "writeFile", "resource": "output", "targetPath": "sub/a.npy"}
    )
    model["commands"] += [
        {"type": "writeFile", "resource": "output", "targetPath": "a.bin"},
        {"type": "print", "resource": "output"},
    ]
    expected = np.array([7, 9, 12, 14, 17, 19], np.float32)
    lines: list[str] = []
    run_model(load_model(written(tmp_path, model)), device, output=tmp_path / "out", echo=lines.append)
    names = ("sub/a.npy", "a.bin", "output.npy")
    assert lines == [f"Resource 'output' written to '{tmp_path}/out/{name}'" for name in names]
    for name in ("sub/a.npy", "output.npy"):
        np.testing.assert_array_equal(np.load(tmp_path / "out" / name), expected)
    assert (tmp_path / "out/a.bin").read_bytes() == expected.tobytes()


def test_a_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "no-folder").write_text("")
    command = {"type": "writeFile", "resource": "output", "targetPath": "no-folder/a.npy"}
    model = load_model(written(tmp_path, with_change("commands", 1, value=command)))
    expected = re.escape(f"{tmp_path}/no-folder/a.npy: the file is not written (")
    with pytest.raises(ModelError, match=rf"^{expected}.+\), must be writable$"):
        run_model(model, get_device("cpu"), output=tmp_path, echo=lambda line: None)


@pytest.mark.parametrize(
    ("name", "reason"), [("folder.npy", "is a folder"), (f"{300 * 'n'}.npy", "304 bytes long, more than 255")]
)
def test_names_that_no_file_can_have_are_found_before_the_first_command(
    name: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "folder.npy").mkdir()
    commands = [
        {"type": "print", "resource": "output"},
        {"type": "writeFile", "resource": "output", "targetPath": name},
    ]
    model = load_model(written(tmp_path, with_change("commands", value=commands)))
    with pytest.raises(
        ModelError, match=rf"^commands\[1\]\.targetPath is .*{reason}\), must be the name of a"
    ):
        run_model(model, get_device("cpu"), output=tmp_path)
    assert not (tmp_path / "output.npy").exists()


def test_a_name_that_no_file_can_have_is_reported(tmp_path: Path) -> None:
    command = {"type": "writeFile", "resource": "output", "targetPath": "a\0b.npy"}
    model = load_model(written(tmp_path, with_change("commands", 1, value=command)))
    expected = (
        r"^commands\[1\]\.targetPath is 'a\\x00b\.npy' \(embedded null byte\), must be the name of a file$"
    )
    with pytest.raises(ModelError, match=expected):
        run_model(model, get_device("cpu"), output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["../output", "a/b", "/tmp/output"])
def test_no_name_of_a_resource_leads_out_of_the_folder_it_is_saved_in(name: str, tmp_path: Path) -> None:
    model = json.loads(json.dumps(SLICE_MODEL).replace('"output"', json.dumps(name)))
    path = written(tmp_path, model)
    assert lines_of(path, get_device("cpu")) == [f"Resource '{name}': 7, 9, 12, 14, 17, 19"]
    with pytest.raises(ModelError) as caught:
        run_model(load_model(path), get_device("cpu"), output=tmp_path / "out")
    expected = "a file name without folders, because the resource is saved"
    assert str(caught.value) == f"commands[1].resource is {name!r}, must be {expected}"
    assert not (tmp_path / "out").exists()


def test_nothing_runs_where_a_later_operator_is_wrong(tmp_path: Path) -> None:
    model = json.loads(json.dumps(SLICE_MODEL))
    model["dispatchables"]["bad"] = json.loads(json.dumps(model["dispatchables"]["slice"]))
    model["dispatchables"]["bad"]["desc"]["Offsets"][3] = 9
    lines: list[str] = []
    with pytest.raises(DescriptorError, match=r"^dispatchables\.bad: SLICE has 1 problem\n  Offsets\[3\]"):
        run_model(load_model(written(tmp_path, model)), get_device("cpu"), echo=lines.append)
    assert lines == []


@pytest.mark.parametrize("command", ["print", "writeFile"])
def test_what_a_failed_kernel_computed_is_neither_printed_nor_saved(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU's kernels report after the call that launched them; the last call of a model has no next one."""
    device = get_device("cpu")

    def raise_reported() -> None:
        raise KernelError(["gru: block 1 gave up"])

    monkeypatch.setattr(device, "raise_reported", raise_reported)
    target = {"targetPath": "a.npy"} if command == "writeFile" else {}
    model = with_change("commands", 1, value={"type": command, "resource": "output", **target})
    lines: list[str] = []
    with pytest.raises(KernelError, match="gave up"):
        run_model(load_model(written(tmp_path, model)), device, output=tmp_path / "out", echo=lines.append)
    assert lines == []
    assert not (tmp_path / "out").exists()
