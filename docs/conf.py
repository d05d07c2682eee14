"""How Sphinx builds these pages: `make docs`."""

import logging
import re
from typing import Any

from fedhk import __version__

project = "FedHK"
author = "The FedHK developers"
copyright = "The FedHK developers"  # noqa: A001 - Sphinx's name
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build"]
nitpicky = False
# types of docstrings are links where there is one class of that name; several modules have a `Statistics`
suppress_warnings = ["ref.python"]
default_role = "code"  # docstrings have names in single backticks

html_theme = "furo"
html_title = f"FedHK {release}"
html_theme_options = {"source_repository": "", "navigation_with_keys": True}
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_js_files = ["pages.js"]

myst_heading_anchors = 3
myst_links_external_new_tab = False

autodoc_member_order = "groupwise"
autodoc_typehints = "none"  # the docstrings say types in words
autodoc_default_options = {
    "members": True,
    "inherited-members": False,
    "show-inheritance": True,
    "exclude-members": "set_fit_request, set_partial_fit_request, set_score_request, set_output, get_metadata_routing, "
    "from_model, to_state",
}
autosummary_generate = False
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
viewcode_line_numbers = True


logging.getLogger("fedhk").setLevel(logging.WARNING)  # examples would log to the console of the build
# examples run while the pages are built; one that fails is an error
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": ".*",
    "within_subsection_order": "FileNameSortKey",
    "run_stale_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "min_reported_time": 10**6,
    "write_computation_times": False,
    "download_all_examples": False,
    "thumbnail_size": (320, 224),
    "matplotlib_animations": False,
    "copyfile_regex": "",
    "capture_repr": ("_repr_html_",),
    "ignore_repr_types": r"fedhk\.plot\.Plot",  # it is drawn on the axes that the example made
}


def files_to_download(app: Any, name: str, source: list[str]) -> None:  # noqa: ARG001 - Sphinx's signature
    """Link to files outside of this folder, which are no pages here, as files."""
    source[0] = re.sub(r"\]\((\.\./(?:\.\./)?(?!\.)[^)#]+\.(?:md|cff|toml))\)", lambda m: outside(name, m), source[0])


def outside(name: str, link: re.Match[str]) -> str:
    """The link as it is, or as a file if it leads out of this folder."""
    target = link.group(1)
    leads_out = target.count("../") > name.count("/")
    return f"](path:{target})" if leads_out else link.group(0)


def setup(app: Any) -> None:
    """Register the hook."""
    app.connect("source-read", files_to_download)
