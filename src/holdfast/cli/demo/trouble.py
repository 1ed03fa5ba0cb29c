"""Two chapters in which something goes wrong: a worker is killed, and a task is parked."""

import time
from collections import Counter
from datetime import UTC, datetime
from uuid import UUID

from holdfast.cli.demo.chapters import attempt_rows
from holdfast.cli.demo.screen import Row
from holdfast.cli.demo.stage import LEASE, WorkerProcess
from holdfast.cli.demo.story import Seen, Story, colour_of
from holdfast.cli.output.printing import Cell, value

_PARCELS = ("books", "tea", "maps", "bulbs", "shoes", "clocks")
_STEPS = ["Pick", "Pack", "Label", "Load"]


def killed_worker(story: Story) -> None:
    """A worker dies in the middle of its tasks, and another one takes them over where they stood."""
    from holdfast.cli.demo.tasks import Pick

    why = "Another worker takes over its tasks, at their last recorded step."
    with story.chapter("A worker is killed", why) as c:
        # Fresh from thousands of small tasks, a worker claims ahead for a moment; here each is to have its share.
        story.stage.ending.pause(1.5)
        c.tasks = [ref.id for ref in story.stage.app.enqueue_many(map(Pick, _PARCELS))]
        legend = " Behind each step: the number of its worker." if story.screen.rewrites else ""
        story.screen.say(f"{len(_PARCELS)} parcels of four steps.{legend}")
        crash = _Crash(story)
        seen = story.watch(c.tasks, crash.draw, crash.has_passed)
        crash.check(seen)
        c.figures = crash.figures(seen)
        crash.show_proof(seen)
        story.stage.start_worker()
        story.screen.say(f"The lease is {LEASE} here; the default is 30s. A new worker is started.")


