"""The errors of the interpreter of machine code.

Skipped where CuPy, NVRTC or nvdisasm is not installed: `pip install --group nvrtc`.
"""

import re
from pathlib import Path

import numpy as np
import pytest

from cudml.errors import CompilerError
from proof.sass import compiler, decode, disassembly, machine
from proof.sass.compiler import compiled_text, unavailable
from proof.sass.launch import Buffer, Launch, MachineError, run
from tests.machine_code.instructions.written import assembled

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

#: R0 is the thread, R2 the address of an input of 128 words, R4 that of an output.
_START = """
S2R R0, SR_TID.X
LDC.64 R2, c[0x0][0x210]
LDC.64 R4, c[0x0][0x218]
IMAD.WIDE.U32 R2, R0, 0x4, R2
IMAD.WIDE.U32 R4, R0, 0x4, R4
"""


def run_alone(text: str, **options: bool) -> int:
    """The number of instructions that a warp executes for code after `_START`."""
    buffers = [Buffer(np.zeros(128, np.uint32)), Buffer(np.zeros(32, np.uint32), is_output=True)]
    arguments = np.array([buffer.address for buffer in buffers], np.uint64).tobytes()
    launch = Launch(assembled(_START + text), arguments, buffers, (1, 1, 1), (32, 1, 1), **options)
    return int(run(launch).totals.instructions)


def failure(text: str, *, threads: int = 32, shared_bytes: int = 0, **options: int) -> str:
    """The machine's error for code after `_START`."""
    buffers = [
        Buffer(np.zeros(128, np.uint32)),
        Buffer(np.zeros(threads, np.uint32), is_output=True),
    ]
    arguments = np.array([buffer.address for buffer in buffers], np.uint64).tobytes()
    code = assembled(_START + text)
    launch = Launch(code, arguments, buffers, (1, 1, 1), (threads, 1, 1), shared_bytes)
    with pytest.raises(MachineError) as caught:
        run(launch, **options)
    return str(caught.value)


def test_it_says_where() -> None:
    message = failure("IADD3 R6, R0, R9, RZ\nEXIT", threads=64)
    assert message == ("reads R9, which nobody wrote: IADD3 R6, R0, R9, RZ at 0x50, block (0,0,0), warp 0")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("MOV R6, R9\nIADD3 R7, R6, R6, RZ", "reads R6, which nobody wrote"),
        ("LDG.E.64 R6, desc[UR4][R8.64]", "reads R8, which nobody wrote"),
        ("STG.E desc[UR4][R4.64], R9", "stores a register that nobody wrote"),
        ("UIADD3 UR4, UR5, 0x1, URZ", "reads UR5, which nobody wrote"),
        ("UMOV UR6, UR9\nUIADD3 UR4, UR6, 0x1, URZ", "reads UR6, which nobody wrote"),
        # Half of a register is unwritten; a product, a sum or a shift keeps a part of that half.
        *(
            (f"PRMT R6, R0, 0x7610, R9\n{text}\nVIADD R8, R7, 0x1", f"reads {register}, which nobody wrote")
            for text, register in (
                ("IMAD.U32 R7, R6, 0x8000, RZ", "R7"),
                ("IMAD R7, R0, R6, RZ", "R7"),
                ("IMAD R7, R6, 0x10000, R9", "R7"),
                ("IMAD.IADD R7, R0, 0x1, R6", "R7"),
                ("IMAD.IADD R7, R0, 0x1, -R6", "R6"),
                ("IMAD.WIDE.U32 R6, R6, 0x10000, RZ", "R6"),
                ("SHF.L.U32 R7, R6, 0xf, RZ", "R7"),
                ("SHF.R.U32.HI R7, RZ, 0x1, R6", "R7"),
            )
        ),
        ("@P1 EXIT", "reads P1, which nobody wrote"),
        ("SEL R6, R0, R0, P2", "reads P2, which nobody wrote"),
        ("@UP1 BRA `(end)", "reads UP1, which nobody wrote"),
        ("USEL UR6, URZ, URZ, UP2", "reads UP2, which nobody wrote"),
        # Some lanes did not write the register.
        ("ISETP.LT.AND P0, PT, R0, 0x5, PT\n@P0 MOV R6, R0\nIADD3 R7, R6, R6, RZ", "reads R6, which nobody"),
        ("LDG.E R6, desc[UR4][R2.64+0x200]", r"load of 4 bytes at 0x\w+ is outside every buffer"),
        ("LDG.E.64 R6, desc[UR4][R2.64]", r"load of 8 bytes at 0x\w+ is not aligned"),
        ("STG.E desc[UR4][R4.64+0x4], R0", r"store of 4 bytes at 0x\w+ is outside every buffer"),
        ("STG.E desc[UR4][R2.64], R0", r"store to an input, at 0x\w+"),
        ("REDG.E.ADD.STRONG.GPU desc[UR4][R2.64], R0", r"atomic access to an input, at 0x\w+"),
        ("REDG.E.ADD.STRONG.GPU desc[UR4][R4.64+0x80], R0", "atomic access of 4 bytes at .* outside every"),
        ("LDS R6, [R0+0x400]", "load of 4 bytes at 0x401 is not aligned"),
        ("LDS R6, [RZ]", "load of 4 bytes at 0x0 is outside of shared storage"),
        ("STS [RZ+0x440], R0", "store of 4 bytes at 0x440 is outside of shared storage, which ends at 0x440"),
        ("STS [RZ+0x1000400], R0", "shared storage of block 1 of a cluster of 1"),
        ("LDC R6, c[0x0][0x1000]", "constant bank 0 has no word at 0x1000"),
        ("LDC R6, c[0x4][0x0]", "constant bank 4 has no word at 0x0"),
        (
            "ISETP.LT.AND P0, PT, R0, 0x5, PT\n@P0 SHFL.IDX PT, R6, R0, 0x9, 0x1f",
            "takes the value of a lane that is not here",
        ),
        ("LDL R6, [RZ]", "load of 4 bytes at 0x0 is outside of local memory, which ends at 0x0"),
        ("LDL.64 R6, [RZ+0x4]", "load of 8 bytes at 0x4 is not aligned"),
        ("BRX R0 0x0", "jumps to 0x"),
        ("NOP", "runs past the end of the code"),
        ("BAR.SYNC.DEFER_BLOCKING R0, 0x40", "an instruction that is not known in this form"),
        ("IADD3 R6, R0, `(end), RZ", "an instruction that is not known in this form"),
        ("F2FP.F16.F32 R6, R0, R0", "an instruction that is not known in this form"),
        ("IMAD R6, P0, R0, R0, RZ", "an instruction that is not known in this form"),
        # Operands that no semantics reads, and signs that none applies.
        ("EXIT R0", "an instruction that is not known in this form"),
        ("NOP R0", "an instruction that is not known in this form"),
        ("IMAD.MOV.U32 R6, RZ, R0, R0", "an instruction that is not known in this form"),
        ("LOP3.LUT R6, R0, R0, RZ, 0xc0, PT", "an instruction that is not known in this form"),
        ("LDG.E R6, desc[UR4][R2.64], !PT", "an instruction that is not known in this form"),
        ("FADD R6, R0, R0, R0", "an instruction that is not known in this form"),
        ("BSYNC PT, B0", "an instruction that is not known in this form"),
        ("MATCH.ANY R6, -R0", "an instruction that is not known in this form"),
        ("IADD3 R6, R0.H1_H1, RZ, RZ", "an instruction that is not known in this form"),
    ],
)
def test_instructions(text: str, message: str) -> None:
    ending = "" if text == "NOP" else "\nend:\nEXIT"
    assert re.match(message, failure(text + ending, shared_bytes=64))


