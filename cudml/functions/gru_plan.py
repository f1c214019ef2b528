"""`GruPlan`: a layer of gated recurrent units whose weights are arranged for its kernels once."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from cudml.devices import Array, Device, Program, get_device
from cudml.dtypes import INTEGERS, ElementType
from cudml.errors import a_type
from cudml.executable import load
from cudml.functions.arguments import (
    Arguments,
    Request,
    all_on_device,
    as_integer,
    dtype_in,
    on_device,
    on_stream,
    output_pair,
    wrong_argument,
)
from cudml.functions.calls import ArrayFunction
from cudml.functions.gru import (
    FLOATS,
    OUTPUTS,
    Cell,
    Direction,
    GruResult,
    cell_of,
    check_same_dtype,
    check_shapes,
    clip_bound,
    request_of,
    sizes_of,
)
from cudml.functions.transfer import assign, upload
from cudml.operators.gru import operator as _operator
from cudml.operators.gru.activations import Activation
from cudml.tensors import tensor_of

_NAME = "GruPlan"

_INPUTS = ("x", "w", "r", "b", "h0", "lengths")

#: Where the sizes of the weights, and those of a call's arrays, come from, for messages.
_WEIGHT_SOURCES = {"D": "direction", "I": "w", "H": "r"}
_CALL_SOURCES = dict.fromkeys("DNIH", "the plan")


@dataclass(frozen=True, eq=False)
class _Layer:
    """The properties of a plan's layer, which calls are checked against."""

    cell: Cell
    kind: ElementType
    dtype: Any
    #: Sizes by letter, without N if it is up to the call.
    sizes: dict[str, int]
    has_panels: bool


