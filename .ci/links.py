"""Check that every link, image and anchor within a built site exists: `python .ci/links.py FOLDER`."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The anchors of a page, and the targets of its links."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.targets: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element's anchor and link target."""
        for name, value in attrs:
            if name == "id" and value:
                self.places.add(value)
            elif name in ("href", "src") and value and tag != "base":
                self.targets.append(value)


def problems(folder: Path) -> list[str]:
    """A line for each target that does not exist."""
    # The theme's own templates are no pages.
    paths = [path for path in folder.rglob("*.html") if "_static" not in path.relative_to(folder).parts]
    pages = {path.resolve(): Page(path) for path in paths}
    found = []
    for path, page in pages.items():
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not file.is_file():
                found.append(f"{path.name}: there is no {target}")
            elif parts.fragment and file in pages and unquote(parts.fragment) not in pages[file].places:
                found.append(f"{path.name}: {target} has no such place")
    return found


def main(folder: str) -> int:
    """Print the problems; 1 if there are some, or nothing was checked."""
    if not any(Path(folder).rglob("*.html")):
        print(f"{folder} has no page", file=sys.stderr)
        return 1
    found = sorted(set(problems(Path(folder))))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
