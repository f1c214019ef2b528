"""Recorded operator calls of ONNX Runtime's and ONNX's own tests, if their folder is present.

Every record belongs to one of the groups of `group_of`, and `test_every_record_has_its_test` pins the size
of each group, so that no record goes missing unnoticed.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cudml.devices import Device
from tests.support import assert_identical
from tests.support.onnx_adapter import Call, run_array_function, run_descriptor

VECTORS = Path(__file__).resolve().parents[2] / "../shared/conformance"

pytestmark = pytest.mark.skipif(not VECTORS.is_dir(), reason="recorded vectors are not beside the checkout")

#: ONNX Runtime's own bounds for float32 (its checkers.cc), and ONNX's default bounds for node tests.
TOLERANCES = {"ort_unique": {"atol": 1e-5, "rtol": 1e-4}, "onnx_node": {"atol": 1e-7, "rtol": 1e-3}}

#: Calls that ONNX Runtime refuses by a rule of ONNX that has no counterpart here: which axes may be
#: named (three), the shape of its 1-D lengths, and axes of Slice named twice or out of range.
ONNX_RULES = (
    "Invalid batch_axis",
    "Invalid time_axis",
    "time_axis and batch_axis",
    "sequence_lens shape",
    "'axes' has duplicates",
    "axis outside of the tensor",
)


def _read(name: str) -> list[dict[str, Any]]:
    path = VECTORS / f"{name}.jsonl"
    lines = path.read_text().splitlines() if path.is_file() else []
    return [json.loads(line) | {"file": name, "line": i} for i, line in enumerate(lines, 1)]


def group_of(record: dict[str, Any]) -> str:
    """How a record is tested."""
    tags = set(record.get("tags", ()))
    dtype = record["inputs"][0]["dtype"]
    if dtype == "string":
        return "string"
    if "k=0" in tags:
        return "k of 0"
    if "error-case" in tags:
        is_onnx_rule = record["error"].startswith(ONNX_RULES)
        return "rule of ONNX" if is_onnx_rule else "length out of range"
    if any(0 in tensor["shape"] for tensor in record["outputs"] if tensor):
        return "empty"
    if "negative-step" in tags or record["test"] == "test_slice_neg_steps":
        return "SLICE1"
    return "array function" if dtype in ("bfloat16", *_ARRAY_ONLY.get(record["op"], ())) else "descriptor"


#: Types that only the array function of an operator takes.
_ARRAY_ONLY = {"TopK": ("float64",)}

RECORDS = _read("ort_unique") + _read("onnx_node")


def in_group(*groups: str) -> Any:
    """Parametrize a test with the records of some groups."""
    records = [record for record in RECORDS if group_of(record) in groups]
    names = [f"{record['test']}-{record['file']}:{record['line']}" for record in records]
    return pytest.mark.parametrize("record", records, ids=names)


def array_of(tensor: dict[str, Any] | None) -> np.ndarray | None:
    """A recorded tensor as an array."""
    if tensor is None:
        return None
    dtype = {"bfloat16": ml_dtypes.bfloat16, "string": object}.get(tensor["dtype"], tensor["dtype"])
    return np.array(tensor["data"], dtype=dtype).reshape(tensor["shape"])


def call_of(record: dict[str, Any]) -> Call:
    """A record as a call, its inputs and outputs in the slots of the operator."""
    inputs, outputs = record["inputs"], record["outputs"]
    if "node_inputs" in record:
        given, found = iter(inputs), iter(outputs)
        inputs = [next(given) if name else None for name in record["node_inputs"]]
        outputs = [next(found) if name else None for name in record["node_outputs"]]
    return Call(
        op=record["op"],
        opset=record["opset"],
        inputs=tuple(map(array_of, inputs)),
        attrs=record["attrs"],
        wanted=tuple(tensor is not None for tensor in outputs),
    )


def check(record: dict[str, Any], got: list[np.ndarray]) -> None:
    """Compare with the recorded results: bit by bit, except GRU, which has the recorder's own bounds."""
    expected = [array_of(tensor) for tensor in record["outputs"] if tensor is not None]
    if record["op"] == "GRU":
        for ours, theirs in zip(got, expected, strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, strict=True, **TOLERANCES[record["file"]])
    elif "order-free" in record.get("tags", ()):
        axis = record["attrs"].get("axis", -1)
        for ours, theirs in zip(by_index(*got, axis), by_index(*expected, axis), strict=True):
            assert_identical(ours, theirs)
    else:
        for ours, theirs in zip(got, expected, strict=True):
            assert_identical(ours, theirs)


def by_index(values: np.ndarray, indices: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Each lane's results in the order of their indices."""
    order = np.argsort(indices, axis=axis)
    return np.take_along_axis(values, order, axis), np.take_along_axis(indices, order, axis)


@in_group("descriptor", "SLICE1")
def test_descriptor(record: dict[str, Any], device: Device) -> None:
    check(record, run_descriptor(call_of(record), device))


@in_group("descriptor", "SLICE1", "empty", "array function")
def test_array_function(record: dict[str, Any], device: Device) -> None:
    check(record, run_array_function(call_of(record), device))


@in_group("k of 0")
def test_k_of_0_is_an_empty_result(record: dict[str, Any], device: Device) -> None:
    """ONNX Runtime refuses 0 below opset 10; from then on it returns empty tensors, as `cudml.top_k` does."""
    call = call_of(record)
    values, indices = run_array_function(call, device)
    shape = list(call.inputs[0].shape)
    shape[call.attrs.get("axis", -1)] = 0
    assert values.shape == indices.shape == tuple(shape)
    if record["expect"] != "fail":
        check(record, (values, indices))


@in_group("string")
def test_strings_are_refused(record: dict[str, Any], device: Device) -> None:
    if device.name != "cpu":
        pytest.skip("CuPy has no string arrays")
    with pytest.raises(TypeError, match="object"):
        run_array_function(call_of(record), device)


@in_group("length out of range")
def test_length_out_of_range_is_clamped(record: dict[str, Any], device: Device) -> None:
    """ONNX Runtime refuses such lengths. In DirectML, a longer one means the whole lane, a negative one 0."""
    call = call_of(record)
    x, lengths = call.inputs
    assert call.attrs == {"batch_axis": 0, "time_axis": 1}
    lengths = np.clip(lengths, 0, x.shape[1])
    expected = np.stack(
        [np.concatenate([lane[:n][::-1], lane[n:]]) for lane, n in zip(x, lengths, strict=True)]
    )
    assert_identical(run_array_function(call, device)[0], expected)


def test_every_record_has_its_test() -> None:
    assert Counter((record["file"], group_of(record)) for record in RECORDS) == {
        ("ort_unique", "descriptor"): 161,
        ("ort_unique", "SLICE1"): 14,
        ("ort_unique", "empty"): 17,
        ("ort_unique", "array function"): 51,
        ("ort_unique", "k of 0"): 6,
        ("ort_unique", "string"): 3,
        ("ort_unique", "length out of range"): 2,
        ("ort_unique", "rule of ONNX"): 6,
        ("onnx_node", "descriptor"): 21,
        ("onnx_node", "SLICE1"): 1,
        ("onnx_node", "empty"): 1,
        ("onnx_node", "array function"): 1,
    }
