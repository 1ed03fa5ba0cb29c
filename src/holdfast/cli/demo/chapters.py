"""Four chapters in which all goes well, or nearly: orders, a flaky call, a delayed step, a burst."""

import time
from datetime import UTC, datetime

from holdfast.cli.demo.measures import Drained, drained
from holdfast.cli.demo.screen import Row, progress
from holdfast.cli.demo.story import Seen, Story, as_text, colour_of
from holdfast.cli.output.printing import Cell, value

_WARM_UP, _FEWEST, _MOST = 1000, 5000, 20_000
_BURST_SECONDS = 3
"""How long a burst should take at most; its size follows from the warm-up."""
_BAR = 30
_WORTH_TELLING = 0.1

_ORDERS = (
    ("lamp", 40, True, ["Reserve", "Charge", "Ship"]),
    ("chair", 120, False, ["Reserve", "Restock", "Charge", "Ship"]),
    ("ring", 900, True, ["Reserve", "Charge", "Review", "Ship"]),
    ("book", 15, True, ["Reserve", "Charge", "Ship"]),
    ("piano", 2500, False, ["Reserve", "Restock", "Charge", "Review", "Ship"]),
    ("kettle", 35, True, ["Reserve", "Charge", "Ship"]),
)
"""Item, price, whether it is in stock, and the steps that such an order takes."""


def orders(story: Story) -> None:
    """Several tasks of several steps at once, with branches."""
    from holdfast.cli.demo.tasks import Reserve

    why = "A step returns the next one; the move is recorded before that begins."
    with story.chapter("Orders, step by step", why) as c:
        story.command("holdfast enqueue order.Reserve item=lamp price:=40")
        story.screen.say("And five more. What is out of stock or expensive takes other steps.")
        refs = story.stage.app.enqueue_many(Reserve(item, price, stock) for item, price, stock, _ in _ORDERS)
        c.tasks = [ref.id for ref in refs]
        seen = story.watch(c.tasks, lambda seen: [_order_row(story, each) for each in seen])
        for each, (item, _, _, path) in zip(seen, _ORDERS, strict=True):
            story.expect_done(each, f"{item} shipped")
            story.expect(each.path == path, f"the {item} should have gone {path}, but went {each.path}")
        moves = sum(each.task.moves for each in seen)
        c.figures = {"orders": len(seen), "moves": moves, "attempts": sum(len(each.attempts) for each in seen)}
        story.screen.say(f"{len(seen)} orders done in {moves} moves, each recorded exactly once.")


def _order_row(story: Story, seen: Seen) -> Row:
    item = str(seen.task.args["item"])
    last = seen.attempts[-1] if seen.attempts else None
    cells: list[Cell] = [f"{item:<8}"]
    used = 0
    for each in seen.attempts:
        cells += [f"{each.step} ", (story.screen.marks.of(each.outcome), colour_of(each.outcome)), "  "]
        used += len(each.step) + 4
    if last is not None:
        cells.append(" " * max(1, 53 - used) + story.stage.name_of(last.worker_id))
    return Row(cells, [f"{item}: {e.step} {e.outcome} on {story.stage.name_of(e.worker_id)}" for e in seen.finished])


def flaky_call(story: Story) -> None:
    """A call that fails twice, is retried with growing delays, and succeeds."""
    with story.chapter("A flaky call", "An error uses up one retry; the next attempt waits longer.") as c:
        story.screen.say("Its task says Retry(3, delay='600ms', backoff=2). The bank fails twice.")
        id = story.enqueue("exchange_rate", {"currency": "USD"})
        (seen,) = story.watch([id], lambda seen: attempt_rows(story, seen[0]))
        story.expect_done(seen, 1.09)
        told = [each for each in seen.outcomes if each in ("retried", "failed", "done")]
        story.expect(told == ["retried", "retried", "done"], f"two errors and a success were told, but it was {told}")
        waits = [round(after, 2) for after in _waits(seen)]
        story.expect(
            all(wait >= delay for wait, delay in zip(waits, (0.6, 1.2), strict=False)),
            f"it should have waited 0.6 s and 1.2 s, but waited {waits}",
        )
        c.figures = {"attempts": len(seen.attempts), "waited_seconds": waits}


def attempt_rows(story: Story, seen: Seen, *, after: int = 0) -> list[Row]:
    """The attempts so far without the first ones, how long it waited between them, and what it waits for now."""
    rows: list[Row] = []
    waits = _waits(seen)
    for number, each in list(enumerate(seen.finished))[after:]:
        result = value(seen.task.result, 40) if each.outcome == "done" else ""
        cells = story.attempt_cells(each, result)
        rows.append(Row(cells, [as_text(cells)]))
        if number < len(waits) and waits[number] >= _WORTH_TELLING:
            text = f"           waited {waits[number]:.1f} s"
            rows.append(Row([text], [text]))
    if seen.task.phase in ("retrying", "scheduled"):
        rows.append(Row(["           ", (seen.task.phase, "yellow"), f", due in {_due_in(seen):.1f} s"]))
    return rows


