"""The tools of the machine-code tests detect planted faults, and give known numbers."""

import os
import re
from pathlib import Path

import pytest

from bench import machine_code
from cudml.devices.kernel_text import kernel_text
from cudml.devices.sources import kernel_root
from cudml.plans import KernelLaunch
from proof.instances import instances
from proof.sass import cubin, disassembly
from proof.sass.architectures import ARCHITECTURES, Architecture
from proof.sass.compiler import Compiled, code_key, compile_cubin, unavailable
from proof.sass.facts import Facts, facts_of
from proof.sass.problems import problems_of
from tests.devices.cuda.stand_in.cases import KERNELS
from tests.support.params import params_of

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

OF_NUMBER = {architecture.number: architecture for architecture in ARCHITECTURES}
EVERY_ARCHITECTURE = pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda a: a.name)


def planted(function: str, threads: int, *, num_pointers: int = 2, shared_bytes: int = 0) -> KernelLaunch:
    """A launch of a kernel of `wasteful.cu`."""
    return KernelLaunch(
        source=str(KERNELS / "wasteful.cu"),
        function=function,
        template=(),
        grid=(1, 1, 1),
        block=(threads, 1, 1),
        buffers=("in", "out")[:num_pointers],
        params=params_of(num_items=("Int64", 1), start=("Int32", 0)),
        shared_bytes=shared_bytes,
    )


PLANTED = (planted("local_array", 128), planted("spilling", 1024), planted("wide", 64, shared_bytes=1024))


def compiled(architecture: Architecture) -> Compiled:
    names = [launch.name_expression for launch in PLANTED]
    return compile_cubin(kernel_text(PLANTED), architecture.name, names, ("--ptxas-options=-v",))


@EVERY_ARCHITECTURE
def test_cubin_says_what_the_compiler_logged(architecture: Architecture) -> None:
    made = compiled(architecture)
    kernels = cubin.kernels_of(made.cubin)
    assert cubin.architecture_of(made.cubin) == architecture.number
    assert set(kernels) == set(made.mangled.values())
    for name, kernel in kernels.items():
        logged = re.search(
            rf"properties for {name}\n\D*(\d+) bytes stack.*\n.*Used (\d+) registers", made.log, re.MULTILINE
        )
        assert logged, made.log
        assert (kernel.stack_bytes, kernel.registers) == tuple(map(int, logged.groups()))


@EVERY_ARCHITECTURE
def test_planted_faults_are_found(architecture: Architecture) -> None:
    facts = facts_of(PLANTED, architecture)
    local_array, spilling, wide = (
        problems_of(launch, facts[launch.function], architecture) for launch in PLANTED
    )
    assert any("bytes of local memory" in problem for problem in local_array)
    assert any("accesses of local memory" in problem for problem in local_array)
    assert not any("spilled" in problem for problem in local_array)
    assert any("bytes of registers are spilled" in problem for problem in spilling)
    assert wide == []
    assert facts["wide"].count("LDG", containing=".128") == 1
    assert facts["wide"].count("STG", containing=".128") == 1
    assert facts["wide"].flight_bytes == 16
    assert facts["wide"].kernel.max_threads == 64
    assert facts["wide"].kernel.parameters == ((0, 8), (8, 8), (16, 16))


def test_launch_that_does_not_fit_the_code_is_found() -> None:
    architecture = OF_NUMBER[90]
    facts = facts_of(PLANTED, architecture)["wide"]
    for changes, problem in (
        ({"threads": 65}, "launched with 65 threads, bounded to 64"),
        ({"num_pointers": 1}, "parameters at ((0, 8), (8, 8), (16, 16)), packed at ((0, 8), (8, 16))"),
        ({"shared_bytes": 232449}, "not even one block fits on a multiprocessor"),
    ):
        launch = planted("wide", changes.pop("threads", 64), **changes)
        assert problem in problems_of(launch, facts, architecture)


def test_code_with_a_problem_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine_code, "batches", lambda limits: [list(PLANTED)])
    path = tmp_path / "table.csv"
    assert machine_code.main(["--architecture", "sm_90", "--output", str(path)]) == 1
    assert "spilling on sm_90: " in capsys.readouterr().err
    assert not path.exists()


