"""Instructions that the compiler makes of no short text, written as the disassembler prints them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from proof.sass.cubin import Kernel as Facts
from proof.sass.decode import Code, Line, code_of
from proof.sass.launch import Buffer, Launch, MachineError, run
from proof.sass.plan import Kernel
from tests.machine_code.instructions import integer
from tests.machine_code.instructions.snippet import Snippet
from tests.machine_code.instructions.values import TYPES, Array, ints, wrapped

_NO_FACTS = Facts(registers=16, stack_bytes=0, shared_bytes=0, code_bytes=0, max_threads=0, parameters=())
_ARGUMENTS = 0x210
_SUFFIXES = {1: ".U8", 2: ".U16", 4: "", 8: ".64"}


def assembled(text: str) -> Code:
    """The code of lines that are instructions or labels."""
    lines, labels = list[Line](), dict[str, int]()
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.endswith(":"):
            labels[line[:-1]] = len(lines)
        else:
            lines.append((line, 0))
    return code_of(lines, labels, {})


@dataclass(frozen=True)
class Written(Snippet):
    """The body is machine code: a in R4 (R5), b in R6 (R7), c in R8; or UR4, UR6, UR8. The result is R10."""

    def kernel(self) -> Kernel:
        """Code that loads the operands, runs the body and stores the result."""
        *operands, result = (TYPES[name].itemsize for name in self.type_names)
        text = ["S2R R0, SR_TID.X", "S2R R1, SR_CTAID.X", "IMAD R0, R1, c[0x0][0x0], R0"]
        place = _ARGUMENTS
        for register, size in zip((4, 6, 8), operands, strict=False):
            if self.is_uniform:
                place += -place % size
                text.append(f"ULDC{_SUFFIXES[size]} UR{register}, c[0x0][{place:#x}]")
                place += size
                continue
            text += [f"LDC.64 R2, c[0x0][{place:#x}]", f"IMAD.WIDE.U32 R2, R0, {size:#x}, R2"]
            text.append(f"LDG.E{_SUFFIXES[size]} R{register}, desc[UR4][R2.64]")
            place += 8
        place += -place % 8
        text += [self.body, f"LDC.64 R2, c[0x0][{place:#x}]", f"IMAD.WIDE.U32 R2, R0, {result:#x}, R2"]
        text += [f"STG.E{_SUFFIXES[result]} desc[UR4][R2.64], R10", "EXIT"]
        return Kernel(assembled("\n".join(text)), _NO_FACTS)


def _uniform_comparison(form: str, function: Callable[..., Array]) -> Written:
    """The third operand's sign is the predicate that it combines with."""
    kind = "u32" if ".U32" in form else "s32"
    combine = np.logical_or if ".OR" in form else np.logical_and
    body = f"""UISETP.LT.AND UP1, UPT, UR8, URZ, UPT
      UISETP.{form} UP0, UPT, UR4, UR6, UP1
      UMOV UR10, 0x7
      USEL UR10, UR10, 0x9, UP0
      MOV R10, UR10"""

    def expected(a: Array, b: Array, c: Array) -> Array:
        return np.where(combine(function(a, b), c < 0), 7, 9)

    return Written(f"{kind} {kind} s32 -> u32", body, expected, f"UISETP.{form}", is_uniform=True)


def _wide_uniform_comparison(name: str, kind: str, function: Callable[..., Array]) -> Written:
    lower = f"{name}.U32.AND"
    upper = f"{lower}.EX" if kind == "u64" else f"{name}.AND.EX"
    body = f"""UISETP.{lower} UP0, UPT, UR4, UR6, UPT
      UISETP.{upper} UP0, UPT, UR5, UR7, UPT, UP0
      UMOV UR10, 0x7
      USEL UR10, UR10, 0x9, UP0
      MOV R10, UR10"""
    forms = f"UISETP.{lower} UISETP.{upper}"
    return Written(
        f"{kind} {kind} -> u32",
        body,
        lambda a, b: np.where(function(a, b), 7, 9),
        forms,
        is_uniform=True,
    )


