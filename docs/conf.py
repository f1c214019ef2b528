"""Sphinx: `sphinx-build -W docs build/site`. Needs the `docs` extra alone, and Python 3.11."""

import enum
import inspect
import os
import shutil
import sys
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_overloads

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

import cudml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench import plots  # noqa: E402

project = "cudml"
version = release = cudml.__version__
author = "the cudml authors"
copyright = "the cudml authors"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
html_theme = "pydata_sphinx_theme"
html_title = "cudml"
html_theme_options = {
    "logo": {"text": "cudml", "image_light": "_static/icon.svg", "image_dark": "_static/icon.svg"},
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 7,
    "navbar_persistent": ["search-button"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": [],
    "footer_end": [],
}
html_context = {"default_mode": "auto"}
html_sidebars = {"index": [], "getting_started": []}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/icon.svg"
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False

# Docstrings name the types of parameters; pages of classes list what the class itself defines.
templates_path = ["_templates"]
autosummary_generate = True
_CLASSES = {f"cudml.{name}": one for name in cudml.__all__ if inspect.isclass(one := getattr(cudml, name))}


def _fields(class_: type) -> list[tuple[str, str]]:
    """Names and types of what a named tuple or a dataclass has, if its docstring does not say."""
    is_record = is_dataclass(class_) or hasattr(class_, "_fields")
    if not is_record or "Parameters\n" in (class_.__doc__ or ""):
        return []
    return [
        (name, "array" if type_ is Any else getattr(type_, "__name__", str(type_)))
        for name, type_ in inspect.get_annotations(class_).items()
    ]


autosummary_context = {
    "fields": {name: fields for name, one in _CLASSES.items() if (fields := _fields(one))},
    #: Their parameters say what their attributes are.
    "parameters": [name for name, one in _CLASSES.items() if is_dataclass(one)],
}
autodoc_typehints = "none"
napoleon_google_docstring = False
# Pages include parts of files whose first heading is not a page's.
suppress_warnings = ["myst.header"]
myst_heading_anchors = 3
exclude_patterns = []
nitpicky = False

#: Files of the repository that are pages here.
PAGES = {"CONTRIBUTING.md": "contributing", "bench/PREDICTION.md": "prediction", "bench/results": "results"}

#: Where the site has copies of other files that pages link to.
FILES = "files"

_copied: set[str] = set()


class FilesOfTheRepository(SphinxPostTransform):
    """Links by the path from the root of the repository, or from `bench/`, lead to a page or to a copy."""

    default_priority = 8  # before MyST looks for pages alone

    def run(self, **options: Any) -> None:
        """Replace the links of a page."""
        for node in list(self.document.findall(addnodes.pending_xref)):
            uri = self._uri(node.get("reftarget", "")) if node["reftype"] == "myst" else None
            if uri is not None:
                node.replace_self(nodes.reference("", "", *node.children, internal=True, refuri=uri))

    def _uri(self, target: str) -> str | None:
        page = self.env.docname
        for path in (target, f"bench/{target}"):
            if path in PAGES:
                return self.app.builder.get_relative_uri(page, PAGES[path])
            if (ROOT / path).is_file():
                _copied.add(path)
                return os.path.relpath(f"{FILES}/{path}", Path(page).parent)
        return None


def _copy_files(app: Sphinx, problem: Exception | None) -> None:
    for path in _copied:
        copy = Path(app.outdir, FILES, path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, copy)


#: Classes that callers do not make themselves.
MADE_BY_OTHERS = (enum.Enum, cudml.CompiledOperator)


def _signature(
    app: Sphinx, what: str, name: str, object_: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, None] | None:
    """That of `torch.nn.GRU` for the class that takes the same arguments; none of classes made by others."""
    if what == "class" and issubclass(object_, MADE_BY_OTHERS):
        return "", None
    if name != "cudml.torch.GRU":
        return None
    import torch

    _, *parameters = inspect.signature(get_overloads(torch.nn.GRU.__init__)[0]).parameters.values()
    shown = [one.replace(annotation=inspect.Parameter.empty) for one in parameters]
    return str(inspect.Signature(shown)), None


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    # Plots are made from the results at every build, so that they cannot be out of date.
    app.connect("builder-inited", lambda app: plots.write(Path(app.srcdir, "_plots")))
    app.add_post_transform(FilesOfTheRepository)
    app.connect("build-finished", _copy_files)
    app.connect("autodoc-process-signature", _signature)
