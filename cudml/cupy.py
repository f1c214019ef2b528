"""CuPy: let NumPy's own functions reach cudml for CuPy arrays."""

from collections.abc import Callable
from typing import Any

from cudml.errors import DeviceError
from cudml.functions.top_k import top_k

_ABSENT: Any = object()


def install_cupy() -> Callable[[], None]:
    """Make `cudml.top_k` CuPy's `top_k`, so that `numpy.top_k` of a CuPy array runs it.

    NumPy 2.6 has `top_k`. For a CuPy array it calls CuPy, which looks up the function by its name in the
    module `cupy`. Nothing else changes, and nothing changes before this is called.

    Returns
    -------
    callable
        Takes no arguments; puts back what was there before.

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
    >>> uninstall()  # doctest: +SKIP

    Notes
    -----
    Source: NEP 18 for the protocol, `numpy.top_k` for the signature.
    """
    try:
        import cupy
    except ModuleNotFoundError:
        raise DeviceError("install_cupy: CuPy is not installed: pip install 'cudml[cuda13]'") from None
    former = getattr(cupy, "top_k", _ABSENT)
    cupy.top_k = top_k

    def uninstall() -> None:
        if former is not _ABSENT:
            cupy.top_k = former
        elif getattr(cupy, "top_k", None) is top_k:
            del cupy.top_k

    return uninstall
