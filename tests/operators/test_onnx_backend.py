"""ONNX's own node tests of the four operators, all 24 of them, through its backend interface."""

from typing import Any

import numpy as np
import onnx
import onnx.backend.base
import onnx.backend.test

from cudml.devices import Device, get_device
from cudml.devices.cuda import status
from tests.support.onnx_adapter import call_of_node, run_array_function, run_descriptor, slice_ranges

OPERATORS = ("TopK", "GRU", "Slice", "ReverseSequence")


class CudmlRep(onnx.backend.base.BackendRep):
    """A node made ready for a device."""

    def __init__(self, model: onnx.ModelProto, device: Device) -> None:
        self.model = model
        self.device = device

    def run(self, inputs: Any, **_: Any) -> tuple[np.ndarray, ...]:
        """The node's outputs that have a name, in order."""
        (node,) = self.model.graph.node
        call = call_of_node(node, self.model.opset_import[0].version, inputs)
        # No descriptor has a size of 0 or a type of ml_dtypes: these are the array function's to take.
        is_empty = call.op == "Slice" and not all(map(len, slice_ranges(call)))
        is_extended = call.inputs[0].dtype.kind == "V"
        return tuple((run_array_function if is_empty or is_extended else run_descriptor)(call, self.device))


class CudmlBackend(onnx.backend.base.Backend):
    """Models of one node of one of the four operators."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> bool:
        return len(model.graph.node) == 1 and model.graph.node[0].op_type in OPERATORS

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> CudmlRep:
        super().prepare(model, device, **kwargs)
        return CudmlRep(model, get_device("cuda" if device.startswith("CUDA") else "cpu"))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.startswith("CPU") or status().usable


_tests = onnx.backend.test.BackendTest(CudmlBackend, __name__)
_tests.include(r"^test_(top_k|gru|slice|reversesequence)(_[a-z0-9_]+)?_(cpu|cuda)$")
# Only what runs becomes a test here: the suite has thousands that are skipped for other operators.
for _name, _case in _tests.test_cases.items():
    _kept = {
        name: function
        for name, function in vars(_case).items()
        if name.startswith("test_") and not getattr(function, "__unittest_skip__", False)
    }
    if _kept:
        globals()[_name] = type(_name, _case.__bases__, {**_kept, "__module__": __name__})
del _case, _kept


def test_the_suite_is_whole() -> None:
    """All of ONNX's single-node tests of the operators, on each device that is there."""
    found = [
        name
        for case in globals().values()
        if isinstance(case, type) and case.__module__ == __name__
        for name in vars(case)
        if name.startswith("test_")
    ]
    assert sum(name.endswith("_cpu") for name in found) >= 24
    assert sum(name.endswith("_cuda") for name in found) >= (24 if status().usable else 0)
