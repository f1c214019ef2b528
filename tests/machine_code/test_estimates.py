"""Estimated times of paths, by features of a problem and of each path's steps."""

from math import inf, isinf, log, nan

import numpy as np
import pytest

from bench.prediction.estimates import Estimates, Seen, known_log_times
from cudml.operators.path import Path
from cudml.plans import Fill, KernelLaunch, Limits, Params, ParamStruct
from proof.sass.plan import HOPPER

pytest.importorskip("sklearn", reason="times are estimated by scikit-learn")

NO_PARAMS = Params(ParamStruct(), {})


def threads_of(num_blocks: int) -> int:
    return 1024 if num_blocks % 2 else 512


def launch(num_blocks: int) -> KernelLaunch:
    grid, block = (num_blocks, 1, 1), (threads_of(num_blocks), 1, 1)
    return KernelLaunch("", "kernel", (), grid, block, (), NO_PARAMS)


#: Problems are numbers of blocks. For an odd number, blocks are larger, and half as many run at once.
PATHS = {
    "blocks": Path(
        "blocks", "", lambda problem, limits: True, lambda problem, limits: ((launch(problem),), ())
    ),
    "few": Path(
        "few", "", lambda problem, limits: problem < 300, lambda problem, limits: ((Fill("out", 4),), ())
    ),
}


def seen(problems: list[int], limits: Limits = HOPPER.limits) -> Seen:
    """The problems, with a feature that tells nothing."""
    return Seen.of(problems, np.zeros((len(problems), 1)), PATHS, limits)


def times_of(problem: int) -> list[float]:
    at_once = 2048 // threads_of(problem) * HOPPER.limits.num_multiprocessors
    waves = -(-problem // at_once)
    return [10.0 * waves, 15.0 if problem < 300 else nan]


def test_an_estimate_sees_waves_of_blocks() -> None:
    """Problems of nearly the same features take one wave or two."""
    known = [*range(20, 1000, 21)]
    estimates = Estimates(seen(known), np.log([times_of(one) for one in known]))
    others = [100, 101, 400, 401, 440, 441, 600, 601, 720, 721]
    found = np.exp(estimates.log_times(seen(others)))
    assert found[:, 0] == pytest.approx([times_of(one)[0] for one in others], rel=0.1)


def test_a_path_that_cannot_takes_for_ever() -> None:
    known = [*range(20, 1000, 21)]
    log_times = np.log([times_of(one) for one in known])
    found = Estimates(seen(known), log_times).log_times(seen([100, 299, 300]))
    assert np.exp(found[:2, 1]) == pytest.approx([15, 15], rel=0.05)
    assert isinf(found[2, 1])
    assert (known_log_times(seen(known), log_times)[:, 1] == inf).tolist() == [one >= 300 for one in known]


def test_a_time_that_is_not_known_is_slow() -> None:
    found = known_log_times(seen([100]), np.array([[log(4), nan]]))
    assert np.exp(found[0]) == pytest.approx([4, 10])


def test_a_path_that_no_known_problem_takes_has_no_estimate() -> None:
    estimates = Estimates(seen([400, 500]), np.log([[1, nan], [2, nan]]))
    assert isinf(estimates.log_times(seen([100]))[0, 1])
