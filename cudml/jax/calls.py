"""XLA's custom calls, whose handlers are functions of Python: XLA gives them the addresses of its buffers.

JAX's own callbacks to Python are addresses in the memory of one process, so a program with a callback cannot
be exported. A custom call has a name and options that are text, which every process with this module knows.

Source: `xla/ffi/api/c_api.h`, which is beside jaxlib and says that the layouts are stable.
"""

import ctypes
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np

from cudml.devices.exchange import array_at

#: The function of a handler: it takes options, inputs, outputs to write, and the stream, if on a GPU.
Compute = Callable[[dict[str, Any], Sequence[Any], Sequence[Any], int | None], None]

#: `XLA_FFI_DataType` of the types that cudml takes.
_DTYPES = {
    1: np.dtype(bool),
    **{code: np.dtype(f"i{size}") for code, size in zip((2, 3, 4, 5), (1, 2, 4, 8), strict=True)},
    **{code: np.dtype(f"u{size}") for code, size in zip((6, 7, 8, 9), (1, 2, 4, 8), strict=True)},
    **{code: np.dtype(f"f{size}") for code, size in zip((10, 11, 12), (2, 4, 8), strict=True)},
    16: np.dtype(ml_dtypes.bfloat16),
}

_METADATA = 1  # `XLA_FFI_Extension_Metadata`
_INVALID_ARGUMENT, _INTERNAL = 3, 13  # `XLA_FFI_Error_Code`
#: The major version of the interface that has the layouts below; another version has other layouts.
_MAJOR = 0


class _Extension(ctypes.Structure):
    pass


_Extension._fields_ = [
    ("struct_size", ctypes.c_size_t),
    ("type", ctypes.c_int),
    ("next", ctypes.POINTER(_Extension)),
]


def _layout(name: str, **members: Any) -> type[ctypes.Structure]:
    """A structure of the interface; all structures begin with their size and extensions."""
    start = [("struct_size", ctypes.c_size_t), ("extension_start", ctypes.POINTER(_Extension))]
    return type(name, (ctypes.Structure,), {"_fields_": [*start, *members.items()]})


_Pointers = ctypes.POINTER(ctypes.c_void_p)
_Buffer: Any = _layout(
    "XLA_FFI_Buffer",
    dtype=ctypes.c_int,
    data=ctypes.c_void_p,
    rank=ctypes.c_int64,
    dims=ctypes.POINTER(ctypes.c_int64),
)
_Items: Any = _layout(  # XLA_FFI_Args and XLA_FFI_Rets
    "XLA_FFI_Args", size=ctypes.c_int64, types=ctypes.POINTER(ctypes.c_int), items=_Pointers
)
_Attrs: Any = _layout(
    "XLA_FFI_Attrs",
    size=ctypes.c_int64,
    types=ctypes.POINTER(ctypes.c_int),
    names=_Pointers,
    items=_Pointers,
)
_ApiVersion: Any = _layout("XLA_FFI_Api_Version", major_version=ctypes.c_int, minor_version=ctypes.c_int)
_ErrorCreate: Any = _layout("XLA_FFI_Error_Create_Args", message=ctypes.c_char_p, errc=ctypes.c_int)
_StreamGet: Any = _layout("XLA_FFI_Stream_Get_Args", ctx=ctypes.c_void_p, stream=ctypes.c_void_p)
_Api: Any = _layout(
    "XLA_FFI_Api",
    api_version=_ApiVersion,
    internal_api=ctypes.c_void_p,
    error_create=ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_ErrorCreate)),
    error_get_message=ctypes.c_void_p,
    error_destroy=ctypes.c_void_p,
    handler_register=ctypes.c_void_p,
    stream_get=ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_StreamGet)),
)
_CallFrame: Any = _layout(
    "XLA_FFI_CallFrame",
    api=ctypes.POINTER(_Api),
    ctx=ctypes.c_void_p,
    stage=ctypes.c_int,
    args=_Items,
    rets=_Items,
    attrs=_Attrs,
)


class _ByteSpan(ctypes.Structure):
    _fields_ = (("ptr", ctypes.c_void_p), ("len", ctypes.c_size_t))


class _Metadata(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("api_version", _ApiVersion),
        ("traits", ctypes.c_uint32),
        ("state_type_id", ctypes.c_int64),
    )


class _MetadataExtension(ctypes.Structure):
    _fields_ = (("extension_base", _Extension), ("metadata", ctypes.POINTER(_Metadata)))


_HANDLER = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_CallFrame))

#: The handlers, which XLA calls by address.
_handlers: list[Any] = []


