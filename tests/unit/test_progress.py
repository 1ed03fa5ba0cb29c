"""A5: what ctx.progress and ctx.report take, and what they refuse."""

import pickle
from decimal import Decimal
from typing import Any

import pytest

from holdfast._model.run.progress import LARGEST_NUMBER, LONGEST_NOTE, Told
from holdfast.testing import context


def told(ctx: Any) -> Told:
    found = ctx._about.told
    assert isinstance(found, Told)
    return found


def test_A5_the_last_progress_and_all_figures_count() -> None:
    ctx = context()
    ctx.progress(0)
    ctx.report(rows=1, file="a")
    ctx.progress(0.5, "half")
    ctx.report(rows=2)
    assert told(ctx) == Told(0.5, "half", {"rows": 2, "file": "a"})
    assert pickle.loads(pickle.dumps(told(ctx))) == told(ctx)


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan"), float("inf"), 50])
def test_A5_a_fraction_outside_0_to_1_is_refused(fraction: float) -> None:
    ctx = context()
    with pytest.raises(ValueError, match=r"ctx\.progress: fraction must be from 0 to 1.*done / total"):
        ctx.progress(fraction)
    assert ctx._about.told is None


@pytest.mark.parametrize("fraction", ["0.5", None, True, Decimal("0.5")])
def test_A5_a_fraction_that_is_no_number_is_refused(fraction: Any) -> None:
    with pytest.raises(TypeError, match=r"ctx\.progress: fraction must be a number"):
        context().progress(fraction)


def test_A5_a_note_is_a_text_and_shortened() -> None:
    ctx = context()
    with pytest.raises(TypeError, match=r"ctx\.progress: note must be a text, not a int"):
        ctx.progress(0.5, 7)  # type: ignore[arg-type]
    ctx.progress(0.5, "x" * 10_000 + "\ud800")
    assert len(told(ctx).note) == LONGEST_NOTE and told(ctx).note.endswith("…")


@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        (float("nan"), ValueError, "rows is nan"),
        (float("-inf"), ValueError, "rows is -inf"),
        (LARGEST_NUMBER + 1, ValueError, "rows is larger than 64 bits hold"),
        (None, TypeError, "rows must be a number or a text, not None"),
        ([1], TypeError, "rows must be a number or a text, not a list"),
        (Decimal(1), TypeError, "rows must be a number or a text, not a Decimal"),
        ("x" * 9000, ValueError, "the figures have 9,011 bytes together, and 8,192 are allowed .the largest is rows"),
    ],
)
def test_A5_a_figure_that_is_none_is_refused_by_name(value: Any, error: type[Exception], said: str) -> None:
    ctx = context()
    ctx.report(before=1)
    with pytest.raises(error, match=r"ctx\.report: " + said.replace("9,011", r"[\d,]+")):
        ctx.report(rows=value)
    assert told(ctx).report == {"before": 1}


def test_A5_texts_are_made_storable() -> None:
    ctx = context()
    ctx.report(file="a\0b\ud800")
    assert told(ctx).report == {"file": "a\\x00b\\ud800"}
