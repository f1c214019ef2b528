"""From the disassembler's text to instructions that the machine runs.

An instruction that the machine does not know becomes one whose execution is an error.
"""

import ctypes
import functools
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from proof.sass import encoding, machine
from proof.sass.cubin import architecture_of, kernels_of, sections_of, symbols_of
from proof.sass.disassembly import kept_disassembled
from proof.sass.encoding import Instruction, Kind, Operand, Part

ARCHITECTURE = 90
INSTRUCTION_BYTES = 16
_CUDA_MACHINE = 190  # of ELF
#: Cubins of libraries have hundreds of kernels; the kernels of smaller ones are printed all at once.
_MAX_KERNELS_AT_ONCE = 16

#: How the disassembler spells the parts of a register, in the order of `Part`.
_PART_NAMES = ("", ".H0_H0", ".H1_H1", ".B0", ".B1", ".B2", ".B3", ".64", ".U32", ".X4", ".X8", ".X16")
_PARTS = dict(zip(_PART_NAMES, Part, strict=True))
#: By prefix: the kind, the number of the first register, and of the register that is always zero or true.
_FILES = {
    "R": (Kind.REGISTER, 0, encoding.ZERO_REGISTER),
    "UR": (Kind.REGISTER, encoding.FIRST_UNIFORM, encoding.ZERO_REGISTER),
    "P": (Kind.PREDICATE, 0, encoding.TRUE_PREDICATE),
    "UP": (Kind.PREDICATE, encoding.FIRST_UNIFORM_PREDICATE, encoding.TRUE_PREDICATE),
    "B": (Kind.BARRIER, 0, 0),
}
_FLAGS = {"-": encoding.NEGATED, "~": encoding.INVERTED, "!": encoding.INVERTED, "|": encoding.ABSOLUTE}

#: A function, a label, or an instruction with its address and its second word.
_ROW = re.compile(
    r"^\.text\.(\S+):|^\s*([.$\w]+):"
    r"|^\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;\s*/\* 0x[0-9a-f]{16} \*/\s*/\* 0x([0-9a-f]{16}) \*/",
    re.MULTILINE,
)
_STATEMENT = re.compile(r"^(?:@(\S+)\s+)?([A-Z]\w*)((?:\.\w+)*)\s*(.*)$")
_NUMBER = re.compile(r"[+-]? ?(\d|INF|QNAN|SNAN)")
_TARGET = re.compile(r"^`\((.+)\)$")
#: The table's entry for instructions that it does not have.
_UNKNOWN = "UNKNOWN"
_REGISTER = re.compile(r"^(UR|R|UP|P|B)(\d+|Z|T)((?:\.\w+)*)$")


@dataclass(frozen=True)
class Code:
    """A kernel's instructions as an array, their texts, and its constant banks except the first.

    The text of an unknown instruction has the reason in parentheses. `static_shared_bytes` is the shared
    storage that every launch has besides the bytes it asks for, `stack_bytes` the local memory of a thread.
    """

    instructions: ctypes.Array
    texts: tuple[str, ...]
    constants: dict[int, bytes]
    static_shared_bytes: int = 0
    stack_bytes: int = 0

    @property
    def unknown(self) -> list[str]:
        """The texts of instructions that fail when they are executed."""
        number = machine.table().entries[_UNKNOWN].number
        pairs = zip(self.texts, self.instructions, strict=True)
        return [text for text, instruction in pairs if instruction.entry == number]


#: An instruction as the disassembler prints it, and its second word, which has the schedule.
Line = tuple[str, int]


