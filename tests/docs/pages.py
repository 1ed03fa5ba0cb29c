"""Documents as the tests read them: their code blocks, links and headings."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DOCUMENTS = [
    ROOT / "README.md",
    *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md")),
    *sorted(file for file in DOCS.rglob("*.md") if "_build" not in file.parts),
]

_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_NAMED = re.compile(r"`(?P<file>[\w./-]+\.py)`[^\n`]*:\s*$")
_FIRST_LINE = re.compile(r"# (?P<file>[\w./-]+\.py)(?P<more>, continued)?$")
_NOT_RUN = re.compile(r"<!-- not run: [^>]+ -->\s*$")
_FAILS = re.compile(r"<!-- exit code (\d+) -->\s*$")


@dataclass(frozen=True, slots=True)
class Block:
    """A code block, and what the page says about it."""

    document: Path
    line: int
    language: str
    text: str
    file: str
    """The file that it is, if its first line (`# hello.py`) or the line before it (`hello.py`: …) says so."""
    continued: bool
    """Whether it goes on with a file that is there already."""
    is_run: bool
    exit_code: int
    """How its commands end: a comment `<!-- exit code 2 -->` stands before those that fail, as they should."""
    is_output: bool
    """Whether it follows right after another block: what that one prints."""

    @property
    def place(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def blocks(document: Path) -> list[Block]:
    """The code blocks of a document, in order. A comment `<!-- not run: why -->` stands before those that cannot."""
    text = document.read_text("utf-8")
    found: list[Block] = []
    end = 0
    for match in _FENCE.finditer(text):
        before = text[end : match.start()]
        language = match["info"].strip().split(" ")[0]
        body = re.sub(rf"^{match['indent']}", "", match["body"], flags=re.MULTILINE)
        first = _FIRST_LINE.match(body.split("\n", 1)[0])
        named = _NAMED.search(before)
        found.append(
            Block(
                document,
                text.count("\n", 0, match.start()) + 1,
                language,
                body,
                first["file"] if first else named["file"] if named and language == "python" else "",
                continued=bool(first and first["more"]),
                is_run=_NOT_RUN.search(before) is None,
                exit_code=int(fails[1]) if (fails := _FAILS.search(before)) else 0,
                is_output=language == "text" and bool(found) and not before.strip(),
            )
        )
        end = match.end()
    return found


def prose(document: Path) -> str:
    """A document without its code blocks."""
    return _FENCE.sub("", document.read_text("utf-8"))


def links(document: Path) -> list[str]:
    """Where its links lead, those to other sites left out."""
    return [each for each in _LINK.findall(prose(document)) if not re.match(r"[a-z]+:", each)]


def anchors(document: Path) -> set[str]:
    """The anchors of its headings, as code hosts and Sphinx make them."""
    return {_slug(each) for each in _HEADING.findall(prose(document))}


def _slug(heading: str) -> str:
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*\\]", r"\1", heading)
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", plain.lower()))
