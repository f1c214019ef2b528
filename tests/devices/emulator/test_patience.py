"""How long a wait of `common/wait.cuh` lasts by its clock: steady, suspended, and past 2**32 ticks."""

import numpy as np
import pytest

from cudml.plans import Params, ParamStruct
from tests.devices.emulator.support import launch

MS = 1_000_000
HOUR = 3600 * 1000 * MS
TICK_NS = 1 << 10
NEVER = 2**32 - 1
WAIT = 7


def looks_of_a_wait(limit_ns: int, comes_at: int, *, start_ns: int = 0, jump_ns: int = 0) -> tuple[bool, int]:
    """Whether the event came, and the number of looks at the clock: one each ms, the jump at the 100th."""
    out = np.zeros(4, np.uint32)
    struct = ParamStruct("UInt64 start_ns, step_ns, jump_ns", "UInt32 jump_at, num_looks, limit_ticks")
    values = {
        "start_ns": start_ns,
        "step_ns": MS,
        "jump_ns": jump_ns,
        "jump_at": 100,
        "num_looks": comes_at,
        "limit_ticks": limit_ns // TICK_NS,
    }
    launch("patience.cu", "waits_for_a_clock", {"out": out}, Params(struct, values), block=1)
    has_come, looks, wait, any_gave_up = out.tolist()
    assert (wait, any_gave_up) == ((0, 0) if has_come else (WAIT, 1))
    return bool(has_come), looks


@pytest.mark.parametrize("start_ns", [0, 1, 17 * HOUR, TICK_NS * (2**32 - 300), 2**64 - HOUR])
def test_a_wait_ends_at_its_limit(start_ns: int) -> None:
    """The first look only gives the start of the wait."""
    has_come, looks = looks_of_a_wait(1000 * MS, NEVER, start_ns=start_ns)
    assert not has_come
    assert looks == pytest.approx(1001, abs=2)
    assert looks_of_a_wait(1000 * MS, 990, start_ns=start_ns) == (True, 990)


@pytest.mark.parametrize("jump_ns", [1000 * MS, HOUR, TICK_NS * 2**31])
def test_a_suspended_process_does_not_give_up(jump_ns: int) -> None:
    """Suspended by Ctrl-Z, or with a sleeping laptop: at most 0.1 s of the time counts."""
    assert looks_of_a_wait(1000 * MS, 800, jump_ns=jump_ns) == (True, 800)
    has_come, looks = looks_of_a_wait(1000 * MS, NEVER, jump_ns=jump_ns)
    assert not has_come
    assert looks == pytest.approx(901, abs=3)