def decode(cubin: bytes, only: str = "") -> dict[str, Code]:
    """Every kernel of a cubin by its mangled name, or only one of them.

    Raises
    ------
    ValueError
        The cubin is for another architecture than sm_90, or not a cubin.
    FileNotFoundError
        There is no nvdisasm.
    """
    try:
        is_cubin = cubin[:4] == b"\x7fELF" and struct.unpack_from("<H", cubin, 18)[0] == _CUDA_MACHINE
        number, sections = architecture_of(cubin) if is_cubin else None, sections_of(cubin)
        kernels = kernels_of(cubin) if number == ARCHITECTURE else {}
    except (struct.error, ValueError):
        number = None
    if number != ARCHITECTURE:
        got = "not a cubin" if number is None else f"a cubin for sm_{number}"
        raise ValueError(f"the machine runs code for sm_{ARCHITECTURE}, this is {got}")
    banks: dict[str, dict[int, bytes]] = {}  # by kernel; those of all kernels under ""
    for name, data in sections:
        if found := re.match(r"\.nv\.constant([1-7])\.?(.*)", name):
            banks.setdefault(found[2], {})[int(found[1])] = data
    functions = _functions(cubin, only if len(kernels) > _MAX_KERNELS_AT_ONCE else "")
    return {
        name: replace(
            code_of(lines, labels, banks.get("", {}) | banks.get(name, {})),
            static_shared_bytes=kernels[name].shared_bytes,
            stack_bytes=kernels[name].stack_bytes,
        )
        for name, (lines, labels) in functions.items()
        if only in ("", name)
    }


@functools.lru_cache(maxsize=4)
def _functions(cubin: bytes, only: str) -> dict[str, tuple[list[Line], dict[str, int]]]:
    """Lines and labels (as numbers of lines) of each function by name, or only of one."""
    options = ["-c", "-hex", "-ndf", *(["-fun", str(symbols_of(cubin).index(only))] if only else [])]
    found: dict[str, tuple[list[Line], dict[str, int]]] = {}
    lines, labels = list[Line](), dict[str, int]()
    for function, label, address, text, word in _ROW.findall(kept_disassembled(cubin, *options)):
        if function:
            lines, labels = found[function] = [], {function: 0}
        elif label:
            labels[label] = len(lines)
        elif int(address, 16) != INSTRUCTION_BYTES * len(lines):
            raise ValueError(f"{text} is not where it should be: {address}")
        else:
            lines.append((text, int(word, 16)))
    return found


def code_of(lines: Sequence[Line], labels: Mapping[str, int], constants: dict[int, bytes]) -> Code:
    """The code of one kernel; `labels` are numbers of lines."""
    instructions, texts = [], []
    for text, word in lines:
        try:
            instruction, shown = _instruction(text, labels), text
        except (KeyError, ValueError) as error:
            instruction, shown = _unknown(text), f"{text} ({error})"
        control = word >> 41
        instruction.stall, instruction.write_scoreboard = control & 15, control >> 5 & 7
        instruction.read_scoreboard, instruction.wait_mask = control >> 8 & 7, control >> 11 & 63
        instructions.append(instruction)
        texts.append(shown)
    return Code((Instruction * len(lines))(*instructions), tuple(texts), constants)


def _unknown(text: str) -> Instruction:
    """An unknown instruction with its guard, so that lanes that do not execute it go on."""
    found = re.match(r"^@(!?U?P[\dT])\s", text)
    guard = _operand(found[1] if found else "PT", False)
    return Instruction(entry=machine.table().entries[_UNKNOWN].number, guard=guard)


