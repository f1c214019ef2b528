"""Plans: immutable, printable values that say what to run, independent of arrays and devices.

A plan is a tuple of steps. A step names its buffers: an operand by its descriptor member (`input_tensor`,
...), or a piece of the device's own memory by its `Workspace.name`.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import gt
from struct import Struct
from sys import intern
from typing import Any, NamedTuple

#: C type of a parameter field -> (struct format, size and alignment in bytes).
C_TYPES: dict[str, tuple[str, int]] = {
    "Int32": ("i", 4),
    "UInt32": ("I", 4),
    "Int64": ("q", 8),
    "UInt64": ("Q", 8),
    "Float32": ("f", 4),
}

#: Constant expressions of a kernel's source, and the values that a plan assumes.
Constants = tuple[tuple[str, int], ...]

#: Name, C type and number of values of each member of a parameter struct.
Members = tuple[tuple[str, str, int], ...]

#: Lanes of a warp on every GPU.
WARP_LANES = 32

#: Bytes of a sector, the least that a multiprocessor's cache loads.
SECTOR_BYTES = 32

#: Bytes that the memory of an H200 reads at once: every 8th float32 of a vector takes half as long as every
#: 16th (bench/results/nvidia-h200.csv).
MEMORY_PIECE_BYTES = 64

#: Maximum number of blocks along the first dimension of a grid, the same on every GPU.
MAX_GRID_BLOCKS = 2**31 - 1

#: The buffer of a launch whose blocks wait for each other: a `WaitReport` of kernels/common/wait.cuh,
#: provided by the device. A kernel that gives up waiting reports it there.
WAIT_REPORT = "wait_report"

#: Temporary buffers start at multiples of this many bytes.
WORKSPACE_ALIGNMENT = 256


def product_workspace_size(num_bytes: int) -> int:
    """Bytes of a buffer that holds `num_bytes` at a multiple of `WORKSPACE_ALIGNMENT`, wherever it starts.

    The library asks for that alignment, but a temporary resource may start at any multiple of 16.
    """
    return num_bytes + WORKSPACE_ALIGNMENT


def ceil_div(numerator: int, denominator: int) -> int:
    """The quotient, rounded up."""
    return -(-numerator // denominator)


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is at least `value`."""
    return ceil_div(value, multiple) * multiple


@dataclass(frozen=True)
class Limits:
    """The limits of a device, as reported by the device.

    `shared_bytes_per_block` is the opt-in maximum of dynamic shared storage. `max_cluster_blocks` is 1 if the
    device has no clusters. `compute_capability` is 0 on the emulator. `warp_lanes` is 1 if blocks of one
    thread are the fastest (a CPU), else 32. `most_resident_blocks` is the number of blocks of a cooperative
    grid that run at once, if known to be fewer than one per multiprocessor. `product_workspace_bytes` is the
    workspace that the device's library recommends for a matrix product, 0 for none.
    """

    num_multiprocessors: int
    max_threads_per_block: int
    shared_bytes_per_block: int
    shared_bytes_per_multiprocessor: int
    registers_per_multiprocessor: int
    max_threads_per_multiprocessor: int
    max_cluster_blocks: int
    l2_bytes: int
    compute_capability: int
    warp_lanes: int = 32
    most_resident_blocks: int | None = None
    product_workspace_bytes: int = 0

    @property
    def resident_blocks(self) -> int:
        """Maximum size of a cooperative grid, whose blocks can wait for each other; 0 allows none."""
        most = self.most_resident_blocks
        return self.num_multiprocessors if most is None else min(most, self.num_multiprocessors)

    @property
    def resident_threads(self) -> int:
        """Number of threads that the device holds at once."""
        return self.num_multiprocessors * self.max_threads_per_multiprocessor

    def lowered(self, most: Mapping[str, int]) -> "Limits":
        """The limits, with the named members lowered to these bounds."""
        known = {name: getattr(self, name) for name in most}
        changed = {name: bound for name, bound in most.items() if known[name] is None or bound < known[name]}
        return replace(self, **changed) if changed else self


class Field(NamedTuple):
    """One member of a kernel's by-value parameter struct; an array member has several `values`."""

    name: str
    c_type: str
    values: tuple[int | float, ...]


#: The value of a member: a number, or the numbers of an array.
Value = int | float | tuple[int | float, ...]


