"""CuPy: partial sorts that sort no more than they have to, and how NumPy's own functions reach cudml.

`top_k` has the signature of the array API, `argpartition` and `partition` that of CuPy. They take CuPy's
arrays, and NumPy's on a CPU.
"""

import sys
from collections.abc import Callable, Iterable
from operator import index
from typing import Any, Literal

import numpy as np

from cudml.devices import cuda
from cudml.errors import DeviceError, a_type
from cudml.functions import top_k as _top_k
from cudml.functions import words
from cudml.functions.arguments import advice, dtype_in
from cudml.functions.words import naming_words, renamed
from cudml.locks import import_unforked

__all__ = ["argpartition", "install_cupy", "partition", "top_k"]

_ABSENT: Any = object()

#: Arguments of other libraries, and those of `cudml.top_k` that the array API lacks.
_WORDS = {
    **words.TOP_K,
    **dict.fromkeys(("sorted", "nan", "lengths", "out", "stream"), "left out: cudml.top_k takes it"),
}

#: Arguments of NumPy's and other libraries' functions.
_PARTITION_WORDS = {
    "kind": "left out: there is one way of partitioning",
    "order": "left out: arrays have no fields",
    "k": "kth=",
    "dim": "axis=",
}


@naming_words(_WORDS)
def top_k(
    x: Any, k: int, /, *, axis: int = -1, mode: Literal["largest", "smallest"] = "largest"
) -> _top_k.TopKResult[Any, Any]:
    """Return the k largest or smallest elements along an axis, best first, and their indices.

    Parameters
    ----------
    x : cupy.ndarray or numpy.ndarray
        At least 1-D, of a type of `cudml.top_k`.
    k : int
        Number of elements, from 0 to the size of the axis.
    axis : int
        Axis to select along.
    mode : "largest" or "smallest"
        Which elements to select.

    Returns
    -------
    TopKResult
        `values` of the dtype of `x` and `indices` of int64, with size k at the axis.

    Raises
    ------
    ValueError
        `k` or `mode` is invalid.
    TypeError
        Not an array, or an unsupported dtype.
    numpy.exceptions.AxisError
        The axis does not exist.

    Examples
    --------
    >>> import numpy as np, cudml.cupy
    >>> cudml.cupy.top_k(np.array([1.0, 5.0, 5.0]), 2).indices
    array([1, 2])

    Notes
    -----
    The array API leaves open what cudml defines: results are sorted, ties go to the lower index, and NaN is
    last in both modes. Source: `top_k` of the draft that follows version 2025.12 of the array API standard
    (data-apis/array-api, pull request 722).
    """
    _namespace("top_k", "x", x)
    try:
        return _top_k.TopKResult(*_top_k.top_k(x, k, axis=axis, mode=mode))
    except (TypeError, ValueError) as error:
        raise renamed(error, "a", "x") from None


@naming_words(_PARTITION_WORDS)
def argpartition(a: Any, kth: int | Iterable[int], axis: int | None = -1) -> Any:
    """Return indices that partition an array: the element at `kth` is where a sort would have it.

    Parameters
    ----------
    a : cupy.ndarray or numpy.ndarray
        At least 1-D, of a type of `cudml.top_k`.
    kth : int or sequence of int
        The places that are right afterwards; negative ones count from the end. Elements before such a place
        are not greater than the element at it, elements behind it are not less.
    axis : int, optional
        Axis to partition along; None is that of the flattened array.

    Returns
    -------
    array of int64
        Of the shape of `a`, or 1-D if the axis is None.

    Raises
    ------
    ValueError
        A place is out of bounds.
    TypeError
        Not an array, an unsupported dtype, or places that are not integers.
    numpy.exceptions.AxisError
        The axis does not exist.

    Examples
    --------
    >>> import numpy as np, cudml.cupy
    >>> cudml.cupy.argpartition(np.array([7, 1, 5, 3, 9, 8, 2]), 1)
    array([1, 6, 0, 2, 3, 4, 5])

    Notes
    -----
    `cupy.argpartition` sorts the whole array. This one selects and sorts the elements up to the last of
    `kth`, or those from the first of `kth` on, whichever are fewer; the others keep their order. NaN is last.
    Source: `numpy.argpartition`, `cupy.argpartition`.
    """
    return _partitioned("argpartition", a, kth, axis)


@naming_words(_PARTITION_WORDS)
def partition(a: Any, kth: int | Iterable[int], axis: int | None = -1) -> Any:
    """Return a partitioned copy of an array: the element at `kth` is where a sort would have it.

    Parameters
    ----------
    a, kth, axis
        As for `argpartition`.

    Returns
    -------
    array
        Of the dtype and shape of `a`, or 1-D if the axis is None.

    Raises
    ------
    ValueError, TypeError, numpy.exceptions.AxisError
        As for `argpartition`.

    Examples
    --------
    >>> import numpy as np, cudml.cupy
    >>> cudml.cupy.partition(np.array([7, 1, 5, 3, 9, 8, 2]), 1)
    array([1, 2, 7, 5, 3, 9, 8])

    Notes
    -----
    Source: `numpy.partition`, `cupy.partition`.
    """
    xp = _namespace("partition", "a", a)
    places = _partitioned("partition", a, kth, axis)
    return xp.take_along_axis(a.ravel() if axis is None else a, places, -1 if axis is None else axis)


