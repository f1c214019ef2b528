"""First values of a model's buffers: sequences as DxDispatch adds them up, and what memory cannot hold."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudml import ModelError
from cudml.devices import get_device
from cudml.dxdispatch import run as dispatch_run
from cudml.dxdispatch import values as dispatch_values
from cudml.dxdispatch.model import load_model
from cudml.dxdispatch.run import run_model
from tests.dxdispatch.test_model import ROOT, resource, written


def values_of(tmp_path: Path, kind: str | None, values: Any, **others: Any) -> np.ndarray:
    """The first values of a resource."""
    model = {"resources": {"r": resource(kind, values, **others)}, "dispatchables": {}, "commands": []}
    read = load_model(written(tmp_path, model)).resources["r"]
    return read.values_in(read.data())


def sequence(count: int, start: Any, delta: Any) -> dict[str, Any]:
    return {"valueCount": count, "valueStart": start, "valueDelta": delta}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(("start", "delta"), [(0, 1), (1, 0.1), (60000, 3000), (-5, -0.3)])
def test_sequences_of_floats_are_sums_in_their_own_type(
    dtype: str, start: float, delta: float, tmp_path: Path
) -> None:
    got = values_of(tmp_path, dtype.upper(), sequence(5000, start, delta))
    kind = np.dtype(dtype).type
    value, step = kind(start), kind(delta)
    expected = []
    with np.errstate(over="ignore"):
        for _ in range(5000):
            expected.append(value)
            value = kind(value + step)
    assert got.dtype == dtype
    assert got.tobytes() == np.array(expected).tobytes()


def test_counting_in_float16_ends_where_the_next_integer_has_no_place(tmp_path: Path) -> None:
    got = values_of(tmp_path, "FLOAT16", sequence(3000, 0, 1))
    assert got[2046:2051].tolist() == [2046, 2047, 2048, 2048, 2048]
    assert got[-1] == 2048


@pytest.mark.parametrize(
    ("kind", "start", "delta", "count"),
    [
        ("INT8", -128, 1, 256),
        ("INT8", 127, -255, 2),
        ("UINT8", 255, -1, 256),
        ("INT16", 32767, -5, 13107),
        ("UINT64", 2**64 - 1, -(2**60), 16),
        ("INT64", -(2**63), 2**61, 8),
        ("INT32", 7, 0, 5),
    ],
)
def test_sequences_of_integers_are_exact(
    kind: str, start: int, delta: int, count: int, tmp_path: Path
) -> None:
    got = values_of(tmp_path, kind, sequence(count, start, delta))
    assert got.tolist() == [start + delta * i for i in range(count)]


def test_numbers_of_float16_are_rounded_by_way_of_float32(tmp_path: Path) -> None:
    """1 + 2^-11 + 2^-30 is 1 + 2^-11 in FLOAT32, a tie of FLOAT16, which goes to the even 1."""
    number = 1 + 2**-11 + 2**-30
    assert np.float16(number) == 1 + 2**-10
    assert values_of(tmp_path, "FLOAT16", [number]).tolist() == [1]
    assert values_of(tmp_path, "FLOAT16", {"valueCount": 2, "value": number}).tolist() == [1, 1]


def test_long_lists_keep_every_number(tmp_path: Path) -> None:
    whole = [-(2**63), 2**63 - 1, 0, *range(1000)]
    assert values_of(tmp_path, "INT64", whole).tolist() == whole
    mixed = [0.1, 3, -7.5, 2**60, 1e300, *range(1000)]
    assert values_of(tmp_path, "FLOAT64", mixed).tolist() == mixed
    assert values_of(tmp_path, "INT16", [2.0, 3]).tolist() == [2, 3]


def test_hundreds_of_millions_of_elements_take_no_python_objects(tmp_path: Path) -> None:
    """400 million UINT8 as a list of Python's integers took 11.6 s and 3 GB."""
    start = time.process_time()
    got = values_of(tmp_path, "UINT8", sequence(400_000_000, 7, 0))
    assert time.process_time() - start < 3
    assert got.nbytes == 400_000_000
    assert (got[0], got[-1]) == (7, 7)


def test_a_buffer_over_what_is_free_is_refused_with_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_run, "free_bytes", lambda: 3 << 20)
    kinds = {
        "first": resource("UINT8", [1], sizeInBytes=1 << 20),
        "constant": resource("FLOAT32", {"valueCount": 4294967295, "value": 1}),
    }
    model = {"resources": kinds, "dispatchables": {}, "commands": []}
    path = written(tmp_path, model)
    with pytest.raises(ModelError) as caught:
        run_model(load_model(path), get_device("cpu"))
    assert str(caught.value) == (
        "resources.constant is a buffer of 16.0 GiB, must be at most 2.0 MiB, the free memory next to "
        "1.0 MiB of other buffers"
    )


def test_a_short_model_of_long_sequences_ends_with_the_size_that_was_asked_for(tmp_path: Path) -> None:
    """In a process with little memory: nothing of the sequence may be made before it is refused."""
    long = resource("INT64", sequence(4294967295, 0, 1))
    model = {"resources": {"long": long}, "dispatchables": {}, "commands": []}
    command = ["-m", "cudml", "dispatch", str(written(tmp_path, model)), "--device", "cpu"]
    limited = f'ulimit -v {3 << 20}; exec "$@"'  # in KiB
    done = subprocess.run(
        ["/bin/sh", "-c", limited, "sh", sys.executable, *command],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 2
    assert "cudml: resources.long is a buffer of 32.0 GiB, must be at most " in done.stderr
    assert "the free memory" in done.stderr


def test_a_file_over_what_is_free_is_refused_with_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "a.bin").open("wb") as file:
        file.truncate(3 << 20)
    monkeypatch.setattr(dispatch_values, "free_bytes", lambda: 2 << 20)
    with pytest.raises(ModelError, match=r"is a file of 3\.0 MiB, must be at most 2\.0 MiB, the free mem"):
        values_of(tmp_path, "INT8", {"sourcePath": "a.bin"})


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1180591620717411303424,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 'a', }",
        "{'descr': [], 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': ('f4', (2**40,)), 'fortran_order': False, 'shape': (1,), }",
        "((((" * 50,
    ],
)
def test_a_file_whose_header_lies_is_refused(header: str, tmp_path: Path) -> None:
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(64)
    (tmp_path / "a.npy").write_bytes(data)
    with pytest.raises(
        ModelError, match=r"sourcePath is .*, must be a file (that NumPy can read|of a dtype)"
    ):
        values_of(tmp_path, None, {"sourcePath": "a.npy"})


def test_an_archive_of_arrays_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.zeros(3))
    (tmp_path / "a.npz").rename(tmp_path / "a.npy")
    with pytest.raises(ModelError, match=r"sourcePath is 'a\.npy', must be a file that NumPy can read"):
        values_of(tmp_path, None, {"sourcePath": "a.npy"})