class ParamStruct:
    """The declaration of a kernel's by-value parameter struct.

    `ParamStruct("Int64 num_rows, sizes[8]", "Int32 is_wide")` declares members in the order of the C++ one.
    """

    def __init__(self, *declarations: str) -> None:
        members: list[tuple[str, str, int]] = []
        arrays: list[int] = []
        self.declarations = declarations
        for declaration in declarations:
            c_type, _, names = declaration.partition(" ")
            for member in names.split(", "):
                name, _, count = member.removesuffix("]").partition("[")
                if count:
                    arrays.append(len(members))
                members.append((intern(name), c_type, int(count or 1)))
        self.members: Members = tuple(members)
        self._names = tuple([name for name, _, _ in members])
        # From the last to the first, so that each can be replaced by its values.
        self._arrays = tuple(reversed(arrays))
        # Keyed by the total number of values.
        self._layouts: dict[int, Struct] = {}

    def pack(self, values: Mapping[str, Value]) -> bytes:
        """The bytes in C layout: each member at its natural alignment, padded at the end.

        Arrays may be given by their first values, the same number for every array; zeros follow.
        """
        if (*values,) != self._names:
            raise ValueError(f"the members are {', '.join(values)}, must be {', '.join(self._names)}")
        numbers: list[Any] = [*values.values()]
        for place in self._arrays:
            numbers[place : place + 1] = numbers[place]
        layout = self._layouts.get(len(numbers))
        if layout is None:
            layout = self._layouts[len(numbers)] = self._layout_of(values)
        return layout.pack(*numbers)

    def _layout_of(self, values: Mapping[str, Value]) -> Struct:
        given = [len(value) if isinstance(value, tuple) else 1 for value in values.values()]
        declared = [count for _, _, count in self.members]
        shortened = {given[place] for place in self._arrays}
        if given != declared and (len(shortened) != 1 or any(map(gt, given, declared))):
            expected = f"{declared}, or as many of every array"
            raise ValueError(f"the numbers of values are {given}, must be {expected}: {self}")
        return _c_layout(self.members, given)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ParamStruct) and self.declarations == other.declarations

    def __hash__(self) -> int:
        return hash(self.declarations)

    def __repr__(self) -> str:
        return f"ParamStruct({', '.join(map(repr, self.declarations))})"

    def __reduce__(self) -> tuple[type["ParamStruct"], tuple[str, ...]]:  # a `Struct` cannot be pickled
        return ParamStruct, self.declarations


def _c_layout(members: Members, given: Sequence[int]) -> Struct:
    """The layout of a struct whose members have these numbers of values."""
    text, num_bytes, alignment = "<", 0, 1
    for (_, c_type, count), num_values in zip(members, given, strict=True):
        code, size = C_TYPES[c_type]
        gap = -num_bytes % size
        text += f"{gap}x{num_values}{code}{(count - num_values) * size}x"
        num_bytes += gap + count * size
        alignment = max(alignment, size)
    return Struct(f"{text}{-num_bytes % alignment}x")


@dataclass(slots=True)
class Params:
    """The value of each member of a parameter struct, in the order of the declaration."""

    struct: ParamStruct
    values: Mapping[str, Value]

    @property
    def fields(self) -> tuple[Field, ...]:
        """The members, with a tuple for every value."""
        return tuple(
            Field(name, c_type, value if isinstance(value, tuple) else (value,))
            for (name, c_type, _), value in zip(self.struct.members, self.values.values(), strict=True)
        )

    def pack(self) -> bytes:
        """The struct's bytes."""
        return self.struct.pack(self.values)

    def __str__(self) -> str:
        def text(field: Field) -> str:
            values = field.values
            return f"{field.name}={values[0] if len(values) == 1 else list(values)}"

        return " ".join(text(field) for field in self.fields)


