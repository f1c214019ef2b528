"""DirectML's enumerations, with the numeric values of `directml.h`."""

from enum import IntEnum, IntFlag


class DataType(IntEnum):
    """`DML_TENSOR_DATA_TYPE`. `UNKNOWN` is never valid in a descriptor."""

    UNKNOWN = 0
    FLOAT32 = 1
    FLOAT16 = 2
    UINT32 = 3
    UINT16 = 4
    UINT8 = 5
    INT32 = 6
    INT16 = 7
    INT8 = 8
    FLOAT64 = 9
    UINT64 = 10
    INT64 = 11
    UINT4 = 12
    INT4 = 13


class TensorFlags(IntFlag):
    """`DML_TENSOR_FLAGS`. An input with `OWNED_BY_DML` is bound at initialization."""

    NONE = 0
    OWNED_BY_DML = 1


class AxisDirection(IntEnum):
    """`DML_AXIS_DIRECTION`: the order of `TOP_K1`'s results."""

    INCREASING = 0
    DECREASING = 1


class RecurrentNetworkDirection(IntEnum):
    """`DML_RECURRENT_NETWORK_DIRECTION`."""

    FORWARD = 0
    BACKWARD = 1
    BIDIRECTIONAL = 2


class ExecutionFlags(IntFlag):
    """`DML_EXECUTION_FLAGS`.

    With ALLOW_HALF_PRECISION_COMPUTATION, a GRU of float32 may round the operands of its products to TF32,
    which has the 10 bits of half precision's mantissa and the range of float32. The others are accepted for
    compatibility, and no operator's result changes by them.
    """

    NONE = 0
    ALLOW_HALF_PRECISION_COMPUTATION = 1
    DISABLE_META_COMMANDS = 2
    DESCRIPTORS_VOLATILE = 4


class FeatureLevel(IntEnum):
    """`DML_FEATURE_LEVEL`: each level is a strict superset of the one before."""

    LEVEL_1_0 = 0x1000
    LEVEL_2_0 = 0x2000
    LEVEL_2_1 = 0x2100
    LEVEL_3_0 = 0x3000
    LEVEL_3_1 = 0x3100
    LEVEL_4_0 = 0x4000
    LEVEL_4_1 = 0x4100
    LEVEL_5_0 = 0x5000
    LEVEL_5_1 = 0x5100
    LEVEL_5_2 = 0x5200
    LEVEL_6_0 = 0x6000
    LEVEL_6_1 = 0x6100
    LEVEL_6_2 = 0x6200
    LEVEL_6_3 = 0x6300
    LEVEL_6_4 = 0x6400

    def __str__(self) -> str:
        return f"{self.value >> 12}_{(self.value >> 8) & 15}"


class OperatorType(IntEnum):
    """`DML_OPERATOR_TYPE` of the operators and fused activations that cudml supports."""

    ACTIVATION_ELU = 35
    ACTIVATION_HARD_SIGMOID = 37
    ACTIVATION_IDENTITY = 38
    ACTIVATION_LEAKY_RELU = 39
    ACTIVATION_LINEAR = 40
    ACTIVATION_PARAMETRIC_SOFTPLUS = 43
    ACTIVATION_RELU = 44
    ACTIVATION_SCALED_ELU = 45
    ACTIVATION_SCALED_TANH = 46
    ACTIVATION_SIGMOID = 47
    ACTIVATION_SOFTPLUS = 49
    ACTIVATION_SOFTSIGN = 50
    ACTIVATION_TANH = 51
    ACTIVATION_THRESHOLDED_RELU = 52
    SLICE = 60
    TOP_K = 71
    GRU = 78
    ACTIVATION_SHRINK = 90
    REVERSE_SUBSEQUENCES = 106
    SLICE1 = 111
    TOP_K1 = 112
    ACTIVATION_CELU = 128
    ACTIVATION_GELU = 157
    ACTIVATION_SWISH = 167
    ACTIVATION_HARD_SWISH = 168
