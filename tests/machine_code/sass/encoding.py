"""What Python hands to the machine, laid out as in its C++ (`machine/`)."""

import ctypes
from enum import IntEnum

MAX_OPERANDS = 8
TRUE_PREDICATE = 7
NO_SCOREBOARD = 7

Kind = IntEnum(
    "Kind",
    "NONE REGISTER UNIFORM PREDICATE UNIFORM_PREDICATE IMMEDIATE CONSTANT ADDRESS SPECIAL BARRIER TARGET "
    "PREDICATES",
    start=0,
)
Part = IntEnum("Part", "WHOLE LOW HIGH BYTE0 BYTE1 BYTE2 BYTE3 WIDE UNSIGNED TIMES4 TIMES8 TIMES16", start=0)
NEGATED, INVERTED, ABSOLUTE = 1, 2, 4
PIPES = (
    *("alu", "fma", "heavy", "half", "double", "tensor", "special", "memory", "shared", "reduction"),
    *("uniform", "branch"),
)


class Operand(ctypes.Structure):
    """A register, predicate, immediate, constant, address or target."""

    _fields_ = (
        ("kind", ctypes.c_uint8),
        ("flags", ctypes.c_uint8),
        ("part", ctypes.c_uint8),
        ("bank", ctypes.c_uint8),
        ("index", ctypes.c_int16),
        ("uniform", ctypes.c_int16),
        ("value", ctypes.c_uint64),
    )


class Instruction(ctypes.Structure):
    """An instruction of the table with its operands, guard and place in the compiler's schedule."""

    _fields_ = (
        ("entry", ctypes.c_uint16),
        ("num_operands", ctypes.c_uint8),
        ("guard", ctypes.c_uint8),
        ("guard_negated", ctypes.c_uint8),
        ("guard_uniform", ctypes.c_uint8),
        ("stall", ctypes.c_uint8),
        ("write_scoreboard", ctypes.c_uint8),
        ("read_scoreboard", ctypes.c_uint8),
        ("wait_mask", ctypes.c_uint8),
        ("reserved", ctypes.c_uint8 * 6),
        ("suffixes", ctypes.c_uint64 * 2),
        ("operands", Operand * MAX_OPERANDS),
    )


class Range(ctypes.Structure):
    """A buffer of global memory."""

    _fields_ = (
        ("begin", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
        ("written", ctypes.c_void_p),
        ("page_filled", ctypes.c_void_p),
    )


class Launch(ctypes.Structure):
    """Sizes of a launch, and its constant banks."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("cluster_blocks", ctypes.c_uint32),
        ("shared_bytes", ctypes.c_uint32),
        ("constants", ctypes.c_char_p * 8),
        ("constant_bytes", ctypes.c_uint32 * 8),
    )


class Rates(ctypes.Structure):
    """What instructions and accesses cost, in clocks."""

    _fields_ = (
        ("pipe_clocks", ctypes.c_double * len(PIPES)),
        ("latency", ctypes.c_double * len(PIPES)),
        ("sectors_per_clock", ctypes.c_double),
        ("cache_latency", ctypes.c_double),
        ("l2_latency", ctypes.c_double),
        ("memory_latency", ctypes.c_double),
        ("l2_clocks_per_sector", ctypes.c_double),
        ("memory_clocks_per_sector", ctypes.c_double),
        ("barrier_clocks_per_warp", ctypes.c_double),
        ("barrier_latency", ctypes.c_double),
        ("cluster_barrier_latency", ctypes.c_double),
        ("block_clocks", ctypes.c_double),
        ("cache_sectors", ctypes.c_uint64),
        ("l2_sectors", ctypes.c_uint64),
    )


class Totals(ctypes.Structure):
    """What a run counted."""

    _fields_ = (
        ("clocks", ctypes.c_uint64),
        ("instructions", ctypes.c_uint64),
        ("lanes", ctypes.c_uint64),
        ("pipe_instructions", ctypes.c_uint64 * len(PIPES)),
        ("sectors_loaded", ctypes.c_uint64),
        ("sectors_stored", ctypes.c_uint64),
        ("l2_sectors_loaded", ctypes.c_uint64),
        ("l2_sectors_stored", ctypes.c_uint64),
        ("memory_sectors_loaded", ctypes.c_uint64),
        ("memory_sectors_stored", ctypes.c_uint64),
        ("bytes_loaded", ctypes.c_uint64),
        ("bytes_stored", ctypes.c_uint64),
        ("wavefronts", ctypes.c_uint64),
        ("barriers", ctypes.c_uint64),
    )


class Request(ctypes.Structure):
    """A launch to run, and where its results go."""

    _fields_ = (
        ("code", ctypes.POINTER(Instruction)),
        ("texts", ctypes.POINTER(ctypes.c_char_p)),
        ("num_instructions", ctypes.c_uint32),
        ("launch", Launch),
        ("ranges", ctypes.POINTER(Range)),
        ("num_ranges", ctypes.c_uint32),
        ("blocks", ctypes.POINTER(ctypes.c_uint32)),
        ("num_blocks", ctypes.c_uint32),
        ("num_multiprocessors", ctypes.c_uint32),
        ("resident_blocks", ctypes.c_uint32),
        ("max_instructions", ctypes.c_uint64),
        ("rates", ctypes.POINTER(Rates)),
        ("executed", ctypes.POINTER(ctypes.c_uint64)),
        ("lanes", ctypes.POINTER(ctypes.c_uint64)),
        ("totals", ctypes.POINTER(Totals)),
        ("error", ctypes.c_char_p),
        ("error_bytes", ctypes.c_uint32),
    )


#: In the order in which the machine says their sizes.
STRUCTURES = (Operand, Instruction, Range, Launch, Rates, Totals, Request)
