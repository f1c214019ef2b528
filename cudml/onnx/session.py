"""Run an ONNX model: some nodes by cudml, the stretches between them by ONNX Runtime, in the same memory."""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime

from cudml.errors import a_type
from cudml.onnx.binding import IOBinding
from cudml.onnx.cut import DOMAINS, Stretch, check_names, constants_of, cut, key, label
from cudml.onnx.loading import (
    Placed,
    changed,
    checked_providers,
    loaded,
    overridden,
    placed_inside,
    without_weights,
)
from cudml.onnx.nodes import OPS, Runner, check_types, host_inputs, runner_of, why_not
from cudml.onnx.profiling import Profile
from cudml.onnx.stacks import Stack, stacked
from cudml.onnx.values import (
    ORT_ERRORS,
    Gpu,
    InputTypeError,
    InputValueError,
    NodeTypeError,
    NodeValueError,
    also_theirs,
    array_of,
    ort_value,
    type_name,
    type_named,
)

_DEFAULT_OPS = ("GRU", "TopK", "ReverseSequence")

#: The kinds of NumPy arrays that are strings in ONNX.
_TEXT = "OUS"

#: Members of `onnxruntime.InferenceSession` that `Session` lacks, and what to use instead.
_INSTEAD = {
    "enable_fallback": "a Session never runs again with other providers: give those that it may use",
    "run_with_ortvaluevector": "call run_with_ort_values",
    "create_ortvalue_from_shape_and_type": "call onnxruntime.OrtValue.ortvalue_from_shape_and_type",
}


#: Sizes: numbers, names, or None for an undeclared one.
_Shape = tuple[int | str | None, ...]


class NodeArg(NamedTuple):
    """An input or output as the model declares it: its name, ONNX Runtime's name of its type, its shape."""

    name: str
    type: str
    shape: list[int | str | None]


class ModelMetadata(NamedTuple):
    """What a model says of itself, with the names of `onnxruntime.ModelMetadata`."""

    custom_metadata_map: dict[str, str]
    description: str
    domain: str
    graph_description: str
    graph_name: str
    producer_name: str
    version: int


@dataclass
class _Own:
    """A node that cudml runs, or the node in place of a stack."""

    node: onnx.NodeProto
    run: Runner
    #: The positions of the inputs that it takes on the host.
    host: Sequence[int]
    #: The names of the inputs, each with whether it is taken on the host, and of the outputs. A call takes
    #: twice as long if it reads them from the node.
    inputs: list[tuple[str, bool]] = field(init=False)
    outputs: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.inputs = [(name, position in self.host) for position, name in enumerate(self.node.input)]
        self.outputs = list(self.node.output)

    def __str__(self) -> str:
        return f"{label(self.node)} by cudml"


@dataclass
class _Part:
    """A stretch that ONNX Runtime runs."""

    stretch: Stretch
    session: onnxruntime.InferenceSession
    is_copied: bool = field(init=False)

    def __post_init__(self) -> None:
        """Find out whether a value cannot be bound: input strings, and values that are not tensors."""
        kinds = [value.type for value in self.session.get_inputs()]
        others = [*kinds, *(value.type for value in self.session.get_outputs())]
        self.is_copied = "tensor(string)" in kinds or not all(kind.startswith("tensor(") for kind in others)

    def __str__(self) -> str:
        return f"{len(self.stretch.nodes)} nodes by ONNX Runtime"


