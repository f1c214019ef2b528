"""How often top-k reads its input, on rows of 64 tiles and more and on data of several kinds: as recorded.

`tests/operators/test_traffic.py` has exact numbers for short rows, whose filters have hardly begun.
"""

from dataclasses import replace

import numpy as np
import pytest

import cudml
from bench import traffic
from bench.traffic import RANDOM, Case
from cudml.devices import emulator
from cudml.operators.top_k.rows import BY_DIGITS
from cudml.plans import round_up
from tests.support.top_k_runs import launches, plan_for

RECORDED = traffic.read()


@pytest.mark.parametrize("case", [*traffic.cases()], ids=str)
def test_reads_are_those_of_the_table(case: Case) -> None:
    assert traffic.difference(case, case.reads(), RECORDED) is None


def test_table_has_every_case() -> None:
    assert [*RECORDED] == [*traffic.cases()]


def test_differences_are_reported() -> None:
    case, reads = next(iter(RECORDED.items()))
    assert traffic.difference(case, reads + 0.004, RECORDED) is None
    assert "renew the table" in str(traffic.difference(case, reads + 0.006, RECORDED))
    assert "not in top_k_traffic.csv" in str(traffic.difference(replace(case, k=2), reads, RECORDED))


def streaming() -> list[Case]:
    """Cases that read their input once; only a sample and the results are read again."""
    return [case for case in RECORDED if not case.path.endswith("_radix")]


@pytest.mark.parametrize("case", streaming(), ids=str)
def test_streaming_paths_read_once(case: Case) -> None:
    """Where a guess from a sample fails, the row is filtered again without one."""
    assert RECORDED[case] <= most_reads(case) + case.k / case.row_length


def most_reads(case: Case) -> float:
    if case.path == "groups" and case.distribution not in RANDOM:
        return 1 + 3 * part_looked_at_again(case)
    if case.distribution == "greatest where sampled":
        # Eight blocks sample an eighth of a short row, and the last block samples a tile.
        return 2.05 if case.multiprocessors == 1 else 2 + 1 / 8 + 1 / 12
    # The filter's sample is of the whole row, so the order of elements makes no difference to it.
    if case.path == "block_filter" or (case.distribution in RANDOM and case.k <= 512):
        return 1.05
    return 1.2


def part_looked_at_again(case: Case) -> float:
    """The largest part of a row in groups that are read again: once, or three times if the list is cut."""
    (launch,) = launches(plan_for(case.input(), case.options, case.limits))
    of_group = (1 << launch.params.values["log_lanes"]) * 16 // np.dtype(case.dtype).itemsize
    return launch.params.values["max_groups"] * of_group / case.row_length


@pytest.mark.parametrize("case", [case for case in RECORDED if case.path == "serial"], ids=str)
def test_a_cpu_reads_once(case: Case) -> None:
    """In any order of elements, the list is cut, and the row is never begun again.

    For a small k, the first 2048 elements are read twice. In ascending order, so are the last elements, as
    many as the list has room for.
    """
    twice = 2048 if case.k == 8 else 0
    if case.distribution == "ascending":
        (launch,) = launches(plan_for(case.input(), case.options, case.limits))
        (capacity,) = (field.values[0] for field in launch.params.fields if field.name == "list_capacity")
        twice += capacity - round_up(case.k, 16)
    assert case.reads() == (case.row_length + twice + case.k) / case.row_length


@pytest.mark.parametrize("k", [8, 100])
def test_a_cpu_cuts_lists_as_seldom_in_ascending_order(k: int, rng: np.random.Generator) -> None:
    """Cuts show in the bytes that the list and its sorting read."""
    x = rng.standard_normal(1 << 13).astype(np.float32)
    with emulator.schedule(warp_lanes=1), cudml.emulator_report() as report:
        cudml.top_k(x, k)
        cudml.top_k(np.sort(x), k)
    random_order, ascending = (launch.shared.bytes_read for launch in report.launches)
    assert ascending < 4 * random_order


def test_no_row_of_a_hundred_takes_a_cpu_much_longer() -> None:
    """By the bytes that the list and its sorting read, no row is lucky, and none is begun again."""
    rows = np.random.default_rng(0).standard_normal((100, 1 << 16), np.float32)
    with emulator.schedule(warp_lanes=1), cudml.emulator_report() as report:
        for row in rows:
            cudml.top_k(row, 100)
    read = [launch.shared.bytes_read for launch in report.launches]
    assert len(read) == 100
    assert max(read) < 1.5 * np.median(read)


