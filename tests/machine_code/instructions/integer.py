"""Integers, bits and predicates: PTX ISA, integer arithmetic, comparison, logic and shift."""

import itertools
from collections.abc import Callable

import numpy as np

from tests.machine_code.instructions.snippet import Snippet, uniform
from tests.machine_code.instructions.values import TYPES, Array, ints, wrapped


def ptx(text: str) -> str:
    """One instruction of PTX on words: "add.u32 %0, %1, %2;", without the operands that it does not name."""
    kinds = {"r": "ra", "%1": "a", "%2": "b", "%3": "c"}
    inputs = ", ".join(f'"r"({kinds[n]})' for n in ("%1", "%2", "%3") if n in text)
    return f'asm volatile("{text}" : "=r"(r) : {inputs});'


def _upper(product: Array, name: str) -> Array:
    return wrapped(product >> 8 * TYPES[name].itemsize, name)


_WORDS = "u32 u32 u32 -> u32"


def _chain(first: str, then: str, sign: int) -> Snippet:
    """The upper two of three words: carries go on through all of them."""
    body = f"""uint32_t low, high;
      asm("{{ .reg .u32 t; {first}.cc.u32 t, %2, %3; {then}.cc.u32 %0, %4, %5; {then}.u32 %1, %3, 7; }}"
        : "=r"(low), "=r"(high)
        : "r"((uint32_t)a), "r"(b), "r"((uint32_t)(a >> 32)), "r"((uint32_t)c));
      r = (uint64_t)high << 32 | low;"""

    def expected(a: Array, b: Array, c: Array) -> Array:
        left, right = ints(a) + (ints(b) << 64), ints(b) + (ints(c) % 2**32 << 32) + (7 << 64)
        return wrapped((left + sign * right) >> 32, "u64")

    return Snippet("u64 u32 u64 -> u64", body, expected)


def _each(function: Callable[..., int]) -> Callable[..., Array]:
    """A function of Python's integers for each element, as words."""

    def expected(*arrays: Array) -> Array:
        return wrapped(np.vectorize(function, otypes=[object])(*map(ints, arrays)), "u32")

    return expected


SUMS = {
    "add": Snippet("u32 u32 -> u32", "r = a + b;", lambda a, b: a + b, "IADD3"),
    "add of three": Snippet(_WORDS, "r = a - b + c;", lambda a, b, c: a - b + c, "IADD3"),
    "negated sums": Snippet(_WORDS, "r = -a - b - c;", lambda a, b, c: np.uint32(0) - a - b - c, "IADD3"),
    "add of 64 bits": Snippet("u64 u64 -> u64", "r = a + b;", lambda a, b: a + b, "IADD3 IADD3.X"),
    "sub of 64 bits": Snippet("u64 u64 -> u64", "r = a - b;", lambda a, b: a - b, "IADD3 IADD3.X"),
    "two carries": Snippet("u64 u64 u64 -> u64", "r = a + b + c;", lambda a, b, c: a + b + c, "IADD3.X"),
    "carries of 96 bits": _chain("add", "addc", 1),
    "borrows of 96 bits": _chain("sub", "subc", -1),
    "abs": Snippet("s32 -> u32", "r = a < 0 ? 0u - a : a;", lambda a: wrapped(abs(ints(a)), "u32"), "IABS"),
}

