"""Read a cubin, an ELF file of NVIDIA's: what each kernel needs and how it takes its parameters."""

import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

# Attributes of the .nv.info sections.
_MAX_THREADS = 0x05
_FRAME_SIZE = 0x11
_PARAMETER = 0x17
_REGISTER_COUNT = 0x2F
_CLUSTER = 0x3D

_FORMAT_SIZED = 4
_SYMBOL_TABLE = 2

#: From sm_90 on, the section of shared storage includes the system's reserve.
_RESERVED_SHARED_BYTES = 1024


@dataclass(frozen=True)
class Kernel:
    """Facts about a kernel, from its machine code.

    `stack_bytes` is local memory: arrays that are not in registers, and spilled registers. `parameters`
    has (offset, bytes) of each. `max_threads` is the product of `__launch_bounds__`, 0 without, and `cluster`
    has the blocks of `__cluster_dims__`.
    """

    registers: int
    stack_bytes: int
    shared_bytes: int
    code_bytes: int
    max_threads: int
    parameters: tuple[tuple[int, int], ...]
    cluster: tuple[int, int, int] = (1, 1, 1)


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    link: int
    data: bytes


def architecture_of(cubin: bytes) -> int:
    """The number of the architecture, 90 for sm_90."""
    flags = struct.unpack_from("<I", cubin, 0x30)[0]
    return (flags >> 8 if cubin[8] >= 8 else flags) & 0xFF


def kernels_of(cubin: bytes) -> dict[str, Kernel]:
    """Every kernel in the cubin by its mangled name.

    Raises
    ------
    ValueError
        It is no ELF file.
    """
    if cubin[:4] != b"\x7fELF":
        raise ValueError("a cubin is an ELF file, this is not")
    sections = list(_sections(cubin))
    by_name = {section.name: section for section in sections}
    symbols = _symbols(sections)
    registers: dict[str, int] = {}
    stack: dict[str, int] = {}
    for attribute, payload in _attributes(by_name[".nv.info"].data):
        if attribute in (_REGISTER_COUNT, _FRAME_SIZE):
            symbol, value = struct.unpack("<II", payload)
            (registers if attribute == _REGISTER_COUNT else stack)[symbols[symbol]] = value & 0xFFFFFF
    reserved = _RESERVED_SHARED_BYTES if architecture_of(cubin) >= 90 else 0
    found = {}
    for section in sections:
        if not section.name.startswith(".text."):
            continue
        name = section.name.removeprefix(".text.")
        info = by_name.get(f".nv.info.{name}")
        shared = by_name.get(f".nv.shared.{name}")
        found[name] = Kernel(
            registers=registers[name] & 0xFFFF,
            stack_bytes=stack[name],
            shared_bytes=max(0, _size(shared) - reserved),
            code_bytes=len(section.data),
            max_threads=math.prod(_sizes(info, _MAX_THREADS) or (0,)),
            parameters=_parameters(info),
            cluster=_sizes(info, _CLUSTER) or (1, 1, 1),
        )
    return found


def symbols_of(cubin: bytes) -> list[str]:
    """The names of all symbols, in their order."""
    return _symbols(list(_sections(cubin)))


def sections_of(cubin: bytes) -> list[tuple[str, bytes]]:
    """Name and contents of each section."""
    return [(section.name, section.data) for section in _sections(cubin)]


def spilled_bytes(log: str) -> dict[str, int]:
    """Bytes of spill stores and loads by mangled name, from a log made with `--ptxas-options=-v`."""
    pattern = (
        r"Function properties for (\S+)\n\D*\d+ bytes stack frame, (\d+) bytes spill stores, (\d+) bytes"
    )
    return {name: int(stores) + int(loads) for name, stores, loads in re.findall(pattern, log)}


def _symbols(sections: list[_Section]) -> list[str]:
    table = next(section for section in sections if section.kind == _SYMBOL_TABLE)
    names = sections[table.link].data
    return [_text(names, struct.unpack_from("<I", table.data, at)[0]) for at in range(0, len(table.data), 24)]


def _sections(elf: bytes) -> Iterator[_Section]:
    table = struct.unpack_from("<Q", elf, 0x28)[0]
    entry_size, count, names_index = struct.unpack_from("<3H", elf, 0x3A)

    def entry(index: int) -> tuple[int, ...]:
        return struct.unpack_from("<IIQQQQIIQQ", elf, table + index * entry_size)

    def body(header: tuple[int, ...]) -> bytes:
        _, kind, _, _, offset, size = header[:6]
        # Storage without contents (.nv.shared) has a size and no bytes in the file.
        return bytes(size) if kind == 8 else elf[offset : offset + size]

    names = body(entry(names_index))
    for index in range(count):
        header = entry(index)
        yield _Section(_text(names, header[0]), header[1], header[6], body(header))


def _text(strings: bytes, start: int) -> str:
    return strings[start : strings.index(b"\0", start)].decode()


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        form, attribute, value = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == _FORMAT_SIZED:
            yield attribute, data[at : at + value]
            at += value
        else:
            yield attribute, struct.pack("<H", value)


def _size(section: _Section | None) -> int:
    return len(section.data) if section else 0


def _sizes(info: _Section | None, wanted: int) -> tuple[int, int, int] | None:
    """The three sizes of an attribute of a kernel."""
    for attribute, payload in _attributes(info.data if info else b""):
        if attribute == wanted:
            x, y, z = struct.unpack("<3I", payload)
            return x, y, z
    return None


def _parameters(info: _Section | None) -> tuple[tuple[int, int], ...]:
    found = []
    for attribute, payload in _attributes(info.data if info else b""):
        if attribute == _PARAMETER:
            _, ordinal, offset, word = struct.unpack("<IHHI", payload)
            found.append((ordinal, offset, word >> 18))
    return tuple((offset, size) for _, offset, size in sorted(found))
