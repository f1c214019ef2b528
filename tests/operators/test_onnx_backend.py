"""ONNX's own node tests of the four operators, all 24 of them, through its backend interface."""

from typing import Any

import numpy as np
import onnx
import onnx.backend.base

from cudml.devices import Device, get_device
from cudml.devices.cuda import status
from tests.support.onnx_adapter import call_of_node, run_array_function, run_descriptor, slice_ranges
from tests.support.onnx_suite import NUM_NODE_TESTS, node_tests, num_tests

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
        # No descriptor has a size of 0 or a type of ml_dtypes: the array function takes those calls.
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


NODE_TESTS = node_tests(CudmlBackend, __name__)
globals().update(NODE_TESTS)


def test_the_suite_is_whole() -> None:
    """All of ONNX's single-node tests of the operators, on each device that is there."""
    assert num_tests(NODE_TESTS, "cpu") >= NUM_NODE_TESTS
    assert num_tests(NODE_TESTS, "cuda") >= (NUM_NODE_TESTS if status().usable else 0)