PRODUCTS = {
    "mad.lo": Snippet(_WORDS, "r = a * b + c;", lambda a, b, c: a * b + c, "IMAD"),
    "mad.lo less": Snippet(_WORDS, "r = a * b - c;", lambda a, b, c: a * b - c, "IMAD"),
    "mul.hi.u32": Snippet(
        "u32 u32 -> u32", "r = __umulhi(a, b);", lambda a, b: _upper(ints(a) * ints(b), "u32"), "IMAD.HI.U32"
    ),
    "mul.hi.s32": Snippet(
        "s32 s32 -> s32", "r = __mulhi(a, b);", lambda a, b: _upper(ints(a) * ints(b), "s32"), "IMAD.HI"
    ),
    "mad.hi.u32": Snippet(
        _WORDS,
        ptx("mad.hi.u32 %0, %1, %2, %3;"),
        lambda a, b, c: wrapped((ints(a) * ints(b) >> 32) + ints(c), "u32"),
    ),
    "mad.wide.u32": Snippet(
        "u32 u32 u64 -> u64",
        "r = (uint64_t)a * b + c;",
        lambda a, b, c: wrapped(ints(a) * ints(b) + ints(c), "u64"),
        "IMAD.WIDE.U32",
    ),
    "mad.wide.s32": Snippet(
        "s32 s32 s64 -> s64",
        "r = (int64_t)a * b + c;",
        lambda a, b, c: wrapped(ints(a) * ints(b) + ints(c), "s64"),
        "IMAD.WIDE",
    ),
    "mul of 64 bits": Snippet("u64 u64 -> u64", "r = a * b;", lambda a, b: a * b, "IMAD.WIDE.U32"),
    "mul.hi.u64": Snippet(
        "u64 u64 -> u64",
        "r = __umul64hi(a, b);",
        lambda a, b: _upper(ints(a) * ints(b), "u64"),
        "IMAD.WIDE.U32.X",
    ),
    "mul.hi.s64": Snippet(
        "s64 s64 -> s64", "r = __mul64hi(a, b);", lambda a, b: _upper(ints(a) * ints(b), "s64")
    ),
    "madc": Snippet(
        _WORDS,
        'asm("{ .reg .u32 t; mad.lo.cc.u32 t, %1, %2, %3; madc.hi.u32 %0, %1, %2, %3; }"'
        ': "=r"(r) : "r"(a), "r"(b), "r"(c));',
        lambda a, b, c: wrapped((ints(a) * ints(b) + (ints(c) << 32) + ints(c)) >> 32, "u32"),
    ),
    "quotient of 32 bits": Snippet(
        "u32 u32 -> u32",
        "r = b ? a / b : 7;",
        lambda a, b: np.where(b, a // np.maximum(b, 1), 7),
        "I2F.U32.RP MUFU.RCP F2I.FTZ.U32.TRUNC.NTZ",
    ),
    "remainder with a sign": Snippet(
        "s32 s32 -> s64",
        "r = b ? a % b : 7;",
        lambda a, b: np.where(b, np.fmod(a.astype(float), np.where(b, b, 1)), 7),
        "IABS I2F.RP",
    ),
    "quotient of 64 bits": Snippet(
        "u64 u64 -> u64",
        "r = b ? a / b : 7;",
        lambda a, b: np.where(b, a // np.maximum(b, 1), 7),
        "I2F.U64.RP",
    ),
}

ADDRESSES = {
    "lea": Snippet("u32 u32 -> u32", "r = b + (a << 3);", lambda a, b: b + (a << 3), "LEA"),
    "lea, negated": Snippet("u32 u32 -> u32", "r = b - (a << 3);", lambda a, b: b - (a << 3)),
    "lea of 64 bits": Snippet(
        "u64 u64 -> u64", "r = b + (a << 4);", lambda a, b: b + (a << 4), "LEA LEA.HI.X"
    ),
    "lea of a signed word": Snippet(
        "s32 s64 -> s64",
        "r = b + (int64_t)a * 8;",
        lambda a, b: wrapped(ints(a) * 8 + ints(b), "s64"),
    ),
    "lea.hi.x.sx32": Snippet(
        "s32 s64 -> s64",
        "r = b + a;",
        lambda a, b: wrapped(ints(a) + ints(b), "s64"),
        "LEA.HI.X.SX32",
    ),
    "lea.hi": Snippet("u32 u32 -> u32", "r = b + (a >> 27);", lambda a, b: b + (a >> 27), "LEA.HI"),
    "lea.hi.sx32": Snippet(
        "s32 s32 -> s32", "r = b + (a >> 4);", lambda a, b: wrapped(ints(b) + (a >> 4), "s32"), "LEA.HI.SX32"
    ),
}


def _shift(ptx_name: str, kind: str) -> Snippet:
    """`shl` and `shr` of PTX: amounts beyond the width count as the width."""
    letter = "l" if "64" in kind else "r"
    left = "shl" in ptx_name

    def expected(a: Array, b: Array) -> Array:
        amount = np.minimum(ints(b), 8 * a.itemsize)
        return wrapped(ints(a) << amount if left else ints(a) >> amount, kind)

    body = f'asm("{ptx_name} %0, %1, %2;" : "={letter}"(r) : "{letter}"(a), "r"(b));'
    return Snippet(f"{kind} u32 -> {kind}", body, expected)


def _funnel(direction: str, mode: str) -> Snippet:
    def expected(a: Array, b: Array, c: Array) -> Array:
        amount = ints(c) % 32 if mode == "wrap" else np.minimum(ints(c), 32)
        value = ints(b) << 32 | ints(a)
        return wrapped(value << amount >> 32 if direction == "l" else value >> amount, "u32")

    return Snippet(_WORDS, ptx(f"shf.{direction}.{mode}.b32 %0, %1, %2, %3;"), expected)


def _mask(mode: str) -> Snippet:
    """`bmsk` of PTX: ones from a position on."""

    def expected(a: Array, b: Array) -> Array:
        wrap = mode == "wrap"
        start, count = (ints(x) % 32 if wrap else np.minimum(ints(x), 32) for x in (a, b))
        return wrapped(((1 << count) - 1) << start, "u32")

    form = "BMSK" + ".W" * (mode == "wrap")
    return Snippet("u32 u32 -> u32", ptx(f"bmsk.{mode}.b32 %0, %1, %2;"), expected, form)


def _extension(mode: str, kind: str) -> Snippet:
    """`szext` of PTX: the lower bits with the highest of them as the sign."""

    def expected(a: Array, b: Array) -> Array:
        width = ints(b) % 32 if mode == "wrap" else np.minimum(ints(b), 32)
        low = ints(a) % (1 << width)
        is_negative = (kind == "s32") & (width > 0) & (low * 2 >= 1 << width)
        return wrapped(low - is_negative * (1 << width), "u32")

    form = "SGXT" + ".W" * (mode == "wrap") + ".U32" * (kind == "u32")
    return Snippet("u32 u32 -> u32", ptx(f"szext.{mode}.{kind} %0, %1, %2;"), expected, form)


SHIFTS = {
    **{f"bmsk.{mode}": _mask(mode) for mode in ("clamp", "wrap")},
    **{
        f"szext.{mode}.{kind}": _extension(mode, kind)
        for mode in ("clamp", "wrap")
        for kind in ("s32", "u32")
    },
    **{
        name: _shift(name, kind)
        for name, kind in (
            *(("shl.b32", "u32"), ("shr.u32", "u32"), ("shr.s32", "s32")),
            *(("shl.b64", "u64"), ("shr.u64", "u64"), ("shr.s64", "s64")),
        )
    },
    **{f"shf.{way}.{mode}": _funnel(way, mode) for way in "lr" for mode in ("wrap", "clamp")},
    "shl, wrapped": Snippet("u32 u32 -> u32", "r = a << (b & 31);", lambda a, b: a << (b & 31)),
    "shl by a constant": Snippet(
        "u64 -> u64", "r = a << 9 ^ a >> 8;", lambda a: a << 9 ^ a >> 8, "SHF.R.U64"
    ),
    "shr.s64 by a constant": Snippet("s64 -> s64", "r = a >> 1;", lambda a: a >> 1, "SHF.R.S64"),
    "multiplied by 16": Snippet("u32 u32 -> u32", "r = (a << 4) * b;", lambda a, b: (a << 4) * b),
}


def _logic(table: int) -> Snippet:
    def expected(a: Array, b: Array, c: Array) -> Array:
        found = np.zeros_like(a)
        for row in range(8):
            if table >> row & 1:
                found |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
        return found

    return Snippet(_WORDS, ptx(f"lop3.b32 %0, %1, %2, %3, {table};"), expected, "LOP3.LUT")


def _logic_to_predicate(combination: str) -> Snippet:
    def expected(a: Array, b: Array, c: Array) -> Array:
        bits, given = (a & b) != 0, (c & 1) != 0
        return (bits | given if combination == "or" else bits & given).astype(np.uint32)

    body = (
        'asm("{ .reg .pred p, q; .reg .b32 t, d; and.b32 t, %3, 1; setp.ne.u32 q, t, 0; '
        f'lop3.{combination}.b32 d|p, %1, %2, 0, 0xc0, q; selp.u32 %0, 1, 0, p; }}"'
        ' : "=r"(r) : "r"(a), "r"(b), "r"(c));'
    )
    return Snippet(_WORDS, body, expected, "LOP3.LUT")


_PREDICATES = "const bool p = (int)a < 5, q = b & 1, s = (int)c > 9;"


def _predicates(text: str) -> Snippet:
    def expected(a: Array, b: Array, c: Array) -> Array:
        values = {"p": a.view("i4") < 5, "q": (b & 1) != 0, "s": c.view("i4") > 9}
        return np.asarray(eval(text.replace("!", "~"), {}, values)).astype(np.uint32)

    return Snippet(_WORDS, f"{_PREDICATES} r = {text};", expected)


LOGIC = {
    **{f"lop3 {table:#x}": _logic(table) for table in (0x80, 0xE8, 0x96, 0xCA, 0x1B, 0xFE, 0x3C, 0x33)},
    "lop3.and": _logic_to_predicate("and"),
    "lop3.or": _logic_to_predicate("or"),
    "predicates: majority": _predicates("(p & q) | (q & s) | (p & s)"),
    "predicates: parity": _predicates("p ^ q ^ s"),
    "predicates: not": _predicates("(p | !q) & !s"),
    "selp": Snippet(_WORDS, "r = c & 1 ? a : b;", lambda a, b, c: np.where(c & 1, a, b)),
    "popc": Snippet("u32 -> u32", "r = __popc(a);", _each(lambda x: x.bit_count()), "POPC"),
    "brev": Snippet(
        "u32 -> u32",
        "r = __brev(a);",
        _each(lambda x: int(f"{x:032b}"[::-1], 2)),
        "BREV",
    ),
    "clz": Snippet("u32 -> u32", "r = __clz(a);", _each(lambda x: 32 - x.bit_length()), "FLO.U32"),
    "bfind.u32": Snippet(
        "u32 -> u32",
        ptx("bfind.u32 %0, %1;"),
        _each(lambda x: x.bit_length() - 1),
        "FLO.U32",
    ),
    "bfind.shiftamt": Snippet(
        "u32 -> u32",
        ptx("bfind.shiftamt.u32 %0, %1;"),
        _each(lambda x: 32 - x.bit_length() if x else -1),
        "FLO.U32.SH",
    ),
}

_COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_COMBINATIONS = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def comparison(
    name: str, combination: str, kind: str, function: Callable[..., Array], flush: str = ""
) -> Snippet:
    """`setp` with both results; the third operand's lowest bit is the predicate that it combines with."""
    letter = "f" if kind == "f32" else "l" if kind[1:] == "64" else "r"
    body = (
        'asm("{ .reg .pred p, q, s; .reg .b32 t, u; and.b32 t, %3, 1; setp.ne.u32 s, t, 0; '
        f"setp.{name}.{combination}{flush}.{kind} p|q, %1, %2, s; "
        'selp.u32 t, 1, 0, p; selp.u32 u, 2, 0, q; or.b32 %0, t, u; }"'
        f' : "=r"(r) : "{letter}"(a), "{letter}"(b), "r"(c));'
    )

    def expected(a: Array, b: Array, c: Array) -> Array:
        found, given = function(a, b), (c & 1) != 0
        combine = _COMBINATIONS[combination]
        return combine(found, given) + 2 * combine(~found, given).astype(np.uint32)

    return Snippet(f"{kind} {kind} u32 -> u32", body, expected)


COMPARISONS = {
    f"setp.{name}.{combination}.{kind}": comparison(name, combination, kind, function)
    for (name, function), combination, kind in itertools.product(
        _COMPARISONS.items(), _COMBINATIONS, ("s32", "u32", "s64", "u64")
    )
}


def _least(function: Callable[..., Array], kind: str) -> Snippet:
    name = function.__name__[:3]  # type: ignore[attr-defined]
    form = "VIMNMX" + ".U32" * (kind == "u32")
    return Snippet(f"{kind} {kind} -> {kind}", f"r = {name}(a, b);", function, form)


def _least_halves(name: str, kind: str) -> Snippet:
    function = {"min": np.minimum, "max": np.maximum}[name]
    halves = {"u": np.uint16, "s": np.int16}[kind[0]]

    def expected(a: Array, b: Array) -> Array:
        found: Array = function(a.view(halves), b.view(halves)).view(np.uint32)
        return found

    body = f'asm("{name}.{kind} %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));'
    return Snippet("u32 u32 -> u32", body, expected, f"VIMNMX.{kind[0].upper()}16x2")


def _least_of_three(name: str, kind: str) -> Snippet:
    function = {"min": np.minimum, "max": np.maximum}[name]
    return Snippet(
        f"{kind} {kind} {kind} -> {kind}",
        f"r = {name}({name}(a, b), c);",
        lambda a, b, c: function(function(a, b), c),
        "VIMNMX3" + ".U32" * (kind == "u32"),
    )


def _clamped_sum(name: str, kind: str) -> Snippet:
    function = {"min": np.minimum, "max": np.maximum}[name]
    return Snippet(
        f"{kind} {kind} {kind} -> {kind}",
        f"r = {name}(({TYPES[kind].name}_t)((uint32_t)a + (uint32_t)b), c);",
        lambda a, b, c: function(wrapped(ints(a) + ints(b), kind), c),
        "VIADDMNMX" + ".U32" * (kind == "u32"),
    )


def _clamped_sum_of_halves(name: str) -> Snippet:
    function = {"min": np.minimum, "max": np.maximum}[name]

    def expected(a: Array, b: Array, c: Array) -> Array:
        found: Array = function(a.view(np.uint16) + b.view(np.uint16), c.view(np.uint16)).view(np.uint32)
        return found

    body = f"r = __viadd{name}_u16x2(a, b, c);"
    return Snippet("u32 u32 u32 -> u32", body, expected, "VIADDMNMX.U16x2")


def _permuted(a: int, b: int, c: int) -> int:
    found = 0
    for k in range(4):
        choice = c >> 4 * k & 15
        byte = (b << 32 | a) >> 8 * (choice & 7) & 255
        if choice & 8:
            byte = 255 if byte & 128 else 0
        found |= byte << 8 * k
    return found


OTHERS = {
    **{
        f"{function.__name__}.{kind}": _least(function, kind)
        for function in (np.minimum, np.maximum)
        for kind in ("s32", "u32")
    },
    **{
        f"{name} of halves, {kind}": _least_halves(name, kind)
        for name in ("min", "max")
        for kind in ("s16x2", "u16x2")
    },
    **{
        f"{name} of three, {kind}": _least_of_three(name, kind)
        for name in ("min", "max")
        for kind in ("s32", "u32")
    },
    **{
        f"{name} of a sum, {kind}": _clamped_sum(name, kind)
        for name in ("min", "max")
        for kind in ("s32", "u32")
    },
    **{f"{name} of a sum of halves, u16x2": _clamped_sum_of_halves(name) for name in ("min", "max")},
    "prmt": Snippet(
        _WORDS,
        ptx("prmt.b32 %0, %1, %2, %3;"),
        _each(_permuted),
        "PRMT",
    ),
}

SNIPPETS = {**SUMS, **PRODUCTS, **ADDRESSES, **SHIFTS, **LOGIC, **COMPARISONS, **OTHERS}
SNIPPETS |= {
    f"select by {name}, {kind}": uniform(
        Snippet(
            f"{kind} {kind} u32 -> u32",
            f"r = a {sign} b ? c + 5 : c >> 3;",
            lambda a, b, c, function=function: np.where(function(a, b), c + 5, c >> 3),
        )
    )
    for (name, function), sign in zip(_COMPARISONS.items(), ("==", "!=", "<", "<=", ">", ">="), strict=True)
    for kind in ("s32", "u32", "s64", "u64")
} | {
    f"{name}, uniform": uniform(snippet)
    for name, snippet in SNIPPETS.items()
    if not name.startswith("setp") or ".s" in name or "u32" in name
}