class Session:
    """An ONNX model, ready to run: `onnxruntime.InferenceSession` with some nodes run by cudml.

    Parameters
    ----------
    path_or_bytes : path-like, bytes, file or onnx.ModelProto
        The model. Its own functions are inlined.
    sess_options : onnxruntime.SessionOptions, optional
        How ONNX Runtime runs its part.
    providers : sequence, optional
        ONNX Runtime's execution providers for its part, as names or pairs (name, options). If the first is
        CUDA's, cudml runs on the same GPU, else on the CPU. Those that this build of ONNX Runtime lacks are
        left out, with a warning. None or an empty sequence: CUDA's, if ONNX Runtime has it, then the CPU's.
    provider_options : sequence of dict, optional
        The options of each of `providers`, which are then names.
    ops : sequence of str
        The operators that cudml runs, of "GRU", "TopK", "ReverseSequence" and "Slice". Nodes inside the
        bodies of If, Loop and Scan stay with ONNX Runtime, as do nodes of strings and a GRU of float64 (which
        ONNX Runtime computes on a GPU and not on a CPU).
    stream : CuPy stream, optional
        Orders the work of cudml and ONNX Runtime on a GPU; None makes a stream. It waits for the work on the
        caller's current stream, which waits for the results.
    disabled_optimizers : sequence of str, optional
        The optimizers that ONNX Runtime leaves out of its part.
    enable_fallback : bool
        Accepted for compatibility: a session never runs again with other providers.

    Attributes
    ----------
    placed : list of Placed
        Every node of `ops`: its name, its operator, "cudml" or "ONNX Runtime", and why, or the nodes that it
        is one step with.
    inputs, outputs : dict
        Name -> (element type, shape) as the model declares them; sizes are numbers, names or None.

    Raises
    ------
    ValueError
        Not an ONNX model or one that ONNX Runtime does not take, a node of `ops` with inputs or attributes
        that ONNX does not allow, an unknown operator in `ops`, or an unknown provider.
    OSError
        The file cannot be read.
    DeviceError
        The first provider is CUDA's, and CuPy is not installed.

    Examples
    --------
    >>> import numpy as np, onnx, cudml.onnx
    >>> model = onnx.parser.parse_model(\"\"\"<ir_version: 10, opset_import: ["" : 21]>
    ... best (float[N] scores) => (float[2] values, int64[2] places)
    ... { k = Constant<value_ints = [2]>()  values, places = TopK(scores, k) }\"\"\")
    >>> session = cudml.onnx.Session(model.SerializeToString())
    >>> session.run(["places"], {"scores": np.array([1, 5, 2], np.float32)})
    [array([1, 2])]

    Notes
    -----
    TopK breaks ties by the lower index and ranks NaN above every number. Activations of GRU whose alpha or
    beta is left out have the defaults of ONNX's operators: alpha is 1 for ThresholdedRelu and Affine, where
    ONNX Runtime takes 0. ScaledTanh has no defaults and needs both. GRU nodes on top of each other are one
    step, on a GPU a call of `cudml.gru_stack`, if each reads the node before it through Squeeze, or Transpose
    and Reshape, and nothing else reads that node. A wrong input raises a ValueError or a TypeError, a wrong
    file a FileNotFoundError or a ValueError; each is also ONNX Runtime's own error. Lengths of a GRU node
    that are above the number of steps or negative are cut, where ONNX Runtime refuses them. Several threads
    may call `run`; `carry` is for one thread. Source: `onnxruntime.InferenceSession`.
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Any] | None = None,
        *,
        ops: Sequence[str] = _DEFAULT_OPS,
        stream: Any = None,
        disabled_optimizers: Sequence[str] | None = None,
        enable_fallback: bool | int = False,
    ) -> None:
        del enable_fallback  # there is none
        if sess_options is not None and not isinstance(sess_options, onnxruntime.SessionOptions):
            kind = a_type(sess_options)
            raise TypeError(f"Session: sess_options is {kind}, must be an onnxruntime.SessionOptions or None")
        self._check_names("ops", ops, dict.fromkeys(OPS))
        self._sess_options = sess_options
        self._ops, self._stream, self._disabled = ops, stream, disabled_optimizers
        self._providers = checked_providers(providers, provider_options)
        self._gpu = Gpu.of(self._providers, stream)
        self._device = f"cuda:{self._gpu.number}" if self._gpu else "cpu"
        model = loaded(path_or_bytes, sess_options)
        # A file cannot be read again.
        self._source = model if hasattr(path_or_bytes, "read") else path_or_bytes
        self._sizes = overridden(sess_options, model)
        self._profile: Profile | None = None
        if sess_options is not None and sess_options.enable_profiling:
            self._profile = Profile(sess_options.profile_file_prefix)
        graph = model.graph
        self._metadata = _metadata_of(model)
        given = {tensor.name for tensor in graph.initializer}
        # Since version 4 of the format, an initializer of an input's name is a default that may be replaced.
        known = {value.name: value for value in graph.input}
        defaults = [t for t in graph.initializer if t.name in known and model.ir_version >= 4]
        self._defaults = {tensor.name: _default_of(tensor) for tensor in defaults}
        self.inputs = {name: self._declared(value) for name, value in known.items() if name not in given}
        self._feeds = self.inputs | {name: self._declared(known[name]) for name in self._defaults}
        # Comparing dtypes takes a tenth of the time of comparing their names.
        self._dtypes: dict[str, Any] = {
            name: kind and np.dtype(kind) for name, (kind, _) in self._feeds.items()
        }
        self.outputs = {value.name: self._declared(value) for value in graph.output}
        self.placed: list[Placed] = []
        self._constants: dict[str, Any] = {
            tensor.name: tensor for tensor in constants_of(graph) if tensor.name not in self._defaults
        }
        self._sparse = {tensor.values.name: tensor for tensor in graph.sparse_initializer}
        #: Outputs that no node makes anew: calls return copies of the arrays that are kept or were given.
        self._kept = self.outputs.keys() & (known.keys() | self._constants.keys())
        self._steps = self._make_steps(model, ops)
        self._held: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(onnxruntime.InferenceSession, name):
            instead = _INSTEAD.get(name, "ask an onnxruntime.InferenceSession of the model")
            raise AttributeError(f"Session has no {name}, as InferenceSession has: {instead}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Any = None,
    ) -> list[Any]:
        """Run the model once, as `onnxruntime.InferenceSession.run` does.

        Parameters
        ----------
        output_names : sequence of str, optional
            The outputs to return; None or an empty sequence is all.
        input_feed : mapping of str to array
            The inputs by name: NumPy arrays, numbers, lists, objects of `OrtValue`, or on a GPU CuPy arrays
            too.
        run_options : onnxruntime.RunOptions, optional
            For the part that ONNX Runtime runs.

        Returns
        -------
        list
            The outputs, in the order of `output_names`: NumPy arrays; lists and dictionaries for sequences
            and maps.

        Raises
        ------
        ValueError
            An unknown or missing input, an unknown output, a shape other than declared, or inputs of a node
            that ONNX does not allow; the message names the node.
        TypeError
            An array of another type than declared.
        RuntimeError
            ONNX Runtime fails; the message has its reason.
        """
        wanted = self._wanted(output_names)
        values = self._computed(input_feed, run_options=run_options)
        kept = self._kept
        return [
            np.array(result) if name in kept and isinstance(result, np.ndarray) else result
            for name, result in ((name, self._on_host(self._result(values, name))) for name in wanted)
        ]

    def run_named(
        self,
        input_feed: Mapping[str, Any],
        output_names: Sequence[str] | None = None,
        *,
        carry: Mapping[str, str] | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> dict[str, Any]:
        """Run the model once; return the outputs by name, where they are.

        Parameters
        ----------
        input_feed : mapping of str to array
            As for `run`. Inputs carried from the call before may be left out.
        output_names : sequence of str, optional
            As for `run`.
        carry : mapping of str to str, optional
            Output -> the input that takes it in the next call, without a copy: a streaming model's state.
        progress : callable, optional
            Receives a line about the next step.

        Returns
        -------
        dict
            Name -> array: NumPy's, or CuPy's on a GPU.

        Raises
        ------
        ValueError, TypeError, RuntimeError
            As for `run`.

        Examples
        --------
        >>> import numpy as np, onnx, cudml.onnx
        >>> model = onnx.parser.parse_model(\"\"\"<ir_version: 10, opset_import: ["" : 21]>
        ... count (float[1] x, float[1] before) => (float[1] after) { after = Add(x, before) }\"\"\")
        >>> session, carry = cudml.onnx.Session(model), {"after": "before"}
        >>> x, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
        >>> session.run_named({"x": x, "before": zero}, carry=carry)
        {'after': array([1.], dtype=float32)}
        >>> session.run_named({"x": x}, carry=carry)
        {'after': array([2.], dtype=float32)}
        """
        wanted = self._wanted(output_names)
        carry = {} if carry is None else carry
        if not isinstance(carry, Mapping):
            raise TypeError(f"Session: carry is {a_type(carry)}, must be a mapping of outputs to inputs")
        self._check_names("carry", carry.keys(), self.outputs)
        self._check_names("carry", carry.values(), self._feeds)
        values = self._computed(input_feed, held=self._held, progress=progress)
        results = {name: self._result(values, name) for name in {*wanted, *carry}}
        for name in self._kept & results.keys():
            results[name] = results[name].copy() if hasattr(results[name], "copy") else results[name]
        self._held = {to: results[name] for name, to in carry.items()}
        return {name: results[name] for name in wanted}

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, onnxruntime.OrtValue],
        run_options: Any = None,
    ) -> list[onnxruntime.OrtValue]:
        """Run the model once on `OrtValue` objects; return such objects, on a GPU if the session runs there.

        Parameters
        ----------
        output_names, run_options
            As for `run`.
        input_dict_ort_values : mapping of str to OrtValue
            The inputs by name.

        Returns
        -------
        list of OrtValue
            In the order of `output_names`.

        Raises
        ------
        ValueError, TypeError, RuntimeError
            As for `run`; TypeError also for an output that is no tensor.
        """
        binding = self.io_binding()
        for name, value in _mapping("input_dict_ort_values", input_dict_ort_values).items():
            binding.bind_ortvalue_input(name, value)
        place = ("cuda", self._gpu.number) if self._gpu else ("cpu", 0)
        for name in self._wanted(output_names):
            binding.bind_output(name, *place)
        self.run_with_iobinding(binding, run_options)
        return binding.get_outputs()

    def io_binding(self) -> IOBinding:
        """An object that binds inputs and outputs to memory, with the methods of `onnxruntime.IOBinding`.

        Returns
        -------
        IOBinding
            For `run_with_iobinding` of this session.
        """
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Any = None) -> None:
        """Run the model once with bound inputs and outputs.

        Parameters
        ----------
        iobinding : IOBinding
            Made by `io_binding` of this session.
        run_options : onnxruntime.RunOptions, optional
            For the part that ONNX Runtime runs.

        Raises
        ------
        ValueError, TypeError, RuntimeError
            As for `run`; also for an output bound to memory of another type or shape than it has.
        """
        if not isinstance(iobinding, IOBinding) or iobinding.session is not self:
            given = "that of another session" if isinstance(iobinding, IOBinding) else a_type(iobinding)
            raise ValueError(f"Session: iobinding is {given}, must be made by io_binding() of this session")
        values = self._computed(iobinding.inputs, run_options=run_options)
        iobinding.take({name: self._result(values, name) for name in iobinding.outputs})
        if self._gpu:
            self._gpu.let_caller_wait()

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], Any],
        user_data: Any,
        run_options: Any = None,
    ) -> None:
        """Run the model once in a thread of its own, as `onnxruntime.InferenceSession.run_async` does.

        Parameters
        ----------
        output_names, input_feed, run_options
            As for `run`.
        callback : callable
            Called by the thread with the results of `run`, `user_data` and "", or with an empty list,
            `user_data` and the message of the error.
        user_data : object
            Passed to the callback.

        Raises
        ------
        ValueError
            An unknown output, or an unknown or missing input.
        """
        wanted = [*self._wanted(output_names)]
        given = dict(_mapping("input_feed", input_feed))
        self._with_defaults(given)

        def work() -> None:
            try:
                results = self.run(wanted, given, run_options)
            except Exception as error:  # the callback receives its message
                callback([], user_data, str(error) or type(error).__name__)
            else:
                callback(results, user_data, "")

        threading.Thread(target=work, name="cudml.onnx").start()

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that a call must give, as the model declares them.

        Returns
        -------
        list of NodeArg
            With `name`, `type` and `shape`.
        """
        return [self._described[name] for name in self.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, as the model declares them.

        Returns
        -------
        list of NodeArg
            With `name`, `type` and `shape`.
        """
        return [self._described[name] for name in self.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The inputs that have a default in the model.

        Returns
        -------
        list of NodeArg
            With `name`, `type` and `shape`.
        """
        return [self._described[name] for name in self._defaults]

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says of itself.

        Returns
        -------
        ModelMetadata
            With the names of `onnxruntime.ModelMetadata`.
        """
        return self._metadata

    def get_providers(self) -> list[str]:
        """The execution providers of ONNX Runtime's part.

        Returns
        -------
        list of str
            In order of preference.
        """
        return [name for name, _ in self._providers]

    def set_providers(
        self, providers: Sequence[Any] | None = None, provider_options: Sequence[Any] | None = None
    ) -> None:
        """Load the model again, with other execution providers; no call may run meanwhile.

        Parameters
        ----------
        providers, provider_options
            As for `Session`.

        Raises
        ------
        ValueError, TypeError, OSError, DeviceError
            As for `Session`; this session is left as it is.
        """
        options = {"ops": self._ops, "stream": self._stream, "disabled_optimizers": self._disabled}
        made = Session(self._source, self._sess_options, providers, provider_options, **options)
        self.__dict__.update(made.__dict__)

    def disable_fallback(self) -> None:
        """Do nothing: a session never runs again with other providers."""

    def end_profiling(self) -> str:
        """End the profile, and write it.

        Returns
        -------
        str
            The name of a file in ONNX Runtime's format, with the nodes that cudml has run; "" where
            `enable_profiling` of the session's options is not set, or the profile has ended.
        """
        profile, self._profile = self._profile, None
        parts = [step.session for step in self._steps if isinstance(step, _Part)]
        return "" if profile is None else profile.end(parts)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of the execution providers.

        Returns
        -------
        dict
            Provider -> option -> value.
        """
        return {name: {key: str(value) for key, value in opts.items()} for name, opts in self._providers}

    def get_session_options(self) -> Any:
        """The options of ONNX Runtime's part.

        Returns
        -------
        onnxruntime.SessionOptions
            Those given, else new ones.
        """
        return onnxruntime.SessionOptions() if self._sess_options is None else self._sess_options

    def described(self, name: str) -> str:
        """The dtype and the shape that an input must have, for messages."""
        kind, shape = self._feeds[name]
        return f"{kind or 'a value'}{'' if shape is None else f' of shape {shape}'}"

    def _wanted(self, output_names: Any) -> Collection[str]:
        if output_names is None or (not output_names and isinstance(output_names, (list, tuple))):
            return self.outputs
        if isinstance(output_names, Mapping):
            told = (
                "must be a collection of names or None: run_named takes the inputs first, and returns a dict"
            )
            raise TypeError(f"Session: output_names is {a_type(output_names)}, {told}")
        self._check_names("output_names", output_names, self.outputs)
        names: Collection[str] = output_names
        return names

    def _check_output(self, name: str) -> None:
        if name not in self.outputs:
            known = ", ".join(self.outputs)
            raise InputValueError(f"Session: name is {name!r}, must be an output: one of {known}")

    def _computed(
        self,
        input_feed: Any,
        *,
        held: Mapping[str, Any] | None = None,
        progress: Callable[[str], None] | None = None,
        run_options: Any = None,
    ) -> dict[str, Any]:
        """Every value of the graph that a step needs or makes, by name."""
        given = input_feed if type(input_feed) is dict else _mapping("input_feed", input_feed)
        values = self._with_defaults({**held, **given} if held else given)
        for name, array in given.items():
            values[name] = self._checked_feed(name, array)
        if self._gpu:
            self._gpu.wait_for_caller()
        profile = self._profile
        for number, step in enumerate(self._steps, 1):
            if progress is not None:
                progress(f"{number} of {len(self._steps)}: {step}")
            if isinstance(step, _Part):
                self._run_part(step, values, run_options)
                continue
            began = 0 if profile is None else time.time_ns()
            self._run_own(step, values)
            if profile is not None:
                profile.add(label(step.node), step.node.op_type, began)
        if self._gpu:
            self._gpu.let_caller_wait()
        return values

    def _with_defaults(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The given inputs, the defaults, and None for absent optional inputs."""
        self._check_names("input_feed", given, self._feeds)
        values: dict[str, Any] = {**self._defaults, **given}
        if not values.keys() >= self.inputs.keys():
            absent = [name for name in self.inputs if name not in values]
            optional = [name for name in absent if self._described[name].type.startswith("optional")]
            if len(optional) < len(absent):
                missing = [f"{name}, {self.described(name)}" for name in absent if name not in optional]
                raise InputValueError(f"Session: input_feed lacks {'; '.join(missing)}")
            values |= dict.fromkeys(optional)
        return values

    def _make_steps(self, model: onnx.ModelProto, ops: Sequence[str]) -> list[_Own | _Part]:
        opset = next((row.version for row in model.opset_import if row.domain in DOMAINS), 1)
        wanted = [node for node in model.graph.node if node.domain in DOMAINS and node.op_type in ops]
        reasons: dict[str, str] = {}
        together: dict[str, str] = {}
        try:
            check_names(model.graph)
            runners = {
                key(node): runner_of(node, opset, model.ir_version, self._constants, self._device)
                for node in wanted
            }
            steps = self._steps_with(model, opset, runners, reasons, together)
        except ValueError as error:
            raise also_theirs(ValueError, error.__cause__, f"Session: {error}") from error.__cause__
        for node in model.graph.node:
            if node.domain in DOMAINS and node.op_type in ops:
                reason = reasons.get(key(node), "")
                runs_on = "ONNX Runtime" if reason else "cudml"
                reason = reason or together.get(key(node), "")
                self.placed.append(Placed(label(node), node.op_type, runs_on, reason))
            self.placed += placed_inside(model, node, ops)
        return steps

    def _steps_with(
        self,
        model: onnx.ModelProto,
        opset: int,
        runners: dict[str, Runner],
        reasons: dict[str, str],
        together: dict[str, str],
    ) -> list[_Own | _Part]:
        """The steps, with cudml's runners by node; nodes that cudml cannot run move to `reasons`.

        `together` receives the nodes that each node of a stack is one step with.
        """

        def is_own(node: onnx.NodeProto) -> bool:
            return key(node) in runners

        nodes, stacks, told = stacked(model.graph, self._constants, is_own)
        by_key = {key(stack.node): stack for stack in stacks}
        types: dict[str, onnx.TypeProto | str] = {value.name: value.type for value in model.graph.input}
        for name, tensor in self._constants.items():
            types[name] = onnx.helper.make_tensor_type_proto(tensor.data_type, None)
        described = {value.name: self._node_arg(value) for value in (*model.graph.input, *model.graph.output)}
        steps: list[_Own | _Part] = []
        for step in cut(
            model.graph, nodes, self._constants, lambda node: key(node) in by_key or is_own(node)
        ):
            if isinstance(step, Stretch):
                session = self._session_of(model, step, types)
                steps.append(_Part(step, session))
                for output in session.get_outputs():
                    is_tensor = output.type.startswith(("tensor", "seq(tensor"))
                    types[output.name] = type_named(output.type) if is_tensor else output.type
                    if output.name in described and not described[output.name].shape:
                        described[output.name] = NodeArg(output.name, output.type, output.shape)
            else:
                stack = by_key.get(key(step))
                layers = stack.layers if stack else (step,)
                for name, source in stack.passed.items() if stack else ():
                    types.setdefault(name, types[source])
                kind = _tensor_type(types[step.input[0]]).tensor_type.elem_type
                same = onnx.helper.make_tensor_type_proto(kind, None)
                for node in layers:
                    kinds = [
                        _tensor_type(types[name]).tensor_type.elem_type if name else 0 for name in node.input
                    ]
                    check_types(node, opset, kinds)
                    types |= dict.fromkeys(node.output, same)
                if (reason := why_not(step.op_type, opset, kind)) is not None:
                    for node in layers:
                        del runners[key(node)]
                        reasons[key(node)] = reason
                    return self._steps_with(model, opset, runners, reasons, together)
                steps.append(self._own(step, runners, stack))
                if step.op_type == "TopK":
                    types[step.output[1]] = type_named("tensor(int64)")
        together.update(told)
        for name, declared in described.items():
            if not declared.type:
                described[name] = declared._replace(type=type_name(_tensor_type(types[name])))
        self._described = described
        return steps

    def _own(self, node: onnx.NodeProto, runners: Mapping[str, Runner], stack: Stack | None) -> _Own:
        """The step of a node that cudml runs, alone or in place of a stack."""
        if stack is None:
            return _Own(node, runners[key(node)], host_inputs(node, self._constants))
        own = [runners[key(layer)] for layer in stack.layers]
        run = stack.runner(own, self._constants, self._device)
        return _Own(node, run, stack.host_inputs(self._constants))

    def _session_of(
        self, model: onnx.ModelProto, stretch: Stretch, types: Mapping[str, onnx.TypeProto | str]
    ) -> onnxruntime.InferenceSession:
        constants = [self._constants[name] for name in stretch.inputs if name in self._constants]
        part = without_weights(model)
        part.graph.node.extend(stretch.nodes)
        part.graph.initializer.extend(constants)
        part.graph.sparse_initializer.extend(self._sparse[n] for n in stretch.inputs if n in self._sparse)
        known = self._constants.keys() | self._sparse.keys()
        stretch.inputs = tuple(name for name in stretch.inputs if name not in known)
        for name in stretch.inputs:
            part.graph.input.append(onnx.ValueInfoProto(name=name, type=_tensor_type(types[name])))
        part.graph.output.extend(onnx.ValueInfoProto(name=name) for name in stretch.outputs)
        prefix = {} if self._profile is None else {"profile_file_prefix": self._profile.next_prefix()}
        try:
            with changed(self._sess_options, **prefix) as options:
                return onnxruntime.InferenceSession(
                    part.SerializeToString(),
                    options,
                    list(self._providers),
                    disabled_optimizers=self._disabled,
                )
        except ORT_ERRORS as error:
            raise ValueError(f"ONNX Runtime does not take the model: {error}") from error

    def _run_part(self, part: _Part, values: dict[str, Any], run_options: Any) -> None:
        names = part.stretch.outputs
        if part.is_copied:
            feeds = {name: self._array(values, name, is_on_host=True) for name in part.stretch.inputs}
            try:
                results = part.session.run(names, feeds, run_options)
            except ORT_ERRORS as error:
                raise also_theirs(RuntimeError, error, f"Session: {part}: {error}") from error
            values.update(zip(names, results, strict=True))
            return
        binding = part.session.io_binding()
        for name in part.stretch.inputs:
            value = self._array(values, name) if self._gpu else values[name]
            binding.bind_ortvalue_input(name, ort_value(value))
        for name in names:
            binding.bind_output(name, *(("cuda", self._gpu.number) if self._gpu else ("cpu",)))
        part.session.run_with_iobinding(binding, run_options)
        values.update(zip(names, binding.get_outputs(), strict=True))

    def _run_own(self, own: _Own, values: dict[str, Any]) -> None:
        inputs = [
            self._array(values, name, is_on_host=is_on_host) if name else None
            for name, is_on_host in own.inputs
        ]
        try:
            results = own.run(inputs, self._gpu.stream if self._gpu else None)
        except (TypeError, ValueError) as error:
            kind = NodeTypeError if isinstance(error, TypeError) else NodeValueError
            raise kind(f"Session: {label(own.node)}: {error}") from error
        for name, result in zip(own.outputs, results, strict=False):
            if name:
                values[name] = result

    def _array(self, values: dict[str, Any], name: str, *, is_on_host: bool = False) -> Any:
        """A value as an array, where it is; NumPy's constants and feeds go to the GPU if there is one."""
        value = values[name] if name in values else self._constants[name]
        if type(value) is np.ndarray and not self._gpu:
            return value
        if isinstance(value, onnx.TensorProto):
            value = onnx.numpy_helper.to_array(value)
            self._constants[name] = value
        elif isinstance(value, onnxruntime.OrtValue):
            value = array_of(value)
        if is_on_host:
            return self._on_host(value)
        if self._gpu and isinstance(value, np.ndarray) and value.dtype.kind not in _TEXT:
            value = self._gpu.put(value)
        values[name] = value
        return value

    def _result(self, values: dict[str, Any], name: str) -> Any:
        """A value as a call returns it: an array where it is, or Python's own type if it is no tensor."""
        value = values.get(name)
        return value if isinstance(value, (list, dict)) else self._array(values, name)

    def _on_host(self, value: Any) -> Any:
        """A value as a NumPy array, or as Python's own type if it is no tensor."""
        if type(value) is np.ndarray:
            return value
        value = array_of(value) if isinstance(value, onnxruntime.OrtValue) else value
        is_on_gpu = self._gpu and not isinstance(value, (np.ndarray, list, dict))
        return self._gpu.get(value) if self._gpu and is_on_gpu else value

    def _checked_feed(self, name: str, array: Any) -> Any:
        if name not in self._feeds:
            raise InputValueError(
                f"Session: name is {name!r}, must be an input: one of {', '.join(self._feeds)}"
            )
        kind, shape = self._feeds[name]
        if type(array) is not np.ndarray:
            if isinstance(array, onnxruntime.OrtValue):
                self._check_value(name, array)
                return array
            if kind is None and not self._described[name].type.startswith("tensor"):
                return array
            if isinstance(array, np.generic) or not hasattr(array, "dtype"):
                array = self._array_of_numbers(name, array)
        is_text = kind == "object" and array.dtype.kind in _TEXT
        if kind is not None and array.dtype != self._dtypes[name] and not is_text:
            raise InputTypeError(f"Session: input {name} is of dtype {array.dtype}, must be of {kind}")
        if not isinstance(array, np.ndarray) and not (
            self._gpu and isinstance(array, self._gpu.cupy.ndarray)
        ):
            allowed = "a NumPy or CuPy array or an OrtValue" if self._gpu else "a NumPy array or an OrtValue"
            raise InputTypeError(f"Session: input {name} is {a_type(array)}, must be {allowed}")
        if shape and not _fits(array.shape, shape):  # for ONNX Runtime, a scalar is of any shape, too
            raise InputValueError(
                f"Session: input {name} is of shape {tuple(array.shape)}, must be of {shape}"
            )
        return array

    def _array_of_numbers(self, name: str, numbers: Any) -> np.ndarray:
        """The array of a number or of a list, as ONNX Runtime makes it: of the declared type."""
        dtype = self._dtypes[name]
        try:
            array = np.asarray(numbers)
            is_plain = not isinstance(numbers, np.generic) and isinstance(dtype, np.dtype)
            if is_plain and dtype.kind != "O" and np.can_cast(array.dtype, dtype, "same_kind"):
                array = np.asarray(numbers, dtype)
        except (OverflowError, ValueError) as error:
            kind = self._described[name].type
            raise InputValueError(f"Session: input {name} must be an array of {kind}: {error}") from None
        return array

    def _check_value(self, name: str, value: onnxruntime.OrtValue) -> None:
        kind, (_, shape) = self._described[name].type, self._feeds[name]
        if kind and value.data_type() != kind:
            raise InputTypeError(f"Session: input {name} is {value.data_type()}, must be {kind}")
        if not value.is_tensor():
            return
        if not self._gpu and value.device_name() != "cpu":
            told = f"is in the memory of {value.device_name()}, must be in the CPU's, where the session runs"
            raise InputTypeError(f"Session: input {name} {told}: give numpy() of it, or other providers")
        if shape and not _fits(value.shape(), shape):
            raise InputValueError(
                f"Session: input {name} is of shape {tuple(value.shape())}, must be of {shape}"
            )

    def _declared(self, value: onnx.ValueInfoProto) -> tuple[str | None, _Shape | None]:
        """The NumPy name of the element type and the shape, None if undeclared, with the options' sizes."""
        kind, shape = _declared(value)
        return kind, shape and tuple(
            self._sizes.get(size, size) if isinstance(size, str) else size for size in shape
        )

    def _node_arg(self, value: onnx.ValueInfoProto) -> NodeArg:
        _, shape = self._declared(value)
        return NodeArg(value.name, type_name(value.type), list(shape or ()))

    @staticmethod
    def _check_names(argument: str, names: Collection[str], known: Mapping[str, Any]) -> None:
        if type(names) is dict and names.keys() <= known.keys():
            return
        if isinstance(names, (str, bytes)) or not isinstance(names, Collection):
            raise TypeError(f"Session: {argument} is {names!r}, must be a collection of names")
        unknown = sorted(map(str, set(names) - known.keys()))
        if unknown:
            raise InputValueError(
                f"Session: {argument} has {', '.join(unknown)}, must be of {', '.join(known)}"
            )


def _mapping(argument: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise TypeError(f"Session: {argument} is {a_type(given)}, must be a mapping of names to arrays")
    return given


def _default_of(tensor: onnx.TensorProto) -> np.ndarray:
    """The array of an initializer, which calls must leave as it is."""
    array: np.ndarray = onnx.numpy_helper.to_array(tensor)
    array.flags.writeable = False
    return array


def _tensor_type(kind: onnx.TypeProto | str) -> onnx.TypeProto:
    """The type of a value that goes from one part of the model to another."""
    return type_named(kind) if isinstance(kind, str) else kind


def _metadata_of(model: onnx.ModelProto) -> ModelMetadata:
    return ModelMetadata(
        {item.key: item.value for item in model.metadata_props},
        model.doc_string,
        model.domain,
        model.graph.doc_string,
        model.graph.name,
        model.producer_name,
        model.model_version,
    )


def _fits(shape: Sequence[int], declared: Sequence[int | str | None]) -> bool:
    """Whether an array's shape has the declared sizes where these are numbers."""
    if len(shape) != len(declared):
        return False
    for size, wanted in zip(shape, declared, strict=False):  # a strict zip would compare the lengths again
        if size != wanted and isinstance(wanted, int):
            return False
    return True


def _declared(value: onnx.ValueInfoProto) -> tuple[str | None, _Shape | None]:
    """The NumPy name of the element type and the shape, None if undeclared."""
    if not value.type.HasField("tensor_type"):
        return None, None
    tensor = value.type.tensor_type
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name if tensor.elem_type else None
    if not tensor.HasField("shape"):
        return kind, None
    return kind, tuple(
        size.dim_value if size.HasField("dim_value") else size.dim_param or None for size in tensor.shape.dim
    )
