"""Operators, and the table of them.

For an operator X, `X.py` has the descriptor, the support table, the check and the plan; `X_paths.py` has its
paths.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cudml.enums import FeatureLevel, OperatorType
from cudml.errors import a_type
from cudml.plans import Limits, Plan

if TYPE_CHECKING:
    from cudml.operators.gru import GruDesc
    from cudml.operators.reverse_subsequences import ReverseSubsequencesDesc
    from cudml.operators.slice import Slice1Desc, SliceDesc
    from cudml.operators.top_k import TopK1Desc, TopKDesc

    Descriptor = SliceDesc | TopKDesc | GruDesc | ReverseSubsequencesDesc | Slice1Desc | TopK1Desc


@dataclass(frozen=True)
class Operator:
    """Where to find an operator: its module in this folder, and the descriptor's class in the module.

    A module is imported when it is first needed, so that a call of one operator does not load all of them.
    """

    module: str
    descriptor_name: str

    @property
    def descriptor(self) -> Any:
        """The descriptor's class."""
        return getattr(self._loaded, self.descriptor_name)

    def check(self, desc: Any, level: FeatureLevel) -> None:
        """Raise `DescriptorError` with every rule of the level that the descriptor breaks."""
        self._loaded.check(desc, level)

    def plan(self, desc: Any, limits: Limits) -> Plan:
        """The plan of a valid descriptor."""
        plan: Plan = self._loaded.plan(desc, limits)
        return plan

    @property
    def _loaded(self) -> Any:
        return import_module(f"{__name__}.{self.module}")


#: One line per operator.
OPERATORS: dict[OperatorType, Operator] = {
    OperatorType.SLICE: Operator("slice", "SliceDesc"),
    OperatorType.TOP_K: Operator("top_k", "TopKDesc"),
    OperatorType.GRU: Operator("gru", "GruDesc"),
    OperatorType.REVERSE_SUBSEQUENCES: Operator("reverse_subsequences", "ReverseSubsequencesDesc"),
    OperatorType.SLICE1: Operator("slice", "Slice1Desc"),
    OperatorType.TOP_K1: Operator("top_k", "TopK1Desc"),
}

_BY_CLASS = {(f"{__name__}.{row.module}", row.descriptor_name): kind for kind, row in OPERATORS.items()}


def operator_type_of(descriptor: object) -> OperatorType:
    """The operator that a descriptor describes.

    Raises TypeError, which lists the types of descriptors, if it is not one.
    """
    cls = type(descriptor)
    kind = _BY_CLASS.get((cls.__module__, cls.__qualname__))
    if kind is None:
        names = ", ".join(row.descriptor_name for row in OPERATORS.values())
        raise TypeError(f"desc is {a_type(descriptor)}, must be one of cudml's {names}")
    return kind