@pytest.mark.parametrize(
    "sum_", ["IMAD.IADD R7, R0, 0x1, R6", "IMAD R7, R6, 0x3, R6", "IMAD.MOV R7, RZ, RZ, -R6"]
)
def test_sums_of_half_registers(sum_: str) -> None:
    """Unwritten bits lie above the bits that are used, as in a compiler's sums of 16-bit numbers."""
    text = f"PRMT R6, R0, 0x7610, R9\n{sum_}\nPRMT R8, R7, 0x7610, RZ\nVIADD R8, R8, 0x1\nEXIT"
    assert run_alone(text) == 10


@pytest.mark.parametrize(
    "text", ["IADD3 R6, R9, R9, RZ", "STG.E desc[UR4][R4.64], R9", "SEL R6, R0, R0, P2", "@P1 MOV R6, R0"]
)
def test_undefined_registers_may_be_allowed(text: str) -> None:
    """For code of other compilers, where the value does not matter."""
    assert "nobody wrote" in failure(f"{text}\nEXIT")
    assert run_alone(f"{text}\nEXIT", allows_undefined=True) == 7


def test_different_barriers() -> None:
    message = failure(
        """ISETP.LT.AND P0, PT, R0, 0x20, PT
        @P0 BAR.SYNC.DEFER_BLOCKING 0x1
        @!P0 BAR.SYNC.DEFER_BLOCKING 0x2
        EXIT""",
        threads=64,
    )
    assert message.startswith("threads of a block wait at different barriers")


def test_lanes_that_wait_for_ever() -> None:
    message = failure(
        """ISETP.LT.AND P0, PT, R0, 0x5, PT
        @P0 BRA `(end)
        WARPSYNC.ALL
        end:
        BAR.SYNC.DEFER_BLOCKING 0x0
        EXIT"""
    )
    assert message.startswith("lane 0 waits for ever: BAR.SYNC.DEFER_BLOCKING 0x0 at 0x80")


def test_a_kernel_that_does_not_end() -> None:
    message = failure("again:\nBRA `(again)", max_instructions=1000)
    assert message.startswith("does not end: BRA `(again) at 0x50")


