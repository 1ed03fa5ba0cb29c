"""Checks that docs/architecture.md has a line for each module, and no line without a module: part of `make lint`.

A heading names a folder, and the paragraph under it says what the folder is for. A line of the list names a module of
that folder. Files with statements count as modules; `__init__.py` and migrations do not.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
SOURCE = ROOT / "src"

_FOLDER = re.compile(r"^### `(?P<folder>holdfast/[\w/]*)`$")
_MODULE = re.compile(r"^- `(?P<module>\w+\.(?:py|sql))`: \S.+$")


def written(page: str) -> list[str]:
    """The folders and modules that the page has a line for."""
    found, folder = [], ""
    for line in page.splitlines():
        if heading := _FOLDER.match(line):
            folder = heading["folder"]
            found.append(folder)
        elif line.startswith("#"):
            folder = ""
        elif folder and (module := _MODULE.match(line)):
            found.append(folder + module["module"])
    return found


def existing() -> set[str]:
    """The folders and modules that there are."""
    files = [
        path.relative_to(SOURCE)
        for ending in ("py", "sql")
        for path in (SOURCE / "holdfast").rglob(f"*.{ending}")
        if "migrations" not in path.parts
    ]
    return {str(file) for file in files if file.name != "__init__.py"} | {f"{file.parent}/" for file in files}


def problems(page: str, modules: set[str]) -> Iterator[str]:
    """What is wrong with the page, in a line each."""
    lines = Counter(written(page))
    for module in sorted(modules - lines.keys()):
        yield f"{module} has no line in docs/architecture.md"
    for module in sorted(lines.keys() - modules):
        yield f"docs/architecture.md has a line for {module}, which does not exist: remove or rename it"
    for module, count in sorted(lines.items()):
        if count > 1:
            yield f"docs/architecture.md has {count} lines for {module}: keep one"


if __name__ == "__main__":
    found = list(problems(PAGE.read_text("utf-8"), existing()))
    print("\n".join(found) or "docs/architecture.md has a line for each module")
    sys.exit(bool(found))
