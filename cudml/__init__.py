"""DirectML's operators on NVIDIA GPUs, as CUDA kernels that also run on the CPU.

The array functions `top_k`, `slice`, `reverse_subsequences` and `gru` accept NumPy arrays, CuPy arrays and
arrays of other libraries; `compile_operator` accepts DirectML's descriptors. Names are imported on first use.
"""

from importlib import import_module

TYPE_CHECKING = False  # type checkers assume True; importing `typing` would double the import time
if TYPE_CHECKING:
    from typing import Any

    from cudml.compiled import CompiledOperator, compile_operator
    from cudml.devices.emulator.meter import emulator_report
    from cudml.dxdispatch.descriptors import from_dict, to_dict
    from cudml.enums import (
        AxisDirection,
        DataType,
        ExecutionFlags,
        FeatureLevel,
        OperatorType,
        RecurrentNetworkDirection,
        TensorFlags,
    )
    from cudml.errors import (
        BindingError,
        CompilerError,
        DescriptorError,
        DeviceError,
        KernelError,
        ModelError,
        Problem,
        SettingError,
    )
    from cudml.functions.gru import GruResult, gru
    from cudml.functions.reverse_subsequences import reverse_subsequences
    from cudml.functions.slice import slice
    from cudml.functions.top_k import TopKResult, top_k
    from cudml.operators.activations import Activation
    from cudml.operators.gru import GruDesc
    from cudml.operators.reverse_subsequences import ReverseSubsequencesDesc
    from cudml.operators.slice import Slice1Desc, SliceDesc
    from cudml.operators.top_k import TopK1Desc, TopKDesc
    from cudml.tensors import TensorDesc

__version__ = "0.1.0"

#: Module -> the public names that it defines.
_HOMES = {
    "compiled": ("CompiledOperator", "compile_operator"),
    "devices.emulator.meter": ("emulator_report",),
    "enums": (
        "AxisDirection",
        "DataType",
        "ExecutionFlags",
        "FeatureLevel",
        "OperatorType",
        "RecurrentNetworkDirection",
        "TensorFlags",
    ),
    "errors": (
        "BindingError",
        "CompilerError",
        "DescriptorError",
        "DeviceError",
        "KernelError",
        "ModelError",
        "Problem",
        "SettingError",
    ),
    "dxdispatch.descriptors": ("from_dict", "to_dict"),
    "functions.gru": ("GruResult", "gru"),
    "functions.reverse_subsequences": ("reverse_subsequences",),
    "functions.slice": ("slice",),
    "functions.top_k": ("TopKResult", "top_k"),
    "operators.activations": ("Activation",),
    "operators.gru": ("GruDesc",),
    "operators.reverse_subsequences": ("ReverseSubsequencesDesc",),
    "operators.slice": ("Slice1Desc", "SliceDesc"),
    "operators.top_k": ("TopK1Desc", "TopKDesc"),
    "tensors": ("TensorDesc",),
}

_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Activation",
    "AxisDirection",
    "BindingError",
    "CompiledOperator",
    "CompilerError",
    "DataType",
    "DescriptorError",
    "DeviceError",
    "ExecutionFlags",
    "FeatureLevel",
    "GruDesc",
    "GruResult",
    "KernelError",
    "ModelError",
    "OperatorType",
    "Problem",
    "RecurrentNetworkDirection",
    "ReverseSubsequencesDesc",
    "SettingError",
    "Slice1Desc",
    "SliceDesc",
    "TensorDesc",
    "TensorFlags",
    "TopK1Desc",
    "TopKDesc",
    "TopKResult",
    "compile_operator",
    "emulator_report",
    "from_dict",
    "gru",
    "reverse_subsequences",
    "slice",
    "to_dict",
    "top_k",
]


def __getattr__(name: str) -> "Any":
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
