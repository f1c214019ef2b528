"""GRU's rules, each broken by itself, with the exact message; the activations' rules and levels."""

import math
import re
from dataclasses import replace

import pytest

from cudml.enums import DataType, FeatureLevel, OperatorType, RecurrentNetworkDirection, TensorFlags
from cudml.errors import DescriptorError
from cudml.operators.gru.activations import ACTIVATIONS, Activation
from cudml.operators.gru.operator import GruDesc, check, layer_of, plan
from cudml.operators.gru.paths import choose_path
from cudml.plans import KernelLaunch, Limits, MatMul
from cudml.tensors import TensorDesc

F32, F16, U32 = DataType.FLOAT32, DataType.FLOAT16, DataType.UINT32
LATEST = FeatureLevel.LEVEL_6_4
SIGMOID, TANH = Activation.sigmoid(), Activation.tanh()

#: T 5, N 2, I 3, H 4, one direction.
GRU = GruDesc(
    TensorDesc(F32, (1, 5, 2, 3)),
    TensorDesc(F32, (1, 1, 12, 3)),
    TensorDesc(F32, (1, 1, 12, 4)),
    TensorDesc(F32, (1, 1, 1, 24)),
    TensorDesc(F32, (1, 1, 2, 4)),
    TensorDesc(U32, (1, 1, 1, 2)),
    TensorDesc(F32, (5, 1, 2, 4)),
    TensorDesc(F32, (1, 1, 2, 4)),
    (SIGMOID, TANH),
    RecurrentNetworkDirection.FORWARD,
    False,
)

_SIZES = "with T 5, N 2 and I 3 of InputTensor, H 4 of RecurrenceTensor, D 1 of Direction"
_FLOATS = "FLOAT32 or FLOAT16 at feature level 6_4"
_SAME = "FLOAT32, as InputTensor.DataType"
_NAMES = ", ".join(info.name for info in ACTIVATIONS.values())