def install_cupy() -> Callable[[], None]:
    """Put `top_k`, `argpartition` and `partition` in CuPy, so that NumPy's functions of CuPy arrays run them.

    `cupy.top_k` becomes `cudml.top_k`, which has NumPy's arguments. NumPy 2.6 has `top_k`: for a CuPy array
    it calls CuPy, which looks up the function by its name in the module `cupy`. `cupy.argpartition` and
    `cupy.partition` become those of `cudml.cupy`; arrays of complex numbers go to CuPy's own as before.
    Methods of arrays stay as they are, and nothing changes before this is called.

    Returns
    -------
    callable
        Takes no arguments; puts back the functions that were there before.

    Raises
    ------
    DeviceError
        CuPy is not installed.

    Examples
    --------
    >>> import cupy, numpy, cudml  # doctest: +SKIP
    >>> uninstall = cudml.install_cupy()  # doctest: +SKIP
    >>> numpy.top_k(cupy.array([1.0, 5.0, 5.0]), 2).indices  # doctest: +SKIP
    array([1, 2])
    >>> numpy.argpartition(cupy.array([7, 1, 5]), 0)  # doctest: +SKIP
    array([1, 0, 2])
    >>> uninstall()  # doctest: +SKIP

    Notes
    -----
    Source: NEP 18 for the protocol, `numpy.top_k` for the signature.
    """
    try:
        cupy = import_unforked("cupy")
    except ModuleNotFoundError:
        extras = "'cudml[cuda13]' or 'cudml[cuda12]'"
        raise DeviceError(f"install_cupy: CuPy is not installed: pip install {extras}") from None
    replaced = {
        "top_k": _top_k.top_k,
        "argpartition": _beside(argpartition, cupy.argpartition),
        "partition": _beside(partition, cupy.partition),
    }
    former = {name: getattr(cupy, name, _ABSENT) for name in replaced}
    for name, function in replaced.items():
        setattr(cupy, name, function)

    def uninstall() -> None:
        for name, function in replaced.items():
            if getattr(cupy, name, None) is function:
                if former[name] is _ABSENT:
                    delattr(cupy, name)
                else:
                    setattr(cupy, name, former[name])

    return uninstall


def _partitioned(function: str, a: Any, kth: Any, axis: int | None) -> Any:
    """The indices of `argpartition`, for a function that errors name."""
    xp = _namespace(function, "a", a)
    dtype_in(function, "a", a, _top_k._REALS)
    if axis is None:
        a, axis = a.ravel(), 0
    if a.ndim == 0:
        raise np.exceptions.AxisError(f"{function}: a is 0-D, must have an axis: a.reshape(1) has one")
    axis = _axis(function, axis, a.ndim)
    size = a.shape[axis]
    first, last = _places(function, kth, size, axis)
    # The elements up to the last place, or the elements from the first place on.
    is_front = last + 1 <= size - first
    if is_front:
        chosen = _top_k.top_k(a, last + 1, axis=axis, mode="smallest").indices
        places_of_chosen, place_of_first_other = (0, last + 1), last + 1
    else:
        chosen = xp.flip(_top_k.top_k(a, size - first, axis=axis, nan="greatest").indices, axis)
        places_of_chosen, place_of_first_other = (first, size), 0
    is_other = xp.ones(a.shape, bool)
    xp.put_along_axis(is_other, chosen, False, axis)
    places = xp.cumsum(is_other, axis=axis, dtype=np.int64) + (place_of_first_other - 1)
    xp.put_along_axis(places, chosen, _along(xp, range(*places_of_chosen), axis, a.ndim), axis)
    result = xp.empty(a.shape, np.int64)
    xp.put_along_axis(result, places, _along(xp, range(size), axis, a.ndim), axis)
    return result


def _beside(own: Callable[..., Any], former: Callable[..., Any]) -> Callable[..., Any]:
    """A function for CuPy's module: cudml's, or the former one for arrays that cudml does not take."""

    def chosen(a: Any, kth: Any, axis: int | None = -1) -> Any:
        is_taken = cuda.is_own(a) and a.dtype.name in _top_k._REALS and (axis is None or a.ndim > 0)
        return (own if is_taken else former)(a, kth, axis)

    chosen.__name__ = chosen.__qualname__ = own.__name__
    chosen.__doc__ = own.__doc__
    return chosen


def _namespace(function: str, name: str, array: Any) -> Any:
    """The module of an array; raises TypeError for another library's."""
    if isinstance(array, np.ndarray):
        return np
    if cuda.is_own(array):
        return sys.modules["cupy"]
    maker = "cupy.asarray makes one, and cudml.top_k takes arrays of other libraries"
    expected = f"a CuPy or NumPy array: {advice(name, array, maker)}"
    raise TypeError(f"{function}: {name} is {a_type(array)}, must be {expected}")


def _axis(function: str, axis: Any, ndim: int) -> int:
    try:
        number = index(axis)
    except TypeError:
        raise TypeError(f"{function}: axis is {axis!r}, must be an integer or None") from None
    if not -ndim <= number < ndim:
        raise np.exceptions.AxisError(number, ndim, function)
    return number % ndim


def _places(function: str, kth: Any, size: int, axis: int) -> tuple[int, int]:
    """The least and the greatest of the places, counted from the start."""
    try:
        places = [index(place) for place in (kth if np.iterable(kth) else [kth])]
    except TypeError:
        raise TypeError(f"{function}: kth is {kth!r}, must be an integer or a sequence of them") from None
    if not places or not all(-size <= place < size for place in places):
        if size == 0 and places:  # NumPy takes any places of an empty axis
            return 0, 0
        expected = f"from {-size} to {size - 1}, for the {size} elements of axis {axis}"
        raise ValueError(f"{function}: kth is {kth!r}, must be {expected}")
    counted = [place % size for place in places]
    return min(counted), max(counted)


def _along(xp: Any, numbers: range, axis: int, ndim: int) -> Any:
    """The numbers along an axis, to broadcast to the others."""
    shape = [1] * ndim
    shape[axis] = len(numbers)
    return xp.arange(numbers.start, numbers.stop, dtype=np.int64).reshape(shape)