def test_instance_is_the_same_alone_and_among_others() -> None:
    """Instances are compiled many at a time here and one at a time on a GPU."""
    architecture = OF_NUMBER[90]
    everything = [launch for launch in instances(architecture.limits) if "gather" in launch.source]
    source = everything[0].source
    batch = [launch for launch in everything if launch.source == source]
    chosen = batch[-1]
    together, alone = (facts_of(launches, architecture) for launches in (batch, [chosen]))
    assert len(together) > 1
    assert together[chosen.name_expression] == alone[chosen.name_expression]


def test_kept_code_is_found_in_another_environment() -> None:
    """The key has no folder, and the files that kernels include are part of their hash."""
    key = code_key("text", "sm_90", ["name"])
    assert not [part for part in key.split("\0") if os.sep in part]
    assert key != code_key("text", "sm_80", ["name"])
    assert key != code_key("text", "sm_90", ["name"], ["-lineinfo"])
    included = re.compile(r"^\s*#\s*include\s+(.*?)\s*$", re.MULTILINE)
    for path in sorted([*kernel_root().rglob("*.cu"), *kernel_root().rglob("*.cuh")]):
        for name in included.findall(path.read_text()):
            assert name == f'"{name[1:-1]}"', path
            assert (kernel_root() / name[1:-1]).exists(), (path, name)


def test_facts_are_kept_and_damaged_ones_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDML_CACHE_DIR", str(tmp_path))
    made = facts_of(PLANTED, OF_NUMBER[80])
    (path,) = (tmp_path / "machine-code").glob("*.json")
    (code,) = (tmp_path / "machine-code").glob("*.cubin")
    kept = path.read_text()
    monkeypatch.setattr("proof.sass.facts.compiled_launches", None)
    assert facts_of(PLANTED, OF_NUMBER[80]) == made
    monkeypatch.undo()
    monkeypatch.setenv("CUDML_CACHE_DIR", str(tmp_path))
    path.write_text(kept[:100])
    code.write_bytes(b"damaged")
    assert facts_of(PLANTED, OF_NUMBER[80]) == made
    assert path.read_text() == kept


def test_an_invalid_cubin_is_refused() -> None:
    with pytest.raises(ValueError, match="a cubin is an ELF file, this is not"):
        cubin.kernels_of(b"not a cubin")


def test_opcodes_are_counted_by_their_whole_name() -> None:
    opcodes = disassembly.Counter({"LDG.E.128": 2, "LDG.E": 3, "LDGSTS.E.128": 5, "LD.E": 7})
    assert disassembly.count(opcodes, "LDG") == 5
    assert disassembly.count(opcodes, "LDG", "LDGSTS", containing=".128") == 7
    assert disassembly.count(opcodes, "LD") == 7


A = "LDG.E.128.CONSTANT R4,desc[UR8][R40.64]"  # brings R4 to R7
B = "LDG.E R8,desc[UR8][R40.64+0x10]"
C = "LDG.E.U8 R9,desc[UR8][R42.64]"


@pytest.mark.parametrize(
    ("code", "flight_bytes"),
    [
        ([], 0),
        ([A, B, C], 21),
        ([A, "IADD3 R40,R41,R42,RZ", B, C], 21),
        # An instruction that reads a loaded register has waited for that load, and for the loads before it.
        ([A, B, "IADD3 R0,R8,R1,RZ", C], 20),
        ([A, "IADD3 R0,R7,R1,RZ", B, C], 16),
        ([B, A, "IADD3 R0,R8,R1,RZ", C], 20),
        ([A, B, "@P0 IADD3 R0,R8,R1,RZ", C], 20),
        # A store names the first register of its value and reads those behind it.
        ([B, "STS.128 [R30],R6", A], 16),
        ([B, "STS [R30],R6", A], 20),
        ([A, "STS.64 [R30],R2", B], 20),
        ([A, "STS.64 [R30],R3", B], 16),
        # A load that overwrites a register, or needs it as its address.
        ([A, "LDG.E R6,desc[UR8][R40.64]", B], 16),
        ([C, "LDG.E R20,desc[UR8][R9.64]", B], 8),
        # Conditional branches are not taken.
        ([A, "@P0 BRA 0x100", B], 20),
        ([A, "BRA 0x100", B], 16),
        ([A, "EXIT", B, C], 16),
        # Loads from elsewhere, stores.
        (["LDS.128 R4,[R2]", "LDC R3,c[0x0][R2]", "STG.E desc[UR8][R2.64],R9"], 0),
    ],
)
def test_loads_under_way(code: list[str], flight_bytes: int) -> None:
    instructions = []
    for line in code:
        opcode, _, operands = line.removeprefix("@P0 ").partition(" ")
        instructions.append(disassembly.Instruction(opcode, operands, line.startswith("@P0 ")))
    assert disassembly.flight_bytes_of(instructions) == flight_bytes


