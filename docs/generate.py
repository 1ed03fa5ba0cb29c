"""What is made from the code: command line, settings, schema, names. Each function gives Markdown.

`python docs/generate.py` writes it into the pages, between marks, so that it is read wherever they are. A test sees
that it is what is there.
"""

import inspect
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

import holdfast
import holdfast.testing
import holdfast.web
from holdfast._db.config.settings import SETTINGS
from holdfast._model.read.filter import FIELDS
from holdfast.app import package_version
from holdfast.cli import SECTIONS, main

HERE = Path(__file__).parent
SCHEMA = HERE.parent / "src" / "holdfast" / "_sql" / "schema.sql"


def version() -> str:
    """The version that is documented."""
    return package_version()


PLACES = {
    "names": "reference/api.md",
    "cli": "reference/cli.md",
    "settings": "reference/configuration.md",
    "filters": "howto/filters.md",
    "schema": "reference/sql.md",
}


def pages() -> dict[str, str]:
    """All that is made, by name."""
    return {
        "names": names(),
        "cli": command_line(),
        "settings": settings(),
        "filters": filters(),
        "schema": schema(),
    }


def written() -> Iterator[tuple[Path, str, str]]:
    """Each page with such a part: the file, what it says, and what it should say."""
    for name, made in pages().items():
        file = HERE / PLACES[name]
        text = file.read_text("utf-8")
        begin, end = f"<!-- made from the code: {name} -->\n", f"<!-- end of {name} -->"
        before, rest = text.split(begin)
        yield file, text, f"{before}{begin}\n{made.strip()}\n\n{end}{rest.split(end)[1]}"


# Names ----------------------------------------------------------------------------------------------


def names() -> str:
    """Every public name with the first sentence about it."""
    rows = []
    for module in (holdfast, holdfast.testing, holdfast.web):
        for name in sorted(module.__all__, key=str.lower):
            found = getattr(module, name)
            about = inspect.getdoc(found) if inspect.isclass(found) or inspect.isroutine(found) else None
            first = " ".join((about or "").split("\n\n")[0].split())
            rows.append((f"`{module.__name__}.{name}`", _escaped(first) or "see below"))
    return "\n".join(_table(("name", "what it is"), rows)) + "\n"


# The command line -----------------------------------------------------------------------------------


def command_line() -> str:
    """Every command with its help, options and examples, in the sections of `holdfast --help`."""
    parts: list[str] = []
    with click.Context(main, info_name="holdfast", **main.context_settings) as top:
        everywhere = _option_rows(main, top)
        parts += ["## Options of every command", "", *_table(("option", "meaning"), everywhere)]
        for section, commands in SECTIONS.items():
            parts += ["", f"## {section}", ""]
            for name in commands:
                command = main.get_command(top, name)
                assert command is not None, name  # noqa: S101 - a section names a command that is not there
                parts += _command(command, name, top, {row[0] for row in everywhere})
    return "\n".join(parts) + "\n"


def _command(command: click.Command, name: str, parent: click.Context, known: set[str]) -> Iterator[str]:
    with click.Context(command, info_name=name, parent=parent) as ctx:
        path = ctx.command_path
        yield from (f"### {path}", "")
        if not isinstance(command, click.Group):
            usage = " ".join([path, *command.collect_usage_pieces(ctx)])
            yield from ("```text", usage, "```", "")
        yield from _help(command.help or "")
        rows = [row for row in _option_rows(command, ctx) if row[0] not in known]
        if rows:
            yield from (*_table(("option", "meaning"), rows), "")
        if isinstance(command, click.Group):
            for each in command.list_commands(ctx):
                inner = command.get_command(ctx, each)
                if inner is not None:
                    yield from (line.replace("### ", "#### ") for line in _command(inner, each, ctx, known))