@dataclass
class _GpuMemory:
    """Memory with the interface by which libraries share a GPU's arrays."""

    __cuda_array_interface__: dict[str, Any]


def gpu_memory(address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """The packed elements at an address of a GPU's memory, as cudml takes another library's array.

    The interface has the dtype itself instead of its text, since bfloat16 has none.
    """
    place = {"shape": shape, "typestr": dtype, "data": (address, False), "strides": None, "version": 3}
    return _GpuMemory(place)


def check_version(header: Path) -> None:
    """Raise ImportError if the XLA of this header has another interface.

    XLA would refuse the handlers when it starts, and no program of the process could use XLA.
    """
    found = re.search(r"^#define XLA_FFI_API_MAJOR (\d+)", header.read_text(), re.MULTILINE)
    if found is None or int(found[1]) != _MAJOR:
        version = found[1] if found else "unknown"
        raise ImportError(
            f"cudml.jax: the interface of XLA's custom calls is of version {version} in this jaxlib, must be "
            f"{_MAJOR}: install a newer cudml, or an older jax"
        )


def register(target: str, compute: Compute) -> None:
    """Make a function the handler of a custom call, for the CPU and for CUDA."""
    for platform, is_on_gpu in (("cpu", False), ("CUDA", True)):
        handler = _HANDLER(_handler_of(compute, is_on_gpu))
        _handlers.append(handler)
        address = ctypes.cast(handler, ctypes.c_void_p).value
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(address), platform=platform)


def call(target: str, outputs: Sequence[Any], options: dict[str, Any], *arrays: Any, instead: str) -> Any:
    """The outputs of a custom call, as part of a traced program or at once.

    Under `jax.grad`, raises TypeError, which says what to do instead, unless no input has a gradient.
    """
    made = jax.ffi.ffi_call(target, outputs, vmap_method="broadcast_all")

    @jax.custom_jvp
    def computed(*arrays: Any) -> Any:
        return made(*arrays, options=json.dumps(options))

    @computed.defjvp
    def refuse(primals: Any, tangents: Any) -> Any:
        raise TypeError(f"{target.removeprefix('cudml_')}: cudml computes no gradients: {instead}")

    return computed(*arrays)


def _handler_of(compute: Compute, is_on_gpu: bool) -> Callable[[Any], int | None]:
    def handle(pointer: Any) -> int | None:
        frame = pointer.contents
        if frame.extension_start and frame.extension_start.contents.type == _METADATA:
            extension = ctypes.cast(frame.extension_start, ctypes.POINTER(_MetadataExtension))
            version = extension.contents.metadata.contents.api_version
            version.major_version = _MAJOR
            version.minor_version = frame.api.contents.api_version.minor_version
            return None
        try:
            inputs, outputs = (_buffers(items, is_on_gpu) for items in (frame.args, frame.rets))
            compute(_options_of(frame.attrs), inputs, outputs, _stream_of(frame) if is_on_gpu else None)
        except BaseException as error:  # nothing may leave a function that C calls
            is_refusal = isinstance(error, (TypeError, ValueError))
            text = str(error) if is_refusal else f"{type(error).__name__}: {error}"
            given = _ErrorCreate(message=text.encode(), errc=_INVALID_ARGUMENT if is_refusal else _INTERNAL)
            given.struct_size = ctypes.sizeof(_ErrorCreate)
            made: int | None = frame.api.contents.error_create(given)
            return made
        return None

    return handle


def _buffers(items: Any, is_on_gpu: bool) -> list[Any]:
    return [
        _array(ctypes.cast(items.items[number], ctypes.POINTER(_Buffer)).contents, is_on_gpu)
        for number in range(items.size)
    ]


def _array(buffer: Any, is_on_gpu: bool) -> Any:
    shape, dtype = tuple(buffer.dims[: buffer.rank]), _DTYPES[buffer.dtype]
    return (gpu_memory if is_on_gpu else array_at)(buffer.data or 0, shape, dtype)


def _options_of(attributes: Any) -> dict[str, Any]:
    """The options in the only attribute."""
    text = ctypes.cast(attributes.items[0], ctypes.POINTER(_ByteSpan)).contents
    options: dict[str, Any] = json.loads(ctypes.string_at(text.ptr, text.len))
    return options


def _stream_of(frame: Any) -> int:
    asked = _StreamGet(ctx=frame.ctx)
    asked.struct_size = ctypes.sizeof(_StreamGet)
    frame.api.contents.stream_get(asked)
    # XLA's stream is never the default stream, handle 0, for which cudml has the handle 1, as DLPack does.
    return asked.stream or 1
