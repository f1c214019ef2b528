"""Operators, and the table of them.

An operator X has a folder: `X/operator.py` is the descriptor, the support table, the check and the plan,
`X/paths.py` the ways to compute it and the choice between them.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from cudml.enums import ExecutionFlags, FeatureLevel, OperatorType
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
    """An operator and its class of descriptors; `room` names its folder, here and elsewhere."""

    descriptor: type[Descriptor]
    room: ClassVar[str]

    @staticmethod
    def check(desc: Any, level: FeatureLevel) -> None:
        """Raise `DescriptorError` with every rule of the level that the descriptor breaks."""
        raise NotImplementedError

    @staticmethod
    def plan(desc: Any, limits: Limits, *options: Any, **others: Any) -> Plan:
        """The plan of a valid descriptor."""
        raise NotImplementedError

    @staticmethod
    def plan_options(flags: ExecutionFlags) -> tuple[Any, ...]:
        """The options of `plan` for execution flags; most plans depend on none."""
        return ()


class _Slice(Operator):
    room = "slice"
    check, plan = staticmethod(slice.check), staticmethod(slice.plan)


class _TopK(Operator):
    room = "top_k"
    check, plan = staticmethod(top_k.check), staticmethod(top_k.plan)


class _Gru(Operator):
    room = "gru"
    check, plan = staticmethod(gru.check), staticmethod(gru.plan)

    @staticmethod
    def plan_options(flags: ExecutionFlags) -> tuple[Any, ...]:
        return math.inf, False, flags


class _ReverseSubsequences(Operator):
    room = "reverse_subsequences"
    check, plan = staticmethod(reverse_subsequences.check), staticmethod(reverse_subsequences.plan)


#: One line per operator.
OPERATORS: dict[OperatorType, Operator] = {
    OperatorType.SLICE: _Slice(slice.SliceDesc),
    OperatorType.TOP_K: _TopK(top_k.TopKDesc),
    OperatorType.GRU: _Gru(gru.GruDesc),
    OperatorType.REVERSE_SUBSEQUENCES: _ReverseSubsequences(reverse_subsequences.ReverseSubsequencesDesc),
    OperatorType.SLICE1: _Slice(slice.Slice1Desc),
    OperatorType.TOP_K1: _TopK(top_k.TopK1Desc),
}

_BY_CLASS: dict[type, OperatorType] = {row.descriptor: kind for kind, row in OPERATORS.items()}


def operator_type_of(function: str, descriptor: object) -> OperatorType:
    """The operator that an argument of a function, a descriptor, describes.

    Raises TypeError, which lists the types of descriptors, if the argument has none of them.
    """
    kind = _BY_CLASS.get(type(descriptor))
    if kind is None:
        names = ", ".join(row.descriptor.__name__ for row in OPERATORS.values())
        hint = "; cudml.from_dict makes one" * isinstance(descriptor, dict)
        raise TypeError(f"{function}: desc is {a_type(descriptor)}, must be one of cudml's {names}{hint}")
    return kind
