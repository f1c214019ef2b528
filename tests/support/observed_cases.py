"""Cases of every kernel for the check mode, and the check of a case: five thread orders, by the oracle."""

from dataclasses import replace

import numpy as np

from cudml.devices import emulator
from cudml.dtypes import ExtendedType
from cudml.enums import AxisDirection, DataType, ExecutionFlags, RecurrentNetworkDirection
from cudml.operators.gru.activations import Activation
from tests.support import ORDERS
from tests.support.kernel_cases import (
    CPU,
    GPU,
    Case,
    copy,
    expected,
    gru,
    gru_stack,
    operands_of,
    require_precise,
    reversal,
    run,
    top_k,
)

#: A GPU of the size of an H200, on which clusters are large.
LARGE = replace(GPU, num_multiprocessors=132)
#: Products of float32 may round to TF32.
ALLOWS_TF32 = ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION
#: So few blocks at once that each block takes several rows or tiles.
ONE = replace(GPU, num_multiprocessors=1, max_threads_per_multiprocessor=512)
#: Two blocks for a row: a row of few elements has parts that are long enough for a sample.
TWO = replace(GPU, num_multiprocessors=2)
#: Four blocks, with shared storage for half of the candidates of a row in the case below.
FOUR = replace(GPU, num_multiprocessors=4, shared_bytes_per_block=1 << 16)
#: Enough blocks at once for several of each of two rows.
SIX = replace(GPU, num_multiprocessors=6)
#: Room for two clusters of four blocks.
TEN = replace(GPU, num_multiprocessors=10)
#: Too little shared storage for long lists and for the weights of a layer.
NARROW = replace(GPU, shared_bytes_per_block=16384)

BYTE, HALF, WORD, LONG = DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.UINT64
INT = DataType.INT32
WIDEST = ExtendedType.BITS128
BIDIRECTIONAL = RecurrentNetworkDirection.BIDIRECTIONAL
OTHERS = (Activation.hard_sigmoid(0.2, 0.5), Activation.softsign())
#: About half of the candidates are above 2.
AROUND_2 = (Activation.hard_sigmoid(0.2, 0.5), Activation.linear(0.5, 2.0))

