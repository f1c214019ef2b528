"""The source text of kernel instances: the kernel's file, and assertions about it for both compilers.

No device checks the number, the types or the order of a kernel's arguments at a launch, so the text asserts
that the kernel takes what the plan passes. It also asserts the constants that the plan and the kernel share.
"""

from collections.abc import Sequence
from functools import lru_cache

from cudml.devices.sources import source_hash
from cudml.plans import C_TYPES, Constants, KernelLaunch, Members

#: The header that the assertions use.
SIGNATURE = "common/signature.cuh"


def kernel_text(launches: Sequence[KernelLaunch]) -> str:
    """C++ text for instances of one source, for the CUDA compiler.

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
        f'#include "{SIGNATURE}"',
    ]
    for number, launch in enumerate(launches):
        lines += [f"namespace launch_{number} {{", assertions(launch), "}"]
    return "\n".join(lines) + "\n"


def assertions(launch: KernelLaunch) -> str:
    """C++ assertions that a kernel fits a launch, for a namespace of their own.

    They depend on the names and types of the parameters, not on their values, so every launch of an
    instance has the same text.
    """
    members = launch.params.struct.members
    return _assertions(launch.name_expression, len(launch.buffers), members, launch.constants)


@lru_cache(1024)
def _assertions(name: str, num_pointers: int, members: Members, constants: Constants) -> str:
    """Assert the constants, the number of pointers, then one struct: its size, each name, type and offset."""
    lines = [
        _assertion(f"({expression}) == {value}", f"{name}: plans assume that {expression} is {value}")
        for expression, value in constants
    ]
    lines += [
        f"using Signature = signature::Of<decltype(&{name})>;",
        _assertion("Signature::kIsInOrder", f"{name} must take pointers, then one struct"),
        _assertion(
            f"Signature::kNumPointers == {num_pointers}", f"{name} is launched with {num_pointers} pointers"
        ),
        _assertion(
            f"Signature::kHasParams == {'true' if members else 'false'}",
            f"{name} is launched with {'a' if members else 'no'} struct",
        ),
    ]
    if not members:
        return "\n".join(lines)
    lines.append("using Params = Signature::Params;")
    offset = 0
    for member, element_type, count in members:
        size = C_TYPES[element_type][1]
        offset += -offset % size
        c_type = element_type if count == 1 else f"{element_type}[{count}]"
        lines.append(
            _assertion(
                f"signature::is_same<decltype(Params::{member}), {c_type}> && "
                f"OFFSET_OF(Params, {member}) == {offset}",
                f"{name}: {member} is launched as {c_type} at byte {offset}",
            )
        )
        offset += size * count
    num_bytes = offset + -offset % max(C_TYPES[element_type][1] for _, element_type, _ in members)
    lines.append(
        _assertion(f"sizeof(Params) == {num_bytes}", f"{name} is launched with a struct of {num_bytes} bytes")
    )
    return "\n".join(lines)


def _assertion(condition: str, message: str) -> str:
    return f'static_assert({condition}, "{message}");'
