"""The paths that can compute a problem, the one that the planner takes, and the least time of the others."""

from collections.abc import Callable, Iterable

from bench.prediction.model import run_some
from cudml.plans import Plan
from tests.machine_code.sass.launch import Launch
from tests.machine_code.sass.rates import NUM_MULTIPROCESSORS

#: The most times that the chosen path may take of what the best one takes.
MOST_OF_BEST = 1.1

#: Plans by a path of this name, or by the chosen one.
Planner = Callable[[str | None], Plan]


def plans_of(plan: Planner, names: Iterable[str]) -> dict[str, Plan]:
    """The plans of the paths that can compute it."""
    found = {}
    for name in names:
        try:
            found[name] = plan(name)
        except ValueError:
            continue
    return found


def chosen_of(plan: Planner, names: Iterable[str]) -> str:
    """The path that the planner takes."""
    chosen = plan(None)
    return next(name for name, other in plans_of(plan, names).items() if other == chosen)


def least_clocks(launch: Launch) -> float:
    """The clocks that issuing takes if every block has the instructions of the one in the middle."""
    counts = run_some(launch, [launch.num_blocks // 2], 1)
    return counts.totals.instructions * launch.num_blocks / NUM_MULTIPROCESSORS / 4