@pytest.mark.parametrize(
    ("number", "registers", "threads", "shared_bytes", "blocks"),
    [
        # By warps: a multiprocessor has 32, 64 or 48.
        (75, 32, 256, 0, 4),
        (80, 32, 256, 0, 8),
        (86, 32, 256, 0, 6),
        (90, 32, 1024, 0, 2),
        # By blocks: small ones.
        (80, 16, 32, 0, 32),
        (86, 16, 32, 0, 16),
        (89, 16, 32, 0, 24),
        # By registers: 65536, in quarters, 256 at a time.
        (80, 64, 256, 0, 4),
        (80, 65, 256, 0, 3),
        (90, 128, 512, 0, 1),
        (90, 255, 256, 0, 1),
        # By shared storage: from sm_80 on each block costs 1 KiB more.
        (75, 32, 64, 32768, 2),
        (80, 32, 64, 49152, 3),
        (90, 32, 64, 100 * 1024, 2),
        (90, 32, 64, 232448, 1),
        (90, 32, 64, 232449, 0),
    ],
)
def test_resident_blocks(number: int, registers: int, threads: int, shared_bytes: int, blocks: int) -> None:
    assert OF_NUMBER[number].resident_blocks(registers, threads, shared_bytes) == blocks


def row(**changes: object) -> machine_code.Row:
    launch = planted("wide", 64)
    facts = Facts(cubin.Kernel(32, 0, 0, 1024, 64, ()), 0, disassembly.Counter(), 20, frozenset())
    made = machine_code.row_of(launch, facts, OF_NUMBER[90])
    return machine_code.Row(**{**vars(made), "text": "800000000001", **changes})


def test_table_is_written_read_and_compared(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    first, second = row(kernel="a"), row(kernel="b", max_registers=40)
    path.write_text(machine_code.table_text(machine_code.Table("13.5.37", (first, second))))
    table = machine_code.recorded(path)
    assert table == machine_code.Table("13.5.37", (first, second))
    assert (first.min_warps, first.min_flight_bytes) == (64, 32 * 64 * 20)
    where = f"{first.source} b sm_90"
    other = row(kernel="b", max_registers=48, min_warps=60)
    changed = [f"{where}: max_registers 40 -> 48, min_warps 64 -> 60"]
    assert machine_code.differences(table.rows, (first, other)) == changed
    # Some of the instances have to be within the extremes of all, and need not reach them.
    assert machine_code.beyond(table.rows, [other]) == [
        f"{where}: max_registers 40 -> 48, min_warps 64 -> 60"
    ]
    assert machine_code.beyond(table.rows, [first, row(kernel="b", max_registers=38, min_warps=64)]) == []
    assert machine_code.beyond((first,), [other]) == [f"{where}: is new"]
    assert machine_code.joined([second, first, other]) == [
        first,
        row(kernel="b", instances=2, text="000000000002", max_registers=48, min_warps=60),
    ]
    assert machine_code.differences(table.rows, (first,)) == [f"{where}: is no longer there"]
    assert machine_code.differences((first,), table.rows) == [f"{where}: is new"]
    assert machine_code.recorded(tmp_path / "absent.csv") == machine_code.Table("none", ())
    path.write_text(path.read_text().replace("min_registers", "registers_of_old"))
    assert machine_code.recorded(path) == machine_code.Table("none", ())
