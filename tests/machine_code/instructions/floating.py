"""Single and half precision: PTX ISA, floating-point instructions, conversions, matrices."""

import itertools
from collections.abc import Callable

import ml_dtypes
import numpy as np

from tests.machine_code.instructions.integer import comparison
from tests.machine_code.instructions.snippet import Snippet, uniform
from tests.machine_code.instructions.values import (
    NUM_VALUES,
    Array,
    flushed,
    fma,
    ints,
    operand_values,
    rounded,
    sum_to_odd,
    wrapped,
)

_FLOATS = "f32 f32 f32 -> f32"
_MODES = ("rn", "rz", "rm", "rp")


def _ptx(text: str, kind: str = "f", output: str = "f") -> str:
    """One instruction of PTX; `kind` is the constraint of its operands."""
    operands = ", ".join(f'"{kind}"({name})' for number, name in enumerate("abc", 1) if f"%{number}" in text)
    return f'asm volatile("{text}" : "={output}"(r) : {operands});'


def _sum(name: str, mode: str, suffixes: str) -> Snippet:
    """`add`, `mul` and `fma` of single precision, in each mode of rounding, with .ftz and .sat."""

    def expected(a: Array, b: Array, c: Array) -> Array:
        if ".ftz" in suffixes:
            a, b, c = flushed(a), flushed(b), flushed(c)
        one = np.float32(1)
        zero = np.where(np.signbit(a) != np.signbit(b), np.float32(-0.0), np.float32(0))
        found = {"add": (a, one, b), "mul": (a, b, zero), "fma": (a, b, c)}[name]
        result = fma(*np.broadcast_arrays(*found), mode)
        if ".ftz" in suffixes:
            result = flushed(result)
        if ".sat" in suffixes:
            result = np.where(result > 0, np.minimum(result, np.float32(1)), np.float32(0))
        return result

    operands = ", ".join(["%1", "%2", "%3"][: 3 if name == "fma" else 2])
    form = {"add": "FADD", "mul": "FMUL", "fma": "FFMA"}[name]
    form += ".FTZ" * (".ftz" in suffixes) + f".{mode.upper()}" * (mode != "rn")
    return Snippet(
        _FLOATS,
        _ptx(f"{name}.{mode}{suffixes}.f32 %0, {operands};"),
        expected,
        form + ".SAT" * (".sat" in suffixes),
    )


ARITHMETIC = {
    f"{name}.{mode}{suffixes}": _sum(name, mode, suffixes)
    for name, mode, suffixes in itertools.product(("add", "mul", "fma"), _MODES, ("", ".ftz", ".ftz.sat"))
}
ARITHMETIC |= {
    "signs": Snippet(
        _FLOATS,
        "r = __fmaf_rn(-a, b, -c);",
        lambda a, b, c: flushed(fma(-flushed(a), flushed(b), -flushed(c))),
    ),
    "absolute": Snippet(
        "f32 f32 -> f32",
        "r = fabsf(a) - b;",
        lambda a, b: flushed(fma(np.abs(flushed(a)), np.float32([1]), -flushed(b))),
    ),
    "div.rn": Snippet(
        "f32 f32 -> f32",
        _ptx("div.rn.f32 %0, %1, %2;"),
        lambda a, b: (a / b).astype(np.float32),
        "FCHK MUFU.RCP FFMA",
    ),
    "sqrt.rn": Snippet("f32 -> f32", _ptx("sqrt.rn.f32 %0, %1;", "f"), np.sqrt, "MUFU.RSQ"),
}


def _least(name: str, suffixes: str) -> Snippet:
    keeps_nan, flushes = ".NaN" in suffixes, ".ftz" in suffixes

    def expected(a: Array, b: Array) -> Array:
        if flushes:
            a, b = flushed(a), flushed(b)
        is_less = (a < b) | ((a == b) & np.signbit(a))
        found = np.where(is_less == (name == "min"), a, b)
        found = np.where(np.isnan(a), b, np.where(np.isnan(b), a, found))
        return np.where(keeps_nan & (np.isnan(a) | np.isnan(b)), np.float32(np.nan), found)

    body = _ptx(f"{name}{suffixes}.f32 %0, %1, %2;")
    return Snippet("f32 f32 -> f32", body, expected, "FMNMX" + ".FTZ" * flushes + ".NAN" * keeps_nan)


def _ordered(function: Callable[..., Array], flushes: bool) -> Callable[..., Array]:
    def compared(a: Array, b: Array) -> Array:
        if flushes:
            a, b = flushed(a), flushed(b)
        return function(a, b)

    return compared


def _unordered(a: Array, b: Array) -> Array:
    return np.isnan(a) | np.isnan(b)


