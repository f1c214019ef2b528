"""GRU: layers of speech, text and control models, compared with torch.nn.GRU (cuDNN on a GPU)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import cudml
from bench.cases import Case, Inputs, Peer
from bench.checks import error_of, require_error_within
from bench.sources import Source
from bench.targets import to_torch
from cudml.cli.demo import gru_by_formulas


@dataclass(frozen=True, kw_only=True)
class GruCase(Case):
    """A layer over `steps` steps of a batch, or several layers on top of each other.

    Weights are as torch draws them, within 1 / sqrt(hidden_size).
    """

    steps: int
    batch: int
    input_size: int
    hidden_size: int
    direction: Literal["forward", "reverse", "bidirectional"] = "forward"
    linear_before_reset: bool = True
    dtype: str = "float32"
    num_layers: int = 1
    allow_tf32: bool = False

    @property
    def num_directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    @property
    def product_type(self) -> str:
        """The type of the operands of products."""
        return "tf32" if self.allow_tf32 else self.dtype


def _case(
    use: str,
    steps: int,
    batch: int,
    input_size: int,
    hidden_size: int,
    dtype: str = "float32",
    direction: Literal["forward", "reverse", "bidirectional"] = "forward",
    linear_before_reset: bool = True,
    quick: bool = False,
    num_layers: int = 1,
    allow_tf32: bool = False,
) -> GruCase:
    """A case, named by its sizes in ONNX's letters."""
    options = [dtype, *([direction] if direction != "forward" else [])]
    options += [] if linear_before_reset else ["reset before linear"]
    options += [f"{num_layers} layers"] if num_layers > 1 else []
    options += ["tf32"] if allow_tf32 else []
    return GruCase(
        name=f"{use} T {steps} N {batch} I {input_size} H {hidden_size} {' '.join(options)}",
        quick=quick,
        steps=steps,
        batch=batch,
        input_size=input_size,
        hidden_size=hidden_size,
        direction=direction,
        linear_before_reset=linear_before_reset,
        dtype=dtype,
        num_layers=num_layers,
        allow_tf32=allow_tf32,
    )


CASES: tuple[GruCase, ...] = (
    _case("NSNet2 16 kHz", 1000, 1, 400, 400),
    _case("NSNet2 48 kHz", 1000, 1, 600, 600),
    _case("diacritizer", 100, 1, 56, 112, direction="bidirectional", quick=True),
    _case("grid", 256, 32, 1024, 1024, "float16"),
    _case("grid", 256, 1, 1024, 1024),
    _case("grid", 256, 8, 128, 128),
    _case("grid", 256, 8, 512, 512, "float16"),
    _case("grid", 256, 128, 2048, 2048, "float16"),
    _case("beyond small H", 1000, 62, 16, 168),
    _case("diacritizer", 100, 8, 112, 56, direction="bidirectional"),
    _case("echo control", 500, 1, 128, 64, direction="bidirectional"),
    _case("pronunciation", 20, 1, 256, 256, quick=True),
    _case("denoiser subbands", 500, 33, 16, 16),
    _case("streaming", 1, 1, 400, 400),
    _case("long", 8192, 4, 512, 512),
    _case("grid", 256, 1, 128, 128),
    _case("grid", 256, 32, 128, 128, "float16"),
    _case("grid", 256, 128, 128, 128),
    _case("grid", 256, 1, 256, 256),
    _case("grid", 256, 8, 256, 256, "float16"),
    _case("grid", 256, 8, 256, 256),
    _case("grid", 256, 32, 256, 256),
    _case("grid", 256, 1, 512, 512),
    _case("grid", 256, 32, 512, 512),
    _case("grid", 256, 128, 512, 512, "float16"),
    _case("grid", 256, 1, 1024, 1024, "float16"),
    _case("grid", 256, 8, 1024, 1024),
    _case("grid", 256, 32, 1024, 1024),
    _case("grid", 256, 128, 1024, 1024, "float16"),
    _case("grid", 256, 128, 1024, 1024),
    _case("grid", 256, 128, 2048, 2048),
    _case("grid", 256, 1, 2048, 2048, "float16"),
    _case("grid", 256, 8, 2048, 2048),
    _case("grid", 256, 8, 256, 256, linear_before_reset=False),
    _case("grid", 256, 8, 1024, 1024, "float16", linear_before_reset=False),
    _case("both ways", 256, 8, 512, 512, "float16", direction="bidirectional"),
    _case("small", 20, 2, 32, 32, quick=True),
    _case("short", 100, 1, 64, 64, quick=True),
    _case("streaming", 1, 1, 64, 64),
    _case("streaming", 1, 1, 256, 256, quick=True),
    _case("streaming", 1, 8, 256, 256),
    _case("streaming", 1, 1, 400, 400, linear_before_reset=False),
    _case("a few steps", 3, 1, 256, 256),
    _case("NSNet2 16 kHz", 1000, 1, 400, 400, num_layers=2),
    _case("stacked", 20, 2, 64, 64, num_layers=3, quick=True),
    _case("stacked", 256, 8, 256, 256, num_layers=2),
    _case("stacked", 256, 1, 256, 256, num_layers=4),
    _case("stacked", 256, 1, 400, 400, "float16", num_layers=2),
    _case("stacked", 256, 1, 512, 512, num_layers=4),
    _case("stacked", 256, 8, 400, 400, linear_before_reset=False, num_layers=2),
    _case("grid", 256, 128, 1024, 1024, allow_tf32=True),
    _case("grid", 256, 128, 2048, 2048, allow_tf32=True),
)


