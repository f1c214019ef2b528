"""ONNX Runtime itself, and ONNX's own node tests of the four operators, as classes that pytest collects."""

import importlib
from typing import Any
from unittest import mock

import numpy as np
import onnx.backend.base
import onnx.backend.test
import onnxruntime

_CASES = "onnx.backend.test.case.node"

#: Number of node tests on one device.
NUM_NODE_TESTS = 24

PROVIDERS = ["CPUExecutionProvider"]


def node_tests(backend: type[onnx.backend.base.Backend], module: str) -> dict[str, type]:
    """The test classes by name; without the thousands of tests that the suite would skip."""
    for name in ("topk", "gru", "slice", "reversesequence"):
        importlib.import_module(f"{_CASES}.{name}")
    # The suite would import all other cases, whose expected outputs take ten seconds to compute.
    with mock.patch("onnx.backend.test.loader.import_recursive"):
        suite = onnx.backend.test.BackendTest(backend, module)
    suite.include(r"^test_(top_k|gru|slice|reversesequence)(_[a-z0-9_]+)?_(cpu|cuda)$")
    found = {}
    for name, case in suite.test_cases.items():
        kept: dict[str, Any] = {
            test: function
            for test, function in vars(case).items()
            if test.startswith("test_") and not getattr(function, "__unittest_skip__", False)
        }
        if kept:
            found[name] = type(name, case.__bases__, {**kept, "__module__": module})
    return found


def num_tests(cases: dict[str, type], device: str) -> int:
    """How many of the tests run on a device."""
    return sum(name.endswith(f"_{device}") for case in cases.values() for name in vars(case))


def by_onnxruntime(model: Any, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    return onnxruntime.InferenceSession(source, providers=PROVIDERS).run(None, feeds)