BROKEN = {
    "no input": ({"input_tensor": None}, "InputTensor is None, must be a cudml.TensorDesc"),
    "an output that is not a tensor": (
        {"output_single_tensor": 3},
        "OutputSingleTensor is 3, must be a cudml.TensorDesc",
    ),
    "another rank": (
        {"bias_tensor": TensorDesc(F32, (1, 1, 24))},
        "BiasTensor.DimensionCount is 3, must be 4 at feature level 6_4",
    ),
    "input's first size": (
        {"input_tensor": TensorDesc(F32, (2, 5, 2, 3))},
        f"InputTensor.Sizes is (2, 5, 2, 3), must be (1, 5, 2, 3), (1, T, N, I) {_SIZES}",
    ),
    "weights' rows": (
        {"weight_tensor": TensorDesc(F32, (1, 1, 8, 3))},
        f"WeightTensor.Sizes is (1, 1, 8, 3), must be (1, 1, 12, 3), (1, D, 3H, I) {_SIZES}",
    ),
    "recurrence's rows": (
        {"recurrence_tensor": TensorDesc(F32, (1, 1, 4, 4))},
        f"RecurrenceTensor.Sizes is (1, 1, 4, 4), must be (1, 1, 12, 4), (1, D, 3H, H) {_SIZES}",
    ),
    "bias of one kind": (
        {"bias_tensor": TensorDesc(F32, (1, 1, 1, 12))},
        f"BiasTensor.Sizes is (1, 1, 1, 12), must be (1, 1, 1, 24), (1, 1, D, 6H) {_SIZES}",
    ),
    "initial states of another batch": (
        {"hidden_init_tensor": TensorDesc(F32, (1, 1, 3, 4))},
        f"HiddenInitTensor.Sizes is (1, 1, 3, 4), must be (1, 1, 2, 4), (1, D, N, H) {_SIZES}",
    ),
    "lengths of the steps": (
        {"sequence_lengths_tensor": TensorDesc(U32, (1, 1, 1, 5))},
        f"SequenceLengthsTensor.Sizes is (1, 1, 1, 5), must be (1, 1, 1, 2), (1, 1, 1, N) {_SIZES}",
    ),
    "sequence without its direction": (
        {"output_sequence_tensor": TensorDesc(F32, (1, 5, 2, 4))},
        f"OutputSequenceTensor.Sizes is (1, 5, 2, 4), must be (5, 1, 2, 4), (T, D, N, H) {_SIZES}",
    ),
    "single with steps": (
        {"output_single_tensor": TensorDesc(F32, (5, 1, 2, 4))},
        f"OutputSingleTensor.Sizes is (5, 1, 2, 4), must be (1, 1, 2, 4), (1, D, N, H) {_SIZES}",
    ),
    "mixed types": (
        {"recurrence_tensor": TensorDesc(F16, (1, 1, 12, 4))},
        f"RecurrenceTensor.DataType is FLOAT16, must be {_SAME}",
    ),
    "mixed types of an output": (
        {"output_single_tensor": TensorDesc(F16, (1, 1, 2, 4))},
        f"OutputSingleTensor.DataType is FLOAT16, must be {_SAME}",
    ),
    "lengths of another type": (
        {"sequence_lengths_tensor": TensorDesc(DataType.INT32, (1, 1, 1, 2))},
        "SequenceLengthsTensor.DataType is INT32, must be UINT32 at feature level 6_4",
    ),
    "owned weights": (
        {"weight_tensor": TensorDesc(F32, (1, 1, 12, 3), None, TensorFlags.OWNED_BY_DML)},
        "WeightTensor.Flags is OWNED_BY_DML, must be NONE: GRU supports OWNED_BY_DML on no input",
    ),
    "owned lengths": (
        {"sequence_lengths_tensor": TensorDesc(U32, (1, 1, 1, 2), None, TensorFlags.OWNED_BY_DML)},
        "SequenceLengthsTensor.Flags is OWNED_BY_DML, must be NONE: GRU supports OWNED_BY_DML on no input",
    ),
    "no output": (
        {"output_sequence_tensor": None, "output_single_tensor": None},
        "OutputSequenceTensor is None, must be given unless OutputSingleTensor is",
    ),
    "overlapping output": (
        {"output_sequence_tensor": TensorDesc(F32, (5, 1, 2, 4), (0, 8, 4, 1))},
        "OutputSequenceTensor.Strides is (0, 8, 4, 1), must be strides that give every element its own "
        "place, because outputs are written",
    ),
    "four activations for one direction": (
        {"activation_descs": (SIGMOID, TANH) * 2},
        "ActivationDescCount is 4, must be 2 for FORWARD: f and g of each direction",
    ),
    "no activations": (
        {"activation_descs": None},
        "ActivationDescs is None, must be a sequence of cudml.Activation",
    ),
    "a name as an activation": (
        {"activation_descs": (SIGMOID, "Tanh")},
        "ActivationDescs[1] is 'Tanh', must be a cudml.Activation",
    ),
    "an operator as an activation": (
        {"activation_descs": (Activation(OperatorType.GRU), TANH)},
        f"ActivationDescs[0].Type is GRU, must be one of {_NAMES}",
    ),
    "too few parameters": (
        {"activation_descs": (Activation(OperatorType.ACTIVATION_HARD_SIGMOID, (0.2,)), TANH)},
        "ActivationDescs[0].parameters is (0.2,), must be 2 numbers (alpha, beta)",
    ),
    "a parameter beyond float32": (
        {"activation_descs": (SIGMOID, Activation.swish(1e300))},
        "ActivationDescs[1].SigmoidInputScale is 1e+300, must be a number that FLOAT32 can hold",
    ),
    "a parameter that is not a number": (
        {"activation_descs": (SIGMOID, Activation.elu("1"))},
        "ActivationDescs[1].Alpha is '1', must be a number that FLOAT32 can hold",
    ),
    "direction is not an enumerator": (
        {"direction": 0},
        "Direction is 0, must be a cudml.RecurrentNetworkDirection: FORWARD, BACKWARD or BIDIRECTIONAL",
    ),
    "linear before reset is a number": (
        {"linear_before_reset": 1},
        "LinearBeforeReset is 1, must be True or False",
    ),
}


