"""The README as a package index shows it: hatchling calls `ReadmeHook` when it builds the metadata.

An index resolves no path of the repository. With a `Repository` under `project.urls`, such links lead there;
without one, as long as the repository has no public address, they become plain text.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

#: A link of Markdown to a file of the repository, and not to a page elsewhere or a heading.
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?://|#)([^)\s]+)\)")


def for_an_index(text: str, repository: str | None) -> str:
    """The text with its relative links made absolute, or removed."""
    to = rf"[\1]({repository.rstrip('/')}/blob/main/\2)" if repository else r"\1"
    return _LINK.sub(to, text)


class ReadmeHook(MetadataHookInterface):
    """Sets `readme`, which `pyproject.toml` calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_an_index(text, repository)}
