"""What makes the generated pages of the documentation; it lives beside them."""

import sys
from importlib import import_module
from typing import Any

from .pages import DOCS

sys.path.insert(0, str(DOCS))
generate: Any = import_module("generate")
