"""What is sent about attempts that ended."""

import json
from datetime import timedelta
from typing import Any

from holdfast import App
from holdfast._engine.claim.steps import KnownSteps
from holdfast._engine.run.attempt import Attempt
from holdfast._engine.settle.ending import Ending, with_details
from holdfast._engine.settle.statements import StatementGroup, write
from holdfast._model.enqueue.ids import uuid7
from holdfast._model.run.outcome import NO_RESULT, Finished, Outcome
from holdfast._model.run.progress import Told
from holdfast._sql.queries import Queries
from holdfast._sql.rows import Claimed

app = App()
WORKER = uuid7()


@app.task
async def step() -> None: ...


def ended(number: int, outcome: Outcome = NO_RESULT) -> Ending:
    row = Claimed(uuid7().bytes, "step", "main", b"{}", number, 0, 0, 0, 0, 0.0, 0.0, None, None, None)
    return Ending(Attempt(*row, "default", WORKER, app._steps["step", "main"], 0.0), outcome)


def sent(*endings: Ending) -> dict[str, Any]:
    group = StatementGroup("default", WORKER, "finish", list(endings), with_details(list(endings)))
    query = write(Queries(), app, timedelta(seconds=30), group)
    return dict(zip(query.statement.parameters, query.parameters, strict=True))


def test_a_batch_without_results_in_one_attempt_sends_no_outcomes() -> None:
    values = sent(ended(2), ended(2))
    assert (values["attempt"], values["outcomes"]) == (2, None)


def test_only_those_with_a_result_or_a_report_are_told_of() -> None:
    reported = ended(1)
    reported.attempt.told = Told(0.5, "", {"rows": 1})
    plain, with_result = ended(1), ended(1, Finished(b"42"))
    values = sent(plain, with_result, reported)
    assert values["attempt"] == 1
    assert json.loads(values["outcomes"]) == {
        str(with_result.attempt.id): {"attempt": 1, "result": 42},
        str(reported.attempt.id): {"attempt": 1, "report": {"rows": 1}},
    }


def test_attempts_with_different_numbers_each_tell_theirs() -> None:
    first, second = ended(1), ended(3)
    values = sent(first, second)
    assert values["attempt"] is None
    assert json.loads(values["outcomes"]) == {
        str(first.attempt.id): {"attempt": 1},
        str(second.attempt.id): {"attempt": 3},
    }


def test_M5_one_crash_limit_is_a_number_and_several_are_told_by_step() -> None:
    one, several = App(), App()
    for name in ("a", "b"):
        one.task(name=name)(_nothing)
    several.task(name="a", max_crashes=1)(_nothing)
    several.task(name="b", max_crashes=2)(_nothing)
    assert json.loads(KnownSteps.of(one).crash_limits) == 3
    assert json.loads(KnownSteps.of(several).crash_limits) == {"a.main": 1, "b.main": 2}


async def _nothing() -> None: ...