def keys_of(x: np.ndarray) -> np.ndarray:
    """Unsigned numbers in the order of a row of signed or floating numbers of 32 or 64 bits."""
    bits = x.view(f"u{x.itemsize}")
    top = bits.dtype.type(1) << bits.dtype.type(8 * x.itemsize - 1)
    return bits ^ np.where((bits & top != 0) & (x.dtype.kind == "f"), ~bits.dtype.type(0), top)


def num_digits(x: np.ndarray, k: int, capacity: int) -> int:
    """How many digits of 11 bits of the k-th number of a row are searched until a list has room for all
    candidates, or the first k are certain. From the second on, a digit begins where the numbers differ that
    were counted for the digit before: for the first, those from the middle of all numbers on, if the k-th is
    one of these.
    """
    kth = np.partition(x, -k)[-k]
    shift, digits, counted, num_above = 8 * x.itemsize, 0, x, 0
    middle = x.dtype.type(1) << x.dtype.type(shift - 1)
    while counted.size + num_above > capacity and counted.size > k - num_above and shift > 0:
        seen = counted if digits > 0 else x[x >= middle]
        shift, digits = max(shift - 11, 0), digits + 1
        if digits > 1 or kth >= middle:
            differing = int(np.bitwise_or.reduce(seen ^ seen[0]))
            shift = min(shift, (differing & ((1 << shift) - 1)).bit_length())
        num_above = np.count_nonzero(x >> shift > kth >> shift)
        counted = x[x >> shift == kth >> shift]
    return digits


def sampled_part(case: Case) -> float:
    """The part of a row whose sample guesses a floor; 0 without a guess."""
    (launch,) = launches(plan_for(case.input(), case.options, case.limits))
    loads = 2 * launch.block[0] * launch.grid[0] if launch.params.values["sample_rank"] else 0
    return loads * 16 / case.input().nbytes


def part_of_results(case: Case) -> float:
    """The part of a row that is read again as results, if these are not made from sorted keys."""
    (launch,) = launches(plan_for(case.input(), case.options, case.limits))
    counts = case.path == "grid_radix" and launch.params.values["sort_mode"] != BY_DIGITS
    # All NaNs have one key.
    return case.k / case.row_length if counts or case.distribution == "NaN 95 %" else 0


def has_ties(case: Case) -> bool:
    """Whether more elements tie with a guess than the list holds.

    "same leading bits" has 252 values, with a thousand elements each.
    """
    ties = case.distribution in ("few values", "NaN 95 %", "all equal")
    return ties or (case.distribution == "same leading bits" and case.k > 1000)


def differs(case: Case) -> bool:
    """Whether the first sample has other elements than the row."""
    if case.distribution == "least where sampled":
        return case.multiprocessors == 1  # the samples of two blocks see other places, too
    return case.distribution in ("greatest where sampled", "one large value in every 64th place")


def has_no_room(case: Case) -> bool:
    """Whether the greatest elements of a sorted row are too many for the blocks that have them."""
    return case.distribution in ("ascending", "descending") and case.k > case.row_length // 20


@pytest.mark.parametrize("case", [case for case in RECORDED if case.path == "grid_radix"], ids=str)
def test_a_guess_reads_the_row_once(case: Case) -> None:
    """Row and sample are read once, in any order of elements. Threads repeat loads at the ends of parts.

    If too many elements of the sample tie, those of the row are counted first; a list of ties in order may
    end before the row does. If the sample has other elements than the row, a second one has not. If a block
    has no room for its elements, they are read again, and a row of short keys is searched. The table has five
    decimals.
    """
    part = sampled_part(case)
    assert 0 < part <= 1 / 4
    beyond = RECORDED[case] - part_of_results(case) - part * (2 if differs(case) else 1)
    if has_ties(case):
        assert 1 < beyond <= (1.05 if case.distribution == "all equal" else 2.02)
    elif has_no_room(case):
        assert 1 < beyond <= (2.2 if case.dtype == "float16" else 1.2)
    else:
        assert 1 - 1e-5 <= beyond <= (2 if differs(case) else 1) + 0.002


@pytest.mark.parametrize("case", [case for case in RECORDED if case.path == "block_radix"], ids=str)
def test_radix_reads_once_for_each_digit_and_for_the_list(case: Case) -> None:
    """A list of ties in order may end before the row does."""
    keys = keys_of(case.input())
    (launch,) = launches(plan_for(case.input(), case.options, case.limits))
    (capacity,) = (field.values[0] for field in launch.params.fields if field.name == "list_capacity")
    most = num_digits(keys[0], case.k, int(capacity)) + 1
    reads = RECORDED[case] - part_of_results(case)
    assert most - 1 < reads <= most


def test_no_path_reads_a_row_more_than_three_times() -> None:
    assert max(RECORDED.values()) <= 3