def problems(desc: GruDesc, level: FeatureLevel = LATEST) -> list[str]:
    with pytest.raises(DescriptorError) as caught:
        check(desc, level)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("level", FeatureLevel)
def test_valid_at_every_level(level: FeatureLevel) -> None:
    check(GRU, level)


def test_valid_with_the_least() -> None:
    check(
        replace(GRU, bias_tensor=None, hidden_init_tensor=None, sequence_lengths_tensor=None,
                output_sequence_tensor=None), LATEST,
    )  # fmt: skip


@pytest.mark.parametrize("case", BROKEN.values(), ids=BROKEN.keys())
def test_each_broken_rule(case: tuple) -> None:
    change, text = case
    assert problems(replace(GRU, **change)) == [text]


def test_a_type_no_level_allows() -> None:
    tensors = {
        name: replace(getattr(GRU, name), data_type=DataType.INT32)
        for name in vars(GRU)
        if isinstance(getattr(GRU, name), TensorDesc) and name != "sequence_lengths_tensor"
    }
    assert problems(replace(GRU, **tensors)) == [
        f"{name} is INT32, must be {_FLOATS}"
        for name in (
            "InputTensor.DataType", "WeightTensor.DataType", "RecurrenceTensor.DataType",
            "BiasTensor.DataType", "HiddenInitTensor.DataType", "OutputSequenceTensor.DataType",
            "OutputSingleTensor.DataType",
        )
    ]  # fmt: skip


def test_bidirectional_has_two_of_everything() -> None:
    found = problems(replace(GRU, direction=RecurrentNetworkDirection.BIDIRECTIONAL))
    assert found[0] == "ActivationDescCount is 2, must be 4 for BIDIRECTIONAL: f and g of each direction"
    members = [problem.split()[0] for problem in found[1:]]
    assert members == [
        "WeightTensor.Sizes", "RecurrenceTensor.Sizes", "BiasTensor.Sizes", "HiddenInitTensor.Sizes",
        "OutputSequenceTensor.Sizes", "OutputSingleTensor.Sizes",
    ]  # fmt: skip


def test_several_broken_rules_are_reported_at_once() -> None:
    broken = replace(
        GRU,
        weight_tensor=TensorDesc(F16, (1, 1, 12, 3), None, TensorFlags.OWNED_BY_DML),
        activation_descs=(Activation.gelu(), TANH),
        linear_before_reset=None,
    )
    assert problems(broken, FeatureLevel.LEVEL_1_0) == [
        "WeightTensor.Flags is OWNED_BY_DML, must be NONE: GRU supports OWNED_BY_DML on no input",
        "LinearBeforeReset is None, must be True or False",
        "ActivationDescs[0].Type is ACTIVATION_GELU, must be an activation of feature level 1_0 "
        "(ACTIVATION_GELU is allowed from 5_1)",
        "WeightTensor.DataType is FLOAT16, must be FLOAT32, as InputTensor.DataType",
    ]


#: The level from which an activation is legal, if that is not the first.
LEVELS = {
    OperatorType.ACTIVATION_SHRINK: FeatureLevel.LEVEL_2_0,
    OperatorType.ACTIVATION_CELU: FeatureLevel.LEVEL_3_0,
    OperatorType.ACTIVATION_GELU: FeatureLevel.LEVEL_5_1,
    OperatorType.ACTIVATION_SWISH: FeatureLevel.LEVEL_6_2,
    OperatorType.ACTIVATION_HARD_SWISH: FeatureLevel.LEVEL_6_2,
}


@pytest.mark.parametrize("kind", list(ACTIVATIONS), ids=lambda kind: kind.name)
def test_levels_of_activations(kind: OperatorType) -> None:
    activation = Activation(kind, (1.0,) * len(ACTIVATIONS[kind].parameters))
    for level in FeatureLevel:
        desc = replace(GRU, activation_descs=(activation, TANH))
        if level >= LEVELS.get(kind, FeatureLevel.LEVEL_1_0):
            check(desc, level)
        else:
            assert problems(desc, level) == [
                f"ActivationDescs[0].Type is {kind.name}, must be an activation of feature level {level} "
                f"({kind.name} is allowed from {LEVELS[kind]})"
            ]


