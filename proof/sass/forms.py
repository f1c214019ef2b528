"""Forms of instructions: the opcode and the kinds of operands, spelled as an instruction that can be run."""

import re

from proof.sass.disassembly import Instruction

#: Instructions whose last operand is a place in the code.
_BRANCHES = ("BRA", "CALL", "RET", "BSSY")
#: By opcode the operands that are addresses of shared storage.
_SHARED = {"LDS": (1,), "STS": (0,), "ATOMS": (1,), "LDGSTS": (0,)}
_REGISTER = re.compile(r"(?<![\w.])(UR|R|UP|P|B)\d+")
_HEXADECIMAL = re.compile(r"0x[0-9a-f]+")
_NUMBER = re.compile(r"([-+]?)(0x[0-9a-f]+|\d+(\.\d+)?(e[+-]?\d+)?|INF|QNAN)$")


def form_of(instruction: Instruction) -> str:
    """An instruction with registers and numbers that stand for all others, and `end` for every place.

    Addresses have the registers R2 and UR2, or R4 and UR4 if they are of shared storage, and R0 and UR0 if
    they are of a constant bank. The other operands have R8, R16 and so on.
    """
    operands = instruction.operands.replace(".reuse", "")
    texts = [text for text in re.split(r",(?![^\[]*\])", operands) if text]
    name, is_branch = instruction.name, instruction.name in _BRANCHES
    if is_branch or ".COLLECTIVE" in instruction.opcode:
        texts[-1] = "`(end)"
    if name in ("P2R", "R2P") and "PR" not in texts:  # the disassembler's JSON may leave it out
        texts.insert(name == "P2R", "PR")
    if name == "BRX":
        texts = ["R8 0x0"]
    elif name == "RET":
        texts = [f"R8 {texts[-1]}"]
    else:
        texts = [
            _of_operand(text, 8 * (number + 1), number in _SHARED.get(name, ()))
            for number, text in enumerate(texts)
        ]
    return f"{instruction.opcode} {', '.join(texts)}".strip()


def _of_operand(text: str, register: int, is_shared: bool) -> str:
    if "[" in text:
        is_constant = text.lstrip("-~|").startswith("c[")
        base, offset = ("0", "0x210") if is_constant else ("4", "0x400") if is_shared else ("2", "0x10")
        text = re.sub(r"c\[0x[0-9a-f]+\]", "c[BANK]", text)
        return _HEXADECIMAL.sub(offset, _REGISTER.sub(rf"\g<1>{base}", text)).replace("BANK", "0x0")
    if found := _NUMBER.match(text):
        return found[1] + ("0x1" if "x" in found[2] else "1")
    numbers = {"P": 1, "UP": 1, "B": 0}
    return _REGISTER.sub(lambda found: f"{found[1]}{numbers.get(found[1], register)}", text)