class GruPlan:
    """`cudml.gru` for one set of weights: they are arranged for the kernels once.

    Calls return what `cudml.gru` returns, with the same bits. On a CPU, they do not convert the weights to
    float32 and do not copy them into panels. On a GPU, they do not pack strided weights, and weights in the
    host's memory are uploaded once; kernels read packed weights in place.

    Parameters
    ----------
    w, r, b : array
        As for `cudml.gru`. The plan keeps a copy of its own, so they may change or be freed afterwards.
    batch : int, optional
        N, the number of sequences of every call. None takes any. The number of steps is up to the call.
    direction, activations, linear_before_reset, clip, allow_tf32
        As for `cudml.gru`.
    device : str, optional
        "cuda", "cuda:1" or "cpu": where the plan runs. Weights in the host's memory are moved there. None is
        where the weights are.
    stream : optional
        As for `cudml.gru`: orders the copies of the weights. Calls on other streams must come after them.

    Attributes
    ----------
    batch : int or None
        N; None if it is up to the call.
    num_directions, hidden_size : int
        D and H.
    device : str
        The name of the device.
    dtype : dtype
        That of all floating-point arrays.

    Raises
    ------
    ValueError, TypeError
        As `cudml.gru` does.
    DeviceError
        `device` cannot be used.

    Examples
    --------
    >>> import numpy as np, cudml
    >>> w, r = np.ones((1, 3, 2), np.float32), np.zeros((1, 3, 1), np.float32)
    >>> plan = cudml.GruPlan(w, r, batch=4)
    >>> plan
    <GruPlan of float32 on cpu: D 1, N 4, I 2, H 1>
    >>> sequence, single = plan(np.ones((5, 4, 2), np.float32))
    >>> sequence.shape, single.shape
    ((5, 1, 4, 1), (1, 4, 1))
    """

    def __init__(
        self,
        w: Any,
        r: Any,
        b: Any = None,
        *,
        batch: int | None = None,
        direction: Direction = "forward",
        activations: Sequence[str | Activation] | None = None,
        linear_before_reset: bool = False,
        clip: float | None = None,
        allow_tf32: bool = False,
        device: str | None = None,
        stream: Any = None,
    ) -> None:
        bound = clip_bound(clip, _NAME)
        cell = cell_of(_NAME, direction, activations, linear_before_reset, bound, allow_tf32)
        self.batch = None if batch is None else as_integer(_NAME, "batch", batch)
        if self.batch is not None and self.batch < 0:
            raise ValueError(wrong_argument(_NAME, "batch", batch, "at least 0"))
        named = None if device is None else _device_named(device)
        with _on_stream(named, w, stream):
            given = _taken(named, w, r, b)
            self._device = named or given.device
            self.device = self._device.name
            kind = dtype_in(_NAME, "w", given.arrays["w"], FLOATS)
            self.dtype = given.arrays["w"].dtype
            check_same_dtype(_NAME, given.arrays, self.dtype, "as w")
            sizes = sizes_of(cell.num_directions, **given.arrays)
            check_shapes(_NAME, given.arrays, sizes, _WEIGHT_SOURCES)
            has_panels = self._device.limits.warp_lanes == 1
            if self.batch is not None:
                sizes["N"] = self.batch
            layer = _Layer(cell, kind, self.dtype, sizes, has_panels)
            self._sizes = layer.sizes
            self.num_directions, self.hidden_size = sizes["D"], sizes["H"]
            self._shapes = {name: tuple(array.shape) for name, array in given.arrays.items()}
            self._panels: dict[str, Program] = {}
            self._weights = {name: self._memory_for(name, layer) for name in self._shapes}
            self._write(given)
        self._function = _LayerFunction(layer)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{letter} {self._sizes.get(letter, 'any')}" for letter in "DNIH")
        return f"<GruPlan of {self.dtype} on {self.device}: {sizes}>"

    def __call__(
        self,
        x: Any,
        h0: Any = None,
        lengths: Any = None,
        *,
        out: tuple[Any, Any] | None = None,
        stream: Any = None,
    ) -> GruResult[Any]:
        """Run the layer.

        A CUDA graph of calls needs the plan as long as it is replayed.

        Parameters
        ----------
        x : array (T, N, I)
            The inputs, on the plan's device, with its dtype and I, and with its N if that is not None.
        h0, lengths, out, stream
            As `h0`, `sequence_lengths`, `out` and `stream` of `cudml.gru`.

        Returns
        -------
        GruResult
            As for `cudml.gru`.

        Raises
        ------
        ValueError, TypeError
            As `cudml.gru` does; the message says what the plan was made for.
        """
        given = {"x": x, **self._weights}
        if h0 is not None:
            given["h0"] = h0
        if lengths is not None:
            given["lengths"] = lengths
        names, inputs = (*given,), (*given.values(),)
        outputs = () if out is None else output_pair(_NAME, out, "sequence, single")
        call = self._function.find(inputs, outputs, (names,), stream)
        if call is not None:
            return GruResult._make(call.run(inputs, outputs, stream))
        try:
            results = self._function.plan_and_run(inputs, outputs, (names,), stream, names=names)
        except (TypeError, ValueError):
            device = on_device(_NAME, "x", x)[2]
            if device is not self._device:  # clearer than an error about the weights' device
                raise _elsewhere("x", device, self.device) from None
            raise
        return GruResult._make(results)

    def update(self, w: Any, r: Any, b: Any = None, *, stream: Any = None) -> None:
        """Take other weights, or the same arrays after a change in place; captured graphs use them, too.

        Parameters
        ----------
        w, r, b : array
            Of the shapes and dtype of the former weights, on the plan's device or in the host's memory. `b`
            is given if and only if the plan was made with it.
        stream : optional
            As for the plan.

        Raises
        ------
        ValueError, TypeError
            Weights that the plan was not made for. Nothing was changed.
        """
        with _on_stream(self._device, w, stream):
            given = _taken(self._device, w, r, b)
            if given.arrays.keys() != self._shapes.keys():
                got, expected = ("an array", "None") if "b" in given.arrays else (None, "an array")
                raise TypeError(wrong_argument(_NAME, "b", got, f"{expected}, as when the plan was made"))
            check_same_dtype(_NAME, given.arrays, self.dtype, "which the plan was made for")
            for name, array in given.arrays.items():
                if tuple(array.shape) != self._shapes[name]:
                    expected = f"of {self._shapes[name]}, which the plan was made for"
                    raise ValueError(wrong_argument(_NAME, name, f"of shape {tuple(array.shape)}", expected))
            self._write(given)

    def _memory_for(self, name: str, layer: _Layer) -> Array:
        """The plan's memory for one of the weights; if I is 0, w has one column for kernels to read."""
        device, shape = self._device, self._shapes[name]
        is_empty = 0 in shape
        if name == "w" and shape[2] == 0:
            shape = (*shape[:2], 1)
        if not (layer.has_panels and name in ("w", "r")):
            return device.empty(shape, layer.dtype)
        if not is_empty:
            is_split = name == "r" and not layer.cell.linear_before_reset
            tensor = tensor_of(layer.kind, (1, *shape))
            self._panels[name] = load(_operator.panels, tensor, device, (is_split,))[1]
        return device.empty(_operator.panel_sizes(shape), "float32")

    def _write(self, given: Arguments) -> None:
        """Arrange weights for the kernels."""
        with given.device.sharing(given.shared):
            for name, own in self._weights.items():
                array, fill = given.arrays[name], self._panels.get(name)
                if 0 in array.shape:
                    assign(own, 0)
                elif fill is not None:
                    packed = np.require(array, requirements=("C_CONTIGUOUS", "ALIGNED"))
                    fill((packed, own), None)
                else:
                    assign(own, array if given.device is self._device else upload(self._device, array))


