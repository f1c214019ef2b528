"""Read a fat binary, in which a program carries its machine code: the cubins of one architecture.

The layout is not documented; `cuobjdump` shows the same fields.
"""

import ctypes
import importlib
import struct
import sys
from importlib.util import find_spec

_MAGIC = 0xBA55ED50
_CUBIN = 2
_ELF = b"\x7fELF"
#: The flag of an entry whose payload is compressed with Zstandard.
_ZSTANDARD = 0x8000
#: The standard library's module from Python 3.14 on, and its backport for older versions.
DECOMPRESSOR = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"


def unavailable() -> str | None:
    """Why compressed fat binaries cannot be read; None if they can."""
    package, _, _ = DECOMPRESSOR.partition(".")
    is_there = find_spec(package) and find_spec(DECOMPRESSOR)
    return None if is_there else "no backports.zstd: pip install backports-zstd"


def cubins(address: int, architecture: int) -> list[bytes]:
    """The cubins for an architecture (90) of the fat binary in memory at an address.

    Raises
    ------
    ValueError
        It is no fat binary, or compressed in a way that is not known, or that needs a package.
    """
    magic, _, header_bytes, num_bytes = struct.unpack("<IHHQ", ctypes.string_at(address, 16))
    if magic != _MAGIC:
        raise ValueError(f"a fat binary begins with {_MAGIC:#x}, this with {magic:#x}")
    data = ctypes.string_at(address + header_bytes, num_bytes)
    found, at = [], 0
    while at < len(data):
        kind, _, entry_bytes, payload_bytes, compressed_bytes = struct.unpack_from("<HHIQI", data, at)
        made_for, flags = struct.unpack_from("<I8xQ", data, at + 28)
        payload = data[at + entry_bytes : at + entry_bytes + payload_bytes]
        at += entry_bytes + payload_bytes
        if kind != _CUBIN or made_for != architecture:
            continue
        if flags & _ZSTANDARD:
            payload = importlib.import_module(DECOMPRESSOR).decompress(payload[:compressed_bytes])
        found.append(payload)
    for payload in found:
        if payload[:4] != _ELF:
            raise ValueError(
                "a fat binary whose compression is not known: nvcc --compress-mode=none avoids it"
            )
    return found
