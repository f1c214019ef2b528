"""Inputs and outputs that are bound to memory before a call, as ONNX Runtime's `IOBinding` has them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import OrtValueVector

from cudml.errors import a_type
from cudml.onnx.values import Gpu, InputTypeError, InputValueError, array_of, bound_array, owned_value

if TYPE_CHECKING:
    from cudml.onnx.session import Session


@dataclass
class _Target:
    """Where an output goes: to an existing array, or to a new one on the CPU or the GPU."""

    on_host: bool
    array: Any = None
    value: onnxruntime.OrtValue | None = None


class IOBinding:
    """The inputs and outputs of a call, bound to memory; `Session.io_binding` makes it.

    Has the methods of `onnxruntime.IOBinding`. A binding can be run many times, and reads its inputs anew.
    """

    def __init__(self, session: "Session") -> None:
        self.session = session
        self.inputs: dict[str, Any] = {}
        self._gpu: Gpu | None = session._gpu
        self._targets: dict[str, _Target] = {}
        self._results: list[Any] = []

    @property
    def outputs(self) -> list[str]:
        """The names of the bound outputs."""
        return [*self._targets]

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Bind an input to a NumPy array."""
        self.inputs[name] = self.session._checked_feed(name, arr_on_cpu)

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Any, buffer_ptr: int
    ) -> None:
        """Bind an input to the memory at an address, which must stay valid while the binding is used."""
        array = self._array(name, device_type, device_id, element_type, shape, buffer_ptr)
        self.inputs[name] = self.session._checked_feed(name, array)

    def bind_ortvalue_input(self, name: str, ortvalue: onnxruntime.OrtValue) -> None:
        """Bind an input to an `onnxruntime.OrtValue`."""
        if not isinstance(ortvalue, onnxruntime.OrtValue):
            raise TypeError(f"Session: ortvalue is {a_type(ortvalue)}, must be an onnxruntime.OrtValue")
        self.inputs[name] = self.session._checked_feed(name, ortvalue)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Any = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Bind an output to the memory at an address, or to a new array on a device."""
        self.session._check_output(name)
        on_host = self._is_on_host(name, device_type, device_id)
        if buffer_ptr is None:
            self._targets[name] = _Target(on_host)
            return
        if element_type is None or shape is None:
            raise ValueError(
                f"Session: buffer_ptr of output {name} is given, must be with element_type and shape"
            )
        array = self._array(name, device_type, device_id, element_type, shape, buffer_ptr)
        self._targets[name] = _Target(on_host, array)

    def bind_ortvalue_output(self, name: str, ortvalue: onnxruntime.OrtValue) -> None:
        """Bind an output to an `onnxruntime.OrtValue`, which is written."""
        self.session._check_output(name)
        if not isinstance(ortvalue, onnxruntime.OrtValue):
            raise TypeError(f"Session: ortvalue is {a_type(ortvalue)}, must be an onnxruntime.OrtValue")
        on_host = self._is_on_host(name, ortvalue.device_name(), None)
        kind, shape, place = ortvalue.element_type(), ortvalue.shape(), ortvalue.data_ptr()
        device = ("cpu", 0) if on_host or not self._gpu else ("cuda", self._gpu.number)
        self._targets[name] = _Target(on_host, self._array(name, *device, kind, shape, place), ortvalue)

    def get_outputs(self) -> list[onnxruntime.OrtValue]:
        """The outputs of the last run, in the order in which they were bound."""
        for name, value in zip(self._targets, self._results, strict=False):
            if isinstance(value, (list, dict)):
                raise TypeError(
                    f"Session: output {name} is {a_type(value)}, must be read by copy_outputs_to_cpu"
                )
        return [owned_value(value) for value in self._results]

    def get_outputs_as_ortvaluevector(self) -> Any:
        """The outputs of the last run as ONNX Runtime's own list of values."""
        values = OrtValueVector()
        for value in self.get_outputs():
            values.push_back(value._ortvalue)
        return values

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs of the last run as NumPy arrays, in the order in which they were bound."""
        found = zip(self._targets.items(), map(self.session._on_host, self._results), strict=False)
        # Arrays in bound memory, or kept for the next run, are not the caller's.
        return [
            np.array(value) if isinstance(value, np.ndarray) and self._is_shared(name, target) else value
            for (name, target), value in found
        ]

    def _is_shared(self, name: str, target: _Target) -> bool:
        return target.array is not None or name in self.session._kept

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self.inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self._targets.clear()
        self._results.clear()

    def synchronize_inputs(self) -> None:
        """Wait until the work queued for the inputs is done."""
        if self._gpu:
            self._gpu.wait_for_caller()
            self._gpu.stream.synchronize()

    def synchronize_outputs(self) -> None:
        """Wait until the outputs are computed."""
        if self._gpu:
            self._gpu.stream.synchronize()

    def take(self, values: Mapping[str, Any]) -> None:
        """Take the outputs of a run."""
        self._results = [self._taken(name, target, values[name]) for name, target in self._targets.items()]

    def _taken(self, name: str, target: _Target, value: Any) -> Any:
        if target.array is None:
            if target.on_host or not self._gpu:
                return self.session._on_host(value)
            return self._gpu.put(value) if isinstance(value, np.ndarray) else value
        array = array_of(value) if isinstance(value, onnxruntime.OrtValue) else value
        bound = target.array
        if (array.dtype, array.shape) != (bound.dtype, bound.shape):
            raise InputValueError(
                f"Session: output {name} is {array.dtype} of shape {tuple(array.shape)}, must be bound to "
                f"such memory, is bound to {bound.dtype} of shape {tuple(bound.shape)}"
            )
        if self._gpu:
            self._gpu.copy(bound, self._gpu.put(array) if isinstance(array, np.ndarray) else array)
        else:
            np.copyto(bound, array)
        return bound if target.value is None else target.value

    def _array(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Any, at: int
    ) -> Any:
        is_number = isinstance(element_type, int)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(element_type) if is_number else np.dtype(element_type)
        return bound_array(
            at, shape, dtype, None if self._is_on_host(name, device_type, device_id) else self._gpu
        )

    def _is_on_host(self, name: str, device_type: str, device_id: int | None) -> bool:
        if device_type.lower() == "cpu":
            return True
        number = self._gpu.number if self._gpu else None
        if device_type.lower() == "cuda" and self._gpu and device_id in (None, number):
            return False
        has = "cpu" if number is None else f"cpu or cuda with device_id {number}"
        given = device_type if device_id is None else f"{device_type} with device_id {device_id}"
        raise InputTypeError(
            f"Session: device_type of {name} is {given}, must be {has}: where the first of providers runs"
        )
