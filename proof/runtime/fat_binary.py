"""Read a fat binary, in which a program carries its machine code: the cubins of one architecture.

The layout is not documented; `cuobjdump` shows the same fields.
"""

import ctypes
import struct

from proof.sass.cubin import architecture_of

_MAGIC = 0xBA55ED50
_CUBIN = 2
_ELF = b"\x7fELF"


def cubins(address: int, architecture: int) -> list[bytes]:
    """The cubins for an architecture (90) of the fat binary in memory at an address.

    Raises
    ------
    ValueError
        It is no fat binary, or compressed.
    """
    magic, _, header_bytes, num_bytes = struct.unpack("<IHHQ", ctypes.string_at(address, 16))
    if magic != _MAGIC:
        raise ValueError(f"a fat binary begins with {_MAGIC:#x}, this with {magic:#x}")
    data = ctypes.string_at(address + header_bytes, num_bytes)
    found, at = [], 0
    while at < len(data):
        kind, _, entry_bytes, payload_bytes = struct.unpack_from("<HHIQ", data, at)
        payload = data[at + entry_bytes : at + entry_bytes + payload_bytes]
        at += entry_bytes + payload_bytes
        if kind != _CUBIN:
            continue
        if payload[:4] != _ELF:
            raise ValueError("a compressed fat binary: nvcc --compress-mode=none leaves it readable")
        if architecture_of(payload) == architecture:
            found.append(payload)
    return found
