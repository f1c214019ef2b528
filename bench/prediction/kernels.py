"""The kernels of bench/micro as launches of their machine code."""

import functools

from bench.micro import bandwidth, clusters, figures, latency, selection
from cudml.devices.sources import source_hash
from proof.sass import cubin
from proof.sass.compiler import compiled_text
from proof.sass.decode import decode
from proof.sass.launch import Buffer, Launch, zeros
from proof.sass.plan import HOPPER, Kernel

#: The instances of each file that are compiled together.
_NAMES = {
    "launches.cu": ("empty", "last_block"),
    "latency.cu": (
        "block_barrier",
        "acquire_load",
        "chase",
        *(latency.STRIDED.format(stride) for stride in latency.STRIDES),
        "ping_pong",
        *(f"exchange<{words}, {copies}>" for words, copies in latency.EXCHANGES.values()),
    ),
    "clusters.cu": tuple(
        name
        for size in clusters.SIZES
        for name in (
            f"barrier_rounds<{size}, false>",
            f"barrier_rounds<{size}, true>",
            f"remote_load<{size}>",
        )
    ),
    "selection.cu": (
        *(f"arg_max<{method}>" for method in selection.ARG_MAXIMA),
        *(f"histogram<{key}, {width}>" for key, _, widths in selection.HISTOGRAMS for width in widths),
    ),
    "bandwidth.cu": (
        *(f"filter_vectors<{method}, {bandwidth.LOADS}>" for method in bandwidth.FILTERS),
        *(f"{kind}_vectors<{bandwidth.LOADS}>" for kind in ("copy", "read")),
    ),
}


@functools.cache
def _kernels(file: str) -> dict[str, Kernel]:
    """The kernels of a file, as `Gpu.kernel` compiles them."""
    path = figures.HERE / file
    # The cache finds compiled code by its text alone, so the text has the hash of the headers, too.
    text = f"{path.read_text()}// With its headers: {source_hash(str(path))}\n"
    made = compiled_text(text, HOPPER.name, _NAMES[file])
    code, facts = decode(made.cubin), cubin.kernels_of(made.cubin)
    return {name: Kernel(code[made.mangled[name]], facts[made.mangled[name]]) for name in _NAMES[file]}


def launched(
    file: str,
    name: str,
    grid: int,
    block: int,
    arguments: bytes = b"",
    *buffers: Buffer,
    shared_bytes: int = 0,
    cluster_blocks: int = 1,
) -> Launch:
    """A launch of a kernel of bench/micro, along x."""
    kernel = _kernels(file)[name]
    resident = kernel.resident_blocks(block, shared_bytes)
    shape = ((grid, 1, 1), (block, 1, 1), shared_bytes, cluster_blocks)
    return Launch(kernel.code, arguments, buffers, *shape, resident_blocks=resident)


def output(num_bytes: int) -> Buffer:
    """Zeros that a kernel may write."""
    return Buffer(zeros(num_bytes), is_output=True)