def test_part_of_a_cluster() -> None:
    buffer = Buffer(np.zeros(1, np.uint32))
    with pytest.raises(MachineError, match="a cluster without some of its blocks"):
        run(Launch(assembled("EXIT"), b"", [buffer], (4, 1, 1), (32, 1, 1), cluster_blocks=2), [0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FROB R1, R2", r"FROB R1, R2 \(FROB is not in the table\)"),
        ("IADD3.FROB R1, R2, R3, R4", r"IADD3.FROB R1, R2, R3, R4 \(IADD3 has no suffix FROB in the table\)"),
        ("LDG.E.FTZ R1, desc[UR4][R2.64]", "LDG has no suffix FTZ in the table"),
        ("MOV R1, SR_FROB", "MOV R1, SR_FROB"),
        ("MOV R1, R2.H7", "MOV R1, R2.H7"),
        ("BRA `(nowhere)", "BRA `.nowhere. .*nowhere"),
        ("LDG.E R1, desc[UR4][R2.64-R4]", "an address less a register"),
        ("IADD3 R1, R2, R3, R4, R5, R6, R7, R8, R9", "it has 9 operands"),
        ("iadd3 r1", "not of the form of an instruction"),
    ],
)
def test_unknown_instructions(text: str, message: str) -> None:
    """They are errors if executed, but not if only decoded or skipped."""
    assert re.match(f"an instruction that is not known: .*{message}", failure(f"{text}\nEXIT"))
    assert run_alone(f"@!PT {text}\nBRA `(end)\n{text}\nend:\nEXIT") == 8


def test_an_instruction_of_a_kernel_that_is_not_known() -> None:
    """`cp.async` that fills up with zeros, whose encoding is not documented."""
    text = """extern "C" __global__ void fills(const int* from) {
      __shared__ alignas(16) int to[4];
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, 8;"
        : : "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from));
    }"""
    code = decode.decode(compiled_text(text, "sm_90", ["fills"]).cubin)["fills"]
    assert code.static_shared_bytes == 16
    (unknown,) = code.unknown
    assert re.match(r".*LDGSTS\.E\.BYPASS\.128\.ZFILL .*no suffix ZFILL", unknown)
    source = Buffer(np.zeros(4, np.uint32))
    launch = Launch(code, np.uint64(source.address).tobytes(), [source], (1, 1, 1), (1, 1, 1))
    with pytest.raises(MachineError, match=r"an instruction that is not known: .*no suffix ZFILL"):
        run(launch)


@pytest.mark.parametrize("number", [80, 100])
def test_a_cubin_of_another_architecture(number: int) -> None:
    cubin = compiled_text('extern "C" __global__ void nothing() {}', f"sm_{number}", ["nothing"]).cubin
    with pytest.raises(ValueError, match=f"the machine runs code for sm_90, this is a cubin for sm_{number}"):
        decode.decode(cubin)


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\x7fELF" + bytes(100), b"garbage" * 99, bytes(1000)])
def test_garbage_instead_of_a_cubin(data: bytes) -> None:
    with pytest.raises(ValueError, match="the machine runs code for sm_90, this is not a cubin"):
        decode.decode(data)


def test_a_cubin_that_was_cut_off() -> None:
    cubin = compiled_text('extern "C" __global__ void nothing() {}', "sm_90", ["nothing"]).cubin
    with pytest.raises(ValueError, match="not a cubin"):
        decode.decode(cubin[: len(cubin) // 2])


def test_without_nvdisasm(monkeypatch: pytest.MonkeyPatch) -> None:
    cubin = compiled_text('extern "C" __global__ void nothing() {}', "sm_90", ["nothing"]).cubin
    monkeypatch.setattr(disassembly, "disassembler", lambda: None)
    with pytest.raises(FileNotFoundError, match="there is no nvdisasm: pip install nvidia-cuda-nvdisasm"):
        decode.decode(cubin)


def test_tests_are_skipped_without_nvdisasm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "disassembler", lambda: None)
    assert unavailable.__wrapped__() == "no nvdisasm: pip install nvidia-cuda-nvdisasm"


def test_a_machine_that_does_not_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the command and the compiler's messages for each file; nothing is kept."""
    monkeypatch.setenv("CUDML_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "good.cpp").write_text("int good() { return 1; }\n")
    (tmp_path / "bad.cpp").write_text("int bad() { return frob; }\n")
    with pytest.raises(CompilerError, match=r"the machine does not compile:\n") as caught:
        machine.build(tmp_path)
    message = str(caught.value)
    assert re.search(r"bad\.cpp:1:\d+: error: .*frob", message)
    assert f"-c {tmp_path / 'bad.cpp'}" in message
    assert "good.cpp" not in message
    assert not list((tmp_path / "cache").rglob("*.so"))


def test_a_machine_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDML_CXX", "no-such-compiler")
    with pytest.raises(CompilerError, match="CUDML_CXX is 'no-such-compiler', which cannot be run"):
        machine.build(tmp_path)
