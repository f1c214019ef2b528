"""Loads, stores and atomic accesses: PTX ISA, data movement, atomic operations, asynchronous copies."""

import operator
from collections.abc import Callable

import numpy as np

from tests.machine_code.instructions.snippet import Snippet
from tests.machine_code.instructions.values import NUM_VALUES, TYPES, Array, ints, wrapped

_PLACE = "__shared__ alignas(16) {} place[128]; const uint32_t t = threadIdx.x;"
_LETTERS = {"u16": "h", "u32": "r", "u64": "l"}
_SIZES = {"u8": ".U8", "s8": ".S8", "u16": ".U16", "s16": ".S16", "u32": "", "u64": ".64"}
_UNSIGNED = ("u8", "u16", "u32", "u64")
_C_TYPES = {name: f"{dtype.name}_t" for name, dtype in TYPES.items()}
_BLOCK = np.arange(128)


def _same(a: Array, *others: Array) -> Array:
    return a


def _load(qualifiers: str, kind: str, form: str) -> Snippet:
    letter = _LETTERS[kind]
    body = f'asm volatile("ld{qualifiers}.{kind} %0, [%1];" : "={letter}"(r) : "l"(pa + i) : "memory");'
    return Snippet(f"{kind} -> {kind}", body, _same, form)


def _store(qualifiers: str, kind: str, form: str) -> Snippet:
    letter = _LETTERS[kind]
    body = (
        f'asm volatile("st{qualifiers}.{kind} [%0], %1;" : : "l"(pr + i), "{letter}"(a) : "memory"); return;'
    )
    return Snippet(f"{kind} -> {kind}", body, _same, form)


def _of_four(load: str, store: str, form: str) -> Snippet:
    """16 bytes by every fourth thread."""
    body = f"""if (i % 4 == 0) {{
      uint32_t x, y, z, w;
      asm volatile("ld.{load}.v4.u32 {{%0, %1, %2, %3}}, [%4];"
        : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "l"(pa + i) : "memory");
      asm volatile("st.{store}.v4.u32 [%0], {{%1, %2, %3, %4}};"
        : : "l"(pr + i), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
    }}
    return;"""
    return Snippet("u32 -> u32", body, _same, form)


GLOBAL = {
    **{
        f"ld and st, {kind}": Snippet(
            f"{kind} -> {kind}", "r = a;", _same, f"LDG.E{_SIZES[kind]} STG.E{_SIZES[kind]}"
        )
        for kind in _UNSIGNED
    },
    **{
        f"sign of {kind}": Snippet(f"{kind} -> s32", "r = a;", _same, f"LDG.E{_SIZES[kind]}")
        for kind in ("s8", "s16")
    },
    **{
        f"ld.nc, {kind}": Snippet(
            f"{kind} -> {kind}", "r = __ldg(pa + i);", _same, f"LDG.E{_SIZES[kind]}.CONSTANT"
        )
        for kind in _UNSIGNED
    },
    "ld.relaxed": _load(".relaxed.gpu.global", "u32", "LDG.E.STRONG.GPU"),
    "ld.relaxed, 64 bits": _load(".relaxed.gpu.global", "u64", "LDG.E.64.STRONG.GPU"),
    "ld.acquire": _load(".acquire.sys.global", "u32", "LDG.E.STRONG.SYS CCTL.IVALL"),
    "st.relaxed": _store(".relaxed.gpu.global", "u32", "STG.E.STRONG.GPU"),
    "st.relaxed, 64 bits": _store(".relaxed.gpu.global", "u64", "STG.E.64.STRONG.GPU"),
    "st.release": _store(".release.sys.global", "u32", "STG.E.STRONG.SYS MEMBAR.ALL.SYS ERRBAR CGAERRBAR"),
    "st.release, gpu": _store(".release.gpu.global", "u32", "STG.E.STRONG.GPU MEMBAR.ALL.GPU"),
    "16 bytes": _of_four("global", "global", "LDG.E.128 STG.E.128"),
    "16 bytes, nc": _of_four("global.nc", "global", "LDG.E.128.CONSTANT"),
    "16 bytes, strong": _of_four("relaxed.gpu.global", "relaxed.gpu.global", "LDG.E.128.STRONG.GPU"),
    **{
        f"ld{hint}": _load(f".global{hint}", "u32", f"LDG.E.{form}")
        for hint, form in {
            ".lu": "LU",
            ".cs": "EF",
            ".L1::no_allocate": "NA",
            ".L2::128B": "LTC128B",
        }.items()
    },
    "st.cs": _store(".global.cs", "u32", "STG.E.EF"),
    "fence": Snippet("u32 -> u32", "__threadfence(); r = a;", _same, "MEMBAR.SC.GPU"),
}


