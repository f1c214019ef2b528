"""Predicted times of bench/'s cases against the table.

Skipped where CuPy, NVRTC or nvdisasm is not installed: `pip install --group nvrtc`.
"""

from dataclasses import replace
from typing import Any

import pytest

from bench.prediction import command, peers, table
from bench.prediction.table import Row
from proof.sass.compiler import nvrtc_version, unavailable

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

VERSION, RECORDED = table.read()

#: Largest product of instructions and microseconds of a case that runs without the option: larger ones take
#: over a minute. Only a few steps of a recurrence are run.
MAX_WORK = {"top_k": 1600, "slice": 3000, "reverse_subsequences": 3000, "gru": 3000}


def _work(row: Row) -> float:
    """The approximate cost of a prediction."""
    return row.lane_instructions * row.limit_us


def _chosen() -> list[Any]:
    """Every recorded case; without the option, only the cheapest one of each kernel runs."""
    cheapest: dict[str, Row] = {}
    for row in sorted(RECORDED, key=_work):
        cheapest.setdefault(row.kernels, row)
    kept = {row.key for row in cheapest.values() if _work(row) <= MAX_WORK[row.operator]}
    return [
        pytest.param(
            operator,
            case,
            id=f"{operator}-{case.name}",
            marks=[] if (operator, case.name) in kept else pytest.mark.predictions,
        )
        for operator, case in command.cases()
        if (operator, case.name) in {row.key for row in RECORDED}
    ]


@pytest.mark.parametrize(("operator", "case"), _chosen())
def test_case_takes_the_recorded_time(operator: str, case: Any) -> None:
    if nvrtc_version() != VERSION:
        pytest.skip(f"the table is by NVRTC {VERSION}, this is {nvrtc_version()}")
    assert table.differences(RECORDED, [command.row_of(operator, case)]) == []


def test_table_has_every_case() -> None:
    """Rows are in the order of the cases."""
    cases = [(operator, case.name) for operator, case in command.cases()]
    recorded = [row.key for row in RECORDED]
    assert recorded == cases
    assert {row.operator for row in RECORDED if row.cupy_us} == set(peers.OPERATORS)


def test_differences_are_reported() -> None:
    row = RECORDED[0]
    for factor, message in ((1.06, "slower"), (0.94, "renew the table")):
        (found,) = table.differences(RECORDED, [replace(row, time_us=factor * row.time_us)])
        assert message in found
    assert table.differences(RECORDED, [replace(row, time_us=1.04 * row.time_us)]) == []
    (found,) = table.differences(RECORDED, [replace(row, case="another")])
    assert "not in predicted-h200.csv" in found