def make(case: GruCase, source: Source) -> Inputs:
    d, h, dtype = case.num_directions, case.hidden_size, case.dtype
    bound = h**-0.5

    def weights(*shape: int) -> Any:
        return ((2 * source.uniform(shape) - 1) * np.float32(bound)).astype(dtype)

    inputs = {
        "x": source.normal((case.steps, case.batch, case.input_size), dtype),
        "w": weights(d, 3 * h, case.input_size),
        "r": weights(d, 3 * h, h),
        "b": weights(d, 6 * h),
    }
    for number in range(1, case.num_layers):
        own = {"w": weights(d, 3 * h, d * h), "r": weights(d, 3 * h, h), "b": weights(d, 6 * h)}
        inputs |= {f"{name}{number}": array for name, array in own.items()}
    if case.steps == 1:  # a model that streams starts from the state of the frame before
        inputs["h0"] = source.normal((case.num_layers * d, case.batch, h), dtype)
    return inputs


def run(case: GruCase, inputs: Inputs) -> Any:
    if case.num_layers > 1:
        return cudml.gru_stack(
            inputs["x"],
            _layers(case, inputs),
            inputs.get("h0"),
            direction=case.direction,
            linear_before_reset=case.linear_before_reset,
            allow_tf32=case.allow_tf32,
        )
    return cudml.gru(
        inputs["x"],
        inputs["w"],
        inputs["r"],
        inputs["b"],
        inputs.get("h0"),
        direction=case.direction,
        linear_before_reset=case.linear_before_reset,
        allow_tf32=case.allow_tf32,
    )


def check(case: GruCase, inputs: Inputs, got: Any) -> str:
    """Both outputs against the formulas in float64: each layer at most twice its error in float32."""
    expected = _references(case, inputs, np.float64)
    rounded = _references(case, inputs, np.float32)
    allowed = [2 * error_of(one, exact) for one, exact in zip(rounded, expected, strict=True)]
    sequence, single = got
    error = require_error_within(sequence, expected[-1], allowed[-1], "sequence")
    for row, state in enumerate(_last_states(case, expected)):
        layer = row // case.num_directions
        require_error_within(single[row], state, allowed[layer], f"single of layer {layer}")
    return f"error {error:.1e} of {allowed[-1]:.1e}"


def _layers(case: GruCase, inputs: Inputs) -> list[tuple[Any, Any, Any]]:
    """The weights of each layer."""
    suffixes = ["", *map(str, range(1, case.num_layers))]
    return [(inputs[f"w{one}"], inputs[f"r{one}"], inputs[f"b{one}"]) for one in suffixes]


def _last_states(case: GruCase, sequences: list[Any]) -> list[Any]:
    """The last state of each direction of each layer."""
    return [sequence[t, d] for sequence in sequences for d, t in enumerate(_last_steps(case))]


def _last_steps(case: GruCase) -> list[int]:
    """Which step of the sequence each direction computes last."""
    return [-1 if d == 0 and case.direction != "reverse" else 0 for d in range(case.num_directions)]


def bytes_moved(case: GruCase) -> int:
    """Bytes of inputs, weights and outputs, each moved once; the weights stay on chip for all steps."""
    d, h = case.num_directions, case.hidden_size
    elements = case.steps * case.batch * (case.input_size + d * h) + d * case.batch * h
    elements += d * 3 * h * (case.input_size + h + 2)
    # What one layer gives to the next may stay on the chip.
    elements += (case.num_layers - 1) * d * (case.batch * h + 3 * h * (d * h + h + 2))
    return elements * np.dtype(case.dtype).itemsize


def steps(case: GruCase) -> int:
    """Number of steps: reports give the time per step, because the recurrence dominates."""
    return case.steps


def _references(case: GruCase, inputs: Inputs, precision: Any) -> list[Any]:
    """The sequence of each layer by the formulas; in float32 a float16 case rounds its state to float16
    every step, and a case of TF32 the operands of its products.
    """
    x, h0, d = inputs["x"], inputs.get("h0"), case.num_directions
    sequences: list[Any] = []
    for number, weights in enumerate(_layers(case, inputs)):
        sequences.append(
            gru_by_formulas(
                x,
                *weights,
                None if h0 is None else h0[number * d : (number + 1) * d],
                precision=precision,
                direction=case.direction,
                linear_before_reset=case.linear_before_reset,
                rounds_state=case.dtype == "float16" and precision == np.float32,
                rounds_operands=case.allow_tf32 and precision == np.float32,
            )
        )
        x = sequences[-1].transpose(0, 2, 1, 3).reshape(case.steps, case.batch, -1)
    return sequences


