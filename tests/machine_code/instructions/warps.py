"""Communication and control flow of lanes: PTX ISA, shuffles, votes, barriers and branches."""

from collections.abc import Callable

import numpy as np

from tests.machine_code.instructions.snippet import Snippet
from tests.machine_code.instructions.values import NUM_VALUES, Array, ints

_LANES = np.arange(32)


def _by_warp(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function on arrays of shape (warp, lane)."""

    def expected(*arrays: Array) -> Array:
        return np.asarray(function(*(array.reshape(-1, 32) for array in arrays))).reshape(-1)

    return expected


def _shuffle_operands(rng: np.random.Generator) -> list[Array]:
    """Values, and for each warp one distance and one pair of bound and segments."""
    values = rng.integers(0, 2**31, NUM_VALUES, np.uint32)
    distances = rng.choice(np.array([0, 1, 3, 8, 16, 31], np.uint32), NUM_VALUES // 32)
    segments = rng.choice(np.array([0, 16, 24, 28], np.uint32), NUM_VALUES // 32) << 8
    bounds = rng.choice(np.array([0, 7, 31], np.uint32), NUM_VALUES // 32)
    return [values, np.repeat(distances, 32), np.repeat(segments | bounds, 32)]


def _shuffle(mode: str) -> Snippet:
    """The pseudo code of PTX ISA, shfl.sync; the lowest bit says whether the source was in bounds."""

    def expected(a: Array, b: Array, c: Array) -> Array:
        b, segment, bound = (x.astype(int) for x in (b & 31, c >> 8 & 31, c & 31))
        least, most = _LANES & segment, (_LANES & segment) | (bound & ~segment)
        source = {"up": _LANES - b, "down": _LANES + b, "bfly": _LANES ^ b, "idx": least | (b & ~segment)}[
            mode
        ]
        is_in = source >= most if mode == "up" else source <= most
        source = np.where(is_in, source, _LANES)
        return np.take_along_axis(a, source, axis=1) * 2 + is_in

    body = f"""asm volatile("{{ .reg .pred p; .reg .b32 t, u; shfl.sync.{mode}.b32 t|p, %1, %2, %3, -1; "
      "selp.u32 u, 1, 0, p; mad.lo.u32 %0, t, 2, u; }}" : "=r"(r) : "r"(a), "r"(b), "r"(c));"""
    return Snippet(
        "u32 u32 u32 -> u32", body, _by_warp(expected), f"SHFL.{mode.upper()}", operands=_shuffle_operands
    )


def _ballot(condition: Array) -> Array:
    return (condition * (1 << ints(_LANES))).sum(axis=-1, keepdims=True)


def _few(rng: np.random.Generator) -> list[Array]:
    """Values of few kinds; in some warps all are the same."""
    values = rng.integers(0, 5, (NUM_VALUES // 32, 32), np.uint32)
    values[::3] = values[::3, :1]
    return [values.reshape(-1)]


def _like(a: Array, value: Array) -> Array:
    return np.broadcast_to(value, a.shape).astype(np.uint64)


def _voted(a: Array) -> Array:
    condition = a > 1
    any_, all_ = condition.any(axis=1, keepdims=True), condition.all(axis=1, keepdims=True)
    return _like(a, any_ + 2 * all_ + 4 * (all_ | ~any_) + 8 * _ballot(condition))


def _match(a: Array) -> Array:
    return _ballot(a[:, :, None] == a[:, None, :])[:, :, 0]


_REDUCTIONS: dict[str, np.ufunc] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def _reduction(name: str, kind: str, form: str) -> Snippet:
    def expected(a: Array) -> Array:
        return np.broadcast_to(_REDUCTIONS[name].reduce(a, axis=1, keepdims=True, dtype=a.dtype), a.shape)

    return Snippet(f"{kind} -> {kind}", f"r = __reduce_{name}_sync(~0u, a);", _by_warp(expected), form)


VALUES = {
    **{f"shfl.{mode}": _shuffle(mode) for mode in ("up", "down", "bfly", "idx")},
    "votes": Snippet(
        "u32 -> u64",
        "const bool p = a > 1; r = __any_sync(~0u, p) + 2 * __all_sync(~0u, p) + 4 * __uni_sync(~0u, p)"
        "+ 8 * (uint64_t)__ballot_sync(~0u, p);",
        _by_warp(_voted),
        "VOTE.ANY VOTE.ALL VOTE.EQ",
        operands=_few,
    ),
    "lanes that are here": Snippet(
        "u32 -> u32",
        "r = 0; if (a > 1) r = __activemask();",
        _by_warp(lambda a: np.where(a > 1, _ballot(a > 1), 0)),
        operands=_few,
    ),
    "votes of some": Snippet(
        "u32 -> u32",
        "const bool p = a > 1; const uint32_t mask = __ballot_sync(~0u, a != 3); r = 99;"
        "if (a != 3) r = __any_sync(mask, p) + 2 * __all_sync(mask, p);",
        _by_warp(
            lambda a: np.where(
                a != 3,
                ((a > 1) & (a != 3)).any(axis=1, keepdims=True)
                + 2 * ((a > 1) | (a == 3)).all(axis=1, keepdims=True),
                99,
            )
        ),
        operands=_few,
    ),
    "match.any": Snippet(
        "u32 -> u32", "r = __match_any_sync(~0u, a);", _by_warp(_match), "MATCH.ANY", operands=_few
    ),
    "match.any, 64 bits": Snippet(
        "u32 -> u32",
        "r = __match_any_sync(~0u, (uint64_t)a << 40 | 7);",
        _by_warp(_match),
        "MATCH.ANY.U64",
        operands=_few,
    ),
    "match.all": Snippet(
        "u32 -> u64",
        "int p; const uint64_t mask = __match_all_sync(~0u, a, &p); r = mask * 2 + (p != 0);",
        _by_warp(lambda a: _like(a, np.where((a == a[:, :1]).all(axis=1, keepdims=True), 2**33 - 1, 0))),
        "MATCH.ALL",
        operands=_few,
    ),
    **{f"redux.{name}": _reduction(name, "u32", "") for name in _REDUCTIONS},
    **{f"redux.{name}.s32": _reduction(name, "s32", f"REDUX.{name.upper()}.S32") for name in ("min", "max")},
    "redux of some": Snippet(
        "u32 -> u32",
        "const uint32_t some = __ballot_sync(~0u, a != 3); if (a != 3) r = __reduce_add_sync(some, a);",
        _by_warp(lambda a: np.where(a != 3, (a * (a != 3)).sum(axis=1, keepdims=True), 0)),
        operands=_few,
    ),
}

_THREADS = np.arange(NUM_VALUES)
SPECIALS = {
    "places": Snippet(
        "u32 -> u32",
        """uint32_t own, less, equal, greater, up_to, from;
        asm volatile("mov.u32 %0, %%laneid; mov.u32 %1, %%lanemask_lt; mov.u32 %2, %%lanemask_eq;"
          "mov.u32 %3, %%lanemask_gt; mov.u32 %4, %%lanemask_le; mov.u32 %5, %%lanemask_ge;"
          : "=r"(own), "=r"(less), "=r"(equal), "=r"(greater), "=r"(up_to), "=r"(from));
        r = own == lane && less == (1u << lane) - 1 && equal == 1u << lane && greater == ~(less | equal) &&
            up_to == (less | equal) && from == (greater | equal);""",
        lambda a: np.uint32(1),
        "S2R",
    ),
    "clocks": Snippet(
        "u32 -> u32",
        """const long long before = clock64(); const uint32_t low = clock(); uint64_t time, later;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time)); __nanosleep(100); __syncthreads();
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(later));
        r = clock64() > before && low - (uint32_t)before < 1000 && later >= time;""",
        lambda a: np.uint32(1),
        "CS2R NANOSLEEP",
    ),
    "threads and blocks": Snippet(
        "u32 -> u32",
        "r = threadIdx.x + 1000 * blockIdx.x + 10000 * gridDim.x + 100000 * blockDim.x + threadIdx.y;",
        lambda a: _THREADS % 128 + 1000 * (_THREADS // 128) + 10000 * 4 + 100000 * 128,
        "S2R",
    ),
}


def _collatz(value: int) -> int:
    steps = 0
    while value > 1 and steps < 40:
        value = value // 2 if value % 2 == 0 else 3 * value + 1
        steps += 1
    return steps * 1000 + value % 1000


def _each(function: Callable[[int], int]) -> Callable[[Array], Array]:
    return lambda a: np.vectorize(function, otypes=[object])(ints(a)) % 2**32


def _case(value: int) -> int:
    return [value * 3, value ^ 85, value >> 3, value + 100][value % 4]


def _small(rng: np.random.Generator) -> list[Array]:
    return [rng.integers(1, 100, NUM_VALUES, np.uint32)]


CONTROL = {
    "loops of each lane": Snippet(
        "u32 -> u32",
        "uint32_t x = a, steps = 0; while (x > 1 && steps < 40) { x = x & 1 ? 3 * x + 1 : x / 2; ++steps; }"
        "r = steps * 1000 + x % 1000;",
        _each(_collatz),
        "BRA",
        operands=_small,
    ),
    "break out of two loops": Snippet(
        "u32 -> u32",
        """r = 0;
        #pragma unroll 1
        for (uint32_t x = 0; x < 9; ++x) {
          #pragma unroll 1
          for (uint32_t y = 0; y < 9; ++y) {
            if (x * y == a % 50) goto found;
            if (y == pa[i ^ 1] % 11) break;
            r += x ^ y + pa[(i + y) % 512];
          }
          if (__popc(r) % 5 == 4) break;
        }
        r += 7;
        found: r += __shfl_xor_sync(~0u, r, 1);""",
        lambda a: _two_loops(a),
        "BSSY BSYNC BREAK",
        operands=_small,
    ),
    "switch": Snippet(
        "u32 -> u32",
        """asm volatile("{ .reg .u32 k; places: .branchtargets zero, one, two, three; and.b32 k, %1, 3; "
          "brx.idx k, places; zero: mul.lo.u32 %0, %1, 3; bra end; one: xor.b32 %0, %1, 85; bra end; "
          "two: shr.u32 %0, %1, 3; bra end; three: add.u32 %0, %1, 100; end: }" : "=r"(r) : "r"(a));
        r += __shfl_sync(~0u, r, 0);""",
        _by_warp(lambda a: (_each(_case)(a) + _each(_case)(a)[:, :1]) % 2**32),
        "BRX",
        operands=_small,
    ),
    "calls": Snippet(
        "u32 -> u32",
        "r = a & 1 ? fibonacci(a % 20) : fibonacci(a % 7) + 1000;",
        _each(lambda x: _fibonacci(x % 20) if x & 1 else _fibonacci(x % 7) + 1000),
        "CALL.REL.NOINC RET.REL.NODEC",
        before="""__device__ __noinline__ uint32_t fibonacci(uint32_t n) {
          uint32_t x = 0, y = 1;
          while (n--) { const uint32_t z = x + y; x = y; y = z; }
          return x;
        }""",
        operands=_small,
    ),
    "exits before a barrier": Snippet(
        "u32 -> u32",
        "__shared__ uint32_t place[128]; place[threadIdx.x] = a;"
        "if (threadIdx.x >= 70) { pr[i] = 1; return; } __syncthreads(); r = place[69 - threadIdx.x];",
        lambda a: np.where(
            _THREADS % 128 < 70, a[_THREADS // 128 * 128 + np.maximum(69 - _THREADS % 128, 0)], 1
        ),
        "BAR.SYNC.DEFER_BLOCKING",
        operands=_small,
    ),
    "some lanes meet": Snippet(
        "u32 -> u32",
        """__shared__ volatile uint32_t place[128]; r = 0;
        if (lane < 12) {
          place[threadIdx.x] = a; __syncwarp(0xfff); r = place[threadIdx.x ^ 1];
        } else { r = a + 1; }""",
        _by_warp(lambda a: np.where(_LANES < 12, a[:, _LANES ^ 1], a + 1)),
        "WARPSYNC",
        operands=_small,
    ),
    "some lanes shuffle": Snippet(
        "u32 -> u32",
        """r = 0; const uint32_t mask = __ballot_sync(~0u, a & 1);
        if (a & 1) {
          #pragma unroll 1
          for (uint32_t k = 0; k < 3; ++k) r += __shfl_sync(mask, a + k, __ffs(mask) - 1);
        }""",
        _by_warp(
            lambda a: np.where(a & 1, 3 * np.take_along_axis(a, (a & 1).argmax(axis=1)[:, None], 1) + 3, 0)
        ),
        operands=_small,
    ),
    "a match that lanes come to apart": Snippet(
        "u32 -> u32",
        """r = 0;
        const uint32_t count = pa[i / 32 * 32] % 4 + 1;
        #pragma unroll 1
        for (uint32_t k = 0; k < count; ++k) {
          if ((a + k) % 3 == 0) {
            r += pa[(i + k) % 512];
            if (r % 2) { r += 5; goto meet; }
            r *= 3;
          }
          r += 1;
          meet:
          r += __popc(__match_any_sync(~0u, (a + k) % 4));
        }""",
        _by_warp(lambda a: _matched(a)),
        "WARPSYNC.ALL MATCH.ANY",
        operands=_small,
    ),
    "threads that count": Snippet(
        "u32 -> u32",
        "r = __syncthreads_count(a > 30) + 1000 * (__syncthreads_or(a == 7) != 0)"
        "+ 2000 * (__syncthreads_and(a < 99) != 0);",
        lambda a: np.repeat(_counted(a.reshape(-1, 128)), 128),
        "BAR.RED.POPC.DEFER_BLOCKING BAR.RED.OR.DEFER_BLOCKING BAR.RED.AND.DEFER_BLOCKING B2R.RESULT",
        operands=_small,
    ),
}


def _counted(a: Array) -> Array:
    return (a > 30).sum(axis=1) + 1000 * (a == 7).any(axis=1) + 2000 * (a < 99).all(axis=1)


def _matched(a: Array) -> Array:
    found, flat = np.zeros_like(a, dtype=np.uint64), a.reshape(-1)
    places = np.arange(NUM_VALUES).reshape(-1, 32)
    for k in range(4):
        goes_on = k < a[:, :1] % 4 + 1
        is_third = (a + k) % 3 == 0
        sums = found + flat[(places + k) % NUM_VALUES]
        then = np.where(sums % 2 == 1, sums + 5, sums * 3 + 1)
        kinds = (a + k) % 4
        counts = (kinds[:, :, None] == kinds[:, None, :]).sum(axis=2)
        found = np.where(goes_on, np.where(is_third, then, found + 1) + counts, found).astype(np.uint64)
    return found


def _fibonacci(n: int) -> int:
    x, y = 0, 1
    for _ in range(n):
        x, y = y, x + y
    return x


def _two_loops(a: Array) -> Array:
    found = np.zeros(NUM_VALUES, np.uint32)
    for i in range(NUM_VALUES):
        found[i] = _two_loops_of(i, [int(x) for x in a])
    return found + found.reshape(-1, 2)[:, ::-1].reshape(-1)


def _two_loops_of(i: int, a: list[int]) -> int:
    r = 0
    for x in range(9):
        for y in range(9):
            if x * y == a[i] % 50:
                return r
            if y == a[i ^ 1] % 11:
                break
            r += x ^ y + a[(i + y) % NUM_VALUES]
        if r.bit_count() % 5 == 4:
            break
    return r + 7


SNIPPETS = {**VALUES, **SPECIALS, **CONTROL}