_COMPARISONS: dict[str, Callable[..., Array]] = {
    "eq": np.equal,
    "ne": lambda a, b: (a != b) & ~_unordered(a, b),
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "equ": lambda a, b: (a == b) | _unordered(a, b),
    "neu": np.not_equal,
    "ltu": lambda a, b: ~(a >= b),
    "leu": lambda a, b: ~(a > b),
    "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b),
    "num": lambda a, b: ~_unordered(a, b),
    "nan": _unordered,
}
COMPARISONS = {
    f"setp.{name}{flush}.{combination}.f32": comparison(
        name, combination, "f32", _ordered(function, bool(flush)), flush
    )
    for (name, function), combination in itertools.product(_COMPARISONS.items(), ("and", "or", "xor"))
    for flush in ("", ".ftz")
}
COMPARISONS |= {
    f"{name}{suffixes}": _least(name, suffixes)
    for name in ("min", "max")
    for suffixes in ("", ".ftz", ".NaN", ".ftz.NaN")
}


def _approximate(name: str, form: str, function: Callable[[Array], Array], ulps: int = 2) -> Snippet:
    """A GPU's results may be `ulps` from the nearest number; the machine's are the nearest."""
    return Snippet(
        "f32 -> f32",
        _ptx(f"{name}.f32 %0, %1;", "f"),
        lambda a: flushed(function(flushed(a).astype(np.float64)).astype(np.float32)),
        form,
        ulps=ulps,
    )


FUNCTIONS = {
    "rcp": _approximate("rcp.approx.ftz", "MUFU.RCP", np.reciprocal),
    "rsqrt": _approximate("rsqrt.approx.ftz", "MUFU.RSQ", lambda x: 1 / np.sqrt(x)),
    "ex2": _approximate("ex2.approx.ftz", "MUFU.EX2", np.exp2),
    "lg2": _approximate("lg2.approx.ftz", "MUFU.LG2", np.log2),
    "tanh": _approximate("tanh.approx", "MUFU.TANH", np.tanh),
}

_TO_INTEGER: dict[str, Callable[[Array], Array]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}


def _to_integer(mode: str, kind: str) -> Snippet:
    """Numbers out of range give the nearest end; NaN gives 0, or 2**63 in 64 bits (PTX ISA, cvt)."""
    bits, is_signed = int(kind[1:]), kind[0] == "s"
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)

    def one(value: float) -> int:
        if np.isnan(value):
            return 0 if bits == 32 else 1 << 63
        return int(value) if low < value < high else high if value > 0 else low

    def expected(a: Array) -> Array:
        whole = _TO_INTEGER[mode](flushed(a).astype(np.float64))
        return wrapped(np.vectorize(one, otypes=[object])(whole), kind)

    letter = "l" if bits == 64 else "r"
    suffix = {"rni": "", "rzi": ".TRUNC", "rmi": ".FLOOR", "rpi": ".CEIL"}[mode]
    name = "" if kind == "s32" else f".{kind.upper()}"
    form = f"F2I.FTZ{name}{suffix}.NTZ" if bits == 32 else f"F2I{name}{suffix}"
    return Snippet(f"f32 -> {kind}", _ptx(f"cvt.{mode}.ftz.{kind}.f32 %0, %1;", "f", letter), expected, form)


def _from_integer(mode: str, kind: str) -> Snippet:
    """The integer's halves become doubles, whose sum keeps all that rounding needs."""

    def expected(a: Array) -> Array:
        high = (ints(a) >> 32).astype(np.float64) * 2.0**32
        low = (ints(a) % 2**32).astype(np.float64)
        result = rounded(sum_to_odd(high, low), mode)
        return np.where(a == 0, np.float32(0), result)

    letter = "l" if kind[1:] == "64" else "r"
    return Snippet(f"{kind} -> f32", _ptx(f"cvt.{mode}.f32.{kind} %0, %1;", letter), expected)


CONVERSIONS = {
    **{
        f"cvt.{mode}.{kind}.f32": _to_integer(mode, kind)
        for mode in _TO_INTEGER
        for kind in ("s32", "u32", "s64", "u64")
    },
    **{
        f"cvt.{mode}.f32.{kind}": _from_integer(mode, kind)
        for mode in _MODES
        for kind in ("s32", "u32", "s64", "u64")
    },
    **{
        f"cvt.{mode}.f32.f32{flush}": Snippet(
            "f32 -> f32",
            _ptx(f"cvt.{mode}{flush}.f32.f32 %0, %1;", "f"),
            lambda a, mode=mode, flush=flush: _TO_INTEGER[mode](flushed(a) if flush else a),
        )
        for mode in _TO_INTEGER
        for flush in ("", ".ftz")
    },
}


