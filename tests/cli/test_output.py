"""What commands print: nothing from the database can move the cursor or hide."""

import pytest
from click.testing import CliRunner

from holdfast.cli.output.printing import clean, error_line, line, table, value


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


def test_tables_line_up() -> None:
    with CliRunner().isolation() as (out, *_):
        table(["A", "LONG"], [["wide cell", ("x", "red")], ["b", ""]])
        assert out.getvalue().decode().splitlines() == ["A          LONG", "wide cell  x", "b"]
