"""The interface to the machine: enumerations and structures read from `machine/encoding.h`."""

import ctypes
import re
from enum import IntEnum
from pathlib import Path

_TEXT = re.sub(r"//.*", "", (Path(__file__).parent / "machine" / "encoding.h").read_text())
_CONSTANTS = {name: int(value) for name, value in re.findall(r"constexpr int (\w+) = (\d+);", _TEXT)}
_INTEGERS = ("uint8", "int16", "uint16", "uint32", "uint64")
_TYPES = {f"{name}_t": getattr(ctypes, f"c_{name}") for name in _INTEGERS} | {"double": ctypes.c_double}


def _body(kind: str, name: str) -> str:
    found = re.search(rf"{kind} {name}\b[^{{;]*{{(.*?)}};", _TEXT, re.DOTALL)
    if not found:
        raise ValueError(f"encoding.h has no {kind} {name}")
    return found[1]


def _enumeration(name: str) -> type[IntEnum]:
    """`kUniformPredicate` is `UNIFORM_PREDICATE`."""
    names = re.findall(r"\bk(\w+)", _body("enum class", name))
    found = IntEnum(name, [re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text).upper() for text in names], start=0)
    _TYPES[name] = ctypes.c_uint8
    return found


def _structure(name: str) -> type[ctypes.Structure]:
    """Pointers are `void*`."""
    fields = []
    for text in filter(str.strip, _body("struct", name).split(";")):
        kind, stars, declared = re.fullmatch(r"\s*(?:const )?(\w+)((?:\*(?: const)?)*) (.+)", text).groups()
        for field, size in re.findall(r"(\w+)(?:\[(\w+)\])?", declared):
            c_type = ctypes.c_void_p if stars else _TYPES[kind]
            fields.append((field, c_type * int(_CONSTANTS.get(size, size)) if size else c_type))
    _TYPES[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return _TYPES[name]


TRUE_PREDICATE = _CONSTANTS["kTruePredicate"]
ZERO_REGISTER = _CONSTANTS["kZeroRegister"]
FIRST_UNIFORM = _CONSTANTS["kFirstUniform"]
FIRST_UNIFORM_PREDICATE = _CONSTANTS["kFirstUniformPredicate"]
MAX_OPERANDS = _CONSTANTS["kMaxOperands"]
NEGATED, INVERTED, ABSOLUTE = 1, 2, 4
Kind, Part, Pipe, Cause = map(_enumeration, ("Kind", "Part", "Pipe", "Cause"))
#: In the order in which the machine reports their sizes.
_NAMES = ("Operand", "Instruction", "Range", "Rates", "Totals", "Issue", "Request")
STRUCTURES = tuple(map(_structure, _NAMES))
Operand, Instruction, Range, Rates, Totals, Issue, Request = STRUCTURES
PIPES = tuple(pipe.name.lower() for pipe in Pipe)
