"""The documentation as a site: `make docs`."""

from proxyhash import __version__

project, author, release = "proxyhash", "the proxyhash authors", __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "proxyhash"
exclude_patterns = ["figures/*.py"]
myst_heading_anchors = 3  # links to headings, as in a repository's own view of the pages
napoleon_google_docstring = False  # docstrings follow numpydoc
napoleon_use_ivar = True  # attributes without cross-references
default_role = "code"  # docstrings write `code` with single backquotes
autodoc_typehints = "none"  # aliases such as ArrayLike would take three lines; docstrings give shapes
autodoc_member_order = "bysource"
nitpicky = False  # types of other libraries have no pages here
