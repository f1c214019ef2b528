"""Run an ONNX model: some nodes by cudml, the stretches between them by ONNX Runtime, in the same memory."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from google.protobuf.message import DecodeError

from cudml.errors import a_type
from cudml.onnx.cut import DOMAINS, Stretch, constants_of, cut, label
from cudml.onnx.nodes import HOST_INPUTS, OPS, Runner, runner_of, why_not
from cudml.onnx.values import CPU, CUDA, ORT_ERRORS, Gpu, array_of, ort_value, type_named

_DEFAULT_OPS = ("GRU", "TopK", "ReverseSequence")

#: The kinds of NumPy arrays that are strings in ONNX.
_TEXT = "OUS"


class Placed(NamedTuple):
    """Where a node of `ops` runs, and the reason if that is not cudml."""

    node: str
    op: str
    runs_on: str
    reason: str = ""


@dataclass
class _Own:
    """A node that cudml runs."""

    node: onnx.NodeProto
    run: Runner

    def __str__(self) -> str:
        return f"{label(self.node)} by cudml"


@dataclass
class _Part:
    """A stretch that ONNX Runtime runs."""

    stretch: Stretch
    session: onnxruntime.InferenceSession

    def __str__(self) -> str:
        return f"{len(self.stretch.nodes)} nodes by ONNX Runtime"


class Session:
    """An ONNX model, ready to run.

    Parameters
    ----------
    path : path-like, file or onnx.ModelProto
        The model.
    ops : sequence of str
        The operators that cudml runs, of "GRU", "TopK", "ReverseSequence" and "Slice". Nodes inside the
        bodies of If, Loop and Scan stay with ONNX Runtime, as do those of strings and a GRU of float64.
    providers : sequence, optional
        ONNX Runtime's execution providers for the rest. If the first is CUDA's, cudml runs on the same GPU,
        else on the CPU. None is CUDA's, if ONNX Runtime has it, then the CPU's.
    stream : CuPy stream, optional
        Orders the work of both on a GPU; None makes one.

    Attributes
    ----------
    placed : list of Placed
        Every node of `ops`: its name, its operator, "cudml" or "ONNX Runtime", and why.
    inputs, outputs : dict
        Name -> (element type, shape) as the model declares them; sizes are numbers, names or None.

    Raises
    ------
    ValueError
        Not an ONNX model or one that ONNX Runtime does not take, an unknown operator in `ops`, a GRU with an
        unknown activation or a clip that is not above 0, or a provider that ONNX Runtime does not have.
    OSError
        The file cannot be read.

    Examples
    --------
    >>> import numpy as np, onnx, cudml.onnx
    >>> model = onnx.parser.parse_model(\"\"\"<ir_version: 10, opset_import: ["" : 21]>
    ... best (float[N] scores) => (float[2] values, int64[2] places)
    ... { k = Constant<value_ints = [2]>()  values, places = TopK(scores, k) }\"\"\")
    >>> session = cudml.onnx.Session(model)
    >>> session.run({"scores": np.array([1, 5, 2], np.float32)})["places"]
    array([1, 2])

    Notes
    -----
    TopK breaks ties by the lower index and ranks NaN above every number. Not thread-safe.
    """

    def __init__(
        self,
        path: Any,
        *,
        ops: Sequence[str] = _DEFAULT_OPS,
        providers: Sequence[Any] | None = None,
        stream: Any = None,
    ) -> None:
        self._check_names("ops", ops, OPS)
        self._providers = _checked_providers(providers)
        self._gpu = Gpu.of(self._providers, stream)
        model = _load(path)
        graph = model.graph
        self.inputs = {
            value.name: _declared(value)
            for value in graph.input
            if value.name not in {tensor.name for tensor in graph.initializer}
        }
        # Comparing dtypes takes a tenth of the time of comparing their names.
        self._dtypes = {name: kind and np.dtype(kind) for name, (kind, _) in self.inputs.items()}
        self.outputs = {value.name: _declared(value) for value in graph.output}
        self.placed: list[Placed] = []
        self._constants: dict[str, Any] = {tensor.name: tensor for tensor in constants_of(graph)}
        self._steps = self._make_steps(model, ops)
        self._held: dict[str, Any] = {}

    def run(
        self,
        feeds: Mapping[str, Any],
        outputs: Sequence[str] | None = None,
        *,
        carry: Mapping[str, str] | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> dict[str, Any]:
        """Run the model once.

        Parameters
        ----------
        feeds : mapping of str to array
            The inputs by name: NumPy arrays, or on a GPU CuPy arrays too. Inputs carried from the call before
            may be left out.
        outputs : sequence of str, optional
            The outputs to return; None is all.
        carry : mapping of str to str, optional
            Output -> the input that it is in the next call, without a copy: the state of a streaming model.
        progress : callable, optional
            Receives a line about the next step.

        Returns
        -------
        dict
            Name -> array: NumPy's, or CuPy's on a GPU.

        Raises
        ------
        ValueError
            An unknown or missing input, an unknown output, or a shape other than declared.
        TypeError
            An array of another type than declared.
        RuntimeError
            ONNX Runtime fails; the message has its reason.
        """
        if type(feeds) is not dict and not isinstance(feeds, Mapping):
            raise TypeError(f"Session: feeds is {a_type(feeds)}, must be a mapping of names to arrays")
        carry = carry or {}
        wanted = self.outputs if outputs is None else outputs
        self._check_names("outputs", wanted, self.outputs)
        self._check_names("carry", carry.keys(), self.outputs)
        self._check_names("carry", carry.values(), self.inputs)
        self._check_names("feeds", feeds, self.inputs)
        values: dict[str, Any] = {**self._held, **feeds}
        missing = [name for name in self.inputs if name not in values]
        if missing:
            raise ValueError(f"Session: feeds lacks {', '.join(missing)}")
        for name, array in feeds.items():
            values[name] = self._checked_feed(name, array)
        for number, step in enumerate(self._steps, 1):
            if progress is not None:
                progress(f"{number} of {len(self._steps)}: {step}")
            if isinstance(step, _Part):
                self._run_part(step, values)
            else:
                self._run_own(step, values)
        results = {name: self._array(values, name) for name in {*wanted, *carry}}
        self._held = {to: results[name] for name, to in carry.items()}
        return {name: results[name] for name in wanted}

    def _make_steps(self, model: onnx.ModelProto, ops: Sequence[str]) -> list[_Own | _Part]:
        opset = next((row.version for row in model.opset_import if row.domain in DOMAINS), 1)
        wanted = [node for node in model.graph.node if node.domain in DOMAINS and node.op_type in ops]
        try:
            runners = {_key(node): runner_of(node, opset) for node in wanted}
        except ValueError as error:
            raise ValueError(f"Session: {error}") from None
        reasons: dict[str, str] = {}
        steps = self._steps_with(model, runners, reasons)
        for node in wanted:
            reason = reasons.get(_key(node), "")
            runs_on = "ONNX Runtime" if reason else "cudml"
            self.placed.append(Placed(label(node), node.op_type, runs_on, reason))
        return steps

    def _steps_with(
        self, model: onnx.ModelProto, runners: dict[str, Runner], reasons: dict[str, str]
    ) -> list[_Own | _Part]:
        """The steps, with cudml's runners by node; those it cannot use move to `reasons`."""
        types = {value.name: value.type for value in model.graph.input}
        for name, tensor in self._constants.items():
            types[name] = onnx.helper.make_tensor_type_proto(tensor.data_type, None)
        steps: list[_Own | _Part] = []
        for step in cut(model.graph, self._constants, lambda node: _key(node) in runners):
            if isinstance(step, Stretch):
                session = self._session_of(model, step, types)
                steps.append(_Part(step, session))
                types |= {output.name: type_named(output.type) for output in session.get_outputs()}
            else:
                kind = types[step.input[0]].tensor_type.elem_type
                if (reason := why_not(step.op_type, kind)) is not None:
                    del runners[_key(step)]
                    reasons[_key(step)] = reason
                    return self._steps_with(model, runners, reasons)
                steps.append(_Own(step, runners[_key(step)]))
                types |= dict.fromkeys(step.output, onnx.helper.make_tensor_type_proto(kind, None))
                if step.op_type == "TopK":
                    types[step.output[1]] = type_named("tensor(int64)")
        return steps

    def _session_of(
        self, model: onnx.ModelProto, stretch: Stretch, types: Mapping[str, onnx.TypeProto]
    ) -> onnxruntime.InferenceSession:
        constants = [self._constants[name] for name in stretch.inputs if name in self._constants]
        stretch.inputs = tuple(name for name in stretch.inputs if name not in self._constants)
        part = onnx.ModelProto()
        part.CopyFrom(model)
        part.graph.Clear()
        part.graph.name = model.graph.name or "stretch"
        part.graph.node.extend(stretch.nodes)
        part.graph.initializer.extend(constants)
        for name in stretch.inputs:
            part.graph.input.append(onnx.ValueInfoProto(name=name, type=types[name]))
        part.graph.output.extend(onnx.ValueInfoProto(name=name) for name in stretch.outputs)
        try:
            return onnxruntime.InferenceSession(part.SerializeToString(), providers=list(self._providers))
        except ORT_ERRORS as error:
            raise ValueError(f"Session: ONNX Runtime does not take the model: {error}") from error

    def _run_part(self, part: _Part, values: dict[str, Any]) -> None:
        inputs = {name: values[name] for name in part.stretch.inputs}
        if any(isinstance(value, np.ndarray) and value.dtype.kind in _TEXT for value in inputs.values()):
            # Strings cannot be bound: everything is copied.
            feeds = {name: self._array(values, name, is_on_host=True) for name in inputs}
            values.update(
                zip(part.stretch.outputs, part.session.run(part.stretch.outputs, feeds), strict=True)
            )
            return
        binding = part.session.io_binding()
        for name, value in inputs.items():
            binding.bind_ortvalue_input(name, ort_value(value))
        for name in part.stretch.outputs:
            binding.bind_output(name, *(("cuda", self._gpu.number) if self._gpu else ("cpu",)))
        part.session.run_with_iobinding(binding)
        values.update(zip(part.stretch.outputs, binding.get_outputs(), strict=True))

    def _run_own(self, own: _Own, values: dict[str, Any]) -> None:
        host = HOST_INPUTS.get(own.node.op_type, ())
        inputs = [
            None if not name else self._array(values, name, is_on_host=position in host)
            for position, name in enumerate(own.node.input)
        ]
        results = own.run(inputs, self._gpu.stream if self._gpu else None)
        values.update((name, result) for name, result in zip(own.node.output, results, strict=False) if name)

    def _array(self, values: dict[str, Any], name: str, *, is_on_host: bool = False) -> Any:
        """A value as an array, where it is; NumPy's constants and feeds go to the GPU if there is one."""
        if name not in values:
            values[name] = self._constants[name]
        value = values[name]
        if isinstance(value, onnx.TensorProto):
            value = onnx.numpy_helper.to_array(value)
            self._constants[name] = value
        elif isinstance(value, onnxruntime.OrtValue):
            value = array_of(value)
        if is_on_host:
            return value if isinstance(value, np.ndarray) else value.get()
        if self._gpu and isinstance(value, np.ndarray) and value.dtype.kind not in _TEXT:
            value = self._gpu.cupy.asarray(value)
        values[name] = value
        return value

    def _checked_feed(self, name: str, array: Any) -> Any:
        kind, shape = self.inputs[name]
        array = array if hasattr(array, "dtype") else np.asarray(array)
        if array.dtype != self._dtypes[name] and kind is not None and array.dtype.kind not in _TEXT:
            raise TypeError(f"Session: input {name} is of dtype {array.dtype}, must be of {kind}")
        if shape is not None and not _fits(array.shape, shape):
            raise ValueError(f"Session: input {name} is of shape {tuple(array.shape)}, must be of {shape}")
        return array

    @staticmethod
    def _check_names(argument: str, names: Collection[str], known: Collection[str]) -> None:
        if isinstance(names, str):
            raise TypeError(f"Session: {argument} is {names!r}, must be a collection of names")
        unknown = sorted(map(str, set(names) - set(known)))
        if unknown:
            raise ValueError(f"Session: {argument} has {', '.join(unknown)}, must be of {', '.join(known)}")


def _key(node: onnx.NodeProto) -> str:
    """What no other node has."""
    return str(next(filter(None, node.output), ""))


def _load(path: Any) -> onnx.ModelProto:
    if isinstance(path, onnx.ModelProto):
        return path
    if isinstance(path, (bytes, bytearray)):
        raise TypeError(f"Session: path is {a_type(path)}, must be a path, a file or an onnx.ModelProto")
    try:
        model = onnx.load(path)
    except DecodeError as error:
        raise ValueError(f"Session: {path} is not an ONNX model: {error}") from error
    if not model.graph.node and not model.graph.output:
        raise ValueError(f"Session: {path} is not an ONNX model: it has no graph")
    return model


def _checked_providers(providers: Sequence[Any] | None) -> list[Any]:
    available = onnxruntime.get_available_providers()
    if providers is None:
        return [name for name in (CUDA, CPU) if name in available]
    if isinstance(providers, str):
        raise TypeError(f"Session: providers is {providers!r}, must be a sequence of providers")
    names = [provider if isinstance(provider, str) else provider[0] for provider in providers]
    unknown = [name for name in names if name not in available]
    if unknown or not names:
        got = ", ".join(unknown) or "none"
        raise ValueError(f"Session: providers has {got}, ONNX Runtime has {', '.join(available)}")
    return list(providers)


def _fits(shape: Sequence[int], declared: Sequence[int | str | None]) -> bool:
    """Whether an array's shape has the declared sizes where these are numbers."""
    if len(shape) != len(declared):
        return False
    for size, wanted in zip(shape, declared, strict=True):
        if size != wanted and isinstance(wanted, int):
            return False
    return True


def _declared(value: onnx.ValueInfoProto) -> tuple[str | None, tuple[int | str | None, ...] | None]:
    """The NumPy name of the element type and the shape; None for what is not declared."""
    if not value.type.HasField("tensor_type"):
        return None, None
    tensor = value.type.tensor_type
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name if tensor.elem_type else None
    if not tensor.HasField("shape"):
        return kind, None
    return kind, tuple(
        size.dim_value if size.HasField("dim_value") else size.dim_param or None for size in tensor.shape.dim
    )