def _wide_uniform_comparison_or(
    name: str, function: Callable[..., Array], other: str, of_other: Callable[..., Array]
) -> Written:
    """The other predicate compares the lower words."""
    body = f"""UISETP.{other}.U32.AND UP1, UPT, UR4, UR6, UPT
      UISETP.{name}.U32.AND UP0, UPT, UR4, UR6, UPT
      UISETP.{name}.OR.EX UP0, UPT, UR5, UR7, UP1, UP0
      UMOV UR10, 0x7
      USEL UR10, UR10, 0x9, UP0
      MOV R10, UR10"""

    def expected(a: Array, b: Array) -> Array:
        return np.where(function(a, b) | of_other(a.astype(np.uint32), b.astype(np.uint32)), 7, 9)

    return Written("s64 s64 -> u32", body, expected, f"UISETP.{name}.OR.EX", is_uniform=True)


def _bits(a: Array, b: Array, c: Array) -> Array:
    kept = 0x35
    flags = (a == b) * 1 + (a < b) * 4 + (a > 0) * 16
    return (c & ~np.uint32(kept)) | (flags & kept).astype(np.uint32)


def _bits_of_byte(byte: int) -> Written:
    def expected(a: Array, b: Array, c: Array) -> Array:
        flags = ((a == b) * 1 + (a < b) * 4).astype(np.uint32)
        return (c & ~np.uint32(5 << 8 * byte)) | flags << np.uint32(8 * byte)

    return Written(
        "s32 s32 u32 -> u32",
        f"""ISETP.EQ.AND P0, PT, R4, R6, PT
        ISETP.LT.AND P2, PT, R4, R6, PT
        P2R.B{byte} R10, PR, R8, 0x5""",
        expected,
        f"P2R.B{byte}",
    )


def _apart(a: Array) -> Array:
    """Warps whose lanes all go the same way pass BRA.DIV; the others meet at WARPSYNC."""
    is_late = a.reshape(-1, 32) >= 16
    is_whole = is_late.all(axis=1) | ~is_late.any(axis=1)
    return np.repeat(np.where(is_whole, 2**32 - 1, 2**32 - 2), 32)


def _some_late(rng: np.random.Generator) -> list[Array]:
    values = rng.integers(0, 32, (16, 32), np.uint32)
    values[::3] %= 16
    return [values.reshape(-1)]


