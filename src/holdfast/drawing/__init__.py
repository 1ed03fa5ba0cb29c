"""The graph of a kind for people: as text for terminals, as mermaid, and as an SVG picture.

A `Drawing` says what is drawn. Names may come from a database that others write to, so nothing here trusts them: what
is invisible is replaced, what is long is cut, and every format escapes the rest.
"""

from holdfast.drawing.mermaid import as_mermaid
from holdfast.drawing.style import STYLE
from holdfast.drawing.subject import STATES, Counts, Drawing, Link
from holdfast.drawing.svg import as_svg
from holdfast.drawing.text import as_text

__all__ = ["STATES", "STYLE", "Counts", "Drawing", "Link", "as_mermaid", "as_svg", "as_text"]
