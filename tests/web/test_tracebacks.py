"""Tracebacks, with and without what libraries did."""

import pytest

from holdfast.web.view.tracebacks import own

HEAD = "Traceback (most recent call last):\n"
MINE = '  File "/srv/shop/mail.py", line 3, in send\n    post(to)\n    ^^^^^^^^\n'
OTHER = '  File "/srv/lib/mine.py", line 9, in post\n    get(to)\n'
LIBRARY = '  File "/usr/lib/python3.12/json/decoder.py", line 4, in decode\n    raise X\n'
PACKAGE = '  File "/venv/lib/python3.12/site-packages/httpx/_client.py", line 7, in get\n    send()\n'
FROZEN = '  File "<frozen importlib._bootstrap>", line 1, in f\n'
END = "ValueError: two\n  File lines\nof a message"


@pytest.mark.parametrize(
    ("frames", "told"),
    [
        ([MINE, LIBRARY], [MINE, "  … 1 frame of libraries\n"]),
        ([MINE, PACKAGE, FROZEN, OTHER, LIBRARY], [MINE, "  … 2 frames of libraries\n", OTHER,
                                                   "  … 1 frame of libraries\n"]),
        ([PACKAGE, MINE], ["  … 1 frame of libraries\n", MINE]),
    ],
)  # fmt: skip
def test_what_libraries_did_is_left_out(frames: list[str], told: list[str]) -> None:
    assert own("".join([HEAD, *frames, END])) == "".join([HEAD, *told, END])


@pytest.mark.parametrize("text", ["", "in run", HEAD + MINE + END, HEAD + LIBRARY + PACKAGE + END, END])
def test_where_nothing_can_be_left_out_nothing_is(text: str) -> None:
    assert own(text) is None
