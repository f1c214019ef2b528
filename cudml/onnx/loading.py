"""Models and providers as they are given to a `Session`, and the nodes inside other nodes."""

import os
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import onnx
import onnx.inliner
import onnx.parser
import onnxruntime
from google.protobuf import json_format, text_format
from google.protobuf.message import DecodeError

from cudml.errors import a_type
from cudml.onnx.cut import DOMAINS, key, label
from cudml.onnx.values import CPU, CUDA, ModelError, NoFileError

#: The option of a `SessionOptions` that says where the weights of a model in memory are.
_WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"


#: Errors of reading a model in each of ONNX's formats, which a file's suffix tells.
_UNREADABLE = (DecodeError, json_format.Error, text_format.Error, onnx.parser.ParseError, UnicodeDecodeError)


class Placed(NamedTuple):
    """Where a node of `ops` runs; the reason if that is not cudml, or the nodes it is one step with."""

    node: str
    op: str
    runs_on: str
    reason: str = ""


def loaded(path_or_bytes: Any, sess_options: Any) -> onnx.ModelProto:
    """The model, with its own functions inlined."""
    model = (
        path_or_bytes if isinstance(path_or_bytes, onnx.ModelProto) else _read(path_or_bytes, sess_options)
    )
    if not model.functions:
        return model
    # The inliner copies the model, so it is called without the weights.
    bare = without_weights(model)
    bare.graph.MergeFrom(onnx.GraphProto(node=model.graph.node, input=model.graph.input))
    bare.graph.output.extend(model.graph.output)
    inlined: onnx.ModelProto = onnx.inliner.inline_local_functions(bare)
    inlined.graph.initializer.extend(model.graph.initializer)
    inlined.graph.sparse_initializer.extend(model.graph.sparse_initializer)
    return inlined


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model whose graph is empty but for its name."""
    empty = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            target = getattr(empty, field.name)
            if hasattr(target, "MergeFrom"):
                target.MergeFrom(value)
            else:
                setattr(empty, field.name, value)
    empty.graph.name = model.graph.name or "stretch"
    return empty


def nested(
    nodes: Sequence[onnx.NodeProto], functions: Mapping[tuple[str, str], onnx.FunctionProto], where: str
) -> Iterator[tuple[onnx.NodeProto, str]]:
    """Every node in the bodies of `nodes` and of the functions that they call, with the name of the body."""
    for node in nodes:
        function = functions.get((node.domain, node.op_type))
        if function is not None:
            others = {key: value for key, value in functions.items() if value is not function}
            inside = f"in the function {function.name}, which is of another version of ONNX's operators"
            yield from ((inner, inside) for inner in function.node)
            yield from nested(function.node, others, inside)
        inside = where or f"in a body of {node.op_type} {node.name or key(node)}"
        for attribute in node.attribute:
            for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from ((inner, inside) for inner in graph.node)
                yield from nested(graph.node, functions, inside)


def placed_inside(model: onnx.ModelProto, node: onnx.NodeProto, ops: Collection[str]) -> list[Placed]:
    """The nodes of `ops` in the bodies of a node, which ONNX Runtime runs with it."""
    functions = {(function.domain, function.name): function for function in model.functions}
    return [
        Placed(label(inner), inner.op_type, "ONNX Runtime", inside)
        for inner, inside in nested([node], functions, "")
        if inner.domain in DOMAINS and inner.op_type in ops
    ]


@contextmanager
def changed(options: Any, **values: Any) -> Iterator[Any]:
    """A context in which a `SessionOptions`, which cannot be copied, has other values."""
    if options is None:
        yield options
        return
    before = {name: getattr(options, name) for name in values}
    try:
        for name, value in values.items():
            setattr(options, name, value)
        yield options
    finally:
        for name, value in before.items():
            setattr(options, name, value)


def overridden(sess_options: Any, model: onnx.ModelProto) -> dict[str, int]:
    """The named sizes for which the options have a number (`add_free_dimension_override_by_name`).

    The options do not tell the numbers, but ONNX Runtime does for a model with an input of the named sizes.
    """
    named = {
        size.dim_param: size
        for value in model.graph.input
        for size in value.type.tensor_type.shape.dim
        if size.dim_param
    }
    if sess_options is None or not named:
        return {}
    asked = onnx.ModelProto(ir_version=8, opset_import=[onnx.helper.make_opsetid("", 17)])
    asked.graph.name = "sizes"
    for place in (asked.graph.input, asked.graph.output):
        value = place.add(name="sizes")
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        value.type.tensor_type.shape.dim.extend(named.values())
    with changed(sess_options, enable_profiling=False, optimized_model_filepath="", log_severity_level=4):
        told = onnxruntime.InferenceSession(asked.SerializeToString(), sess_options, [CPU])
    sizes = zip(named, told.get_inputs()[0].shape, strict=True)
    return {name: size for name, size in sizes if isinstance(size, int)}


def checked_providers(
    providers: Sequence[Any] | None, provider_options: Sequence[Any] | None
) -> list[tuple[str, dict[str, Any]]]:
    """The providers with their options; providers that ONNX Runtime lacks are left out, with a warning."""
    available = onnxruntime.get_available_providers()
    if providers is None:
        if provider_options is not None:
            raise TypeError("Session: provider_options is given, must be None where providers is None")
        providers = []
    if not isinstance(providers, (list, tuple)):
        raise TypeError(f"Session: providers is {providers!r}, must be a sequence of providers")
    pairs = _pairs(providers, provider_options) or [(name, {}) for name in (CUDA, CPU) if name in available]
    unknown = [name for name, _ in pairs if name not in onnxruntime.get_all_providers()]
    if unknown:
        got, known = ", ".join(unknown), ", ".join(available)
        raise ValueError(f"Session: providers has {got}, must be of those of ONNX Runtime: {known}")
    for name, _ in pairs:
        if name not in available:
            known = ", ".join(available)
            told = f"Session: providers has {name}, which this build of ONNX Runtime lacks; it has {known}"
            warnings.warn(told, stacklevel=3)
    kept = [(name, options) for name, options in pairs if name in available]
    return kept if any(name == CPU for name, _ in kept) else [*kept, (CPU, {})]


def _pairs(
    providers: Sequence[Any], provider_options: Sequence[Any] | None
) -> list[tuple[str, dict[str, Any]]]:
    if provider_options is not None:
        if not isinstance(provider_options, (list, tuple)) or len(provider_options) != len(providers):
            raise ValueError(
                f"Session: provider_options is {provider_options!r}, must have one dict for each of providers"
            )
        if not all(isinstance(name, str) for name in providers):
            raise TypeError(f"Session: providers is {providers!r}, must be names beside provider_options")
        providers = [*zip(providers, provider_options, strict=True)]
    pairs = []
    for provider in providers:
        pair = (provider, {}) if isinstance(provider, str) else provider
        is_pair = isinstance(pair, tuple) and len(pair) == 2
        if not (is_pair and isinstance(pair[0], str) and isinstance(pair[1], Mapping)):
            raise TypeError(f"Session: providers has {provider!r}, must be of names or pairs (name, options)")
        pairs.append((pair[0], dict(pair[1])))
    return pairs


def _read(path_or_bytes: Any, sess_options: Any) -> onnx.ModelProto:
    is_file = isinstance(path_or_bytes, (str, os.PathLike)) or hasattr(path_or_bytes, "read")
    if not is_file and not isinstance(path_or_bytes, bytes):
        allowed = "a path, a model's bytes, a file or an onnx.ModelProto"
        raise TypeError(f"Session: path_or_bytes is {a_type(path_or_bytes)}, must be {allowed}")
    told = f"{path_or_bytes}" if is_file else f"path_or_bytes, of {len(path_or_bytes)} bytes,"
    if is_file and str(getattr(path_or_bytes, "name", path_or_bytes)).endswith(".ort"):
        raise ValueError(
            f"Session: {told} is in ONNX Runtime's own format, must be the ONNX model it is from"
        )
    try:
        model = onnx.load(path_or_bytes) if is_file else _of_bytes(path_or_bytes, sess_options)
    except _UNREADABLE as error:
        raise ModelError(f"Session: {told} is not an ONNX model: {error}") from error
    except FileNotFoundError as error:
        raise NoFileError(*error.args, error.filename) from error
    except onnx.checker.ValidationError as error:
        raise ValueError(f"Session: {told} is not a complete model: {error}") from error
    if not model.graph.node and not model.graph.output:
        raise ModelError(f"Session: {told} is not an ONNX model: it has no graph")
    return model


def _of_bytes(data: bytes, sess_options: Any) -> onnx.ModelProto:
    """The model, with its weights from other files in the option's folder or the current one."""
    model = onnx.load_model_from_string(data)
    folder = ""
    if sess_options is not None:
        try:
            folder = sess_options.get_session_config_entry(_WEIGHTS_FOLDER)
        except RuntimeError:  # ONNX Runtime raises it if the option is not set
            folder = ""
    onnx.load_external_data_for_model(model, folder or os.getcwd())
    return model
