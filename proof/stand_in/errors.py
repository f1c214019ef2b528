"""Errors of the stand-in: those that CUDA reports by number, and calls that the stand-in does not know."""

from enum import IntEnum


class Code(IntEnum):
    """Values of `cudaError_t`; those of `CUresult` are the same."""

    INVALID_VALUE = 1
    MEMORY_ALLOCATION = 2
    INITIALIZATION_ERROR = 3
    INVALID_MEMCPY_DIRECTION = 21
    DEVICES_UNAVAILABLE = 46
    INVALID_DEVICE = 101
    INVALID_IMAGE = 200
    NO_BINARY_FOR_GPU = 209
    INVALID_HANDLE = 400
    NOT_FOUND = 500
    NOT_READY = 600
    ILLEGAL_ADDRESS = 700
    LAUNCH_OUT_OF_RESOURCES = 701
    PEER_ACCESS_ALREADY_ENABLED = 704
    PEER_ACCESS_NOT_ENABLED = 705
    COOPERATIVE_LAUNCH_TOO_LARGE = 720
    CAPTURE_UNSUPPORTED = 900
    CAPTURE_INVALIDATED = 901
    CAPTURE_MERGE = 902
    CAPTURE_UNMATCHED = 903
    CAPTURE_UNJOINED = 904
    CAPTURE_ISOLATION = 905
    CAPTURE_IMPLICIT = 906
    CAPTURED_EVENT = 907
    CAPTURE_WRONG_THREAD = 908
    INVALID_CLUSTER_SIZE = 912


class CudaFailure(Exception):  # noqa: N818
    """A call that CUDA refuses, or an earlier error of a kernel that the call reports."""

    def __init__(self, code: Code, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class UnknownCallError(NotImplementedError):
    """A call that the stand-in does not know; has its name."""

    def __init__(self, call: str, what: str = "") -> None:
        super().__init__(f"{call} is not known to the stand-in for CUDA" + (f": {what}" if what else ""))


class TooLargeError(RuntimeError):
    """A kernel executes more instructions than the stand-in was told to run; raised once."""