class _Crash:
    """The end of one worker, and what comes of its tasks."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._victim: WorkerProcess | None = None
        self._killed_at = 0.0
        self._taken_after: float | None = None

    def has_passed(self, seen: list[Seen]) -> bool:
        """Kills a worker once it is in the middle of tasks; then waits until all have ended."""
        if self._victim is None:
            self._victim = self._in_the_middle(seen)
            if self._victim is not None:
                self._story.stage.kill(self._victim)
                self._killed_at = time.monotonic()
        elif self._taken_after is None and self._lost(seen) and not self._orphans(seen):
            self._taken_after = time.monotonic() - self._killed_at
        return all(each.has_ended for each in seen)

    def _in_the_middle(self, seen: list[Seen]) -> WorkerProcess | None:
        """The worker with most tasks that have a step behind them, if it has two at least."""
        busy = Counter(each.task.worker_id for each in seen if each.task.state == "running" and each.task.moves)
        id, tasks = busy.most_common(1)[0] if busy else (None, 0)
        return next((w for w in self._story.stage.workers if w.runs and w.id == id), None) if tasks > 1 else None

    def _lost(self, seen: list[Seen]) -> list[Seen]:
        """Those with an attempt that ended with the worker."""
        return [each for each in seen if self._lost_at(each) is not None]

    def _lost_at(self, seen: Seen) -> int | None:
        found = (
            at for at, each in enumerate(seen.attempts) if each.outcome == "lost" and self._is_dead(each.worker_id)
        )
        return next(found, None)

    def _orphans(self, seen: list[Seen]) -> list[Seen]:
        """Those that the dead worker still has, until its lease runs out."""
        return [each for each in seen if each.task.state == "running" and self._is_dead(each.task.worker_id)]

    def _is_dead(self, worker_id: UUID | None) -> bool:
        return self._victim is not None and worker_id == self._victim.id

    def check(self, seen: list[Seen]) -> None:
        """Nothing was lost, nothing that was recorded ran again, and what was lost went on elsewhere."""
        self._story.expect(bool(self._lost(seen)), "a worker should have died with its tasks, by their log")
        for each, what in zip(seen, _PARCELS, strict=True):
            self._story.expect_done(each, f"a box of {what} for Ada")
            self._story.expect(each.path == _STEPS, f"the {what} should have gone {_STEPS}, but went {each.path}")
        for each in self._lost(seen):
            at = self._lost_at(each) or 0
            lost, after = each.attempts[at], each.attempts[at + 1 :]
            self._story.expect(
                not any(self._is_dead(attempt.worker_id) for attempt in after),
                f"{each.task.id} should have gone on at another worker",
            )
            self._story.expect(
                bool(after) and after[0].moves == lost.moves and after[0].step == lost.step,
                f"{each.task.id} should have gone on at {lost.step}",
            )

    def figures(self, seen: list[Seen]) -> dict[str, object]:
        return {
            "killed": self._victim.name if self._victim else None,
            "parcels": len(seen),
            "taken_over": [each.task.id for each in self._lost(seen)],
            "taken_over_after_seconds": None if self._taken_after is None else round(self._taken_after, 2),
        }

    def show_proof(self, seen: list[Seen]) -> None:
        """The log of one task that was taken over."""
        lost = self._lost(seen)
        if lost:
            self._story.command(f"holdfast show {lost[0].task.id}")
            for attempt in lost[0].attempts:
                self._story.screen.row(self._story.attempt_cells(attempt))
            self._story.screen.say("What was recorded did not run again; what was under way did.")

    # --- the board

    def draw(self, seen: list[Seen]) -> list[Row]:
        return [*(self._parcel(each, what) for each, what in zip(seen, _PARCELS, strict=True)), self._note(seen)]

    def _parcel(self, seen: Seen, what: str) -> Row:
        cells: list[Cell] = [f"{what:<8}"]
        for each in seen.attempts:
            worker = self._story.stage.name_of(each.worker_id)
            outcome = "lost" if each.outcome is None and self._is_dead(each.worker_id) else each.outcome
            mark = self._story.screen.marks.of(outcome) + worker.removeprefix("demo-")
            cells += [f"{each.step} ", (mark, colour_of(outcome)), "  "]
        told = [f"{what}: {e.step} {e.outcome} on {self._story.stage.name_of(e.worker_id)}" for e in seen.finished]
        return Row(cells, told)

    def _note(self, seen: list[Seen]) -> Row:
        if self._victim is None:
            return Row([""])
        name = self._victim.name
        told = [f"$ kill -9 {self._victim.process.pid}: {name} is dead."]
        if self._taken_after is None:
            ends = [each.task.lease_expires_at for each in self._orphans(seen) if each.task.lease_expires_at]
            left = max((end - datetime.now(UTC)).total_seconds() for end in ends) if ends else 0.0
            return Row([(told[0], "red"), f" Its lease runs out in {max(0.0, left):.1f} s."], told)
        told.append(f"{len(self._lost(seen))} tasks were taken over {self._taken_after:.1f} s later.")
        return Row([(told[0], "red"), f" {told[1]}"], told)


def parked_task(story: Story) -> None:
    """An error that retries cannot cure: parked, repaired by a person, resumed."""
    file = story.stage.folder / "name.txt"
    why = "Out of retries, a task keeps its place and waits for a person."
    with story.chapter("A task is parked, and repaired", why) as c:
        id = story.enqueue("greeter.ReadName", {"filename": str(file)})
        (seen,) = story.watch([id], lambda seen: attempt_rows(story, seen[0]))
        error = dict(seen.task.error or {})
        told = [each for each in seen.outcomes if each in ("retried", "failed", "done")]
        story.expect(
            seen.task.state == "parked" and told == ["retried", "retried", "failed"],
            f"it should be parked after three attempts, but is {seen.task.state} after {told}",
        )
        story.expect("No such file" in str(error.get("message")), f"the error should name the file, but is {error}")
        story.screen.say(f"It is parked: {error.get('message')}", "red")
        if seen.task.state != "parked":
            return
        story.command(f"echo Ada > {file}")
        file.write_text("Ada\n", encoding="utf-8")
        story.command(f"holdfast retry {id}")
        story.stage.app.retry(id, by="holdfast demo", why="the file is there now")
        before = len(seen.finished)
        (seen,) = story.watch([id], lambda seen: attempt_rows(story, seen[0], after=before))
        story.expect_done(seen, "Hello, Ada!")
        story.expect(seen.path == ["ReadName", "SayHello"], f"it should have gone on to SayHello, but went {seen.path}")
        story.screen.say(f"Result: {value(seen.task.result)}", "green")
        c.figures = {"attempts": len(seen.attempts), "error": error.get("message"), "result": seen.task.result}