def test_flat_softplus() -> None:
    desc = replace(GRU, activation_descs=(Activation.softplus(0.5), TANH))
    check(desc, LATEST)
    assert problems(desc, FeatureLevel.LEVEL_6_3) == [
        "ActivationDescs[0].Steepness is 0.5, must be at least 1 at feature level 6_3 "
        "(less is allowed from 6_4)"
    ]


def test_parameters_may_be_special_numbers() -> None:
    for value in (math.inf, math.nan, -0.0, 3):
        check(replace(GRU, activation_descs=(SIGMOID, Activation.leaky_relu(value))), LATEST)


def test_activations_by_name() -> None:
    assert Activation("hardsigmoid", [0.3, 0.4]) == Activation.hard_sigmoid(0.3, 0.4)
    assert Activation("Sigmoid") == Activation.sigmoid()
    assert Activation("hardsigmoid") == Activation.hard_sigmoid(0.2, 0.5)
    assert Activation("TANH") == TANH
    with pytest.raises(ValueError, match=r"^Activation: operator_type is 'Hardmax', must be one of Affine"):
        Activation("Hardmax")


def test_activations_print_as_their_constructors() -> None:
    for info in ACTIVATIONS.values():
        activation = Activation(info.operator_type, info.defaults)
        assert eval(repr(activation), {"Activation": Activation}) == activation


LIMITS = Limits(
    num_multiprocessors=132,
    max_threads_per_block=1024,
    shared_bytes_per_block=232448,
    shared_bytes_per_multiprocessor=233472,
    registers_per_multiprocessor=65536,
    max_threads_per_multiprocessor=2048,
    max_cluster_blocks=8,
    l2_bytes=50 << 20,
    compute_capability=90,
    product_workspace_bytes=32 << 20,
)


def gru_of(
    num_steps: int, batch: int, hidden: int, directions: int = 1, data_type: DataType = F32
) -> GruDesc:
    return GruDesc(
        TensorDesc(data_type, (1, num_steps, batch, 8)),
        TensorDesc(data_type, (1, directions, 3 * hidden, 8)),
        TensorDesc(data_type, (1, directions, 3 * hidden, hidden)),
        None,
        None,
        None,
        TensorDesc(data_type, (num_steps, directions, batch, hidden)),
        None,
        (SIGMOID, TANH) * directions,
        RecurrentNetworkDirection.BIDIRECTIONAL if directions == 2 else RecurrentNetworkDirection.FORWARD,
        True,
    )


@pytest.mark.parametrize("data_type", [F32, F16])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("batch", [1, 3, 64, 1000])
@pytest.mark.parametrize("hidden", [1, 64, 100, 256, 1000, 1024, 4096])
@pytest.mark.parametrize(("multiprocessors", "shared_bytes"), [(1, 65536), (30, 65536), (132, 232448)])
def test_plans_fit_the_device(data_type, directions, batch, hidden, multiprocessors, shared_bytes) -> None:
    """A cooperative grid has no more blocks than multiprocessors, and no block too much storage."""
    limits = replace(LIMITS, num_multiprocessors=multiprocessors, shared_bytes_per_block=shared_bytes)
    launch = plan(gru_of(7, batch, hidden, directions, data_type), limits).steps[-1]
    assert launch.shared_bytes <= shared_bytes
    assert not launch.cooperative or launch.grid[0] <= multiprocessors
    params = {field.name: field.values for field in launch.params.fields}
    (groups,), (group_batch,) = params["num_groups"], params["group_batch"]
    assert (groups - 1) * group_batch < batch <= groups * group_batch


def test_path_follows_the_device() -> None:
    def path(desc: GruDesc, limits: Limits) -> str:
        return plan(desc, limits).steps[-1].function

    assert path(gru_of(7, 1, 64), LIMITS) == "gru_block"
    assert path(gru_of(7, 1, 1024), LIMITS) == "gru_grid"
    # For one multiprocessor, loading the weights takes longer than a few steps.
    assert path(gru_of(2, 1, 96), LIMITS) == "gru_grid"
    assert path(gru_of(1000, 1, 96), LIMITS) == "gru_block"
    assert path(gru_of(7, 8, 1024, data_type=F16), LIMITS) == "gru_matrix_grid"
    assert path(gru_of(7, 1, 1024, 2), replace(LIMITS, num_multiprocessors=3)) == "gru_block"
    assert path(gru_of(7, 1, 1024), replace(LIMITS, warp_lanes=1)) == "gru_serial"


