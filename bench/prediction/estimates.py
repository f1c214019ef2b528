"""Times of problems, estimated from known ones by boosted trees of each path (scikit-learn).

An estimate sees more than a tree that chooses: the launches of each path's plan, too. Its times jump where
another wave of blocks begins or a kernel's template changes, and a choice has no time for making all plans.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.prediction.tune import MOST_KNOWN
from cudml.operators.path import Path
from cudml.plans import KernelLaunch, Limits, Step, ceil_div

#: Rounds of boosting, and what each may change.
_BOOSTING = {
    "max_iter": 1000,
    "learning_rate": 0.05,
    "max_leaf_nodes": 12,
    "min_samples_leaf": 4,
    "early_stopping": False,
    "random_state": 0,
}
#: Features that a question is chosen from, at random: trees that differ estimate better.
_ASKED = 9
#: Blocks that a multiprocessor holds, at most, and the bytes that each takes beside its shared storage.
_MOST_BLOCKS, _BLOCK_BYTES = 32, 1024
#: Features of a launch, and of a path's steps.
_OF_LAUNCH = 10
_OF_STEPS = 1 + 2 * _OF_LAUNCH


@dataclass(frozen=True)
class Seen:
    """Problems: features, which paths can compute them, and features of the steps of each path.

    A path that cannot has no steps, whose features are NaN.
    """

    features: np.ndarray
    can: np.ndarray
    of_steps: np.ndarray

    @classmethod
    def of(
        cls, problems: Sequence[Any], features: np.ndarray, paths: Mapping[str, Path[Any]], limits: Limits
    ) -> "Seen":
        """The problems on a device, by these paths."""
        can = which_can(problems, paths, limits)
        of_steps = np.full((*can.shape, _OF_STEPS), np.nan, np.float32)
        for place, path in enumerate(paths.values()):
            for number in np.flatnonzero(can[:, place]):
                steps, _ = path.steps(problems[number], limits)
                of_steps[number, place] = _features_of(steps, limits)
        return cls(features, can, of_steps)

    def at(self, places: np.ndarray) -> "Seen":
        """The problems at these places, or for which a mask is true."""
        return Seen(self.features[places], self.can[places], self.of_steps[places])

    def by(self, path: int) -> np.ndarray:
        """What the estimate of a path sees of the problems that it can compute."""
        can = self.can[:, path]
        return np.concatenate([self.features[can], self.of_steps[can, path]], axis=1)


class Estimates:
    """Estimated times of each path, made from problems with known times.

    `log_times` are the logarithms of these, NaN where a time is not known.
    """

    def __init__(self, seen: Seen, log_times: np.ndarray) -> None:
        from joblib import Parallel, delayed

        labels = _labels_of(log_times)
        taught = [seen.can[:, path] for path in range(labels.shape[1])]
        self._boosted = Parallel(n_jobs=jobs_of(len(seen.can)))(
            delayed(_boosted)(seen.by(path), labels[can, path]) for path, can in enumerate(taught)
        )

    def log_times(self, seen: Seen) -> np.ndarray:
        """Estimated logarithms of times; infinite for paths that cannot."""
        found = np.full(seen.can.shape, np.inf)
        for path, boosted in enumerate(self._boosted):
            can = seen.can[:, path]
            if boosted is not None and can.any():
                differ, trees = boosted
                found[can, path] = trees.predict(seen.by(path)[:, differ])
        return found


def known_log_times(seen: Seen, log_times: np.ndarray) -> np.ndarray:
    """Logarithms of times, slow ones where they are not known; infinite for paths that cannot."""
    return np.where(seen.can, _labels_of(log_times), np.inf)


def which_can(problems: Sequence[Any], paths: Mapping[str, Path[Any]], limits: Limits) -> np.ndarray:
    """For each problem, whether each path can compute it on a device."""
    return np.array([[path.can_do(one, limits) for path in paths.values()] for one in problems])


def jobs_of(num_problems: int) -> int:
    """The `n_jobs` of joblib for a number of problems: all cores, unless their start takes longer."""
    return -1 if num_problems > 1000 else 1


def _labels_of(log_times: np.ndarray) -> np.ndarray:
    """A time that is not known is at least `MOST_KNOWN` times the best one's."""
    least = np.nanmin(log_times, axis=1, keepdims=True) + math.log(MOST_KNOWN)
    return np.where(np.isnan(log_times), least, log_times)


def _boosted(features: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, Any] | None:
    """The features that differ between problems, and boosted trees; None if there are no problems."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    if not labels.size:
        return None
    differ = np.flatnonzero(np.ptp(features, axis=0) > 0)
    if not differ.size:
        differ = np.array([0])
    part = min(1.0, _ASKED / differ.size)
    boosted = HistGradientBoostingRegressor(**_BOOSTING, max_features=part)
    # With a thread for each core, a round of a few thousand problems mostly waits for the threads.
    with threadpool_limits(1, "openmp"):
        return differ, boosted.fit(features[:, differ], labels)


def _features_of(steps: Iterable[Step], limits: Limits) -> list[float]:
    """The number of steps, and features of the first and the last launch."""
    steps = [*steps]
    launches = [step for step in steps if isinstance(step, KernelLaunch)]
    if not launches:
        return [len(steps)] + [0] * (_OF_STEPS - 1)
    return [len(steps), *_of_launch(launches[0], limits), *_of_launch(launches[-1], limits)]


def _of_launch(launch: KernelLaunch, limits: Limits) -> list[float]:
    num_blocks, num_threads = math.prod(launch.grid), math.prod(launch.block)
    most = limits.num_multiprocessors
    resident = min(
        _MOST_BLOCKS,
        limits.max_threads_per_multiprocessor // num_threads,
        limits.shared_bytes_per_multiprocessor // (launch.shared_bytes + _BLOCK_BYTES),
    )
    at_once = most * max(1, resident)
    return [
        num_blocks,
        num_threads,
        launch.shared_bytes,
        resident,
        num_blocks / at_once,
        ceil_div(num_blocks, at_once),
        ceil_div(num_blocks, most),
        num_blocks * num_threads,
        launch.cluster_blocks,
        # Of the kernels of a path, which differ in numbers and in the words that say a type's size.
        sum(map(ord, launch.name_expression)),
    ]