def _waits(seen: Seen) -> list[float]:
    """Seconds between the end of each attempt and the beginning of the next, by the database's clock."""
    return [
        (after.claimed_at - before.finished_at).total_seconds()
        for before, after in zip(seen.attempts, seen.attempts[1:], strict=False)
        if after.claimed_at is not None and before.finished_at is not None
    ]


def _due_in(seen: Seen) -> float:
    """For people only, by this machine's clock."""
    if seen.task.run_at is None:
        return 0.0
    return max(0.0, (seen.task.run_at - datetime.now(UTC)).total_seconds())


def delayed_step(story: Story) -> None:
    """A step that is due some time after the one before."""
    why = "Later(Ask('Ada'), '3s'): the wait is a column of the row, no process sleeps."
    with story.chapter("A delayed step", why) as c:
        id = story.enqueue("survey.Deliver", {"customer": "Ada"})
        story.command("holdfast tasks state:scheduled")
        (seen,) = story.watch([id], lambda seen: attempt_rows(story, seen[0]))
        story.expect_done(seen, "Ada was asked")
        story.expect(seen.path == ["Deliver", "Ask"], f"it should have gone from Deliver to Ask, but went {seen.path}")
        waits = _waits(seen)
        story.expect(bool(waits) and waits[0] >= 3, f"Ask should have waited 3 s, but waited {waits}")
        c.figures = {"waited_seconds": [round(each, 2) for each in waits]}


def burst(story: Story) -> None:
    """Many small tasks, and how fast they are done here."""
    with story.chapter("A burst of small tasks", "One call enqueues them, and the two workers drain the queue.") as c:
        warm_up = _Burst(story, _WARM_UP)
        many = max(_FEWEST, min(_MOST, round(int(warm_up.rate) * _BURST_SECONDS, -3)))
        story.screen.say(f"{_WARM_UP:,} to warm up took {warm_up.seconds:.1f} s. Now {many:,}.")
        story.screen.code(f">>> app.sync.enqueue_many(square.bind(n) for n in range({many:_}))")
        measured = _Burst(story, many, shown=True)
        measured.check()
        story.screen.say(f"{measured.rate:,.0f} a second on this machine, from the first claim to the last result.")
        shares = {story.stage.name_of(each.worker_id): each.tasks for each in measured.parts}
        story.screen.say(", ".join(f"{name} did {tasks:,}" for name, tasks in sorted(shares.items())) + ".")
        c.figures = {
            "tasks": measured.done,
            "enqueue_seconds": round(measured.enqueue_seconds, 3),
            "seconds": round(measured.seconds, 3),
            "per_second": round(measured.rate),
            "by_worker": shares,
        }


class _Burst:
    """Tasks enqueued by one call, watched until they are done."""

    def __init__(self, story: Story, many: int, *, shown: bool = False) -> None:
        from holdfast.cli.demo.tasks import square

        self._story = story
        self._many = many
        self.parts: list[Drained] = []
        app, began = story.stage.app, time.monotonic()
        with progress(story.screen, f"{many:,} tasks are enqueued") as tick:
            refs = story.stage.meanwhile(lambda: app.enqueue_many(square.bind(n) for n in range(many)), tick)
        self.enqueue_seconds = time.monotonic() - began
        ids = [ref.id for ref in refs]
        with story.screen.board() as board:

            def is_drained() -> bool:
                self.parts = app.ask(drained(story.stage.setup.schema, "square", ids))
                if shown:
                    board.show([self._bar()])
                return self.done >= many

            story.stage.until(is_drained, f"{many:,} tasks were not done")

    @property
    def done(self) -> int:
        return sum(each.tasks for each in self.parts)

    @property
    def seconds(self) -> float:
        """From the first claim to the last result, by the database's clock."""
        if not self.parts:
            return 0.0
        return (max(each.ended for each in self.parts) - min(each.began for each in self.parts)).total_seconds()

    @property
    def rate(self) -> float:
        return self.done / max(self.seconds, 0.001)

    def check(self) -> None:
        """Every task is done exactly once, with the right result."""
        total, expected = sum(each.total for each in self.parts), sum(n * n for n in range(self._many))
        self._story.expect(self.done == self._many, f"{self._many} tasks should be done, but {self.done} are")
        self._story.expect(total == expected, f"the results should add up to {expected}, but make {total}")

    def _bar(self) -> Row:
        full = _BAR * self.done // self._many
        marks = self._story.screen.marks
        cells: list[Cell] = [
            (marks.full * full, "green"),
            marks.empty * (_BAR - full),
            f" {self.done:>6,} of {self._many:,}  {self.rate:>6,.0f}/s",
        ]
        quarters = [n * self._many // 4 for n in range(1, 5)]
        return Row(cells, [f"{each:,} of {self._many:,} done" for each in quarters if self.done >= each])