def _permuted(a: Array) -> Array:
    return a.reshape(-1, 128)[:, _BLOCK ^ 5].reshape(-1)


def _shared(kind: str) -> Snippet:
    body = f"{_PLACE.format(_C_TYPES[kind])} place[t] = a; __syncthreads(); r = place[t ^ 5];"
    suffix = _SIZES[kind]
    return Snippet(f"{kind} -> {kind}", body, _permuted, f"LDS{suffix} STS{suffix}")


def _generic(kind: str) -> Snippet:
    """Odd lanes go to shared storage, even ones to global memory, by one instruction."""
    body = f"""{_PLACE.format(_C_TYPES[kind])}
      volatile {_C_TYPES[kind]}* p = lane & 1 ? place + (t ^ 2) : pr + i;
      *p = a; r = *p + 1;"""
    form = f"{_SIZES[kind]}.STRONG.SYS"
    return Snippet(f"{kind} -> {kind}", body, lambda a: a + a.dtype.type(1), f"LD.E{form} ST.E{form}")


#: Hides from the compiler where a pointer comes from, and what was stored.
_HIDE = 'asm volatile("" : "+l"(p) : : "memory");'

SHARED = {
    **{f"shared, {kind}": _shared(kind) for kind in _UNSIGNED},
    **{f"generic, {kind}": _generic(kind) for kind in _UNSIGNED},
    "generic, 16 bytes": Snippet(
        "u32 -> u32",
        f"""{_PLACE.format("uint32_t")} place[t] = a; pr[i] = a; __syncthreads();
        uint32_t* p = lane & 4 ? place + (t & ~3) : pr + (i & ~3);
        {_HIDE} uint4 all = *(uint4*)p; all.x += all.w; __syncthreads();
        if (t % 4 == 0) *(uint4*)p = all;
        __syncthreads(); {_HIDE} r = p[t % 4];""",
        lambda a: a + np.where(np.arange(NUM_VALUES) % 4 == 0, np.roll(a, -3), np.uint32(0)),
        "LD.E.128 ST.E.128",
    ),
    "shared, 16 bytes": Snippet(
        "u32 -> u32",
        _PLACE.format("uint32_t")
        + """uint32_t x = 0, y = 0, z = 0, w = 0; place[t] = a; __syncthreads();
        const uint32_t at = (uint32_t)__cvta_generic_to_shared(place + (t & ~3u));
        if (t % 4 == 0)
          asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4]; st.shared.v4.u32 [%4], {%3, %2, %1, %0};"
            : "=&r"(x), "=&r"(y), "=&r"(z), "=&r"(w) : "r"(at) : "memory");
        __syncthreads(); r = place[t];""",
        lambda a: a.reshape(-1, 4)[:, ::-1].reshape(-1),
        "LDS.128 STS.128",
    ),
    "shared, signs": Snippet(
        "s8 -> s32",
        f"{_PLACE.format('int8_t')} place[t] = a; __syncthreads(); r = place[t ^ 5];",
        _permuted,
        "LDS.S8",
    ),
    "one bank": Snippet(
        "u32 -> u32",
        "__shared__ uint32_t many[32 * 128]; many[32 * threadIdx.x] = a; __syncthreads();"
        "r = many[32 * (threadIdx.x ^ 5)];",
        _permuted,
        "LDS STS",
    ),
    "constants": Snippet(
        "u32 -> u32",
        "r = numbers[a % 5];",
        lambda a: np.array([3, 1, 4, 1, 5], np.uint32)[a % 5],
        "LDC",
        before="__constant__ uint32_t numbers[5] = {3, 1, 4, 1, 5};",
    ),
    "constants, 64 bits": Snippet(
        "u32 -> u64",
        "r = wide_numbers[a % 3];",
        lambda a: np.array([3 << 40, 5, 7 << 33], np.uint64)[a % 3],
        "LDC.64",
        before="__constant__ uint64_t wide_numbers[3] = {3ull << 40, 5, 7ull << 33};",
    ),
}


def _async(num_bytes: int, how: str, form: str, fetched: str = "") -> Snippet:
    body = f"""{_PLACE.format("uint32_t")}
      if (t % {num_bytes // 4} == 0)
        asm volatile("cp.async.{how}.shared.global{fetched} [%0], [%1], {num_bytes};"
          : : "r"((uint32_t)__cvta_generic_to_shared(place + t)), "l"(pa + i) : "memory");
      asm volatile("cp.async.commit_group; cp.async.wait_group 0;" : : : "memory");
      __syncthreads(); r = place[t];"""
    return Snippet("u32 -> u32", body, _same, f"{form} LDGDEPBAR DEPBAR.LE")


