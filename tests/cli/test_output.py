"""What commands print: nothing from the database can move the cursor or hide."""

from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli.output.printing import clean, error_line, line, value
from holdfast.cli.output.tables import fitted_table


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 漢字", "plain ü 漢字"),
        ("two\nlines\tand\r\nmore", "two\nlines\tand\nmore"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07x\x1b]8;;http://evil\x1b\\link", "xlink"),
        ("\x1bPpayload\x1b\\x", "x"),
        ("\x1bc reset", " reset"),
        ("\x1b", "\\x1b"),
        ("a\rb\x08c\x00\x7f", "a\\rb\\x08c\\x00\\x7f"),
        ("unfinished \x1b]0;", "unfinished \\x1b]0;"),
        ("\u202eback\u2066", "\\u202eback\\u2066"),
        ("half \ud800", "half \\ud800"),
    ],
)
def test_clean(text: str, shown: str) -> None:
    assert clean(text) == shown


def test_one_line() -> None:
    assert line("a\n b\t\tc") == "a b c"
    assert line("x" * 10, 5) == "xxxx…"
    assert error_line({"type": "OSError", "message": "a\nb"}) == "OSError: a b"
    assert error_line({"message": "alone"}) == "alone"
    assert error_line(None) == ""
    assert value({"a": "x  y\n\u202e"}) == '{"a": "x  y\\n\\u202e"}'
    assert value({"a": "\x1b[2J"}) == '{"a": "\\u001b[2J"}'


def _lines(*arguments: Any, **options: Any) -> list[str]:
    with CliRunner().isolation() as (out, *_):
        fitted_table(*arguments, **options)
        return out.getvalue().decode().splitlines()


def test_tables_line_up_and_are_plain_and_complete_where_nobody_looks() -> None:
    assert _lines(["A", "LONG"], [["wide cell", ("x", "red")], ["b", ""]]) == ["A          LONG", "wide cell  x", "b"]
    long = "x" * 5000
    assert _lines(["A"], [[long]], indent="  ") == ["  A", f"  {long}"]
    assert _lines(["A", "B"], [["漢字", "1"], ["a", "2"]]) == ["A     B", "漢字  1", "a     2"]


def test_what_a_cell_holds_is_no_markup() -> None:
    rows = [["[red]x[/red]", ":smile: [link=http://evil]y[/link] [/]"]]
    assert _lines(["A", "B"], rows)[1] == "[red]x[/red]  :smile: [link=http://evil]y[/link] [/]"


def test_tables_fit_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    headings, row = ["ID", "NAME", "SPARE", "ERROR"], ["i" * 20, "n" * 30, "s" * 30, "e" * 60]

    def fitted(room: int, **options: Any) -> str:
        monkeypatch.setattr("holdfast.cli.output.tables.columns", lambda: room)
        shown = _lines(headings, [row], spare=["SPARE"], **options)
        assert max(map(len, shown)) <= room
        return shown[1]

    assert fitted(200).split() == row
    first, second, last = fitted(80).split()
    assert (first, second) == (row[0], row[1]) and last.endswith("e…"), "spare columns go first, then the last is cut"
    assert [each[0] for each in fitted(50).split()] == ["i", "n", "e"]
    assert fitted(40).split()[0] == row[0] and len(fitted(40).split()) == 2, "the last column goes"
    assert fitted(50, whole=["ERROR"]).startswith(row[0])
