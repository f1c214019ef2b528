"""The array function `gru`, in ONNX's shapes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, SupportsIndex, overload

import numpy as np

from cudml.checks import Problems
from cudml.devices import Array
from cudml.dtypes import INTEGERS, ElementType, ExtendedType
from cudml.enums import DataType, ExecutionFlags, FeatureLevel, RecurrentNetworkDirection
from cudml.functions.arguments import (
    Argument,
    Arguments,
    Request,
    check_output,
    choice_of,
    dtype_in,
    output_pair,
    raise_all,
    wrong_argument,
)
from cudml.functions.array_types import ForeignArray, HostLengths, NumPyArray, Scalar, StatesT
from cudml.functions.calls import ArrayFunction
from cudml.functions.words import GRU, hiding_words, no_argument
from cudml.operators.gru import operator as _operator
from cudml.operators.gru.activations import Activation, activation_names, check_activation

#: The types that a layer computes.
FLOATS: dict[str, ElementType] = {
    "float16": DataType.FLOAT16,
    "float32": DataType.FLOAT32,
    "bfloat16": ExtendedType.BFLOAT16,
}

_DIRECTIONS = {
    "forward": RecurrentNetworkDirection.FORWARD,
    "reverse": RecurrentNetworkDirection.BACKWARD,
    "backward": RecurrentNetworkDirection.BACKWARD,
    "bidirectional": RecurrentNetworkDirection.BIDIRECTIONAL,
}

#: The activations of one direction: the update and reset gates' f, the hidden gate's g.
_DEFAULT_ACTIVATIONS = ("Sigmoid", "Tanh")

#: A larger bound changes no finite float32.
_FLOAT32_MAX = float(np.finfo(np.float32).max)

_MEMBERS = {
    "x": "input_tensor",
    "w": "weight_tensor",
    "r": "recurrence_tensor",
    "b": "bias_tensor",
    "h0": "hidden_init_tensor",
    "sequence_lengths": "sequence_lengths_tensor",
}

#: The shape of each input.
_SHAPES = {
    "x": ("T", "N", "I"),
    "w": ("D", "3H", "I"),
    "r": ("D", "3H", "H"),
    "b": ("D", "6H"),
    "h0": ("D", "N", "H"),
    "sequence_lengths": ("N",),
    "lengths": ("N",),
}

#: The names of the lengths: `gru`'s, and a plan's.
_LENGTHS = ("sequence_lengths", "lengths")

#: The argument that sets the size of each dimension, for messages.
_SOURCES = {"T": "x", "N": "x", "I": "x", "D": "direction", "H": "r"}

OUTPUTS = ("out[0]", "out[1]")
_OUTPUT_MEMBERS = ("output_sequence_tensor", "output_single_tensor")


Direction = Literal["forward", "reverse", "backward", "bidirectional"]

if TYPE_CHECKING:

    class GruResult(NamedTuple, Generic[StatesT]):
        sequence: StatesT
        single: StatesT

else:  # Python 3.10 makes no generic named tuples

    class GruResult(NamedTuple):
        """The result of `gru`: the states after each step (T, D, N, H), and the last states (D, N, H)."""

        sequence: Any
        single: Any


@overload
def gru(
    x: NumPyArray[Scalar],
    w: NumPyArray[Scalar],
    r: NumPyArray[Scalar],
    b: NumPyArray[Scalar] | None = None,
    h0: NumPyArray[Scalar] | None = None,
    sequence_lengths: HostLengths | None = None,
    *,
    direction: Direction = "forward",
    activations: Sequence[str | Activation] | None = None,
    linear_before_reset: bool = False,
    clip: float | None = None,
    allow_tf32: bool = False,
    out: tuple[NumPyArray[Scalar], NumPyArray[Scalar]] | None = None,
    stream: None = None,
) -> GruResult[NumPyArray[Scalar]]: ...
@overload
def gru(
    x: ForeignArray,
    w: ForeignArray,
    r: ForeignArray,
    b: ForeignArray | None = None,
    h0: ForeignArray | None = None,
    sequence_lengths: ForeignArray | Sequence[Any] | SupportsIndex | None = None,
    *,
    direction: Direction = "forward",
    activations: Sequence[str | Activation] | None = None,
    linear_before_reset: bool = False,
    clip: float | None = None,
    allow_tf32: bool = False,
    out: tuple[Any, Any] | None = None,
    stream: Any = None,
) -> GruResult[Any]: ...
@hiding_words
def gru(
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    h0: Any = None,
    sequence_lengths: Any = None,
    *,
    direction: Direction = "forward",
    activations: Sequence[str | Activation] | None = None,
    linear_before_reset: bool = False,
    clip: float | None = None,
    allow_tf32: bool = False,
    out: tuple[Any, Any] | None = None,
    stream: Any = None,
    **words: Any,
) -> GruResult[Any]:
    """A layer of gated recurrent units over whole sequences, with ONNX's shapes and gate order.

    T is the number of steps, N of sequences, I of inputs, H of hidden units; D is 2 if the direction is
    "bidirectional", else 1. Gates are in the order z (update), r (reset), h (hidden).

    Parameters
    ----------
    x : array (T, N, I)
        The inputs, of float32, float16 or bfloat16; any strides. Arrays in GPU memory (CuPy's, or any that
        share it) are processed by that GPU, arrays in CPU memory (NumPy's, or any that share it) by the CPU
        emulator.
    w : array (D, 3H, I)
        The weights of the inputs, of the dtype of `x`, as are `r`, `b` and `h0`.
    r : array (D, 3H, H)
        The weights of the recurrence.
    b : array (D, 6H), optional
        The biases of the inputs, then those of the recurrence; None is 0.
    h0 : array (D, N, H), optional
        The states before the first step; None is 0.
    sequence_lengths : array (N,), list or int, optional
        Number of steps of each sequence, of any integer dtype, or one number for all; None means T for all.
        A length above T counts as T, a negative one as 0. A list is copied to the device of `x`, which a
        graph cannot capture.
    direction : "forward", "reverse", "backward" or "bidirectional"
        "reverse" starts at each sequence's own last step; "backward" is another name for it.
    activations : sequence of str or Activation, optional
        f and g of each direction: f of the update and the reset gate, g of the hidden gate. Names are ONNX's,
        in any case, with ONNX's default parameters. None is Sigmoid and Tanh.
    linear_before_reset : bool
        Whether the reset gate is applied after the hidden gate's recurrence is multiplied by its weights.
    clip : float, optional
        Bounds the input of every activation to [-clip, clip], as ONNX's attribute does; above 0. None is no
        bound.
    allow_tf32 : bool
        Whether products of float32 may round their operands, those of `x`, `w`, `r` and the states, to TF32,
        which has 10 bits of mantissa and the range of float32. Sums, gates and the state between steps stay
        float32, so that the error is that of operands rounded to TF32. Only GPUs of compute capability 8.0 or
        later round, where that is estimated to be faster. No effect on other dtypes.
    out : (sequence, single), optional
        Arrays to write the results to, of exactly their shapes and dtypes and any strides, not overlapping
        each other or an input.
    stream : optional
        Orders the work, the results and the scratch memory: a CuPy stream, an object with `__cuda_stream__`,
        or an integer handle, on the GPU of `x`. None means CuPy's current stream, and is the only choice on
        a CPU.

    Returns
    -------
    GruResult
        `sequence` (T, D, N, H), the state after every step, 0 past a sequence's own steps; `single`
        (D, N, H), the state after each sequence's last processed step. Both are 0 for a sequence without
        steps, independent of `h0`, as in ONNX Runtime; if T is 0, that is every sequence.

    Raises
    ------
    ValueError
        A shape that does not match the others, a wrong number of activations, an unknown activation or
        direction, a `clip` that is not above 0, or an `out` of another shape, read-only or overlapping.
    TypeError
        Not an array, an unsupported dtype, mixed dtypes or devices, a `clip` that is not a number, an `out`
        of another dtype, not a stream, or an argument of another library.

    Examples
    --------
    >>> import numpy as np, cudml
    >>> x, w = np.ones((2, 1, 1), np.float32), np.ones((1, 3, 1), np.float32)
    >>> r, b = np.zeros((1, 3, 1), np.float32), np.zeros((1, 6), np.float32)
    >>> sequence, single = cudml.gru(x, w, r, b)
    >>> sequence.shape, single.shape
    ((2, 1, 1, 1), (1, 1, 1))

    Notes
    -----
    Sums and the state between steps are float32 for every dtype. A kernel computes the recurrence of a
    sequence with the same bits on every device, independent of the other sequences. But the kernel is chosen
    by size and device, and on a GPU cuBLAS multiplies `x` and `w`, with bits that depend on T, N, the GPU and
    the release. If the GPU cannot hold the weights, cuBLAS also multiplies the states and `r`: each step is
    then a product and a launch for the gates. For more than 32 steps, most steps are launched as a CUDA graph
    that cudml records, so that the GPU does not wait for the host. On a CPU the bits depend on neither T nor
    N: calls for one step each give the bits of one call for all steps, if the state is float32.

    Kernels whose blocks wait for each other give up after `CUDML_WAIT_LIMIT` seconds (10). On a CPU, the call
    then raises `KernelError`. On a GPU, the next call of any function on that GPU raises it, even if the
    kernel was launched by the replay of a graph.

    Source: GRU of DirectML's documentation, and ONNX's GRU.
    """
    if words:
        raise no_argument(gru, next(iter(words)), GRU)
    named = zip(_MEMBERS, (x, w, r, b, h0, sequence_lengths), strict=True)
    given = {name: array for name, array in named if array is not None}
    names = tuple(given)
    if x is None:
        _check_given(names)
    if isinstance(activations, list):
        activations = tuple(activations)
    bound = clip_bound(clip)
    options: Any = (names, direction, activations, linear_before_reset, bound, allow_tf32)
    if not has_usual_types(activations, linear_before_reset, allow_tf32):
        options = list(options)  # the check raises the error
    outputs = () if out is None else output_pair("gru", out, "sequence, single")
    inputs = tuple(given.values())
    call = _gru.find(inputs, outputs, options, stream)
    if call is None:
        return GruResult._make(_gru.plan_and_run(inputs, outputs, options, stream, names=names))
    return GruResult._make(call.run(inputs, outputs, stream))


def has_usual_types(activations: Any, *flags: Any) -> bool:
    """Whether options find the call that was planned for equal ones: True equals 1, a list is not hashed."""
    return {*map(type, flags)} == {bool} and isinstance(activations, (tuple, type(None)))


def clip_bound(clip: Any, function: str = "gru") -> float:
    """The bound of a `clip`, infinite if None; TypeError if it is not a number, ValueError if not above 0."""
    if clip is None:
        return math.inf
    expected = "a number above 0"
    if isinstance(clip, bool) or not isinstance(clip, (int, float, np.integer, np.floating)):
        raise TypeError(wrong_argument(function, "clip", repr(clip), expected))
    if not clip > 0:
        raise ValueError(wrong_argument(function, "clip", clip, expected))
    return math.inf if clip > _FLOAT32_MAX else float(clip)


@dataclass(frozen=True)
class Cell:
    """What a layer computes, apart from its arrays."""

    direction: RecurrentNetworkDirection
    activations: tuple[Activation, ...]
    linear_before_reset: bool
    clip: float
    allow_tf32: bool = False

    @property
    def num_directions(self) -> int:
        return 2 if self.direction == RecurrentNetworkDirection.BIDIRECTIONAL else 1

    @property
    def attributes(self) -> dict[str, Any]:
        """The members of a descriptor that are no tensors."""
        names = ("activation_descs", "direction", "linear_before_reset")
        return dict(zip(names, (self.activations, self.direction, self.linear_before_reset), strict=True))

    @property
    def flags(self) -> ExecutionFlags:
        """What the planner takes of the flags that DirectML has."""
        allowed = ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION
        return allowed if self.allow_tf32 else ExecutionFlags.NONE


def cell_of(
    function: str,
    direction: Any,
    activations: Any,
    linear_before_reset: Any,
    clip: float,
    allow_tf32: Any = False,
) -> Cell:
    """The checked attributes of a layer; `clip` is a `clip_bound`."""
    way = choice_of(function, "direction", direction, _DIRECTIONS)
    for name, value in (("linear_before_reset", linear_before_reset), ("allow_tf32", allow_tf32)):
        if not isinstance(value, (bool, int, np.bool_)):
            raise TypeError(wrong_argument(function, name, repr(value), "True or False"))
    chosen = _activations(function, activations, 2 if direction == "bidirectional" else 1)
    return Cell(way, chosen, bool(linear_before_reset), clip, bool(allow_tf32))


def request_of(
    function: str,
    cell: Cell,
    kind: ElementType,
    arrays: Mapping[str, Array],
    outs: Sequence[Array | None],
    *,
    has_panels: bool = False,
) -> Request:
    """The request of a call whose inputs fit each other; `has_panels` as for the planner."""
    inputs = inputs_of(arrays, {**_MEMBERS, "lengths": "sequence_lengths_tensor"})
    outputs = outputs_of(function, cell, kind, arrays["x"], arrays["r"].shape[2], outs)
    given = {argument.member for argument in inputs}
    absent = {member: None for member in _MEMBERS.values() if member not in given}
    options, is_zero = (cell.clip, has_panels, cell.flags), len(arrays["x"]) == 0
    return Request(inputs, outputs, {**absent, **cell.attributes}, options, is_zero=is_zero)


def inputs_of(arrays: Mapping[str, Array], members: Mapping[str, str]) -> list[Argument]:
    """The inputs of a call by name; if I is 0, x and w get one column of zeros."""
    return [
        Argument(
            name,
            members[name],
            (INTEGERS if name in _LENGTHS else FLOATS)[array.dtype.name],
            array,
            array.shape,
            array.dtype,
            sizes=(1,) * (4 - array.ndim) + array.shape,
            operand_shape=(1, *array.shape[:-1], 1)
            if array.shape[-1] == 0 and members[name] in ("input_tensor", "weight_tensor")
            else None,
        )
        for name, array in arrays.items()
    ]


def outputs_of(
    function: str,
    cell: Cell,
    kind: ElementType,
    x: Array,
    hidden: int,
    outs: Sequence[Array | None],
    num_layers: int = 1,
) -> list[Argument]:
    """The checked outputs of layers of some hidden size."""
    (steps, batch, _), rows = x.shape, cell.num_directions
    outputs = []
    shapes = ((steps, rows, batch, hidden), (num_layers * rows, batch, hidden))
    for name, member, shape, out in zip(OUTPUTS, _OUTPUT_MEMBERS, shapes, outs, strict=True):
        if out is not None:
            check_output(function, name, out, shape, x.dtype)
        sizes = (1,) * (4 - len(shape)) + shape
        outputs.append(Argument(name, member, kind, out, shape, x.dtype, sizes=sizes))
    return outputs


def _check_given(names: Sequence[str]) -> None:
    """Raise TypeError unless `names` include the arrays that every call needs."""
    needed = (name for name in ("x", "w", "r") if name not in names)
    raise_all("gru", [TypeError(wrong_argument("gru", name, None, "an array")) for name in needed])


def _activations(function: str, activations: Any, num_directions: int) -> tuple[Activation, ...]:
    """f and g of every direction."""
    if activations is None:
        activations = _DEFAULT_ACTIVATIONS * num_directions
    if isinstance(activations, str) or not isinstance(activations, Sequence):
        expected = "a sequence of names or Activation objects"
        raise TypeError(wrong_argument(function, "activations", repr(activations), expected))
    count = 2 * num_directions
    if len(activations) != count:
        expected = f"of length {count}, f and g of each direction"
        raise ValueError(wrong_argument(function, "activations", f"of length {len(activations)}", expected))
    chosen = []
    errors: list[Exception] = []
    problems = Problems(function)
    for i, item in enumerate(activations):
        if isinstance(item, Activation):
            check_activation(problems, f"activations[{i}]", item, max(FeatureLevel))
            chosen.append(item)
        elif isinstance(item, str):
            try:
                chosen.append(Activation(item))
            except ValueError:
                expected = f"one of {activation_names()}"
                errors.append(ValueError(wrong_argument(function, f"activations[{i}]", repr(item), expected)))
        else:
            expected = "a name or a cudml.Activation"
            errors.append(TypeError(wrong_argument(function, f"activations[{i}]", repr(item), expected)))
    raise_all(function, [*errors, *(ValueError(str(problem)) for problem in problems.found)])
    return tuple(chosen)


def _check_dtypes(arrays: Mapping[str, Array], names: Sequence[str]) -> ElementType:
    """The element type of all inputs except the lengths."""
    kind = dtype_in("gru", "x", arrays["x"], FLOATS)
    if "sequence_lengths" in names:
        dtype_in("gru", "sequence_lengths", arrays["sequence_lengths"], INTEGERS)
    floats = {name: arrays[name] for name in names if name != "sequence_lengths"}
    check_same_dtype("gru", floats, arrays["x"].dtype, "as x")
    return kind


def check_same_dtype(function: str, arrays: Mapping[str, Array], dtype: Any, why: str) -> None:
    """Raise TypeError, naming every array of another dtype."""
    problems = [
        f"{name} is of dtype {array.dtype}, must be of {dtype}, {why}"
        for name, array in arrays.items()
        if array.dtype != dtype
    ]
    if problems:
        raise TypeError(f"{function}: {'; '.join(problems)}")


def _check_shapes(arrays: Mapping[str, Array], num_directions: int) -> None:
    """Compare every shape with the shapes of x and r and with the direction."""
    given = {name: arrays[name] for name in _SHAPES if name in arrays}
    sizes = sizes_of(num_directions, x=given["x"], r=given["r"])
    check_shapes("gru", given, sizes, _SOURCES)


def sizes_of(num_directions: int, **arrays: Array) -> dict[str, int]:
    """The sizes by letter, from the arrays among x, w and r that have three dimensions."""
    sizes = {"D": num_directions}
    for name, letters in (("w", "  I"), ("r", "  H"), ("x", "TNI")):
        if name in arrays and arrays[name].ndim == 3:
            named = zip(letters, arrays[name].shape, strict=True)
            sizes |= {letter: size for letter, size in named if letter != " "}
    return sizes


def check_shapes(
    function: str, arrays: Mapping[str, Array], sizes: Mapping[str, int], sources: Mapping[str, str]
) -> None:
    """Raise ValueError with all `shape_problems`, if there are any."""
    if problems := shape_problems(arrays, sizes, sources):
        raise ValueError(f"{function}: {'; '.join(problems)}")


def shape_problems(
    arrays: Mapping[str, Array],
    sizes: Mapping[str, int],
    sources: Mapping[str, str],
    shapes: Mapping[str, Sequence[str]] = _SHAPES,
    where: str = "",
) -> list[str]:
    """The problems of shapes; `sources` says where the size of a letter comes from.

    If I or H is unknown, only numbers of dimensions are checked. `where` is appended to array names.
    """
    known = dict(sizes)
    if "H" in known:
        known |= {"3H": 3 * known["H"], "6H": 6 * known["H"]}
    problems = []
    is_complete = {"I", "H"} <= known.keys()
    for name, array in arrays.items():
        letters, shape, label = shapes[name], tuple(array.shape), f"{name}{where}"
        named = f"({', '.join(letters)}{',' * (len(letters) == 1)})"
        if not is_complete:
            if len(shape) != len(letters):
                problems.append(f"{label} is of shape {shape}, must be {named}")
            continue
        expected = tuple(known.get(letter) for letter in letters)
        if len(shape) == len(letters) and all(n in (None, m) for n, m in zip(expected, shape, strict=True)):
            continue
        parts = [letter if n is None else str(n) for letter, n in zip(letters, expected, strict=True)]
        text = f"({', '.join(parts)}{',' * (len(parts) == 1)})"
        given = "".join(letter for letter, n in zip(letters, expected, strict=True) if n is not None)
        because = ", ".join(
            f"{one} = {known[one]} from {sources[one]}" for one in dict.fromkeys(given) if one.isalpha()
        )
        problems.append(f"{label} is of shape {shape}, must be {named} = {text}, with {because}")
    return problems


class _Gru(ArrayFunction):
    """The array function."""

    name, input_names, output_names = "gru", (*_MEMBERS,), OUTPUTS
    lengths_axes = slice(1, 2)
    descriptor = _operator.GruDesc
    plan = staticmethod(_operator.plan)

    def check(
        self,
        given: Arguments,
        names: Sequence[str],
        direction: Any,
        activations: Any,
        linear_before_reset: Any,
        clip: float = math.inf,
        allow_tf32: Any = False,
    ) -> Request:
        arrays = given.arrays
        _check_given(names)
        cell = cell_of(self.name, direction, activations, linear_before_reset, clip, allow_tf32)
        kind = _check_dtypes(arrays, names)
        _check_shapes(arrays, cell.num_directions)
        tensors = {name: arrays[name] for name in names}
        return request_of(self.name, cell, kind, tensors, [arrays.get(name) for name in OUTPUTS])


_gru = _Gru()