CASES = {
    "thread list": Case(top_k((300, 21), 3), "thread_list"),
    "thread list along columns": Case(top_k((40, 150), 4, HALF, axis=0), "thread_list"),
    "first of short rows": Case(top_k((300, 21), 1), "arg_max", ONE),
    "first of rows by warps": Case(top_k((9, 301), 1, HALF), "arg_max", skew=3),
    "first of columns": Case(top_k((40, 150), 1, BYTE, axis=0), "arg_max"),
    "first of rows by blocks": Case(top_k((3, 9001), 1), "arg_max", ONE, skew=1),
    "first of a row by several blocks": Case(top_k((1, 66_001), 1, LONG), "arg_max"),
    "first of two rows by several blocks": Case(top_k((2, 100_003), 1), "arg_max", SIX),
    "first of rows in ascending order": Case(top_k((2, 9001), 1), "arg_max", content="ascending"),
    "columns by a block": Case(top_k((700, 37), 9, HALF, axis=0), "columns", ONE),
    "columns in ascending order": Case(top_k((3000, 5), 32, axis=0), "columns", content="ascending"),
    "columns of many ties": Case(top_k((700, 17), 20, LONG, axis=0), "columns"),
    "short columns by a block": Case(top_k((30, 20), 20, axis=0), "columns"),
    "columns for a larger k": Case(top_k((900, 20), 50, axis=0), "columns"),
    "columns for the largest k": Case(top_k((1200, 5), 101, HALF, axis=0), "columns", content="ascending"),
    "columns by several blocks": Case(top_k((5000, 5), 7, axis=0), "columns", SIX),
    "few columns by several blocks": Case(top_k((2060, 3), 32, axis=0), "columns", SIX, "any"),
    "first of rows on a CPU": Case(top_k((9, 301), 1, HALF), limits=CPU, skew=3),
    "first of short rows on a CPU": Case(top_k((90, 9), 1, BYTE), limits=CPU),
    "first of long rows on a CPU": Case(top_k((2, 9001), 1, DataType.FLOAT32), limits=CPU, content="any"),
    "first of rows in gaps on a CPU": Case(top_k((40, 7, 30), 1, LONG, axis=0), limits=CPU),
    "first of ascending rows on a CPU": Case(
        top_k((9, 301), 1, HALF), limits=CPU, skew=3, content="ascending"
    ),
    "first of columns on a CPU": Case(top_k((300, 70), 1, BYTE, axis=0), limits=CPU),
    "first of columns behind what a byte numbers on a CPU": Case(
        top_k((300, 70), 1, BYTE, axis=0), limits=CPU, content="steps"
    ),
    "first of ragged columns on a CPU": Case(
        top_k((300, 70), 1, HALF, axis=0, length_type=HALF), limits=CPU
    ),
    "short rows on a CPU": Case(top_k((700, 21), 4), limits=CPU),
    "short rows by warps": Case(top_k((300, 60), 7), "warp_select", ONE),
    "longer rows by warps": Case(top_k((5, 250), 16, LONG), "warp_select"),
    "longest rows by warps": Case(top_k((5, 2001), 32, DataType.FLOAT32), "warp_select"),
    "rows of narrow elements by warps": Case(top_k((5, 8001), 7, BYTE), "warp_select", ONE),
    "rows of a warp's whole storage": Case(top_k((5, 4001), 32, DataType.FLOAT32), "warp_select", ONE, "any"),
    "short rows of many ties": Case(top_k((9, 250), 8), "warp_select"),
    "short rows of many candidates": Case(
        top_k((5, 900), 16, HALF), "warp_select", content="ascending"
    ),
    "short rows of fewer results than the network finds": Case(
        top_k((9, 900), 11, HALF), "warp_select", ONE
    ),
    "short rows of equal candidates": Case(top_k((5, 900), 16, HALF), "warp_select", content="equal"),
    "ragged short rows of many candidates": Case(
        top_k((9, 900), 13, HALF, length_type=INT), "warp_select", ONE
    ),
    "short rows of NaNs": Case(top_k((9, 250), 8, DataType.FLOAT32), "warp_select", content="any"),
    "short rows by columns": Case(top_k((250, 9), 8, HALF, axis=0), "warp_select", ONE),
    "last of short rows": Case(
        replace(top_k((9, 250), 7, DataType.INT16), axis_direction=AxisDirection.INCREASING),
        *("warp_select", ONE),
    ),
    "rows of twelve units to a lane": Case(top_k((9, 1300), 16, BYTE), "warp_select", ONE),
    "rows of 24 units to a lane": Case(top_k((5, 2500), 32), "warp_select", ONE),
    "sorted short rows": Case(top_k((37, 60), 60, HALF), "warp_sort", ONE),
    "sorted longer rows": Case(top_k((3, 900), 600), "warp_sort"),
    "sorted longer rows, in threes": Case(top_k((3, 900), 600, LONG), "warp_sort", content="in threes"),
    "chosen elements of short rows, sorted": Case(top_k((37, 250), 40), "warp_sort", ONE),
    "chosen elements of short rows that tie": Case(top_k((37, 250), 40), "warp_sort", ONE, "equal"),
    "chosen elements of longer rows, sorted": Case(top_k((3, 900), 200, LONG), "warp_sort", ONE, "any"),
    "chosen elements of longer rows, close keys": Case(top_k((3, 900), 200), "warp_sort", ONE, "close"),
    "chosen elements of longer rows, in threes": Case(top_k((3, 900), 200), "warp_sort", ONE, "in threes"),
    "chosen elements of 64 bits, in threes": Case(top_k((3, 900), 100, LONG), "warp_sort", ONE, "in threes"),
    "rows sorted in two parts": Case(top_k((23, 1501), 40), "block_sort", ONE),
    "rows sorted in four parts": Case(top_k((6, 4001), 200, DataType.FLOAT32), "block_sort", ONE, "any"),
    "chosen elements of rows in four parts": Case(top_k((12, 1501), 700), "block_sort", ONE, "any"),
    "chosen elements of long rows": Case(top_k((3, 6001), 300, DataType.FLOAT32), "block_sort", ONE, "any"),
    "chosen elements that tie": Case(top_k((3, 3001), 1024, BYTE), "block_sort", ONE),
    "chosen elements of least rank": Case(top_k((3, 1040), 1024), "block_sort", ONE),
    "chosen elements of ragged rows": Case(top_k((5, 2500), 900, HALF, length_type=INT), "block_sort", ONE),
    "groups of neighbours": Case(top_k((2, 80_000), 50), "groups", SIX, "any", skew=1),
    "groups, many results that tie": Case(top_k((1, 20_003), 300, BYTE), "groups", SIX),
    "groups, ascending": Case(top_k((2, 20_003), 700), "groups", SIX, "ascending"),
    "groups, few results, ascending": Case(top_k((2, 20_003), 50), "groups", SIX, "ascending"),
    "groups, few results that tie": Case(top_k((1, 40_003), 40, BYTE), "groups", SIX),
    "groups, every element a result": Case(top_k((3, 50), 50, LONG), "groups", SIX),
    "groups of ragged rows": Case(top_k((5, 9001), 200, HALF, length_type=INT), "groups", SIX),
    "rows by clusters": Case(top_k((2, 30_000), 200), "cluster", LARGE, "any", skew=1),
    "rows by clusters of four": Case(top_k((2, 30_000), 200), "cluster", TEN, "any", skew=1),
    "rows by clusters of two": Case(top_k((2, 30_000), 200), "cluster", SIX, "any", skew=1),
    "rows by a block each": Case(top_k((3, 30_000), 900), "cluster", ONE, "any", skew=1),
    "rows by a block each, equal elements": Case(top_k((1, 9003), 40, BYTE), "cluster", ONE, "equal"),
    "rows by clusters, many results": Case(top_k((1, 40_003), 1500, HALF), "cluster", SIX, "any"),
    "rows by clusters, many results that tie": Case(top_k((1, 20_003), 300, BYTE), "cluster", LARGE),
    "rows by clusters, few results": Case(top_k((2, 30_000), 20), "cluster", SIX, "any"),
    "rows by clusters, few results, ascending": Case(top_k((2, 20_003), 50), "cluster", LARGE, "ascending"),
    "rows of bytes by clusters, few results": Case(top_k((2, 3000), 20, BYTE), "cluster", LARGE, "any"),
    "rows by a block each, few results": Case(top_k((2, 30_000), 20), "cluster", ONE, "any"),
    "rows by clusters, few keys": Case(top_k((1, 20_003), 1900), "cluster", SIX),
    "rows by a block each, few keys": Case(top_k((1, 20_003), 1900), "cluster", ONE),
    "rows by clusters, equal elements": Case(top_k((1, 20_003), 300), "cluster", SIX, "equal"),
    "rows by clusters, few keys but one": Case(top_k((1, 20_003), 1900), "cluster", SIX, "few but one"),
    "rows by clusters, close keys": Case(top_k((1, 20_003), 1900), "cluster", SIX, "close"),
    "rows by clusters, ascending": Case(top_k((2, 20_003), 700), "cluster", SIX, "ascending"),
    "rows by clusters, every element a result": Case(top_k((3, 50), 50, LONG), "cluster", SIX),
    "ragged rows by clusters": Case(top_k((5, 9001), 200, HALF, length_type=INT), "cluster", LARGE),
    "ragged rows by clusters, few results": Case(top_k((9, 90), 40, HALF, length_type=INT), "cluster", LARGE),
    "kept rows": Case(top_k((3, 9001), 700), "block_keep", ONE, "any", skew=1),
    "kept rows of few keys": Case(top_k((3, 5001), 600, BYTE), "block_keep"),
    "kept rows of any numbers": Case(top_k((3, 3001), 900, DataType.FLOAT32), "block_keep", content="any"),
    "kept rows in ascending order": Case(top_k((1, 8195), 1500, LONG), "block_keep", content="ascending"),
    "kept rows of many ties": Case(top_k((1, 12_001), 1024, DataType.FLOAT32), "block_keep"),
    "kept rows, every element a result": Case(top_k((3, 50), 50, LONG), "block_keep"),
    "kept rows shorter than a load": Case(top_k((5, 1), 1, BYTE), "block_keep"),
    "filtered rows": Case(top_k((3, 9001), 50), "block_filter", ONE),
    "filtered rows in ascending order": Case(top_k((1, 20_003), 20), "block_filter", ONE, "ascending"),
    "filtered wide elements in ascending order": Case(
        top_k((3, 9001), 20, LONG), "block_filter", ONE, "ascending"
    ),
    "filtered rows, every element a result": Case(top_k((3, 50), 50), "block_filter", ONE),
    "filtered rows in descending order": Case(top_k((3, 9001), 20), "block_filter", ONE, "descending"),
    "filtered rows shorter than a load": Case(top_k((5, 1), 1), "block_filter", ONE),
    "filtered rows in ascending order, a block each": Case(
        top_k((16, 9001), 20), "block_filter", ONE, "ascending"
    ),
    "filtered rows of some ties": Case(top_k((9, 161), 150), "block_filter", ONE),
    "filtered rows, many results": Case(top_k((3, 5001), 700), "block_filter", ONE),
    "rows filtered by several blocks": Case(top_k((1, 80_000), 10, BYTE), "block_filter"),
    "long rows on a CPU": Case(top_k((2, 9001), 70, LONG), limits=CPU),
    "rows in ascending order on a CPU": Case(top_k((2, 3000), 20), limits=CPU, content="ascending"),
    "block radix": Case(top_k((3, 5001), 100), "block_radix", ONE),
    "block radix in ascending order": Case(top_k((1, 5001), 20), "block_radix", ONE, "ascending"),
    "block radix, many results": Case(top_k((2, 5000), 1000, LONG), "block_radix"),
    "block radix along columns": Case(top_k((3000, 2), 20, BYTE, axis=0), "block_radix"),
    "block radix through memory": Case(top_k((2, 5000), 3000), "block_radix", NARROW),
    # Bytes have one digit: no barrier of a second digit stands between the list and its shortening.
    "block radix of bytes": Case(top_k((3, 5001), 100, BYTE), "block_radix", ONE),
    "block radix, lists of pairs in memory": Case(top_k((3, 5000), 100), "block_radix", NARROW),
    "long columns on a CPU": Case(top_k((3000, 2), 700, HALF, axis=0), limits=CPU),
    "lists in memory on a CPU": Case(
        top_k((70, 1120), 1120, BYTE), limits=replace(CPU, shared_bytes_per_block=16384)
    ),
    "grid radix": Case(top_k((2, 5001), 50), "grid_radix"),
    "grid radix, many results": Case(top_k((1, 3000), 700, LONG), "grid_radix"),
    "grid radix, many ties": Case(top_k((1, 4500), 200, BYTE), "grid_radix"),
    # Every part of the workspace is used to its end: lists are full, rows many, sequences of full length.
    "grid radix, full lists": Case(top_k((2, 3000), 2500), "grid_radix"),
    "grid radix, floats of every kind": Case(
        top_k((1, 3000), 3000, DataType.FLOAT16), "grid_radix", TWO, "any"
    ),
    "grid radix, lists of several tiles": Case(top_k((1, 10_000), 9000, LONG), "grid_radix", TWO, "any"),
    "grid radix by counting, a full list": Case(top_k((2, 512), 200), "grid_radix"),
    # Rows so long that a sample guesses a floor, which holds, leaves too few, or too many that tie.
    "grid radix, a guess": Case(top_k((1, 33_000), 100), "grid_radix", TWO, "any"),
    "grid radix, a guess of bytes": Case(top_k((1, 140_000), 40, BYTE), "grid_radix", TWO, "any"),
    "grid radix, a guess and many results": Case(
        top_k((1, 66_001), 500, HALF), "grid_radix", TWO, "any", skew=1
    ),
    "grid radix, a guess and more results": Case(top_k((1, 33_000), 280), "grid_radix", TWO, "any"),
    # All candidates are in the last part.
    "grid radix, a guess in ascending order": Case(top_k((1, 75_500), 600), "grid_radix", FOUR, "pairs"),
    "grid radix, an exchange of wide keys": Case(top_k((1, 33_000), 3000, LONG), "grid_radix", TWO, "any"),
    "grid radix, an exchange of few": Case(
        top_k((1, 131_100), 520), "grid_radix", replace(GPU, num_multiprocessors=8), "any"
    ),
    # A block ranks its elements in two parts.
    "grid radix, an exchange of many": Case(
        top_k((1, 66_001), 9000), "grid_radix", replace(TWO, shared_bytes_per_block=1 << 17), "any", skew=1
    ),
    "grid radix, buckets that are too full": Case(
        top_k((1, 66_000), 9000), "grid_radix", FOUR, "close but for some"
    ),
    # All candidates are in the last part, more than a block ranks by counting.
    "grid radix, a guess of short keys in ascending order": Case(
        top_k((1, 131_072), 600, HALF), "grid_radix", FOUR, "pairs"
    ),
    "grid radix, a guess in order": Case(top_k((1, 66_000), 1500, HALF), "grid_radix", TWO, "any"),
    "grid radix, a guess of bytes in order": Case(
        top_k((1, 140_001), 3000, BYTE), "grid_radix", TWO, "any", skew=1
    ),
    "grid radix, a guess that is too high": Case(
        top_k((1, 65_500), 400), "grid_radix", TWO, "in every eighth load"
    ),
    # All candidates are in the last part, and their block has no room for them.
    "grid radix, a guess without room": Case(top_k((1, 66_000), 9000), "grid_radix", FOUR, "ascending"),
    # The floor is the k-th key, or the next one, and ties with more elements than a list holds.
    "grid radix, a guess of few values": Case(top_k((1, 33_000), 300), "grid_radix", TWO),
    "grid radix, a guess below few values": Case(top_k((1, 33_000), 4690), "grid_radix", TWO, "steps"),
    "grid radix, a guess of ties": Case(top_k((1, 33_000), 100), "grid_radix", TWO, "equal"),
    "block radix, full lists": Case(top_k((2, 2000), 1800), "block_radix"),
    "block radix through memory, full lists": Case(top_k((2, 4000), 3500), "block_radix", NARROW),
    "different values filtered by several blocks": Case(
        top_k((1, 80_000), 50), "block_filter", GPU, "any"
    ),
    # The blocks keep too many elements for one merge, so they merge within groups first.
    "rows filtered by groups of blocks": Case(top_k((1, 20_000), 300), "block_filter", SIX, "any"),
    "rows filtered by groups of blocks, many results": Case(top_k((2, 13_000), 700), "block_filter", SIX),
    # Each block, then each group, keeps as many as there is room for.
    "a row of ties filtered by groups of blocks": Case(
        top_k((1, 13_000), 1024), "block_filter", SIX, "equal"
    ),
    "ragged rows filtered by groups of blocks": Case(
        top_k((2, 13_000), 600, HALF, length_type=INT), "block_filter", SIX
    ),
    "ever larger ties filtered by several blocks": Case(
        top_k((1, 98_000), 10, BYTE), "block_filter", GPU, "steps"
    ),
    "rows of ties filtered by several blocks": Case(
        top_k((2, 20_000), 128, BYTE), "block_filter", GPU, "equal"
    ),
    # The blocks of a row sample the loads with the greatest elements.
    "rows filtered again by one of their blocks": Case(
        top_k((2, 192 * 8 * 4), 50), "block_filter", SIX, "in every eighth load"
    ),
    "two rows filtered by several blocks": Case(top_k((2, 80_000), 16, BYTE), "block_filter"),
    "ragged rows by threads": Case(top_k((300, 21), 3, length_type=INT), "thread_list"),
    "first of ragged rows": Case(top_k((300, 21), 1, HALF, length_type=BYTE), "arg_max", ONE),
    "first of ragged rows by several blocks": Case(top_k((2, 100_003), 1, length_type=INT), "arg_max", SIX),
    "ragged columns": Case(top_k((700, 37), 9, HALF, axis=0, length_type=INT), "columns", ONE),
    "ragged columns by several blocks": Case(
        top_k((2060, 3), 32, axis=0, length_type=INT), "columns", SIX, "any"
    ),
    "ragged short rows": Case(top_k((300, 60), 20, length_type=BYTE), "warp_select", ONE),
    "ragged rows of whole vectors": Case(top_k((90, 64), 7, BYTE, length_type=HALF), "warp_select", ONE),
    "ragged short rows by columns": Case(
        top_k((60, 40), 8, HALF, axis=0, length_type=INT), "warp_select", ONE
    ),
    "ragged rows, sorted": Case(top_k((37, 60), 60, HALF, length_type=BYTE), "warp_sort", ONE),
    "ragged rows, chosen and sorted": Case(top_k((37, 250), 40, length_type=BYTE), "warp_sort", ONE),
    "ragged rows, sorted in parts": Case(top_k((7, 2500), 90, HALF, length_type=INT), "block_sort", ONE),
    "ragged rows, filtered": Case(top_k((5, 9001), 50, length_type=INT), "block_filter", ONE),
    "ragged rows with few elements, filtered": Case(
        top_k((9, 100), 90, length_type=INT), "block_filter", ONE
    ),
    "ragged rows with few elements, by groups of neighbours": Case(
        top_k((9, 100), 90, length_type=INT), "groups", ONE
    ),
    "ragged rows filtered by several blocks": Case(
        top_k((2, 80_000), 16, BYTE, length_type=LONG), "block_filter"
    ),
    "ragged rows, block radix": Case(top_k((9, 5001), 100, length_type=INT), "block_radix", ONE),
    "ragged rows with few elements, block radix": Case(
        top_k((9, 2100), 2000, LONG, length_type=HALF), "block_radix", ONE
    ),
    "ragged rows, grid radix": Case(top_k((4, 5001), 50, length_type=INT), "grid_radix"),
    "ragged rows with few elements, grid radix": Case(top_k((4, 3000), 2900, length_type=INT), "grid_radix"),
    "ragged rows on a CPU": Case(top_k((40, 900), 70, length_type=HALF), limits=CPU),
    "ragged columns on a CPU": Case(top_k((90, 40), 60, HALF, axis=0, length_type=BYTE), limits=CPU),
    "results with gaps": Case(top_k((37, 60), 7, value_pad=2, index_pad=3), "warp_select"),
    "results with gaps of columns": Case(
        top_k((40, 150), 3, HALF, axis=0, value_pad=2, index_pad=3), "thread_list"
    ),
    "gru in a block": Case(gru(3, 3, 2, 40), "block"),
    "gru in a block, weights in memory": Case(
        gru(2, 2, 1, 150, data_type=DataType.FLOAT16, activations=OTHERS, linear_before_reset=False),
        "block",
        NARROW,
    ),
    "gru in a block, both directions": Case(
        gru(3, 5, 1, 20, direction=BIDIRECTIONAL, linear_before_reset=False), "block", ONE
    ),
    "gru in a block, lengths of 64 bits": Case(gru(3, 130, 1, 2, length_type=DataType.INT64), "block"),
    "gru on a grid": Case(gru(3, 3, 2, 40), "grid"),
    "gru on a grid, weights in memory": Case(
        gru(2, 2, 1, 300, data_type=DataType.FLOAT16, activations=OTHERS, linear_before_reset=False),
        "grid",
        replace(NARROW, num_multiprocessors=2),
    ),
    "gru on a grid, both directions": Case(
        gru(3, 5, 1, 20, direction=BIDIRECTIONAL, linear_before_reset=False), "grid"
    ),
    "gru on a grid, several rounds": Case(
        gru(3, 9, 2, 40), "grid", replace(NARROW, num_multiprocessors=5)
    ),
    "gru on a grid, several rounds, reset first": Case(
        gru(2, 9, 2, 40, linear_before_reset=False, activations=OTHERS),
        "grid",
        replace(NARROW, num_multiprocessors=5),
    ),
    "gru of bfloat16": Case(gru(3, 3, 2, 40, data_type=ExtendedType.BFLOAT16), "matrix_grid"),
    "gru by matrix instructions": Case(gru(3, 3, 2, 40, data_type=DataType.FLOAT16), "matrix_grid"),
    "gru by matrix instructions, weights in memory": Case(
        gru(1, 1, 1, 1026, data_type=DataType.FLOAT16),
        "matrix_grid",
        replace(GPU, num_multiprocessors=65, shared_bytes_per_block=36864),
        length=1,
    ),
    "gru by matrix instructions, chunks by turns": Case(
        gru(1, 1, 1, 1000, data_type=DataType.FLOAT16),
        "matrix_grid",
        replace(GPU, num_multiprocessors=32),
        length=1,
    ),
    "gru by matrix instructions, states above 2": Case(
        gru(3, 9, 1, 40, data_type=DataType.FLOAT16, activations=AROUND_2), "matrix_grid"
    ),
    "gru by matrix instructions, many sequences": Case(
        gru(3, 27, 1, 20, data_type=DataType.FLOAT16), "matrix_grid", TWO
    ),
    "gru by matrix instructions, many sequences, reset first": Case(
        gru(2, 27, 1, 20, data_type=DataType.FLOAT16, activations=OTHERS, linear_before_reset=False),
        "matrix_grid",
        TWO,
    ),
    "gru on a grid, several blocks a sequence": Case(gru(4, 1, 2, 130), "grid", LARGE, length=4),
    "gru on a grid, several blocks a sequence, reset first": Case(
        gru(3, 1, 2, 130, linear_before_reset=False), "grid", LARGE, length=3
    ),
    "gru on a grid, full sequences": Case(
        gru(3, 3, 2, 40, linear_before_reset=False, pads=(1, 2, 3)), "grid", length=3
    ),
    "gru by matrix instructions, full sequences": Case(
        gru(3, 3, 2, 40, data_type=DataType.FLOAT16, pads=(1, 2, 3)), "matrix_grid", length=3
    ),
    "gru on a grid, fixed items": Case(gru(4, 3, 2, 21), "grid"),
    "gru on a grid, fixed items, reset first": Case(
        gru(4, 3, 2, 12, linear_before_reset=False, activations=OTHERS, direction=BIDIRECTIONAL), "grid"
    ),
    "gru by matrix instructions, reset first": Case(
        gru(4, 3, 2, 42, data_type=DataType.FLOAT16, linear_before_reset=False), "matrix_grid"
    ),
    "gru in a block, fixed items, reset first": Case(gru(3, 3, 2, 40, linear_before_reset=False), "block"),
    "gru in a block, four chunks": Case(gru(3, 3, 2, 100), "block"),
    "gru in a block, several sequences": Case(gru(2, 9, 2, 136, pads=(1, 2, 3)), "block", length=2),
    "gru in a block, one step": Case(gru(3, 4, 2, 40), "block", length=1),
    "gru in a block, no steps": Case(gru(3, 4, 2, 40), "block", length=0),
    "gru, a wave of two layers": Case(gru_stack(2, 4, 3, 5, 21), limits=LARGE),
    "gru, a wave of three layers, reset first": Case(
        gru_stack(3, 3, 2, 3, 12, linear_before_reset=False, activations=OTHERS), limits=LARGE
    ),
    "gru, a wave of four layers of halves": Case(
        gru_stack(4, 3, 2, 3, 9, data_type=DataType.FLOAT16), limits=LARGE
    ),
    "gru, a wave, full sequences": Case(
        gru_stack(2, 3, 2, 2, 40, pads=(1, 2, 3)), limits=LARGE, length=3
    ),
    "gru, a wave of groups, backward": Case(
        gru_stack(2, 3, 33, 3, 6, input_pad=1, direction=RecurrentNetworkDirection.BACKWARD), limits=LARGE
    ),
    "gru, a wave, weights in shared storage": Case(
        gru_stack(2, 2, 1, 3, 520, data_type=DataType.FLOAT16, linear_before_reset=False), limits=LARGE
    ),
    "gru, a wave of wide threads, reset first": Case(
        gru_stack(2, 3, 3, 3, 40, linear_before_reset=False), limits=SIX
    ),
    "gru, a wave of wide threads, weights in shared storage": Case(
        gru_stack(2, 3, 3, 3, 260, data_type=DataType.FLOAT16), limits=replace(GPU, num_multiprocessors=34)
    ),
    "gru by products": Case(gru(3, 3, 2, 300, pads=(1, 2, 3)), "products"),
    "gru by products, reset first": Case(
        gru(
            3, 3, 2, 20, data_type=DataType.FLOAT16, activations=OTHERS, linear_before_reset=False,
            direction=BIDIRECTIONAL,
        ),
        "products",
    ),
    "gru by split products": Case(gru(2, 3, 2, 196, pads=(1, 2, 3)), "split_products"),
    "gru by split products, reset first": Case(
        gru(3, 66, 2, 20, activations=OTHERS, linear_before_reset=False, direction=BIDIRECTIONAL),
        "split_products",
    ),
    "gru by split products, wide blocks": Case(
        gru(2, 3, 2, 150, pads=(1, 2, 3)), "split_products", limits=ONE
    ),
    "gru by rounded products": Case(
        gru(2, 3, 2, 260, pads=(1, 2, 3)), "rounded_products", flags=ALLOWS_TF32
    ),
    "gru by rounded products, reset first": Case(
        gru(3, 66, 2, 20, activations=OTHERS, linear_before_reset=False, direction=BIDIRECTIONAL),
        "rounded_products",
        flags=ALLOWS_TF32,
    ),
    "gru by rounded products, wide blocks": Case(
        gru(2, 3, 2, 150, pads=(1, 2, 3)), "rounded_products", limits=ONE, flags=ALLOWS_TF32
    ),
    "gru, a single step": Case(gru(1, 1, 130, 9), "step", length=1),
    "gru, a single step of several sequences": Case(
        gru(1, 6, 7, 10, direction=BIDIRECTIONAL, pads=(1, 2, 3)), "step", length=1
    ),
    "gru, a single step, reset first": Case(gru(1, 1, 4, 300, linear_before_reset=False), "step", length=1),
    "gru, a single step of several sequences, reset first": Case(
        gru(1, 5, 9, 10, linear_before_reset=False, activations=OTHERS, direction=BIDIRECTIONAL),
        "step",
        length=1,
    ),
    "gru, a single step of halves, reset first": Case(
        gru(1, 2, 12, 20, data_type=DataType.FLOAT16, linear_before_reset=False), "step", length=1
    ),
    "gru on a CPU, reset first, full sequences": Case(
        gru(3, 8, 2, 9, linear_before_reset=False), "serial", CPU, length=3
    ),
    "gru in a block, full sequences": Case(gru(3, 4, 2, 40, pads=(1, 2, 3)), "block", length=3),
    "gru in a block, strided tensors": Case(gru(2, 3, 5, 20, input_pad=1), "block"),
    "gru on a CPU, strided tensors": Case(gru(2, 3, 5, 20, input_pad=1), "panels", CPU),
    "gru on a CPU, one step": Case(gru(1, 3, 2, 9, pads=(1, 2, 3)), "serial", CPU, length=1),
    "gru on a CPU, full sequences": Case(gru(3, 17, 2, 9, pads=(1, 2, 3)), "panels", CPU, length=3),
    "gru on a CPU, a whole panel": Case(gru(2, 5, 17, 33, linear_before_reset=False), "panels", CPU),
    "gru on a CPU, copied weights": Case(gru(7, 7, 17, 33), "panels", CPU),
    "gru on a CPU, few steps": Case(gru(2, 7, 3, 33, linear_before_reset=False), "serial", CPU),
    "gru on a CPU, whole tiles": Case(gru(2, 2, 3, 32), "serial", CPU),
    "gru on a CPU, lengths of 8 bits": Case(gru(3, 3, 2, 9, length_type=DataType.INT8), "serial", CPU),
    "gru on a CPU": Case(gru(3, 3, 2, 20, direction=BIDIRECTIONAL), "panels", CPU),
    "gru on a CPU, reset first": Case(
        gru(2, 9, 1, 9, data_type=DataType.FLOAT16, activations=OTHERS, linear_before_reset=False),
        "serial",
        CPU,
    ),
    "long strided rows on a CPU": Case(copy((2, 100_000), HALF, (1, 3), out_pad=1), limits=CPU),
    "scattered halves on a CPU": Case(copy((40, 40, 20), HALF, (2, -3, 9)), limits=CPU),
    "adjacent words on a CPU": Case(copy((40, 40), WORD, (1, 1), offsets=(0, 3)), limits=CPU),
    "adjacent bytes": Case(copy((5000,), BYTE, (1,), offsets=(3,)), "runs", ONE),
    "one byte": Case(copy((3,), BYTE, (1,), offsets=(2,))),
    "rows of bytes": Case(copy((70, 61), BYTE, (1, 1), offsets=(0, 7), out_pad=1), limits=ONE),
    "mirrored rows": Case(copy((9, 333), HALF, (1, -1), out_pad=1), "runs", ONE),
    "transposed bytes": Case(copy((130, 70), BYTE, (1, -1), strides=(1, 133)), "transpose", limits=ONE),
    "transposed halves in words": Case(copy((260, 72), HALF, (1, -1), strides=(1, 264)), "transpose", ONE),
    "mirrored halves, transposed in words": Case(
        copy((260, 72), HALF, (-1, 1), strides=(1, 264)), "transpose"
    ),
    "more transposed tiles than blocks": Case(
        copy((400, 300), WORD, (1, 1), strides=(1, 401)), "transpose", ONE
    ),
    "transposed wide items": Case(copy((40, 35), WIDEST, (1, 1), strides=(1, 40)), "transpose", ONE),
    "transposed words between gaps": Case(
        copy((66, 70), WORD, (1, 1), strides=(1, 69), out_pad=3), "transpose"
    ),
    "bytes of pixels": Case(
        copy((3, 3, 700), BYTE, (1, -1, 1), offsets=(0, 1, 0), strides=(2801, 1, 4)), "planes", ONE, skew=3
    ),
    "aligned bytes of pixels": Case(copy((2, 3, 96), BYTE, (1, 1, 1), strides=(288, 1, 3)), "planes"),
    "bytes of pixels up to the end": Case(
        copy((2, 3, 96), BYTE, (1, 1, 1), strides=(288, 1, 3)), "planes", skew=1
    ),
    "halves of planes": Case(
        copy((3, 301, 3), HALF, (1, 1, 1), strides=(1000, 1, 320), out_pad=0), "planes", ONE, skew=1
    ),
    "more lines of planes than lanes": Case(
        copy((2200, 20, 2), BYTE, (1, 1, 1), strides=(41, 1, 20)), "planes", ONE
    ),
    "bytes by several blocks": Case(copy((70_001,), BYTE, (1,), offsets=(3,)), "runs", skew=5),
    "rows of bytes by several blocks": Case(
        copy((70, 601), BYTE, (1, 1), offsets=(0, 7), out_pad=1), "runs"
    ),
    "scattered halves": Case(copy((60, 40, 20), HALF, (2, -3, 9)), limits=ONE),
    "scattered wide items": Case(copy((50, 50), WIDEST, (2, -3)), limits=ONE),
    "lanes": Case(reversal((20, 300), WORD, 1), "lanes", limits=ONE),
    "lanes of bytes at odd places": Case(
        reversal((9, 301), BYTE, 1, pad=1, length_type=LONG), "lanes", limits=ONE
    ),
    "rows of one length": Case(
        reversal((3, 20, 150), WORD, 1, one_length_a_row=True), "rows", limits=ONE
    ),
    "columns": Case(reversal((4, 30, 70), WORD, 1), "columns", limits=ONE),
    "narrow columns": Case(reversal((3000, 3), HALF, 0), limits=ONE),
    "columns of bytes, words at odd places": Case(reversal((30, 70), BYTE, 0, pad=3), limits=ONE),
    "columns of bytes in words": Case(reversal((40, 128), BYTE, 0, pad=4, length_type=BYTE), limits=ONE),
    "short lanes": Case(reversal((3000, 7), HALF, 1), limits=ONE),
    "short lanes of wide items": Case(reversal((300, 7), WIDEST, 1), limits=ONE),
    "small boxes": Case(reversal((300, 5, 7), BYTE, 1), "boxes", ONE),
    "short lanes between gaps": Case(reversal((300, 7), HALF, 1, pad=1), limits=ONE),
    "lanes between different gaps": Case(reversal((20, 300), HALF, 1, pad=1, out_pad=5), "lanes"),
    "columns between different gaps": Case(reversal((30, 70), HALF, 0, pad=2, out_pad=7)),
    "short lanes between different gaps": Case(reversal((300, 7), HALF, 1, pad=1, out_pad=2), "gather"),
    "more short lanes than blocks have": Case(reversal((40_000, 7), HALF, 1), limits=ONE),
    "short lanes of bytes at odd places": Case(reversal((2001, 7), BYTE, 1), skew=3),
    "short lanes by several blocks": Case(reversal((3001, 7), BYTE, 1)),
    "columns of bytes by several blocks": Case(reversal((30, 700), BYTE, 0, out_pad=1)),
    "lanes on a CPU between different gaps": Case(reversal((20, 300), HALF, 1, pad=1, out_pad=5), limits=CPU),
    "lanes on a CPU": Case(reversal((20, 300), HALF, 1), limits=CPU),
    "columns on a CPU": Case(reversal((4, 30, 70), WORD, 1), limits=CPU),
    "short columns on a CPU": Case(reversal((2, 45, 70), HALF, 1, length_type=LONG), limits=CPU),
}  # fmt: skip


def check(case: Case, rng: np.random.Generator) -> None:
    """Raise KernelError where anything is reported, AssertionError where results are wrong or differ."""
    operands = operands_of(case, rng)
    results = None if case.operator == "gru" else expected(case, operands)
    for order, seed in ORDERS:
        with emulator.schedule(order, seed, check=True):
            got = run(case, operands)
        if results is None:
            require_precise(case, operands)
            results = got
        assert got == results, (order, seed)
    assert run(case, operands) == results, "unobserved"
