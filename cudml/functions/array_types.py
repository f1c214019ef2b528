"""Types for type checkers: the arrays that the functions take and return."""

from collections.abc import Sequence
from typing import Any, Protocol, SupportsIndex, TypeVar

import numpy as np
from numpy.typing import NDArray

Scalar = TypeVar("Scalar", bound=np.generic)
IndexScalar = TypeVar("IndexScalar", np.int32, np.uint32, np.int64, np.uint64)
ValuesT = TypeVar("ValuesT")
IndicesT = TypeVar("IndicesT")
StatesT = TypeVar("StatesT")

#: A NumPy array of a scalar type and any shape.
NumPyArray = NDArray[Scalar]


class CudaArray(Protocol):
    """An array in a GPU's memory, such as CuPy's, torch's and Numba's."""

    @property
    def __cuda_array_interface__(self) -> Any:
        """Its address and layout."""


class DLPackArray(Protocol):
    """An array that other libraries can take, such as JAX's."""

    def __dlpack__(self, *args: Any, **others: Any) -> Any:
        """A capsule of its memory."""


#: An array of another library than NumPy.
ForeignArray = CudaArray | DLPackArray

#: One number for each dimension.
Integers = Sequence[SupportsIndex] | NDArray[np.integer[Any]]

#: Lengths in the host's memory: an array, (nested) lists of numbers, or one number for all.
HostLengths = NDArray[np.integer[Any]] | Sequence[Any] | SupportsIndex