def _torch_module(case: GruCase, inputs: Inputs) -> Any | None:
    """torch.nn.GRU with the same weights; it is linear before reset and runs forward or both ways."""
    import torch

    if not case.linear_before_reset or case.direction == "reverse":
        return None
    x = to_torch(inputs["x"])
    module = torch.nn.GRU(
        case.input_size,
        case.hidden_size,
        case.num_layers,
        bidirectional=case.num_directions == 2,
        dtype=x.dtype,
        device=x.device,
    )
    h = case.hidden_size

    def reset_first(a: Any) -> Any:
        """Gate order z, r, h to torch's r, z, n."""
        return torch.cat([a[h : 2 * h], a[:h], a[2 * h :]])

    with torch.no_grad():
        for number, weights in enumerate(_layers(case, inputs)):
            for d, direction in enumerate(["", "_reverse"][: case.num_directions]):
                suffix = f"l{number}{direction}"
                w, r, b = (to_torch(array)[d] for array in weights)
                getattr(module, f"weight_ih_{suffix}").copy_(reset_first(w))
                getattr(module, f"weight_hh_{suffix}").copy_(reset_first(r))
                getattr(module, f"bias_ih_{suffix}").copy_(reset_first(b[: 3 * h]))
                getattr(module, f"bias_hh_{suffix}").copy_(reset_first(b[3 * h :]))
    module.flatten_parameters()
    return module


def _torch_gru(
    allow_tf32: bool, graph: bool = False
) -> Callable[[GruCase, Inputs], Callable[[], Any] | None]:
    def prepare(case: GruCase, inputs: Inputs) -> Callable[[], Any] | None:
        import torch

        module = _torch_module(case, inputs)
        x = to_torch(inputs["x"])
        h0 = to_torch(inputs["h0"]) if "h0" in inputs else None
        if module is None or (allow_tf32 and case.dtype != "float32") or (graph and not x.is_cuda):
            return None

        def call() -> Any:
            if x.is_cuda:
                torch.backends.cudnn.allow_tf32 = allow_tf32
            with torch.inference_mode():
                sequence, single = module(x, h0)
            steps, batch, _ = sequence.shape
            return sequence.view(steps, batch, case.num_directions, -1).transpose(1, 2), single

        return _captured(call) if graph else call

    return prepare


def _captured(call: Callable[[], Any]) -> Callable[[], Any]:
    """The call as a replayed CUDA graph: no launch overhead, and outputs in the same memory each time.

    The graph has only addresses, so the replay keeps the call, and with it the module and its weights.
    """
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()

    def replay(_keeps: Callable[[], Any] = call) -> Any:
        graph.replay()
        return result

    return replay


def _numpy_loop(case: GruCase, inputs: Inputs) -> Callable[[], Any] | None:
    """A loop over the steps, after one matrix product for all inputs."""
    if case.dtype != "float32":
        return None

    def call() -> Any:
        sequences = _references(case, inputs, np.float32)
        return sequences[-1], np.stack(_last_states(case, sequences))

    return call


def _onnxruntime(case: GruCase, inputs: Inputs) -> Callable[[], Any] | None:
    """ONNX Runtime's GRU on one thread; weights are part of the model, laid out when it is loaded."""
    if case.dtype != "float32" or case.num_layers > 1:
        return None
    import onnx
    import onnxruntime
    from onnx import helper

    given = {name: inputs[name] for name in ("x", "h0") if name in inputs}
    sizes = {name: list(array.shape) for name, array in given.items()} | {"sequence": None, "single": None}
    infos = {
        name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in sizes.items()
    }
    node = helper.make_node(
        "GRU",
        ["x", "w", "r", "b", *(["", "h0"] if "h0" in given else [])],
        ["sequence", "single"],
        hidden_size=case.hidden_size,
        direction=case.direction,
        linear_before_reset=int(case.linear_before_reset),
    )
    weights = [onnx.numpy_helper.from_array(inputs[name], name) for name in "wrb"]
    results = [infos[name] for name in ("sequence", "single")]
    graph = helper.make_graph([node], "layer", [infos[name] for name in given], results, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, given)


PEERS = {
    # For comparison, CUDML_EMULATOR=workers=1 limits cudml to one thread, too.
    "onnxruntime, one thread": Peer(_onnxruntime, needs=("onnx", "onnxruntime"), devices=("cpu",)),
    "numpy": Peer(_numpy_loop, devices=("cpu",)),
    "torch": Peer(_torch_gru(allow_tf32=False), needs=("torch",)),
    "torch tf32": Peer(
        _torch_gru(allow_tf32=True),
        contract="products of 10-bit mantissas",
        needs=("torch",),
        devices=("cuda",),
    ),
    "torch graph": Peer(_torch_gru(allow_tf32=False, graph=True), needs=("torch",), devices=("cuda",)),
}