class KernelLaunch(NamedTuple):
    """One kernel launch.

    The kernel's parameters are one pointer per entry of `buffers` (None passes a null pointer),
    then the `params` struct by value. `template` holds the template arguments as in C++ text (bool becomes
    true/false). `source` is relative to `kernels/`. If blocks wait for each other, `buffers` contains
    `WAIT_REPORT`, and `waits` says what they wait for: wait number n is `waits[n - 1]`. `constants` are the
    constants of the source that the plan relies on, and both compilers assert their values.
    """

    source: str
    function: str
    template: tuple[str | int | bool, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    buffers: tuple[str | None, ...]
    params: Params
    shared_bytes: int = 0
    cooperative: bool = False
    cluster_blocks: int = 1
    waits: tuple[str, ...] = ()
    constants: Constants = ()

    @property
    def name_expression(self) -> str:
        """The C++ name of the template instance, `top_k_warp<UInt32, true, 4>`."""
        if not self.template:
            return self.function
        spelled = [str(a).lower() if isinstance(a, bool) else str(a) for a in self.template]
        return f"{self.function}<{', '.join(spelled)}>"

    @property
    def instance(self) -> Hashable:
        """What the compiled code depends on, apart from the text of the source."""
        kernel, taken = (self.source, self.function, self.template), self.params.struct.declarations
        return kernel, len(self.buffers), taken, self.constants

    def __str__(self) -> str:
        extra = " cooperative" if self.cooperative else ""
        extra += f" cluster {self.cluster_blocks}" if self.cluster_blocks > 1 else ""
        return (
            f"{self.source} {self.name_expression}  grid {self.grid} block {self.block} "
            f"shared {self.shared_bytes}{extra}  ({', '.join(str(b) for b in self.buffers)})  {self.params}"
        )


@dataclass(frozen=True)
class MatMul:
    """`out = a @ b.T` by the device's library: a is (m, k), b is (n, k), out is float32 (m, n).

    All three are packed row-major; offsets are in elements of the respective buffer. `element` is
    "float32", "float16" or "bfloat16", the type of a and b; products are summed in float32. `workspace` is
    the library's for this step, of `product_workspace_size(workspace_bytes)` bytes; None leaves it to the
    library. If it `allows_tf32`, the library may round a and b of float32 to TF32, in its own way.
    """

    a: str
    b: str
    out: str
    m: int
    n: int
    k: int
    element: str
    a_offset: int = 0
    b_offset: int = 0
    out_offset: int = 0
    workspace: str | None = None
    workspace_bytes: int = 0
    allows_tf32: bool = False

    def __str__(self) -> str:
        extra = " as TF32" if self.allows_tf32 else ""
        extra += "" if self.workspace is None else f", {self.workspace_bytes} bytes of {self.workspace}"
        product = f"{self.out}[{self.m}, {self.n}] = {self.a} @ {self.b}.T over {self.k}"
        return f"matmul {product}, {self.element}{extra}"


@dataclass(frozen=True)
class Fill:
    """Set `num_bytes` bytes of a buffer to one byte value."""

    buffer: str
    num_bytes: int
    value: int = 0

    def __str__(self) -> str:
        return f"fill {self.buffer} {self.num_bytes} bytes with 0x{self.value:02x}"


@dataclass(frozen=True)
class Copy:
    """Copy `num_bytes` bytes between buffers, without overlap; offsets are in bytes."""

    source: str
    target: str
    num_bytes: int
    source_offset: int = 0
    target_offset: int = 0

    def __str__(self) -> str:
        return (
            f"copy {self.num_bytes} bytes of {self.source} from {self.source_offset} "
            f"to {self.target} at {self.target_offset}"
        )


#: A step that the device's library runs.
LibraryStep = MatMul | Fill | Copy

Step = KernelLaunch | LibraryStep


@dataclass(frozen=True)
class Workspace:
    """A named piece of the temporary resource, or of memory that is zero before every run.

    The device provides a piece that `is_left_zero`, to one run at a time, and the steps leave it zero again.
    A kernel with such a piece leaves it zero even if it gives up a wait for other blocks.
    """

    name: str
    num_bytes: int
    is_left_zero: bool = False


class Cycle(NamedTuple):
    """Steps that repeat at the end of a plan: the index of the first, their number, how often they run."""

    first: int
    length: int
    times: int


class Plan(NamedTuple):
    """Everything a device needs to run an operator: the steps, in order, and their buffers.

    `operands` lists the bound members of the descriptor, inputs first, without absent optional tensors.
    `outputs` names the operands that the steps write: the emulator's check mode treats them as uninitialised
    before the first step, and every other operand as read-only. If empty, nothing is known about the
    operands.
    """

    operator: str
    operands: tuple[str, ...]
    steps: tuple[Step, ...]
    workspaces: tuple[Workspace, ...] = ()
    outputs: tuple[str, ...] = ()

    def offsets(self, *, left_zero: bool = False) -> dict[str, int]:
        """The byte offset of each workspace in the temporary resource, or in the memory that is left zero."""
        starts: dict[str, int] = {}
        end = 0
        for piece in self.workspaces:
            if piece.is_left_zero == left_zero:
                starts[piece.name] = end
                end = round_up(end + piece.num_bytes, WORKSPACE_ALIGNMENT)
        return starts

    @property
    def cycle(self) -> Cycle | None:
        """The steps that repeat at the plan's end, if any; repeated steps are the same objects."""
        steps, end = self.steps, len(self.steps)
        lengths = (n for n in range(1, end // 2 + 1) if steps[end - 1 - n] is steps[end - 1])
        length = next(lengths, None)
        if length is None:
            return None
        first = end - length
        while first > 0 and steps[first - 1] is steps[first - 1 + length]:
            first -= 1
        times = (end - first) // length
        return Cycle(end - times * length, length, times) if times > 1 else None

    @property
    def temporary_bytes(self) -> int:
        """Size of the temporary resource that one dispatch needs."""
        return self._bytes(left_zero=False)

    @property
    def zero_bytes(self) -> int:
        """Size of the memory that is zero before and after a dispatch."""
        return self._bytes(left_zero=True)

    def _bytes(self, *, left_zero: bool) -> int:
        pieces = [piece.num_bytes for piece in self.workspaces if piece.is_left_zero == left_zero]
        return sum(round_up(num_bytes, WORKSPACE_ALIGNMENT) for num_bytes in pieces)

    def __str__(self) -> str:
        lines = [f"{self.operator}({', '.join(self.operands)})"]
        lines += [
            f"  {piece.name}: {piece.num_bytes} bytes {'left zero' if piece.is_left_zero else 'temporary'}"
            for piece in self.workspaces
        ]
        return "\n".join(lines + [f"  {step}" for step in self.steps])
