"""A hash of what decides the machine code of a kernel instance: equal hashes need no second compilation."""

import functools
import hashlib
import re
from pathlib import Path

from cudml.devices.kernel_text import assertions
from cudml.devices.sources import reached_files
from cudml.plans import KernelLaunch

#: Literals too, so that comment marks inside a literal do not count.
_COMMENT_OR_LITERAL = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)

#: Bits of a hash: 12 hexadecimal digits.
BITS = 48


def text_hash(launch: KernelLaunch) -> int:
    """The hash of the source of a launch without its comments, the instance, and the size of its blocks.

    The compiler and its options are not part of it, nor is the architecture.
    """
    parts = (
        _source_hash(launch.source),
        launch.name_expression,
        assertions(launch),
        *map(str, (*launch.block, launch.shared_bytes)),
    )
    return int.from_bytes(hashlib.sha256("\0".join(parts).encode()).digest()[: BITS // 8], "big")


@functools.cache
def _source_hash(source: str) -> str:
    """The hash of a source and what it includes, in which comments and the width of spaces do not count."""
    texts = (path.name + "\n" + without_comments(path) for path in reached_files(source))
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def without_comments(path: Path) -> str:
    """The lines of a file that have code, without comments and without space around them."""
    code = _COMMENT_OR_LITERAL.sub(
        lambda found: " " if found[0].startswith("/") else found[0], path.read_text(encoding="utf-8")
    )
    lines = (" ".join(line.split()) for line in code.splitlines())
    return "\n".join(line for line in lines if line)