SNIPPETS: Mapping[str, Written] = {
    "cvt.bf16.f32": Written(
        "f32 -> u32",
        "F2F.BF16.F32 R10, R4",
        lambda a: a.astype(ml_dtypes.bfloat16).view("u2"),
        "F2F.BF16.F32",
        operands=lambda rng: [(rng.normal(size=512) * 10.0 ** rng.integers(-8, 5, 512)).astype(np.float32)],
    ),
    "cvt.f16.f32": Written(
        "f32 -> u32",
        "F2F.F16.F32 R10, R4",
        lambda a: a.astype("f2").view("u2"),
        "F2F.F16.F32",
        operands=lambda rng: [(rng.normal(size=512) * 10.0 ** rng.integers(-8, 5, 512)).astype(np.float32)],
    ),
    **{
        f"the half that nobody wrote is shifted out, {form}": Written(
            "u32 -> u32", f"PRMT R11, R4, 0x7610, R11\n{body}", lambda a: a << np.uint32(16), form
        )
        for form, body in {
            "IMAD.U32": "IMAD.U32 R10, R11, 0x10000, RZ",
            "IMAD.SHL.U32": "MOV R12, 0x10000\nIMAD.SHL.U32 R10, R12, R11, RZ",
            "SHF.L.U32": "SHF.L.U32 R10, R11, 0x10, RZ",
        }.items()
    },
    "the lesser of halves, of which nobody wrote the upper one": Written(
        "u32 u32 -> u32",
        """PRMT R11, R4, 0x7610, R11
        VIMNMX.U16x2 R12, R11, R6, PT
        LOP3.LUT R10, R12, 0xffff, RZ, 0xc0, !PT""",
        lambda a, b: np.minimum(a & 0xFFFF, b & 0xFFFF),
        "VIMNMX.U16x2",
    ),
    "selp.f32": Written(
        "f32 f32 s32 -> f32",
        "ISETP.GT.AND P0, PT, R8, 0x5, PT\nFSEL R10, -R4, |R6|, P0",
        lambda a, b, c: np.where(c > 5, -a, np.abs(b)),
        "FSEL",
    ),
    "predicates as bits": Written(
        "s32 s32 u32 -> u32",
        """ISETP.EQ.AND P0, PT, R4, R6, PT
        ISETP.LT.AND P2, PT, R4, R6, PT
        ISETP.GT.AND P4, PT, R4, RZ, PT
        PLOP3.LUT P5, PT, PT, PT, PT, 0x0, 0x0
        P2R R10, PR, R8, 0x35""",
        _bits,
        "P2R",
    ),
    **{f"predicates as bits of byte {byte}": _bits_of_byte(byte) for byte in (1, 2, 3)},
    "bits as predicates": Written(
        "u32 u32 -> u32",
        """PLOP3.LUT P1, PT, PT, PT, PT, 0x80, 0x0
        PLOP3.LUT P2, PT, PT, PT, PT, 0x0, 0x0
        R2P PR, R4, 0xc
        SEL R10, R6, RZ, P1
        SEL R11, RZ, 0x1, P2
        IADD3 R10, R10, R11, RZ
        SEL R11, RZ, 0x2, P3
        IADD3 R10, R10, R11, RZ""",
        lambda a, b: b + np.where(a & 4, 0, 1).astype("u4") + np.where(a & 8, 0, 2).astype("u4"),
        "R2P",
    ),
    "mul.wide.s32, uniform": Written(
        "s32 s32 s64 -> s64",
        "UIMAD.WIDE UR10, UR4, UR6, UR8\nMOV R10, UR10\nMOV R11, UR11",
        lambda a, b, c: wrapped(ints(a) * ints(b) + ints(c), "s64"),
        "UIMAD.WIDE",
        is_uniform=True,
    ),
    "popc, uniform": Written(
        "u32 -> u32",
        "UPOPC UR10, UR4\nMOV R10, UR10",
        lambda a: np.array([x.bit_count() for x in ints(a)], np.uint32),
        "UPOPC",
        is_uniform=True,
    ),
    "prmt, uniform": Written(
        "u32 u32 -> u32",
        "UPRMT UR10, UR4, 0x9910, UR6\nMOV R10, UR10",
        lambda a, b: a.astype("u2").view("i2").astype("i4").view("u4"),
        "UPRMT",
        is_uniform=True,
    ),
    "lea.hi, uniform": Written(
        "u32 u32 u32 -> u32",
        "ULEA.HI UR10, UR4, UR6, UR8, 0x5\nMOV R10, UR10",
        lambda a, b, c: wrapped((((ints(c) << 32 | ints(a)) << 5) >> 32) + ints(b), "u32"),
        "ULEA.HI",
        is_uniform=True,
    ),
    **{
        f"setp.{form}, uniform": _uniform_comparison(form, function)
        for form, function in {
            "GE.AND": np.greater_equal,
            "GT.AND": np.greater,
            "EQ.AND": np.equal,
            "NE.AND": np.not_equal,
            "LT.AND": np.less,
            "GE.U32.AND": np.greater_equal,
            "LT.U32.AND": np.less,
            "GT.U32.OR": np.greater,
            "LE.OR": np.less_equal,
            "LT.OR": np.less,
            "EQ.OR": np.equal,
        }.items()
    },
    **{
        f"setp.{name}.{kind}, uniform": _wide_uniform_comparison(name, kind, function)
        for kind in ("s64", "u64")
        for name, function in {
            "EQ": np.equal,
            "GE": np.greater_equal,
            "GT": np.greater,
            "LT": np.less,
            "NE": np.not_equal,
        }.items()
    },
    "setp.EQ of 64 bits or another predicate, uniform": _wide_uniform_comparison_or(
        "EQ", np.equal, "LT", np.less
    ),
    "setp.LT of 64 bits or another predicate, uniform": _wide_uniform_comparison_or(
        "LT", np.less, "EQ", np.equal
    ),
    **{
        f"generic, {8 * size} bits": Written(
            f"u{8 * size} -> u{8 * size}",
            f"""LDC.64 R2, c[0x0][0x218]
            IMAD.WIDE.U32 R2, R0, {size:#x}, R2
            ST.E{suffix} desc[UR4][R2.64], R4
            LD.E{suffix} R10, desc[UR4][R2.64]""",
            lambda a: a,
            f"ST.E{suffix} LD.E{suffix}",
        )
        for size, suffix in _SUFFIXES.items()
    },
    "to all lanes": Written(
        "u32 -> u32", "R2UR UR4, R4\nMOV R10, UR4", lambda a: np.repeat(a[::32], 32), "R2UR"
    ),
    **{
        f"{bits} bits of a parameter": Written(
            "u32 -> u32",
            f"""LDC R2, c[0x0][0x218]
            LDC.U{bits} R3, c[0x0][0x218]
            LOP3.LUT R2, R2, {(1 << bits) - 1:#x}, RZ, 0xc0, !PT
            IADD3 R10, R4, -R3, R2""",
            lambda a: a,
            f"LDC.U{bits}",
        )
        for bits in (8, 16)
    },
    **{
        f"{bits} bits of a parameter, uniform": Written(
            f"u{bits} -> u32",
            "MOV R10, UR4",
            lambda a: a.astype("u4"),
            f"ULDC.U{bits}",
            is_uniform=True,
        )
        for bits in (8, 16)
    },
    **{
        f"{bits} bits of a parameter with a sign": Written(
            f"s{bits} -> s32",
            f"LDC.S{bits} R10, c[0x0][{_ARGUMENTS:#x}]",
            lambda a: a.astype("i4"),
            f"LDC.S{bits}",
            is_uniform=True,
        )
        for bits in (8, 16)
    },
    "and of uniform predicates": Written(
        "s32 s32 -> u32",
        """UISETP.GE.AND UP1, UPT, UR4, UR6, UPT
        UISETP.GE.AND UP2, UPT, UR4, URZ, UPT
        UPLOP3.LUT UP0, UPT, UP1, UP2, UPT, 0x80, 0x0
        UMOV UR10, 0x1
        USEL UR10, UR10, 0x2, UP0
        MOV R10, UR10""",
        lambda a, b: np.where((a >= b) & (a >= 0), 1, 2).astype(np.uint32),
        "UPLOP3.LUT",
        is_uniform=True,
    ),
    "a jump by a uniform predicate": Written(
        "s32 s32 -> u32",
        """UISETP.GE.AND UP0, UPT, UR4, UR6, UPT
        MOV R10, 0x1
        BRA.U UP0, `(end)
        MOV R10, 0x2
        end:""",
        lambda a, b: np.where(a >= b, 1, 2).astype(np.uint32),
        "BRA.U",
        is_uniform=True,
    ),
    "the lanes of a convergence barrier, kept in a register": Written(
        "u32 -> u32",
        """BSSY B0, `(meet)
        BMOV.32.CLEAR R8, B0
        BMOV.32 R9, B0
        BMOV.32 B0, R8
        ISETP.GE.U32.AND P0, PT, R4, 0x10, PT
        @P0 BRA `(late)
        meet:
        BSYNC B0
        VOTE.ANY R10, PT, PT
        IADD3 R10, R10, R9, RZ
        BRA `(end)
        late:
        BRA `(meet)
        end:""",
        lambda a: np.full(a.shape, 2**32 - 1, np.uint32),
        "BMOV.32.CLEAR BMOV.32",
        operands=_some_late,
    ),
    "bmsk, uniform": Written(
        "u32 u32 -> u32",
        "UBMSK UR10, UR4, UR6\nMOV R10, UR10",
        integer.SNIPPETS["bmsk.clamp"].expected,
        "UBMSK",
        is_uniform=True,
    ),
    "szext, uniform": Written(
        "u32 u32 -> u32",
        "USGXT UR10, UR4, UR6\nMOV R10, UR10",
        integer.SNIPPETS["szext.clamp.s32"].expected,
        "USGXT",
        is_uniform=True,
    ),
    "whether a word is the same for all lanes": Written(
        "u32 -> u32",
        "R2UR P0, UR6, R4\nSEL R10, RZ, 0x1, P0",
        lambda a: np.repeat((a.reshape(-1, 32) != a.reshape(-1, 32)[:, :1]).any(axis=1), 32).astype("u4"),
        "R2UR",
        operands=lambda rng: [rng.integers(0, 5, 512, np.uint32) // 4 * (np.arange(512) % 64 < 32)],
    ),
    "whether all lanes agree": Written(
        "u32 -> u32",
        """ISETP.GT.U32.AND P0, PT, R4, 0x1, PT
        VOTEU.ALL UP0, P0
        USEL UR10, URZ, 0x1, !UP0
        MOV R10, UR10""",
        lambda a: np.repeat((a.reshape(-1, 32) > 1).all(axis=1), 32).astype("u4"),
        "VOTEU.ALL",
        operands=lambda rng: [
            rng.integers(0, 5, 512, np.uint32) + 2 * (np.arange(512) % 64 < 32).astype("u4")
        ],
    ),
    "an exit of some lanes": Written(
        "u32 -> u32",
        """MOV R10, 0x5
        ISETP.LT.U32.AND P0, PT, R4, 0x10, PT
        EXIT !P0""",
        lambda a: np.where(a < 16, 5, 0).astype(np.uint32),
        "EXIT",
        operands=_some_late,
    ),
    "a warp that came apart": Written(
        "u32 -> u32",
        """UMOV UR6, 0xffffffff
        MOV R8, 0xffffffff
        ISETP.GE.U32.AND P0, PT, R4, 0x10, PT
        @P0 BRA `(late)
        meet:
        BRA.DIV UR6, `(apart)
        VOTE.ANY R10, PT, PT
        BRA `(end)
        apart:
        WARPSYNC.COLLECTIVE R8, `(counted)
        VOTE.ANY R9, PT, PT
        ENDCOLLECTIVE
        counted:
        VIADD R10, R9, 0xffffffff
        BRA `(end)
        late:
        BRA `(meet)
        end:""",
        _apart,
        "BRA.DIV WARPSYNC.COLLECTIVE ENDCOLLECTIVE",
        operands=_some_late,
    ),
}


class FormRunner:
    """Runs an instruction by itself, on registers that are zero and addresses that exist.

    See `proof.sass.forms` for the registers of addresses.
    """

    _BYTES = 4096
    _SHARED_PLACE = 0x800

    def __init__(self) -> None:
        self._memory = Buffer(np.zeros(self._BYTES, np.uint8), is_output=True)
        place = self._memory.address + self._BYTES // 2
        start = [f"MOV R{number}, RZ" for number in range(80)]
        start += [f"UMOV UR{number}, URZ" for number in range(62)]
        start += [
            f"{'U' * is_uniform}PLOP3.LUT {letter}1, {letter}T, {letter}T, {letter}T, {letter}T, 0x8, 0x0"
            for is_uniform, letter in enumerate(("P", "UP"))
        ]
        start += [f"MOV R2, {place & 0xFFFFFFFF:#x}", f"MOV R3, {place >> 32:#x}"]
        start += [f"MOV R4, {self._SHARED_PLACE:#x}", f"UMOV UR4, {self._SHARED_PLACE:#x}"]
        self._start = "\n".join(start)

    def refusal(self, form: str) -> str:
        """The machine's error, "" for none."""
        code = assembled(f"{self._start}\n{form}\nend:\nEXIT")
        launch = Launch(code, bytes(64), [self._memory], (1, 1, 1), (32, 1, 1), 3 * self._SHARED_PLACE)
        try:
            run(launch)
        except MachineError as error:
            return str(error)
        return ""
