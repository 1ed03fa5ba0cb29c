"""How the documentation is built: `make docs`. Everything works without a network."""

import sys
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive
from pygments.lexers.sql import PostgresLexer
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import holdfast

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import generate  # noqa: E402 - beside this file

project = "Holdfast"
author = copyright = "The Holdfast developers"
version = release = generate.version()

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
smartquotes = False  # or --once becomes a dash
default_role = "code"  # docstrings are written in Markdown's way: `code`

html_theme = "furo"
html_title = f"Holdfast {release}"
html_static_path = ["_static"]
html_css_files = ["holdfast.css"]
html_copy_source = False
html_show_sphinx = False

linkcheck_anchors = False
linkcheck_timeout = 20
linkcheck_workers = 10


# What autodoc finds under private modules is public under `holdfast`.
PUBLIC = {
    f"{found.__module__}.{found.__qualname__}": f"holdfast.{name}"
    for name in holdfast.__all__
    if isinstance(found := getattr(holdfast, name), type)
}


def resolve(app: Sphinx, env: BuildEnvironment, node: pending_xref, text: nodes.TextElement) -> nodes.Node | None:
    """Leads references by private names to the public ones. Names of other packages are plain text, not errors."""
    target = str(node.get("reftarget", ""))
    if node.get("refdomain") != "py":
        return None
    if target in PUBLIC:
        found = env.domains.python_domain.objects.get(PUBLIC[target])
        if found is None:
            return None  # public, and not documented
        uri = app.builder.get_relative_uri(node["refdoc"], found.docname) + "#" + found.node_id
        return nodes.reference("", "", text, internal=True, refuri=uri)
    return text


class Mermaid(Directive):
    """A diagram. Code hosts draw the text; here is a drawing of it, named by its first line: `%% states.svg`."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        name = self.content[0].removeprefix("%%").strip()
        drawing = (HERE / "_static" / name).read_text("utf-8")
        return [nodes.raw("", f'<figure class="diagram">{drawing}</figure>', format="html")]


def setup(app: Sphinx) -> None:
    app.add_directive("mermaid", Mermaid)
    app.add_lexer("sql", PostgresLexer)
    app.connect("missing-reference", resolve)