def _help(text: str) -> Iterator[str]:
    """Paragraphs as they are; those that click is not to wrap are code, under their first line."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if not paragraph.startswith("\b"):
            yield from (_escaped(" ".join(paragraph.split())), "")
            continue
        title, *lines = paragraph.removeprefix("\b").strip("\n").split("\n")
        if title.startswith("A FILTER"):
            yield from ("A FILTER is described in [Filters](../howto/filters.md).", "")
        elif title.startswith("Example"):
            yield from ("<!-- not run: an example -->", "```console")
            yield from (*(line.removeprefix("  ") for line in lines), "```", "")
        else:
            yield from (title, "", "```text", *(line.removeprefix("  ") for line in lines), "```", "")


def _option_rows(command: click.Command, ctx: click.Context) -> list[tuple[str, str]]:
    options = [each for each in command.get_params(ctx) if isinstance(each, click.Option) and each.name != "help"]
    found = [each.get_help_record(ctx) for each in options]
    return [(f"`{names}`", _escaped(" ".join(about.split()))) for names, about in filter(None, found)]


# Settings and filters -------------------------------------------------------------------------------


def settings() -> str:
    """The table of settings."""
    rows = [
        (f"`{each.name}`", each.about, f"`{each.variable}`", f"`{each.default_text}`" if each.default_text else "none")
        for each in SETTINGS.values()
    ]
    return "\n".join(_table(("key", "what it says", "variable", "default"), rows)) + "\n"


def filters() -> str:
    """The table of the fields that tasks are filtered by."""
    rows = [(f"`{name}:`", _escaped(about)) for name, about in FIELDS.items()]
    return "\n".join(_table(("field", "value"), rows)) + "\n"


# The schema -----------------------------------------------------------------------------------------

_OBJECT = re.compile(
    r"^COMMENT ON (?P<type>TABLE|VIEW|COLUMN|FUNCTION|DOMAIN) holdfast\.(?P<name>.+?) IS '(?P<about>(?:[^']|'')*)';$",
    re.MULTILINE,
)
_FUNCTION = re.compile(r"^CREATE FUNCTION holdfast\.(?P<call>\w+\(.*?\)) RETURNS (?P<returns>.+)$", re.MULTILINE)
_TABLE = re.compile(r"^CREATE TABLE holdfast\.(?P<name>\w+) \(\n(?P<body>.*?)\n\)", re.MULTILINE | re.DOTALL)
_COLUMN = re.compile(r"^    (?P<name>[a-z_]+) (?P<type>.+?)(?: COLLATE| DEFAULT| NOT NULL|,?$)", re.MULTILINE)


def schema() -> str:
    """Every function, view, table and column with its comment, from the picture of the schema."""
    text = SCHEMA.read_text("utf-8")
    comments = [(m["type"], m["name"].replace('"', ""), _comment(m["about"])) for m in _OBJECT.finditer(text)]
    about = {(type, name): said for type, name, said in comments}
    parts = ["## Functions"]
    for m in sorted(_FUNCTION.finditer(text), key=lambda m: m["call"]):
        said = about["FUNCTION", _name_and_types(m["call"])]
        if not said.startswith("Internal"):
            call, name = _signature(m["call"]), m["call"].partition("(")[0]
            parts += ["", f"### {name}", "", f"`holdfast.{call}` answers `{_type(m['returns'])}`", "", said]
    parts += ["", "## Views", ""]
    parts += _table(("view", "what it shows"), [(f"`{n}`", said) for t, n, said in comments if t == "VIEW"])
    parts += ["", "## Types of names", ""]
    parts += _table(("domain", "what it allows"), [(f"`{n}`", said) for t, n, said in comments if t == "DOMAIN"])
    parts += ["", "## Tables"]
    for table in _TABLE.finditer(text):
        name = table["name"]
        columns = [
            (f"`{c['name']}`", f"`{_type(c['type'])}`", about.get(("COLUMN", f"{name}.{c['name']}"), ""))
            for c in _COLUMN.finditer(table["body"])
            if c["name"] != "CONSTRAINT"
        ]
        parts += ["", f"### {name}", "", about.get(("TABLE", name), ""), ""]
        parts += _table(("column", "type", "meaning"), columns)
    return "\n".join(parts) + "\n"


def _comment(text: str) -> str:
    return _escaped(text.replace("''", "'").replace('"holdfast".', "holdfast."))


def _type(name: str) -> str:
    return name.replace("holdfast.", "").replace("timestamp with time zone", "timestamptz").lower()


def _signature(call: str) -> str:
    """`enqueue(step text, args jsonb DEFAULT '{}'::jsonb)` as people write it."""
    words = {"DEFAULT": "default", "NULL": "null", "holdfast.": ""}
    return re.sub("|".join(words), lambda word: words[word[0]], re.sub(r"::\w+", "", call))


def _name_and_types(call: str) -> str:
    """How a COMMENT names a function: pg_dump gives names of parameters there too, but no defaults."""
    return re.sub(r" DEFAULT [^,)]+", "", call).replace('"', "")


# Markdown -------------------------------------------------------------------------------------------


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    return lines + ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]


def _escaped(text: str) -> str:
    """Plain text as Markdown; what is in backticks stays."""
    pieces: list[Any] = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([\\*_<>\[\]{}$~^#])", r"\\\1", p) for p in pieces)


if __name__ == "__main__":
    for page, before, after in written():
        if before != after:
            page.write_text(after, "utf-8")
