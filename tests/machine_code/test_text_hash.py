"""The hash that stands for the machine code of an instance: what changes it, and what does not."""

from pathlib import Path

import pytest

from cudml.plans import KernelLaunch
from proof.sass.text_hash import text_hash, without_comments
from tests.support.params import params_of

HEADER = "__device__ int twice(int x) { return x + x; }\n"
SOURCE = '#include "twice.cuh"\n__global__ void fill(int* out) { out[0] = twice(2); }\n'


def hash_of(folder: Path, *, header: str = HEADER, source: str = SOURCE, threads: int = 32) -> int:
    """The hash of a kernel of these texts, in a folder of its own."""
    folder.mkdir()
    (folder / "twice.cuh").write_text(header)
    (folder / "fill.cu").write_text(source)
    return text_hash(
        KernelLaunch(
            source=str(folder / "fill.cu"),
            function="fill",
            template=(),
            grid=(1, 1, 1),
            block=(threads, 1, 1),
            buffers=("out",),
            params=params_of(start=("Int32", 0)),
            shared_bytes=0,
        )
    )


@pytest.mark.parametrize(
    "source",
    [
        SOURCE + "// The end.\n",
        SOURCE.replace("{ out", "{ /* Two\nlines. */ out"),
        SOURCE.replace(" { ", "   { ").replace(" }\n", "  }  \n\n\n"),
    ],
)
def test_comments_and_space_do_not_count(tmp_path: Path, source: str) -> None:
    assert hash_of(tmp_path / "after", source=source) == hash_of(tmp_path / "before")


@pytest.mark.parametrize(
    "change",
    [
        {"source": SOURCE.replace("twice(2)", "twice(3)")},
        {"header": HEADER.replace("x + x", "2 * x")},
        {"threads": 64},
    ],
)
def test_code_includes_and_block_count(tmp_path: Path, change: dict[str, object]) -> None:
    assert hash_of(tmp_path / "after", **change) != hash_of(tmp_path / "before")  # type: ignore[arg-type]


def test_marks_of_a_comment_in_a_literal_are_none(tmp_path: Path) -> None:
    path = tmp_path / "text.cuh"
    path.write_text("""f("a // b", '"', "/*"); // "c\ng('\\'', "\\"//"); /* d */ h();\n""")
    assert without_comments(path) == """f("a // b", '"', "/*");\ng('\\'', "\\"//"); h();"""
