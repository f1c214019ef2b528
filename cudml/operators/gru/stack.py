"""Stacks of GRU layers, each of which takes the states of the layer before it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cudml.enums import RecurrentNetworkDirection
from cudml.operators.gru.activations import Activation
from cudml.operators.gru.operator import GruDesc
from cudml.tensors import TensorDesc

#: The tensors that each layer has of its own.
LAYER_MEMBERS = ("weight_tensor", "recurrence_tensor", "bias_tensor")


def member_of(layer: int, member: str) -> str:
    """The name of a layer's own tensor among those of a stack."""
    return f"layers[{layer}].{member}"


@dataclass(frozen=True)
class StackDesc:
    """Layers of the same hidden size, directions and activations.

    Attributes
    ----------
    tensors : tuple of (str, TensorDesc)
        By member, in the order of a call. Those of the whole stack are called as in `GruDesc`: of the states
        before the first step and after the last, (1, L * D, N, H), layers have D rows each; the sequence is
        the last layer's. A layer's own ones are called as `member_of` does.
    activation_descs, direction, linear_before_reset
        As in `GruDesc`, for every layer.
    """

    tensors: tuple[tuple[str, TensorDesc], ...]
    activation_descs: tuple[Activation, ...]
    direction: RecurrentNetworkDirection
    linear_before_reset: bool

    @classmethod
    def of_members(cls, members: Mapping[str, Any]) -> "StackDesc":
        """The stack with these tensors and attributes."""
        tensors = tuple((name, one) for name, one in members.items() if isinstance(one, TensorDesc))
        names = ("activation_descs", "direction", "linear_before_reset")
        return cls(tensors, *(members[name] for name in names))

    @property
    def layers(self) -> tuple[GruDesc, ...]:
        """The layers. Between two of them, states lie one direction after the other, as inputs do."""
        by_name = dict(self.tensors)
        given = by_name["input_tensor"]
        kind = given.data_type
        _, steps, batch, _ = given.sizes
        hidden = by_name[member_of(0, "recurrence_tensor")].sizes[3]
        directions = 2 if self.direction == RecurrentNetworkDirection.BIDIRECTIONAL else 1
        row = directions * hidden
        passed = TensorDesc(kind, (steps, directions, batch, hidden), (batch * row, hidden, row, 1))
        num_layers = by_name["output_single_tensor"].sizes[1] // directions

        def rows(member: str) -> TensorDesc | None:
            """A layer's part of the states of all layers."""
            whole = by_name.get(member)
            return None if whole is None else TensorDesc(kind, (1, directions, batch, hidden), whole.strides)

        return tuple(
            GruDesc(
                given if number == 0 else TensorDesc(kind, (1, steps, batch, row)),
                by_name[member_of(number, "weight_tensor")],
                by_name[member_of(number, "recurrence_tensor")],
                by_name.get(member_of(number, "bias_tensor")),
                rows("hidden_init_tensor"),
                by_name.get("sequence_lengths_tensor"),
                by_name["output_sequence_tensor"] if number == num_layers - 1 else passed,
                rows("output_single_tensor"),
                self.activation_descs,
                self.direction,
                self.linear_before_reset,
            )
            for number in range(num_layers)
        )