def _device_named(name: Any) -> Device:
    expected = "'cpu', 'cuda' or 'cuda:N'"
    if not isinstance(name, str):
        raise TypeError(wrong_argument(_NAME, "device", a_type(name), f"a string, {expected}, or None"))
    try:
        return get_device(name)
    except ValueError as error:
        raise ValueError(f"{_NAME}: {error}") from None


def _on_stream(device: Device | None, w: Any, stream: Any) -> AbstractContextManager[None]:
    """A context in which a stream of `device`, or of the device of w if that is None, is current."""
    if device is None:
        return on_stream(_NAME, w, stream)
    try:
        return device.on_stream(stream)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{_NAME}: {error}") from None


def _taken(device: Device | None, w: Any, r: Any, b: Any) -> Arguments:
    """The weights, all on one device: if `device` is given, on it or on the host."""
    arrays = {"w": w, "r": r} | ({} if b is None else {"b": b})
    given = all_on_device(_NAME, (*arrays,), (*arrays.values(),))
    if device is not None and given.device not in (device, get_device("cpu")):
        raise _elsewhere("w", given.device, device.name)
    return given


def _elsewhere(name: str, device: Device, expected: str) -> Exception:
    """The error about an array on another device, of the kind that `all_on_device` raises."""
    kinds = {device.name.partition(":")[0], expected.partition(":")[0]}
    error = TypeError if len(kinds) > 1 else ValueError
    return error(wrong_argument(_NAME, name, f"on {device.name}", f"on {expected}, which the plan is for"))


class _LayerFunction(ArrayFunction):
    """The calls of a plan.

    It does not refer to the plan: the cycle would keep the weights until a garbage collection.
    """

    name, input_names, output_names = _NAME, _INPUTS, OUTPUTS
    lengths_axes = slice(1, 2)
    descriptor = _operator.GruDesc
    plan = staticmethod(_operator.plan)

    def __init__(self, layer: _Layer) -> None:
        super().__init__()
        self._layer = layer

    def check(self, given: Arguments, names: Sequence[str]) -> Request:
        layer = self._layer
        arrays = {name: given.arrays[name] for name in names}
        own = {name: array for name, array in arrays.items() if name in ("x", "h0", "lengths")}
        if "lengths" in own:
            dtype_in(_NAME, "lengths", own["lengths"], INTEGERS)
        floats = {name: array for name, array in own.items() if name != "lengths"}
        check_same_dtype(_NAME, floats, layer.dtype, "which the plan was made for")
        sizes, sources = layer.sizes, _CALL_SOURCES
        if "N" not in sizes and own["x"].ndim == 3:
            sizes, sources = sizes | {"N": own["x"].shape[1]}, sources | {"N": "x"}
        check_shapes(_NAME, own, sizes, sources)
        outs = [given.arrays.get(name) for name in OUTPUTS]
        return request_of(_NAME, layer.cell, layer.kind, arrays, outs, has_panels=layer.has_panels)
