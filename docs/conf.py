"""Sphinx: `sphinx-build -W docs build/site`."""

import cudml

project = "cudml"
version = release = cudml.__version__
author = "the cudml authors"
copyright = "the cudml authors"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
html_theme = "pydata_sphinx_theme"
html_title = "cudml"
html_theme_options = {"show_toc_level": 2, "navigation_with_keys": False}
html_show_copyright = False

autosummary_generate = True
autodoc_typehints = "none"
napoleon_google_docstring = False
# The README's links lead to files of the repository, which are not pages.
suppress_warnings = ["myst.xref_missing", "myst.header"]
myst_heading_anchors = 3
exclude_patterns = []
nitpicky = False
