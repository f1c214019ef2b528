"""`.ci/links.py`: links of a site that lead nowhere are found."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PAGE = """<link href="style.css"><a id="here"></a><a href="#here">1</a> <a href="sub/other.html#there">2</a>
<a href="https://example.org/none">3</a>"""


def checked(folder: Path) -> tuple[int, list[str]]:
    command = [sys.executable, ROOT / ".ci/links.py", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr.splitlines()


def test_what_does_not_exist_is_listed(tmp_path: Path) -> None:
    assert checked(tmp_path) == (1, [f"{tmp_path} has no page"])
    (tmp_path / "sub").mkdir()
    (tmp_path / "style.css").touch()
    (tmp_path / "page.html").write_text(PAGE)
    (tmp_path / "sub/other.html").write_text('<p id="there"><a href="../page.html">back</a></p>')
    assert checked(tmp_path) == (0, [])
    (tmp_path / "sub/other.html").write_text('<img src="none.png"><a href="../page.html#nowhere">back</a>')
    (tmp_path / "style.css").unlink()
    assert checked(tmp_path) == (
        1,
        [
            "other.html: ../page.html#nowhere has no such place",
            "other.html: there is no none.png",
            "page.html: sub/other.html#there has no such place",
            "page.html: there is no style.css",
        ],
    )
