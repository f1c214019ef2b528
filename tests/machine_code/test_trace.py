"""Traces say where a warp spends its clocks, by lines of the source."""

from functools import cache

import numpy as np
import pytest

from bench.prediction import command
from bench.prediction.trace import Trace, traced
from cudml.plans import KernelLaunch
from proof.sass.compiler import unavailable
from proof.sass.launch import Buffer, Launch, run
from proof.sass.lines import places_in
from proof.sass.plan import launch_of
from proof.sass.rates import h200
from tests.devices.cuda.stand_in.cases import KERNELS
from tests.support.params import params_of

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

SOURCE = KERNELS / "traced.cu"
NUM_ITEMS = 64


def line_with(text: str) -> str:
    lines = SOURCE.read_text().splitlines()
    (found,) = (number for number, line in enumerate(lines, 1) if text in line)
    return f"{SOURCE.name}:{found}"


def launched(function: str = "traced") -> tuple[KernelLaunch, Launch]:
    step = KernelLaunch(
        source=str(SOURCE),
        function=function,
        template=(),
        grid=(1, 1, 1),
        block=(NUM_ITEMS, 1, 1),
        buffers=("in", "out"),
        params=params_of(num_items=("Int64", 1)),
        shared_bytes=16 * NUM_ITEMS,
    )
    values = np.arange(4 * NUM_ITEMS, dtype=np.float32).view(np.uint8)
    buffers = {"in": Buffer(values), "out": Buffer(np.zeros_like(values), is_output=True)}
    return step, launch_of(step, buffers)


@cache
def trace_of(warp: int) -> Trace:
    return traced(*launched(), warp)


@pytest.mark.parametrize("warp", [0, 1])
def test_waits_add_up_to_the_clocks(warp: int) -> None:
    before = 0
    for one in trace_of(warp).issued:
        assert sum(one.waits.values()) == one.clock - before
        before = one.clock
    assert trace_of(warp).issued[-1].text.startswith("EXIT")
    assert before < trace_of(warp).clocks


def test_every_instruction_of_the_warps_is_there() -> None:
    counts = run(launched()[1])
    issued = np.zeros_like(counts.executed)
    for warp in (0, 1):
        np.add.at(issued, [one.pc for one in trace_of(warp).issued], 1)
    assert issued.tolist() == counts.executed.tolist()
    # The two warps do not simply take turns, so their records differ.
    assert trace_of(0).issued != trace_of(1).issued


def test_a_use_waits_for_its_load() -> None:
    load, use = line_with("// the load"), line_with("// waits for the load")
    ways = [one.waits.get(f"the result of {load}", 0) for one in trace_of(0).issued if one.line == use]
    # The load comes from memory, and little is done before its use.
    assert h200(1).l2_latency < max(ways) <= h200(1).memory_latency
    assert trace_of(0).by_line()[0][0] == use


def test_copies_to_shared_storage_are_waited_for() -> None:
    trace = traced(*launched("copied"), 0)
    names = [one.text.split()[0].split(".")[0] for one in trace.issued]
    (copy,) = (one for one, name in zip(trace.issued, names, strict=True) if name == "LDGSTS")
    after = trace.issued[names.index("DEPBAR") + 1]
    (waited,) = (clocks for why, clocks in after.waits.items() if why == f"the result of {copy.line}")
    assert h200(1).l2_latency < waited <= h200(1).memory_latency


def test_a_barrier_is_waited_for() -> None:
    after = [one for one in trace_of(0).issued if "a barrier" in one.waits]
    assert len(after) == 1
    before = trace_of(0).issued[trace_of(0).issued.index(after[0]) - 1]
    assert before.text.startswith("BAR.SYNC")
    assert before.line == line_with("__syncthreads")


def test_a_trace_leaves_the_time_as_it_is() -> None:
    launch = launched()[1]
    assert run(launch).totals.clocks == run(launch, traced=(0, 0)).totals.clocks


def test_innermost_places() -> None:
    text = """
	.section	.text.first,"ax",@progbits
	//## File "/at/kernel.cu", line 3
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   S2R R5, SR_TID.X ;
	//## File "/at/inner.cuh", line 2 inlined at "/at/kernel.cu", line 4
	//## File "/at/kernel.cu", line 4
.L_x_1:
        /*0020*/                   FFMA.FTZ R5, R0, R0, R0 ;
	.section	.text.second,"ax",@progbits
        /*0000*/                   EXIT ;
"""
    assert places_in(text) == {
        "first": ["kernel.cu:3", "kernel.cu:3", "inner.cuh:2"],
        "second": [""],
    }


def test_text_of_a_trace() -> None:
    lines = list(trace_of(0).text())
    assert lines[0].startswith("traced, block 0, warp 0; launch: ")
    assert len([line for line in lines if " 0x" in line]) == len(trace_of(0).issued)
    summary = lines[next(n for n, line in enumerate(lines) if line.startswith("line ")) + 1 :]
    assert sum(int(line.split()[1]) for line in summary) == trace_of(0).issued[-1].clock


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gru", "--trace", "float16"], "one case has to have 'float16' in its name"),
        (["--trace", "no such case"], "0 have"),
        (
            ["--trace", "x", "--check"],
            "--trace is about one case: no --case, --check",
        ),
    ],
)
def test_one_case_is_traced(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(arguments)
    assert said in capsys.readouterr().err