def test_weights_that_do_not_fit_the_chip_are_multiplied_in_every_step() -> None:
    def path(batch: int, hidden: int, data_type: DataType, capability: int = 90) -> str:
        limits = replace(LIMITS, compute_capability=capability)
        return plan(gru_of(256, batch, hidden, data_type=data_type), limits).steps[-1].function

    assert path(128, 2048, F32) == path(128, 1024, F32) == path(128, 1024, F32, 80) == "gru_split_products"
    assert path(128, 2048, F16) == path(128, 1024, F32, 75) == path(128, 1024, F32, 89) == "gru_products"
    # R has too many elements for offsets of 32 bits.
    assert path(1, 65536, F32) == "gru_products"
    assert path(8, 2048, F32) == path(32, 512, F32) == "gru_grid"
    assert path(1, 2048, F16) == path(8, 2048, F16) == path(128, 1024, F16) == "gru_matrix_grid"


@pytest.mark.parametrize(
    ("num_multiprocessors", "capability", "units"), [(132, 90, 16), (40, 90, 32), (40, 80, 32)]
)
def test_split_products_take_the_units_that_suit_the_device(num_multiprocessors, capability, units) -> None:
    limits = replace(LIMITS, num_multiprocessors=num_multiprocessors, compute_capability=capability)
    launch = plan(gru_of(16, 128, 1024), limits, path="split_products").steps[-1]
    assert isinstance(launch, KernelLaunch)
    assert launch.template[-1] == units
    assert launch.grid == (2 * 1024 // units, 1, 1)


@pytest.mark.parametrize(("linear_before_reset", "launches"), [(True, 1), (False, 2)])
def test_split_products_repeat_the_same_objects(linear_before_reset, launches) -> None:
    layer = replace(gru_of(5000, 2, 8, 2), linear_before_reset=linear_before_reset)
    found = plan(layer, LIMITS, path="split_products")
    assert len({id(step) for step in found.steps}) == 2 + launches
    assert len(found.steps) == 2 + 5000 * launches


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize(("linear_before_reset", "products"), [(True, 1), (False, 2)])
def test_steps_by_products_repeat_the_same_objects(linear_before_reset, products, directions) -> None:
    """A plan of thousands of steps stays small, and a device prepares each object only once."""
    layer = replace(gru_of(5000, 2, 8, directions), linear_before_reset=linear_before_reset)
    found = plan(layer, LIMITS, path="products")
    distinct = {id(step) for step in found.steps}
    assert len(distinct) == 2 + products * (directions + 1)
    assert len(found.steps) == 2 + 5000 * products * (directions + 1)


def test_weights_are_copied_where_they_are_read_often() -> None:
    """For few products of a batch, a CPU's threads read the weights as they lie, otherwise from panels."""
    cpu = replace(LIMITS, warp_lanes=1, num_multiprocessors=2)

    def has_panels(num_steps: int, batch: int) -> bool:
        return "recurrence_panels" in plan(gru_of(num_steps, batch, 256), cpu).offsets()

    assert [has_panels(steps, 8) for steps in (1, 3, 4, 20)] == [False, False, True, True]
    assert [has_panels(steps, 16) for steps in (1, 2, 3)] == [False, False, True]


@pytest.mark.parametrize(
    ("desc", "limits", "expected"),
    [
        (gru_of(7, 1, 64), LIMITS, r"block: estimated clocks: block \d+, grid \d+, .*products \d+"),
        (
            gru_of(7, 8, 1024, data_type=F16),
            LIMITS,
            r"matrix_grid: .* block \d+, grid \d+, matrix_grid \d+, .*",
        ),
        (gru_of(8, 1, 64), replace(LIMITS, warp_lanes=1), "panels: 8 products of a batch, 8 or more"),
        (gru_of(1, 1, 64), replace(LIMITS, warp_lanes=1), "serial: 1 products of a batch, fewer than 8"),
    ],
)
def test_choice_prints_its_reason(desc: GruDesc, limits: Limits, expected: str) -> None:
    choice = choose_path(layer_of(desc), limits)
    assert re.fullmatch(expected, repr(choice))
    assert plan(desc, limits) == plan(desc, limits, path=choice.path.name)


@pytest.mark.parametrize("linear_before_reset", [True, False])
def test_one_step_is_one_ordinary_launch(linear_before_reset: bool) -> None:
    """A call per step, as decoders make, costs one launch, without a product or a fill before it."""
    for hidden in (4, 32, 1024):
        layers = (gru_of(num_steps, 1, hidden) for num_steps in (1, 2))
        one, several = (
            plan(replace(layer, linear_before_reset=linear_before_reset), LIMITS) for layer in layers
        )
        (launch,) = one.steps
        assert isinstance(launch, KernelLaunch)
        assert (launch.function, launch.cooperative) == ("gru_step", False)
        assert ("exchange" in several.offsets()) == several.steps[-1].cooperative


def test_one_step_of_many_sequences_multiplies_them_at_once() -> None:
    """`gru_step` reads the weights again for every four sequences: slower than one product for all."""
    assert [plan(gru_of(1, batch, 1024), LIMITS).steps[-1].function for batch in (4, 64)] == [
        "gru_step",
        "gru_split_products",
    ]


def test_one_step_reads_packed_lengths_where_they_are() -> None:
    layer = gru_of(1, 3, 16)
    lengths = TensorDesc(DataType.UINT32, (1, 1, 1, 3))
    assert len(plan(replace(layer, sequence_lengths_tensor=lengths), LIMITS).steps) == 1
    strided = replace(lengths, strides=(6, 6, 6, 2))
    assert len(plan(replace(layer, sequence_lengths_tensor=strided), LIMITS).steps) == 2


@pytest.mark.parametrize(
    ("desc", "recommended", "num_bytes"),
    [
        # 7 x 192 sums of 8 products: two tiles of 128 x 128, with one partial sum for each element.
        (gru_of(7, 1, 64), 32 << 20, 4 * 128 * 256),
        (gru_of(7, 1, 64), 64 << 10, 64 << 10),
        (gru_of(1000, 32, 1024), 32 << 20, 32 << 20),
        (gru_of(1000, 32, 1024), 4 << 20, 4 << 20),
        (gru_of(7, 1, 64), 0, 0),
    ],
)
def test_product_has_a_workspace_of_its_size(desc: GruDesc, recommended: int, num_bytes: int) -> None:
    """At most the bytes that the device recommends; a library that wants none gets none."""
    limits = replace(LIMITS, product_workspace_bytes=recommended)
    found = plan(desc, limits)
    (product,) = [step for step in found.steps if isinstance(step, MatMul) and step.out == "projection"]
    sizes = {space.name: space.num_bytes for space in found.workspaces}
    assert product.workspace_bytes == num_bytes
    assert (product.workspace in sizes) == (num_bytes > 0)
    if num_bytes:
        assert sizes[product.workspace] == num_bytes + 256
        assert f", {num_bytes} bytes of product_workspace" in str(product)


def test_plan_refuses_unknown_and_impossible_paths() -> None:
    names = "block, grid, matrix_grid, step, products, split_products, rounded_products, panels or serial"
    with pytest.raises(ValueError, match=f"path is 'warp', must be {names}"):
        plan(GRU, LIMITS, path="warp")
    refused = "'matrix_grid' cannot compute a GRU of float32 with D 1, T 5, N 2, I 3 and H 4 on this device"
    with pytest.raises(ValueError, match=refused):
        plan(GRU, LIMITS, path="matrix_grid")
    # More items than a grid of the path "products" has threads.
    with pytest.raises(ValueError, match="hidden size 65536 does not fit the 65536 bytes"):
        plan(gru_of(2, 1 << 24, 65536), replace(LIMITS, shared_bytes_per_block=65536))
