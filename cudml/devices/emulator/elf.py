"""Check a compiler's output before it is cached: a complete shared library for this machine."""

import struct
from functools import cache
from pathlib import Path

_HEADER = struct.Struct("16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("IIQQQQIIQQ")
_SYMBOL = struct.Struct("IBBHQQ")
_SHARED_OBJECT, _DYNAMIC_SYMBOLS, _WITHOUT_CONTENT = 3, 11, 8


@cache
def _machine() -> bytes:
    """Word size, byte order and instruction set of the interpreter's executable."""
    with open("/proc/self/exe", "rb") as file:
        return _kind(file.read(_HEADER.size))


def _kind(header: bytes) -> bytes:
    return header[:6] + header[18:20]


def exported_symbols(data: bytes) -> set[str]:
    """The names that a shared library exports.

    Raises ValueError unless it is a complete shared library for this machine.
    """
    if not data.startswith(b"\x7fELF") or len(data) < _HEADER.size:
        raise ValueError("not an ELF file")
    if _kind(data) != _machine():
        raise ValueError("an ELF file for another machine")
    header = _HEADER.unpack_from(data)
    kind, first, num_sections = header[1], header[6], header[12]
    if kind != _SHARED_OBJECT:
        raise ValueError("not a shared library")
    try:
        sections = [_SECTION.unpack_from(data, first + n * _SECTION.size) for n in range(num_sections)]
    except struct.error:
        raise ValueError("a truncated ELF file") from None
    if any(row[1] != _WITHOUT_CONTENT and row[4] + row[5] > len(data) for row in sections):
        raise ValueError("a truncated ELF file")
    return {name for row in sections if row[1] == _DYNAMIC_SYMBOLS for name in _names(data, row, sections)}


def _names(data: bytes, table: tuple[int, ...], sections: list[tuple[int, ...]]) -> set[str]:
    """The defined symbols of a symbol table."""
    start, num_bytes, texts = table[4], table[5], sections[table[6]][4]
    names = set()
    for name, _, _, section, _, _ in _SYMBOL.iter_unpack(data[start : start + num_bytes]):
        if section:
            end = data.index(b"\0", texts + name)
            names.add(data[texts + name : end].decode(errors="replace"))
    return names


def require_symbol(path: Path, symbol: str) -> None:
    """Raise ValueError unless a file is a shared library for this machine that exports a symbol."""
    if symbol not in exported_symbols(path.read_bytes()):
        raise ValueError(f"a shared library without {symbol}")