COPIES = {
    "cp.async, 4 bytes": _async(4, "ca", "LDGSTS.E"),
    "cp.async, 8 bytes": _async(8, "ca", "LDGSTS.E.64"),
    "cp.async, 16 bytes": _async(16, "cg", "LDGSTS.E.BYPASS.128"),
    "cp.async, 4 bytes of a line": _async(4, "ca", "LDGSTS.E.LTC128B", ".L2::128B"),
    "cp.async, 16 bytes of a line": _async(16, "cg", "LDGSTS.E.BYPASS.LTC128B.128", ".L2::128B"),
}

COPIES["cp.async, groups"] = Snippet(
    "u32 -> u32",
    f"""{_PLACE.format("uint32_t")}
      for (int n = 0; n < 2; ++n)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4; cp.async.commit_group;"
          : : "r"((uint32_t)__cvta_generic_to_shared(place + t)), "l"(pa + i) : "memory");
      asm volatile("cp.async.wait_group 1;" : : : "memory");
      r = place[t];
      asm volatile("cp.async.wait_group 0;" : : : "memory");""",
    _same,
    "LDGSTS.E LDGDEPBAR DEPBAR.LE",
)

_OPERATIONS: dict[str, Callable[..., Array]] = {
    "Add": lambda old, new: old + new,
    "Sub": lambda old, new: old - new,
    "And": operator.and_,
    "Or": operator.or_,
    "Xor": operator.xor,
    "Exch": lambda old, new: new,
    "Max": np.maximum,
    "Min": np.minimum,
    "Inc": lambda old, new: np.where(old >= new, 0, old + np.uint32(1)),
}


def _atomic(name: str, kind: str, in_shared: bool) -> Snippet:
    """Atomics on an old value (`b`) and an operand, each thread at its own place."""
    place = _PLACE.format(_C_TYPES[kind])
    target = "place + t" if in_shared else "pr + i"
    body = f"{place} auto* at = {target}; *at = b; const auto old = atomic{name}(at, a); r = 3 * old + *at;"
    operation = _OPERATIONS[name]

    def expected(a: Array, b: Array) -> Array:
        return wrapped(3 * ints(b) + ints(operation(b, a)), kind)

    return Snippet(f"{kind} {kind} -> {kind}", body, expected)


def _swap(kind: str, in_shared: bool, form: str) -> Snippet:
    place = _PLACE.format(_C_TYPES[kind])
    target = "place + t" if in_shared else "pr + i"
    body = f"""{place} auto* at = {target}; *at = b;
      const auto old = atomicCAS(at, c & 1 ? b : c, a); r = 3 * old + *at;"""

    def expected(a: Array, b: Array, c: Array) -> Array:
        after = np.where((c & 1 == 1) | (c == b), a, b)
        return wrapped(3 * ints(b) + ints(after), kind)

    return Snippet(f"{kind} {kind} {kind} -> {kind}", body, expected, form)


