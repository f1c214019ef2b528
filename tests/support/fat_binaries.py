"""Fat binaries, as compilers put them into programs."""

import ctypes
import struct
from typing import Any


def fat_binary(*entries: tuple[int, int, int, bytes]) -> Any:
    """A fat binary; an entry is (kind, architecture, flags, payload), and payloads are padded."""
    body = b"".join(
        struct.pack("<HHIQI8xIQQ", kind, 0, 64, len(data) + 3, len(data), architecture, 0, flags).ljust(
            64, b"\0"
        )
        + data
        + b"end"
        for kind, architecture, flags, data in entries
    )
    return ctypes.create_string_buffer(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body)