def _half_pair(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function on words of two halves, in double precision, rounded once."""

    def expected(*words: Array) -> Array:
        halves = (word.view(np.float16).astype(np.float64) for word in words)
        return function(*halves).astype(np.float16).view(np.uint32)

    return expected


def _halves_operands(rng: np.random.Generator) -> list[Array]:
    """Words of two numbers each, without NaN, whose bits are not specified."""
    arrays = [np.repeat(array, 2) for array in operand_values(["f16"] * 3, rng)]
    for array in arrays:
        array[1::2] = rng.permutation(array[1::2])
    return [np.nan_to_num(array, nan=1.5).view(np.uint32) for array in arrays]


def _finite_halves(rng: np.random.Generator) -> list[Array]:
    return [rng.uniform(-300, 300, size=2 * 512).astype(np.float16).view(np.uint32) for _ in range(3)]


def _brain_bits(a: Array) -> Array:
    """The bits as bfloat16; PTX has one NaN."""
    with np.errstate(all="ignore"):
        bits = a.astype(ml_dtypes.bfloat16).view(np.uint16)
    return np.where(np.isnan(a), np.uint16(0x7FFF), bits)


HALVES = {
    "cvt.f16.f32": Snippet(
        "f32 -> f16",
        _ptx("cvt.rn.f16.f32 %0, %1;", "f", "h"),
        lambda a: a.astype(np.float16),
        "F2FP.F16.F32.PACK_AB",
    ),
    "cvt.bf16.f32": Snippet(
        "f32 -> u16", _ptx("cvt.rn.bf16.f32 %0, %1;", "f", "h"), _brain_bits, "F2FP.BF16.F32.PACK_AB"
    ),
    "cvt.f16x2.f32": Snippet(
        "f32 f32 -> u32",
        _ptx("cvt.rn.f16x2.f32 %0, %1, %2;", "f", "r"),
        lambda a, b: (
            b.astype(np.float16).view(np.uint16)
            + (a.astype(np.float16).view(np.uint16).astype(np.uint32) << 16)
        ),
        "F2FP.F16.F32.PACK_AB",
        operands=lambda rng: [np.nan_to_num(x, nan=2.5) for x in operand_values(["f32", "f32"], rng)],
    ),
    "cvt.f32.f16": Snippet(
        "f16 -> f32", _ptx("cvt.f32.f16 %0, %1;", "h"), lambda a: a.astype(np.float32), "HADD2.F32"
    ),
    "add.f16x2": Snippet(
        "u32 u32 -> u32",
        _ptx("add.f16x2 %0, %1, %2;", "r", "r"),
        _half_pair(np.add),
        "HFMA2.MMA",
        operands=lambda rng: _finite_halves(rng)[:2],
    ),
    "set.f16x2": Snippet(
        "u32 u32 -> u32",
        _ptx("set.gtu.f16x2.f16x2 %0, %1, %2;", "r", "r"),
        _half_pair(lambda a, b: (~(a <= b)).astype(np.float16)),
        "HSET2.BF.GTU.AND",
        operands=lambda rng: _finite_halves(rng)[:2],
    ),
    "fma.f16x2": Snippet(
        "u32 u32 u32 -> u32",
        _ptx("fma.rn.f16x2 %0, %1, %2, %3;", "r", "r"),
        _half_pair(lambda a, b, c: a * b + c),
        "HFMA2.MMA",
        operands=_finite_halves,
    ),
}


def _matrix_operands(depth: int, kind: str) -> Callable[[np.random.Generator], list[Array]]:
    """Numbers of a few bits, so that every order of a sum is exact."""

    def make(rng: np.random.Generator) -> list[Array]:
        halves = (rng.integers(-8, 9, size=NUM_VALUES * depth // n) / 4 for n in (2, 4))
        words = [_packed(half, kind) for half in halves]
        return [*words, rng.integers(-50, 50, size=4 * NUM_VALUES).astype(np.float32)]

    return make


#: How a lane combines its four results, so that each affects the sum.
_WEIGHTS = (1, 3, 7, 13)


def _packed(numbers: Array, kind: str) -> Array:
    """Two numbers in a word; a bfloat16 is the upper half of a float32."""
    if kind == "f16":
        return numbers.astype(np.float16).view(np.uint32)
    return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint32)


def _elements(words: Array, kind: str) -> Array:
    """The inverse of `_packed`."""
    if kind == "f16":
        return words.view(np.float16)
    return (words.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _product(depth: int, kind: str) -> Callable[..., Array]:
    """Lanes hold elements as in the figures of the PTX ISA, mma.m16n8k8 and mma.m16n8k16."""
    group, member = np.divmod(np.arange(32), 4)

    def expected(a: Array, b: Array, c: Array) -> Array:
        of_a = _elements(a, kind).reshape(-1, 32, depth // 2)
        of_b = _elements(b, kind).reshape(-1, 32, depth // 4)
        left, right = np.zeros((len(of_a), 16, depth)), np.zeros((len(of_a), depth, 8))
        for n in range(depth // 2):
            left[:, group + 8 * (n // 2 % 2), 2 * member + n % 2 + 8 * (n // 4)] = of_a[:, :, n]
        for n in range(depth // 4):
            right[:, 2 * member + n % 2 + 8 * (n // 2), group] = of_b[:, :, n]
        return _weighted(left @ right, c)

    return expected


def _weighted(product: Array, c: Array) -> Array:
    """The sums of the lanes' results, which are as in the figures of the PTX ISA, mma.m16n8k8."""
    group, member = np.divmod(np.arange(32), 4)
    of_c = c.reshape(-1, 32, 4)
    results = [product[:, group + 8 * (n // 2), 2 * member + n % 2] + of_c[:, :, n] for n in range(4)]
    return sum(weight * one for weight, one in zip(_WEIGHTS, results, strict=True)).reshape(-1)


def _tf32_operands(rng: np.random.Generator) -> list[Array]:
    """As `_matrix_operands`, with a number in each word, and lower bits that have no effect."""
    numbers = [rng.integers(-8, 9, size=n * NUM_VALUES) / 4 for n in (4, 2)]
    words = [number.astype(np.float32).view(np.uint32) for number in numbers]
    words = [word + rng.integers(1 << 13, size=word.shape, dtype=np.uint32) for word in words]
    return [*words, rng.integers(-50, 50, size=4 * NUM_VALUES).astype(np.float32)]


def _tf32_product(a: Array, b: Array, c: Array) -> Array:
    """Lanes hold elements as in the figures of the PTX ISA, mma.m16n8k8 of TF32."""
    group, member = np.divmod(np.arange(32), 4)
    kept = np.uint32(0xFFFFE000)
    of_a, of_b = ((x & kept).view(np.float32).reshape(-1, 32, n) for x, n in ((a, 4), (b, 2)))
    left, right = np.zeros((len(of_a), 16, 8)), np.zeros((len(of_a), 8, 8))
    for n in range(4):
        left[:, group + 8 * (n % 2), member + 4 * (n // 2)] = of_a[:, :, n]
    for n in range(2):
        right[:, member + 4 * n, group] = of_b[:, :, n]
    return _weighted(left @ right, c)


def _matrix(depth: int, kind: str = "f16") -> Snippet:
    is_tf32 = kind == "tf32"
    words = {"a": 4, "b": 2, "c": 4} if is_tf32 else {"a": depth // 4, "b": depth // 8, "c": 4}
    lists, inputs, number = [], [], 4
    for letter, count in words.items():
        lists.append("{" + ", ".join(f"%{number + k}" for k in range(count)) + "}")
        number += count
        constraint = "f" if letter == "c" else "r"
        inputs += [f'"{constraint}"(p{letter}[{count} * i + {k}])' for k in range(count)]
    body = f"""float d0, d1, d2, d3;
      asm volatile("mma.sync.aligned.m16n8k{depth}.row.col.f32.{kind}.{kind}.f32 "
        "{{%0, %1, %2, %3}}, {", ".join(lists)};"
        : "=f"(d0), "=f"(d1), "=f"(d2), "=f"(d3) : {", ".join(inputs)});
      r = d0 + 3 * d1 + 7 * d2 + 13 * d3;"""
    form = {8: "HMMA.1688.F32", 16: "HMMA.16816.F32"}[depth]
    form += {"f16": "", "bf16": ".BF16", "tf32": ".TF32"}[kind]
    operands = _tf32_operands if is_tf32 else _matrix_operands(depth, kind)
    expected = _tf32_product if is_tf32 else _product(depth, kind)
    return Snippet("u32 u32 f32 -> f32", body, expected, form, operands=operands)


MATRICES = {
    **{f"mma.m16n8k{depth}": _matrix(depth) for depth in (8, 16)},
    "mma.m16n8k16.bf16": _matrix(16, "bf16"),
    "mma.m16n8k8.tf32": _matrix(8, "tf32"),
}

SNIPPETS = {**ARITHMETIC, **COMPARISONS, **FUNCTIONS, **CONVERSIONS, **HALVES, **MATRICES}
SNIPPETS |= {f"{name}, uniform": uniform(SNIPPETS[name]) for name in ("fma.rn", "div.rn")}