def _totals(indices: Array, values: Array) -> Array:
    """For each block of 128 threads, the sums in 8 bins; thread t has the sum of bin t % 8."""
    found = np.zeros((NUM_VALUES // 128, 8), values.dtype)
    np.add.at(found, (np.arange(NUM_VALUES) // 128, indices % 8), values)
    return np.tile(found, (1, 16)).reshape(-1)


def _bins(kind: str, change: str, form: str) -> Snippet:
    """Many lanes on one address."""
    body = f"""__shared__ {_C_TYPES[kind]} bins[8]; if (threadIdx.x < 8) bins[threadIdx.x] = 0;
      __syncthreads(); {change} __syncthreads(); r = bins[threadIdx.x % 8];"""
    plain = "1" in change
    return Snippet(
        f"u32 {kind} -> {kind}", body, lambda a, b: _totals(a, np.ones_like(b) if plain else b), form
    )


def _by_sum(add: str, kind: str, form: str) -> Snippet:
    """Blocks add to sums in global memory, eight threads to each sum."""
    body = f"""{add} __syncthreads(); const auto sum = *(volatile {_C_TYPES[kind]}*)(pr + i / 8 * 8);
      __syncthreads(); pr[i] = 0; __syncthreads(); r = sum;"""

    def expected(a: Array) -> Array:
        return np.repeat(wrapped(ints(a).reshape(-1, 8).sum(axis=1), kind), 8)

    return Snippet(f"{kind} -> {kind}", body, expected, form)


ATOMICS = {
    **{
        f"atomic{name}, {kind}, {'shared' if in_shared else 'global'}": _atomic(name, kind, in_shared)
        for name in _OPERATIONS
        for kind in ("u32", "s32", "u64")
        for in_shared in (False, True)
        if (name not in ("Inc", "Sub") or kind == "u32") and not (kind == "u64" and in_shared)
    },
    "atomicCAS, shared": _swap("u32", True, "ATOMS.CAS"),
    "atomicCAS, global": _swap("u32", False, "ATOMG.E.CAS.STRONG.GPU"),
    "atomicCAS, global, 64 bits": _swap("u64", False, "ATOMG.E.CAS.64.STRONG.GPU"),
    "ones in bins": _bins("u32", "atomicAdd(bins + a % 8, 1u);", "ATOMS.POPC.INC.32"),
    "sums in bins": _bins("u32", "atomicAdd(bins + a % 8, b);", "ATOMS.ADD"),
    "sums in bins, 64 bits": _bins("u64", "atomicAdd(bins + a % 8, b);", "ATOMS.CAST.SPIN.64"),
    "generic atomicAdd": Snippet(
        "u32 u32 -> u32",
        f"""{_PLACE.format("uint32_t")} uint32_t* p = lane & 1 ? place + t : pr + i;
        {_HIDE} *p = b; const uint32_t old = atomicAdd(p, a); r = 3 * old + *p;""",
        lambda a, b: 4 * b + a,
        "ATOM.E.ADD.STRONG.GPU",
    ),
    "red.add": _by_sum("atomicAdd(pr + i / 8 * 8, a);", "u32", "REDG.E.ADD.STRONG.GPU"),
    "red.add, 64 bits": _by_sum("atomicAdd(pr + i / 8 * 8, a);", "u64", "REDG.E.ADD.64.STRONG.GPU"),
    "red.or, 64 bits": Snippet(
        "u64 u64 -> u64",
        "pr[i] = b; atomicOr((unsigned long long*)pr + i, a); r = *(volatile uint64_t*)(pr + i);",
        operator.or_,
        "REDG.E.OR.64.STRONG.GPU",
    ),
    "red.max, 64 bits": Snippet(
        "u64 u64 -> u64",
        "pr[i] = b; atomicMax((unsigned long long*)pr + i, a); r = *(volatile uint64_t*)(pr + i);",
        np.maximum,
        "REDG.E.MAX.64.STRONG.GPU",
    ),
    "tickets": Snippet(
        "u32 -> u32",
        "__shared__ uint32_t next; if (threadIdx.x == 0) next = 0; __syncthreads();"
        "const uint32_t ticket = atomicAdd(&next, a & 3); __syncthreads();"
        "__shared__ uint32_t total; if (threadIdx.x == 0) total = 0; __syncthreads();"
        "atomicAdd(&total, (2 * ticket + (a & 3)) * (a & 3)); __syncthreads(); r = total;",
        # Whatever the order: each adds (after + before) * (after - before), the difference of their squares.
        lambda a: np.repeat((a & 3).reshape(-1, 128).sum(axis=1) ** 2, 128),
        "ATOMS.ADD",
    ),
}

CLUSTERS = {
    "cluster": Snippet(
        "u32 -> u32",
        _PLACE.format("uint32_t")
        + """uint32_t rank; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank)); place[t] = a;
        asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" : : : "memory");
        uint32_t there; const uint32_t here = (uint32_t)__cvta_generic_to_shared(place + (t ^ 3));
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank ^ 1));
        asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(r) : "r"(there) : "memory");
        asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" : : : "memory");""",
        lambda a: a.reshape(-1, 2, 128)[:, ::-1, _BLOCK ^ 3].reshape(-1),
        "UCGABAR_ARV UCGABAR_WAIT",
        cluster_blocks=2,
    ),
}


def _local(kind: str, form: str) -> Snippet:
    """Threads fill arrays of 16 with the values of their neighbours, change a place and read another one."""
    body = f"""volatile {_C_TYPES[kind]} z[16];
      for (int k = 0; k < 16; ++k) z[k] = pa[(i + k) % {NUM_VALUES}];
      z[b % 16] = 7; r = z[(b >> 4) % 16];"""

    def expected(a: Array, b: Array) -> Array:
        held = np.stack([np.roll(a, -k) for k in range(16)])
        held[b % 16, np.arange(a.size)] = 7
        return held[(b >> 4) % 16, np.arange(a.size)]

    return Snippet(f"{kind} u32 -> {kind}", body, expected, form)


LOCAL = {
    "local array": _local("u32", "STL LDL"),
    "local array of bytes": _local("u8", "STL.U8 LDL.U8"),
}

SNIPPETS = {**GLOBAL, **LOCAL, **SHARED, **COPIES, **ATOMICS, **CLUSTERS}
