"""The array function `reverse_subsequences`."""

from collections.abc import Sequence
from operator import index
from typing import Any, SupportsIndex, overload

from cudml.checks import MAX_DIMENSIONS
from cudml.functions.arguments import (
    Argument,
    Arguments,
    Request,
    bits_of,
    check_output,
    lengths_of_lanes,
    normalized_axis,
)
from cudml.functions.array_types import ForeignArray, HostLengths, NumPyArray, Scalar
from cudml.functions.calls import ArrayFunction
from cudml.functions.words import REVERSE_SUBSEQUENCES, hiding_words, no_argument
from cudml.operators.reverse_subsequences import operator as _operator
from cudml.tensors import num_elements


@overload
def reverse_subsequences(
    a: NumPyArray[Scalar],
    sequence_lengths: HostLengths,
    axis: SupportsIndex = -1,
    *,
    out: NumPyArray[Scalar] | None = None,
    stream: None = None,
) -> NumPyArray[Scalar]: ...
@overload
def reverse_subsequences(
    a: ForeignArray,
    sequence_lengths: ForeignArray | Sequence[Any] | SupportsIndex,
    axis: SupportsIndex = -1,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any: ...
@hiding_words
def reverse_subsequences(
    a: Any,
    sequence_lengths: Any,
    axis: SupportsIndex = -1,
    *,
    out: Any = None,
    stream: Any = None,
    **words: Any,
) -> Any:
    """Reverse the first elements of every lane along an axis, and keep the rest.

    Parameters
    ----------
    a : array
        At least 1-D, of any dtype of 1, 2, 4, 8 or 16 bytes without objects; any strides. Arrays in GPU
        memory (CuPy's, or any that share it) are processed by that GPU, arrays in CPU memory (NumPy's, or any
        that share it) by the CPU emulator.
    sequence_lengths : array, list or int
        Number of elements to reverse in each lane, of any integer dtype; broadcasts to the shape of `a` with
        1 at the axis. A length above the size of the axis reverses the whole lane, a negative one nothing. A
        list is copied to the device of `a`, which a graph cannot capture.
    axis : int
        Axis that the lanes run along; negative values count from the end.
    out : array, optional
        Array to write the result to, of the shape and dtype of `a` and any strides, not overlapping an input.
    stream : optional
        Orders the work, the results and the scratch memory: a CuPy stream, an object with `__cuda_stream__`,
        or an integer handle, on the GPU of `a`. None means CuPy's current stream, and is the only choice on
        a CPU.

    Returns
    -------
    array
        A new array of the shape and dtype of `a`, or `out`.

    Raises
    ------
    ValueError
        Lengths that do not broadcast, axis=None, or an `out` of another shape, read-only or overlapping.
    TypeError
        Not an array, an unsupported dtype, mixed devices, an `out` of another dtype, or not a stream.
    numpy.exceptions.AxisError
        The axis does not exist.

    Examples
    --------
    >>> import numpy as np, cudml
    >>> a = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])
    >>> cudml.reverse_subsequences(a, np.array([[2], [9]])).tolist()
    [[2, 1, 3, 4], [8, 7, 6, 5]]

    Notes
    -----
    Source: REVERSE_SUBSEQUENCES of DirectML's documentation.
    """
    if words:
        raise no_argument(reverse_subsequences, next(iter(words)), REVERSE_SUBSEQUENCES)
    try:
        options: Any = (index(axis),)
    except TypeError:
        options = [axis]  # the check raises the error
    inputs, outputs = (a, sequence_lengths), () if out is None else (out,)
    call = _reverse_subsequences.find(inputs, outputs, options, stream)
    if call is None:
        return _reverse_subsequences.plan_and_run(inputs, outputs, options, stream)[0]
    return call.run(inputs, outputs, stream)[0]


class _ReverseSubsequences(ArrayFunction):
    """The array function."""

    name, input_names, output_names = "reverse_subsequences", ("a", "sequence_lengths"), ("out",)
    descriptor = _operator.ReverseSubsequencesDesc
    plan = staticmethod(_operator.plan)

    def check(self, given: Arguments, axis: Any) -> Request:
        function = self.name
        array, out = given.arrays["a"], given.arrays.get("out")
        kind = bits_of(function, "a", array)
        axis = normalized_axis(function, axis, array.ndim)
        shape = tuple(array.shape)
        lengths = lengths_of_lanes(
            function, "sequence_lengths", given.arrays["sequence_lengths"], shape, axis
        )
        if out is not None:
            check_output(function, "out", out, shape, array.dtype)
        flat = None
        if array.ndim > MAX_DIMENSIONS:
            before, after = num_elements(shape[:axis]), num_elements(shape[axis + 1 :])
            flat, axis = (before, shape[axis], after), 1
        inputs = [
            Argument(
                "a", "input_tensor", kind, array, shape, array.dtype, operand_shape=flat, any_address=True
            ),
            lengths,
        ]
        target = Argument(
            "out", "output_tensor", kind, out, shape, array.dtype, operand_shape=flat, any_address=True
        )
        return Request(inputs, [target], {"axis": axis})


_reverse_subsequences = _ReverseSubsequences()
