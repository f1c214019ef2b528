"""A statement of CUDA C++ or PTX, the instructions it is about, and its meaning in NumPy."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from proof.sass.compiler import compiled_text
from proof.sass.cubin import kernels_of
from proof.sass.decode import decode
from proof.sass.launch import Buffer, Launch, run
from proof.sass.plan import HOPPER, Kernel
from tests.machine_code.instructions.values import NUM_VALUES, TYPES, Array, operand_values

_C_TYPES = {
    **{f"u{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{"f16": "uint16_t", "f32": "float"},
}
_PRELUDE = """
using uint8_t = unsigned char; using uint16_t = unsigned short; using uint32_t = unsigned;
using int8_t = signed char; using int16_t = short; using int32_t = int;
using uint64_t = unsigned long long; using int64_t = long long;
"""
_OPCODE = re.compile(r"(?:@!?U?P[\dT]\s+)?([A-Z][\w.]*)")
_UNIFORM_RUNS = 16


@dataclass(frozen=True)
class Snippet:
    """Code for a thread with the operands `a`, `b`, `c`, which leaves the result in `r`.

    Attributes
    ----------
    types : str
        The operands' types, then "->" and the result's type: "u32 u32 -> u64". Thread `i` of 512, `lane` of
        its warp, has one element of each; the kernel has their arrays as `pa`, `pb`, `pc`, `pr`.
    body : str
        Statements.
    expected : callable
        Maps the operands' arrays, with an element for each thread, to the array of results.
    forms : str
        Opcodes with suffixes that the compiled code must contain and execute.
    is_uniform : bool
        The operands are the kernel's arguments, the same for all threads.
    before : str
        Declarations in front of the kernel.
    ulps : int
        How far results of an approximation may be from the expected ones.
    operands : callable, optional
        Makes the arrays of the operands instead of `operand_values`.
    """

    types: str
    body: str
    expected: Callable[..., Array]
    forms: str = ""
    is_uniform: bool = False
    before: str = ""
    ulps: int = 0
    operands: Callable[[np.random.Generator], Sequence[Array]] | None = None
    block: int = 128
    cluster_blocks: int = 1

    @property
    def type_names(self) -> list[str]:
        """The types of the operands and of the result."""
        return re.findall(r"\w+", self.types)

    def text(self, name: str) -> str:
        """The kernel."""
        *operands, result = (_C_TYPES[type_name] for type_name in self.type_names)
        pairs = list(zip(operands, "abc", strict=False))
        parameters = [
            f"{kind} {letter}" if self.is_uniform else f"const {kind}* p{letter}" for kind, letter in pairs
        ]
        reads = (
            ""
            if self.is_uniform
            else "".join(f"[[maybe_unused]] const {kind} {x} = p{x}[i];" for kind, x in pairs)
        )
        cluster = f"__cluster_dims__({self.cluster_blocks}) " if self.cluster_blocks > 1 else ""
        return f"""
{self.before}
extern "C" __global__ void {cluster}{name}({", ".join([*parameters, f"{result}* pr"])}) {{
  [[maybe_unused]] const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, lane = i % 32;
  {reads}
  {result} r{{}};
  {self.body}
  pr[i] = r;
}}"""

    def check(self, kernel: Kernel, rng: np.random.Generator) -> None:
        """Run the kernel and compare; require that all forms were executed."""
        for operands in self._launches(rng):
            result, executed = self._run(kernel, operands)
            with np.errstate(all="ignore"):
                expected = np.broadcast_to(np.asarray(self.expected(*operands)), result.shape)
            self._require_equal(result, expected.astype(result.dtype), operands)
        missing = set(self.forms.split()) - executed
        assert not missing, f"{missing} not executed, but {' '.join(sorted(executed))}"

    def executed(self, kernel: Kernel, rng: np.random.Generator) -> set[str]:
        """The opcodes that it executes."""
        return self._run(kernel, next(self._launches(rng)))[1]

    def _launches(self, rng: np.random.Generator) -> Iterator[Sequence[Array]]:
        """The operands of each launch."""
        operands = self.operands(rng) if self.operands else operand_values(self.type_names[:-1], rng)
        if self.is_uniform:
            yield from ([array[row : row + 1] for array in operands] for row in range(_UNIFORM_RUNS))
        else:
            yield operands

    def _run(self, kernel: Kernel, operands: Sequence[Array]) -> tuple[Array, set[str]]:
        """The result, and the opcodes that were executed."""
        result = np.zeros(NUM_VALUES, TYPES[self.type_names[-1]])
        inputs = [] if self.is_uniform else [Buffer(array) for array in operands]
        buffers = [*inputs, Buffer(result, is_output=True)]
        addresses = [np.array([buffer.address], np.uint64) for buffer in buffers]
        arguments = bytearray()
        for value in (*(operands if self.is_uniform else ()), *addresses):
            arguments += bytes(-len(arguments) % value.itemsize) + value.tobytes()
        launch = Launch(
            kernel.code,
            bytes(arguments),
            buffers,
            grid=(NUM_VALUES // self.block, 1, 1),
            block=(self.block, 1, 1),
            cluster_blocks=self.cluster_blocks,
        )
        executed = zip(kernel.code.texts, run(launch).executed, strict=True)
        return result, {opcode_of(text) for text, count in executed if count}

    def _require_equal(self, result: Array, expected: Array, operands: Sequence[Array]) -> None:
        bits = f"i{result.itemsize}"
        is_wrong = result.view(bits) != expected.view(bits)
        if result.dtype == np.float32:  # PTX ISA: the NaN of single precision is 0x7fffffff
            is_wrong &= ~(np.isnan(expected) & (result.view(bits) == 0x7FFFFFFF))
        elif result.dtype.kind == "f":
            is_wrong &= ~(np.isnan(result) & np.isnan(expected))
        if self.ulps:
            steps = np.abs(result.view(bits).astype(np.int64) - expected.view(bits).astype(np.int64))
            is_wrong &= (steps > self.ulps) | ~np.isfinite(expected)
        wrong = np.flatnonzero(is_wrong)
        shown = [
            f"thread {n}: {[x[n % x.size] for x in operands]} give {result[n]}, not {expected[n]}"
            for n in wrong[:5]
        ]
        assert not wrong.size, f"{self.body}: {wrong.size} results are wrong\n" + "\n".join(shown)


def uniform(snippet: Snippet, forms: str = "") -> Snippet:
    """The snippet with the same operands for all threads, so that it uses the uniform datapath."""
    return replace(snippet, is_uniform=True, forms=forms)


def opcode_of(text: str) -> str:
    """The opcode with suffixes of an instruction as the disassembler prints it."""
    found = _OPCODE.match(text)
    assert found, text
    return found[1]


def kernels(snippets: Mapping[str, Snippet]) -> dict[str, Kernel]:
    """The kernels of the snippets, compiled together."""
    names = {key: f"snippet_{number}" for number, key in enumerate(snippets)}
    text = _PRELUDE + "".join(snippets[key].text(name) for key, name in names.items())
    cubin = compiled_text(text, HOPPER.name, list(names.values())).cubin
    code, facts = decode(cubin), kernels_of(cubin)
    return {key: Kernel(code[name], facts[name]) for key, name in names.items()}