def _instruction(text: str, labels: Mapping[str, int]) -> Instruction:
    found = _STATEMENT.match(text.split("(*")[0].strip())
    if not found:
        raise ValueError("not of the form of an instruction")
    guard, opcode, dotted, rest = found.groups()
    entry = machine.table().entries.get(opcode)
    if entry is None:
        raise ValueError(f"{opcode} is not in the table")
    instruction = Instruction(entry=entry.number, guard=_operand(guard or "PT", False))
    for suffix in filter(None, dotted.split(".")):
        if suffix not in entry.suffixes:
            raise ValueError(f"{opcode} has no suffix {suffix} in the table")
        number = machine.table().suffixes[suffix]
        instruction.suffixes[number // 64] |= 1 << number % 64
    texts = _split(rest)
    if opcode == "HFMA2":  # two numbers of half precision are one immediate
        numbers = [text for text in texts if _NUMBER.match(text)]
        if numbers:  # the upper one is first
            upper, lower = (_float_bits(text, "e") for text in numbers)
            at = texts.index(numbers[0])
            texts[at : at + 2] = [hex(upper << 16 | lower)]
    if opcode in ("BRX", "RET") and texts:
        texts = texts[0].split() + texts[1:]
    if len(texts) > encoding.MAX_OPERANDS:
        raise ValueError(f"it has {len(texts)} operands")
    instruction.num_operands = len(texts)
    for number, operand in enumerate(texts):
        if found := _TARGET.match(operand):
            instruction.operands[number] = Operand(kind=Kind.TARGET, value=labels[found[1]])
            continue
        is_shared = opcode in ("LDS", "STS", "ATOMS") or (opcode == "LDGSTS" and number == 0)
        instruction.operands[number] = _operand(operand, not is_shared)
    return instruction


def _split(text: str) -> list[str]:
    """The parts between the commas outside of brackets."""
    return [part.strip() for part in re.split(r",(?![^\[(]*[\])])", text) if part.strip()]


def _float_bits(text: str, code: str) -> int:
    """A number in a format of `struct`."""
    plain = re.sub(r"[QS]NAN", "nan", text.replace(" ", "").replace("INF", "inf"))
    return int.from_bytes(struct.pack("<" + code, float(plain)), "little")


@functools.lru_cache(maxsize=1 << 16)
def _operand(text: str, is_address_wide: bool) -> Operand:
    text = text.replace(".reuse", "")
    if found := re.match(r"^SB([0-5])$", text):  # a scoreboard
        return Operand(kind=Kind.IMMEDIATE, value=int(found[1]))
    if text == "PR":
        return Operand(kind=Kind.PREDICATES)
    if (special := machine.table().specials.get(text)) is not None:
        return Operand(kind=Kind.SPECIAL, value=special)
    if found := re.match(r"^(?:desc\[UR\d+\])?\[(.*)\]$", text):
        part = Part.WIDE if is_address_wide else Part.WHOLE
        return _place(found[1], Operand(kind=Kind.ADDRESS, bank=is_address_wide, part=part))
    flags = 0
    while text[:1] in _FLAGS and not re.match(r"-(0x|\d|INF|QNAN)", text):
        flags |= _FLAGS[text[0]]
        text = text[1:]
    text = text.replace("|", "")
    if found := re.match(r"^c\[(0x[0-9a-f]+)\]\[(.*)\]$", text):
        return _place(found[2], Operand(kind=Kind.CONSTANT, flags=flags, bank=int(found[1], 16)))
    if found := _REGISTER.match(text):
        prefix, number, dotted = found.groups()
        part = Part.WHOLE if dotted == ".64" else _PARTS[dotted]
        return Operand(kind=_FILES[prefix][0], flags=flags, part=part, index=_index(prefix, number))
    is_integer = re.match(r"^-?0x[0-9a-f]+$", text)
    value = int(text, 16) & (2**64 - 1) if is_integer else _float_bits(text, "f")
    return Operand(kind=Kind.IMMEDIATE, flags=flags, value=value)


def _index(prefix: str, number: str) -> int:
    """The number of a register or predicate in its file."""
    _, first, constant = _FILES[prefix]
    return constant if number in "ZT" else first + int(number)


def _place(text: str, operand: Operand) -> Operand:
    """Fill in the sum of an address: a register, a uniform one, an offset."""
    operand.index = operand.uniform = encoding.ZERO_REGISTER
    offset = 0
    for sign, term in re.findall(r"([+-]?)\s*([^+\-\s]+)", text):
        if found := _REGISTER.match(term):
            prefix, number, dotted = found.groups()
            if sign == "-":
                raise ValueError(f"an address less a register: {text}")
            if prefix == "R":
                operand.index = _index(prefix, number)
                operand.part = _PARTS[dotted] if dotted else operand.part
            else:
                operand.uniform = _index(prefix, number)
        else:
            offset += int(sign + term, 16)
    operand.value = offset & (2**64 - 1)
    return operand
