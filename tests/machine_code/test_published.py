"""Published times of others' kernels against the model, with the datasheet of their GPU.

Predictions are skipped where CuPy, NVRTC, nvdisasm, nvcc or CCCL is not installed: `pip install
--group nvrtc --group peers`.
"""

from dataclasses import replace

import numpy as np
import pytest

from bench import native
from bench.cases import WrongResultError
from bench.prediction import command, micro, published
from bench.prediction.model import predict
from proof.runtime import library as stand_in
from proof.sass.compiler import unavailable
from proof.sass.rates import H100_PCIE, H200, MEMORY_RATE, h200

WHY = unavailable() or stand_in.unavailable() or native.unavailable(native.LIBRARIES["cub"])
needs_cub = pytest.mark.skipif(WHY is not None, reason=str(WHY))
RECORDED = published.read()


@needs_cub
def test_times_are_as_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the shorter rows are predicted: the longest takes minutes."""
    monkeypatch.setattr(published, "ROWS", published.ROWS[:2])
    found = list(published.predicted())
    assert all(row.predicted_us for row in found)
    assert published.differences(RECORDED, found) == []
    slower = replace(found[0], predicted_us=1.1 * found[0].predicted_us)
    assert published.differences(RECORDED, [slower]) == [f"{slower}: recorded {RECORDED[0].predicted_us} us"]


def test_the_table_has_every_row_as_published() -> None:
    def told(row: published.Row) -> published.Row:
        return replace(row, version="", predicted_us=0.0, launches=0, bound="", note="")

    assert tuple(map(told, RECORDED)) == published.ROWS
    assert published.TABLE.read_text() == published.table_text(RECORDED)


@needs_cub
def test_a_gpu_with_less_bandwidth_takes_longer() -> None:
    """Reading 256 MiB takes the time that follows from the datasheet's bandwidth."""
    launch = micro.bandwidth_launch("read", 256)
    own, other = predict(launch), predict(launch, H100_PCIE)
    ratio = (other.time_us - other.overhead_us) / (own.time_us - own.overhead_us)
    assert ratio == pytest.approx(MEMORY_RATE / H100_PCIE.memory_rate, rel=0.03)
    assert other.bound == "DRAM"
    assert vars(h200()) == vars(h200(gpu=H200))


def test_wrong_pairs_are_found() -> None:
    keys = np.arange(20, dtype=np.int8)
    values = keys + 50
    published.check(keys, values, keys[:-4:-1], values[:-4:-1])
    with pytest.raises(WrongResultError, match="keys are"):
        published.check(keys, values, keys[:3], values[:3])
    with pytest.raises(WrongResultError, match=r"the pair \(19, 51\) is in the row 0 times"):
        published.check(keys, values, keys[:-4:-1], values[1:4])


def test_options_that_do_not_go_together(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["top_k", "--published"])
    assert "--published has cases of its own" in capsys.readouterr().err
