# SPDX-License-Identifier: Apache-2.0
"""Sphinx configuration: settings only. What they switch on lives in docs/_ext/ladder."""

import sys
from pathlib import Path

ROOT = Path(__file__).parent
FOLDERS = "docs/_ext", "plots", "examples/hopper_matmul", "examples/failures"
sys.path[:0] = [str(ROOT / p) for p in FOLDERS]

project = "Hopper matmul, step by step"
author = "the contributors"
copyright = author

# Where the sources can be read: "https://github.com/<owner>/<name>/blob/<branch>".
# Empty: our own copy of each file.
source_address = ""

extensions = [
    "matplotlib.sphinxext.plot_directive",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "ladder",
]
exclude_patterns = ["_build", "_ext", "gallery/sg_execution_times.rst"]
default_role = "code"
nitpicky = True

# Records, the first that has a version wins: what this build measured, then what is committed.
record_folders = ["docs/_build/measured", "plots/data"]
# A figure and an example are made again when any of these files changes.
figure_sources = ["conf.py", "examples/**/*.py", "plots/**/*.py", "plots/**/*.json", "src/**/*.py"]

sphinx_gallery_conf = {
    "examples_dirs": ["../examples"],
    "gallery_dirs": ["gallery"],
    # All that is shown is run; what lies beside the versions is no page.
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"^(benchmark|triton_matmul|ceiling|appendix_fp16)\.py$",
    "nested_sections": False,
    "within_subsection_order": "FileNameSortKey",
    "reset_argv": "ladder.gallery.arguments",
    "image_scrapers": (),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "remove_config_comments": True,
    "show_signature": False,
}

plot_formats = ["svg"]
plot_html_show_formats = False
plot_html_show_source_link = False
plot_rcparams = {"svg.hashsalt": "ladder", "savefig.transparent": True}
plot_apply_rcparams = True
plot_working_directory = str(ROOT)

add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
copybutton_exclude = ".linenos, .gp, .go"
highlight_language = "python"

html_theme = "pydata_sphinx_theme"
html_title = project
html_favicon = "docs/_static/favicon.svg"
html_context = {"default_mode": "auto"}
html_sidebars = {"first-steps": [], "first-kernel": []}
html_static_path = ["docs/_static"]
html_css_files = ["ladder.css"]
html_js_files = ["paper.js"]
html_copy_source = False
html_scaled_image_link = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "Hopper matmul"},
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": [],
    "footer_end": [],
}
