"""Assertions that make the compiler check a kernel's parameters against the plan that launches it."""

from cudml.plans import C_TYPES, KernelLaunch


def signature_assertions(launch: KernelLaunch) -> str:
    """C++ text, to stand after the kernel's own, that compiles only where both sides agree.

    Neither CuPy nor the driver checks the number or the size of a kernel's arguments, so the compiler
    does: the number of pointers, that one struct follows them, its size, and every member's name, type
    and offset.
    """
    name = launch.name_expression
    told = f"{launch.source}: {name}"
    num_pointers = len(launch.buffers)
    lines = [
        '#include "common/signature.cuh"',
        f"using SignatureOfKernel = signature::Of<decltype(&{name})>;",
        _assertion("SignatureOfKernel::kIsInOrder", f"{told} must take pointers, then one struct"),
        _assertion(
            f"SignatureOfKernel::kNumPointers == {num_pointers}",
            f"{told} is launched with {num_pointers} pointers",
        ),
        _assertion(
            f"SignatureOfKernel::kHasParams == {str(bool(launch.params.fields)).lower()}",
            f"{told} is launched with {'a' if launch.params.fields else 'no'} struct",
        ),
    ]
    if launch.params.fields:
        lines.append("using ParamsOfKernel = SignatureOfKernel::Params;")
        offset = 0
        for field in launch.params.fields:
            size = C_TYPES[field.c_type][1]
            count = len(field.values)
            offset += -offset % size
            c_type = field.c_type if count == 1 else f"{field.c_type}[{count}]"
            lines.append(
                _assertion(
                    f"signature::is_same<decltype(ParamsOfKernel::{field.name}), {c_type}> && "
                    f"__builtin_offsetof(ParamsOfKernel, {field.name}) == {offset}",
                    f"{told}: {field.name} is launched as {c_type} at byte {offset}",
                )
            )
            offset += size * count
        num_bytes = len(launch.params.pack())
        lines.append(
            _assertion(
                f"sizeof(ParamsOfKernel) == {num_bytes}",
                f"{told} is launched with a struct of {num_bytes} bytes",
            )
        )
    return "\n".join(lines) + "\n"


def _assertion(condition: str, message: str) -> str:
    return f'static_assert({condition}, "{message}");'
