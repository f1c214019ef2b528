"""Operators, and the table of them.

An operator X has a folder: `X/operator.py` is the descriptor, the support table, the check and the plan,
`X/paths.py` the ways to compute it and the choice between them.
"""

from dataclasses import dataclass
from typing import Any

from cudml.enums import FeatureLevel, OperatorType
from cudml.errors import a_type
from cudml.operators.gru import operator as gru
from cudml.operators.reverse_subsequences import operator as reverse_subsequences
from cudml.operators.slice import operator as slice
from cudml.operators.top_k import operator as top_k
from cudml.plans import Limits, Plan

Descriptor = (
    slice.SliceDesc
    | top_k.TopKDesc
    | gru.GruDesc
    | reverse_subsequences.ReverseSubsequencesDesc
    | slice.Slice1Desc
    | top_k.TopK1Desc
)


@dataclass(frozen=True)
class Operator:
    """The module of an operator's definition, and the class of descriptors in it that the operator has."""

    _definition: Any
    descriptor: type[Descriptor]

    @property
    def room(self) -> str:
        """The name of its folder, here and among kernels and tests."""
        return str(self._definition.__name__).split(".")[-2]

    def check(self, desc: Any, level: FeatureLevel) -> None:
        """Raise `DescriptorError` with every rule of the level that the descriptor breaks."""
        self._definition.check(desc, level)

    def plan(self, desc: Any, limits: Limits) -> Plan:
        """The plan of a valid descriptor."""
        plan: Plan = self._definition.plan(desc, limits)
        return plan


#: One line per operator.
OPERATORS: dict[OperatorType, Operator] = {
    OperatorType.SLICE: Operator(slice, slice.SliceDesc),
    OperatorType.TOP_K: Operator(top_k, top_k.TopKDesc),
    OperatorType.GRU: Operator(gru, gru.GruDesc),
    OperatorType.REVERSE_SUBSEQUENCES: Operator(
        reverse_subsequences, reverse_subsequences.ReverseSubsequencesDesc
    ),
    OperatorType.SLICE1: Operator(slice, slice.Slice1Desc),
    OperatorType.TOP_K1: Operator(top_k, top_k.TopK1Desc),
}

_BY_CLASS: dict[type, OperatorType] = {row.descriptor: kind for kind, row in OPERATORS.items()}


def operator_type_of(function: str, descriptor: object) -> OperatorType:
    """The operator that a descriptor, an argument of a function, describes.

    Raises TypeError, which lists the types of descriptors, if it is not one.
    """
    kind = _BY_CLASS.get(type(descriptor))
    if kind is None:
        names = ", ".join(row.descriptor.__name__ for row in OPERATORS.values())
        hint = "; cudml.from_dict makes one" * isinstance(descriptor, dict)
        raise TypeError(f"{function}: desc is {a_type(descriptor)}, must be one of cudml's {names}{hint}")
    return kind
