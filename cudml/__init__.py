"""DirectML's operators on NVIDIA GPUs, as CUDA kernels that also run on the CPU.

The array functions `top_k`, `slice`, `reverse_subsequences` and `gru` accept NumPy arrays, CuPy arrays and
arrays of other libraries; `compile_operator` accepts DirectML's descriptors. Names are imported on
first use, with everything that a call of them reaches on a CPU.
"""

from cudml.locks import import_unforked

# Type checkers read these imports, the interpreter reads `_HOMES`, and a test compares the two. One list
# cannot serve both: checkers understand only import statements, and running those would import NumPy and
# every operator. `X as X` tells checkers that a name is public, so they need no literal `__all__`.
TYPE_CHECKING = False  # type checkers assume True; importing `typing` would double the import time
if TYPE_CHECKING:
    from typing import Any

    from cudml.compiled import CompiledOperator as CompiledOperator
    from cudml.compiled import compile_operator as compile_operator
    from cudml.cupy import install_cupy as install_cupy
    from cudml.devices.emulator.meter import emulator_report as emulator_report
    from cudml.dxdispatch.descriptors import from_dict as from_dict
    from cudml.dxdispatch.descriptors import to_dict as to_dict
    from cudml.enums import AxisDirection as AxisDirection
    from cudml.enums import DataType as DataType
    from cudml.enums import ExecutionFlags as ExecutionFlags
    from cudml.enums import FeatureLevel as FeatureLevel
    from cudml.enums import OperatorType as OperatorType
    from cudml.enums import RecurrentNetworkDirection as RecurrentNetworkDirection
    from cudml.enums import TensorFlags as TensorFlags
    from cudml.errors import BindingError as BindingError
    from cudml.errors import CompilerError as CompilerError
    from cudml.errors import DescriptorError as DescriptorError
    from cudml.errors import DeviceError as DeviceError
    from cudml.errors import KernelError as KernelError
    from cudml.errors import ModelError as ModelError
    from cudml.errors import Problem as Problem
    from cudml.errors import SettingError as SettingError
    from cudml.functions.gru import GruResult as GruResult
    from cudml.functions.gru import gru as gru
    from cudml.functions.gru_plan import GruPlan as GruPlan
    from cudml.functions.gru_stack import gru_stack as gru_stack
    from cudml.functions.reverse_subsequences import reverse_subsequences as reverse_subsequences
    from cudml.functions.slice import slice as slice
    from cudml.functions.top_k import TopKResult as TopKResult
    from cudml.functions.top_k import top_k as top_k
    from cudml.operators.gru.activations import Activation as Activation
    from cudml.operators.gru.operator import GruDesc as GruDesc
    from cudml.operators.reverse_subsequences.operator import (
        ReverseSubsequencesDesc as ReverseSubsequencesDesc,
    )
    from cudml.operators.slice.operator import Slice1Desc as Slice1Desc
    from cudml.operators.slice.operator import SliceDesc as SliceDesc
    from cudml.operators.top_k.operator import TopK1Desc as TopK1Desc
    from cudml.operators.top_k.operator import TopKDesc as TopKDesc
    from cudml.tensors import TensorDesc as TensorDesc

__version__ = "0.1.0"

#: Module -> the public names that it defines.
_HOMES = {
    "compiled": ("CompiledOperator", "compile_operator"),
    "cupy": ("install_cupy",),
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
    "functions.gru_plan": ("GruPlan",),
    "functions.gru_stack": ("gru_stack",),
    "functions.reverse_subsequences": ("reverse_subsequences",),
    "functions.slice": ("slice",),
    "functions.top_k": ("TopKResult", "top_k"),
    "operators.gru.activations": ("Activation",),
    "operators.gru.operator": ("GruDesc",),
    "operators.reverse_subsequences.operator": ("ReverseSubsequencesDesc",),
    "operators.slice.operator": ("Slice1Desc", "SliceDesc"),
    "operators.top_k.operator": ("TopK1Desc", "TopKDesc"),
    "tensors": ("TensorDesc",),
}

_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # checkers do not evaluate it, and would see no name in a wildcard import
    __all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> "Any":
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_unforked(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
