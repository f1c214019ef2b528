"""The source text of kernel instances for the CUDA compiler: the kernel's file, and assertions about it.

Neither CuPy nor the driver checks the number or the size of a kernel's arguments, so the text asserts that
the kernel takes what the plan passes.
"""

from collections.abc import Sequence

from cudml.devices.sources import source_hash
from cudml.plans import C_TYPES, KernelLaunch


def kernel_text(launches: Sequence[KernelLaunch]) -> str:
    """C++ text for instances of one source.

    The first line contains a hash of all files that the source includes, because CuPy's disk cache hashes
    only the text itself.

    Parameters
    ----------
    launches : sequence of KernelLaunch
        One for each instance, all of one source.
    """
    source = launches[0].source
    lines = [
        f"// {source} and what it includes: {source_hash(source)}",
        f'#include "{source}"',
        '#include "common/signature.cuh"',
    ]
    for number, launch in enumerate(launches):
        lines += [f"namespace launch_{number} {{", *_assertions(launch), "}"]
    return "\n".join(lines) + "\n"


def _assertions(launch: KernelLaunch) -> list[str]:
    """Assert the number of pointers, then one struct, its size, and every member's name, type and offset."""
    name = launch.name_expression
    num_pointers = len(launch.buffers)
    fields = launch.params.fields
    lines = [
        f"using Signature = signature::Of<decltype(&{name})>;",
        _assertion("Signature::kIsInOrder", f"{name} must take pointers, then one struct"),
        _assertion(
            f"Signature::kNumPointers == {num_pointers}", f"{name} is launched with {num_pointers} pointers"
        ),
        _assertion(
            f"Signature::kHasParams == {'true' if fields else 'false'}",
            f"{name} is launched with {'a' if fields else 'no'} struct",
        ),
    ]
    if not fields:
        return lines
    lines.append("using Params = Signature::Params;")
    offset = 0
    for field in fields:
        size = C_TYPES[field.c_type][1]
        count = len(field.values)
        offset += -offset % size
        c_type = field.c_type if count == 1 else f"{field.c_type}[{count}]"
        lines.append(
            _assertion(
                f"signature::is_same<decltype(Params::{field.name}), {c_type}> && "
                f"OFFSET_OF(Params, {field.name}) == {offset}",
                f"{name}: {field.name} is launched as {c_type} at byte {offset}",
            )
        )
        offset += size * count
    num_bytes = len(launch.params.pack())
    lines.append(
        _assertion(f"sizeof(Params) == {num_bytes}", f"{name} is launched with a struct of {num_bytes} bytes")
    )
    return lines


def _assertion(condition: str, message: str) -> str:
    return f'static_assert({condition}, "{message}");'
