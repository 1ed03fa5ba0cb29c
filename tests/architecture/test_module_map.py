"""The check of the map of modules notices what is missing and what is too much."""

import pytest

from .module_map import PAGE, existing, problems

PAGE_OF_TWO = """
### `holdfast/`

The faces.

- `app.py`: the App.

## Something else

- `other.py`: not part of the map.
"""


def test_every_module_has_its_line() -> None:
    assert not list(problems(PAGE.read_text("utf-8"), existing()))


@pytest.mark.parametrize(
    ("modules", "problem"),
    [
        ({"holdfast/", "holdfast/app.py"}, None),
        ({"holdfast/", "holdfast/app.py", "holdfast/new.py"}, "holdfast/new.py has no line"),
        ({"holdfast/"}, "a line for holdfast/app.py, which does not exist"),
    ],
)
def test_a_module_without_a_line_and_a_line_without_a_module_are_told(modules: set[str], problem: str | None) -> None:
    found = list(problems(PAGE_OF_TWO, modules))
    assert len(found) == (problem is not None)
    assert problem is None or problem in found[0]


def test_a_second_line_is_told() -> None:
    page = PAGE_OF_TWO.replace("- `app.py`: the App.", "- `app.py`: the App.\n- `app.py`: again.")
    assert "2 lines" in next(problems(page, {"holdfast/", "holdfast/app.py"}))
