# SPDX-License-Identifier: MIT
# The site, for Sphinx: scripts/build_site stages the pages and runs it.
import logging
import os
import re
import warnings

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

warnings.filterwarnings("ignore", module="breathe")  # what it will have to change for later versions of Sphinx

project = "Kformer"
author = "the Kformer authors"
copyright = author
version = release = os.environ["KFORMER_VERSION"]

extensions = ["myst_parser", "breathe"]
exclude_patterns = ["site"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
highlight_language = "none"
smartquotes_action = "De"  # dashes; values of decks keep their quotes
# Anchors as a forge makes them from headings.
myst_heading_anchors = 4

breathe_projects = {"kformer": os.environ["KFORMER_DOXYGEN_XML"]}
breathe_default_project = "kformer"
breathe_default_members = ()
breathe_show_include = False
cpp_id_attributes = ["KOKKOS_FUNCTION", "KOKKOS_INLINE_FUNCTION"]

html_theme = "furo"
html_title = f"Kformer {release}"
html_static_path = ["site/static"]
html_css_files = ["kformer.css"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
toc_object_entries_show_parents = "hide"


class RepeatedNamespace(logging.Filter):
    """Doxygen's XML opens the namespace once for every header; that is no duplicate."""

    def filter(self, record):
        return not re.search(r"Declaration is '\.\. cpp:type:: kformer(::\w+)?'", record.getMessage())


class UnwrapNamespaces(SphinxTransform):
    """Removes the headings `namespace kformer` and what they say: the members alone are of interest."""

    default_priority = 800  # before the index and the tables of contents are made

    def apply(self):
        for description in list(self.document.findall(addnodes.desc)):
            signature = description.next_node(addnodes.desc_signature)
            if signature is None or not signature.astext().startswith("namespace "):
                continue
            content = next(child for child in description.children if isinstance(child, addnodes.desc_content))
            members = [child for child in content.children if not isinstance(child, nodes.paragraph)]
            parent, place = description.parent, description.parent.index(description)
            if place > 0 and isinstance(parent[place - 1], addnodes.index):
                del parent[place - 1]
            description.replace_self([nodes.target("", "", ids=signature["ids"]), *members])


def setup(app):
    for handler in logging.getLogger("sphinx").handlers:
        handler.filters.insert(0, RepeatedNamespace())  # before the one that counts warnings
    app.add_transform(UnwrapNamespaces)
