"""Attempts between the claimer and the settler: which of them start, how each ends, and which are interrupted."""

import asyncio
import math
from collections.abc import Callable, Generator
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast._db.driver import forks
from holdfast._engine.claim.bell import Bell
from holdfast._engine.events import OnEnded
from holdfast._engine.observe.task_log import tell_error
from holdfast._engine.run.attempt import Attempt, Interruption, fields, now
from holdfast._engine.run.executor import Executor
from holdfast._engine.run.inline import ENDED, InlineRest, InlineRunner
from holdfast._engine.run.start_mark import StartMark
from holdfast._engine.run.transactional import TransactionalSteps
from holdfast._engine.settle.consequences import Consequences
from holdfast._engine.settle.ending import AlreadyRecorded, Ending, MaybeRecorded, continued
from holdfast._engine.shared import Shared
from holdfast._model.declare.step import Step
from holdfast._model.run.outcome import NO_RESULT, Cancelled, Outcome, Released
from holdfast._model.run.tracing import Tracing
from holdfast._model.safe_log import Log

log = Log("holdfast.worker")

TURN_SECONDS = 0.001
"""How long attempts that never wait are begun one after another, before others have their turn in the event loop."""
_UNEXECUTED = Released(delay=60.0)
"""What becomes of an attempt if a fault that is not its own keeps it from being executed."""


@dataclass(frozen=True, slots=True)
class Executors:
    """How the attempts of one worker are executed, marked and traced."""

    plain: Executor
    transactional: TransactionalSteps
    start_mark: StartMark
    tracing: Tracing | None = None


class Dispatcher:
    """Gives slots to the attempts of one worker and hands their outcomes to the settler."""

    def __init__(
        self, shared: Shared, bell: Bell, ended: OnEnded, consequences: Consequences, executors: Executors
    ) -> None:
        self._tasks = shared.tasks
        self._roster = shared.roster
        self._life = shared.life
        self._flag = shared.life.flag
        self._contact = shared.contact
        self._lease = shared.settings.lease
        self._poll = shared.settings.poll
        self._bell = bell
        self._pending = ended
        self._consequences = consequences
        self.executor = executors.plain
        self.transactional = executors.transactional
        self.tracing = executors.tracing
        self._start_mark = executors.start_mark
        self._forks = forks.count
        self._starter: asyncio.Task[None] | None = None
        self._runner: InlineRunner[Attempt] | None = None
        self._waits: set[Step] = set()
        """Steps that have waited for something before: they get a Task of their own at once."""
        self._context = copy_context()
        """That of the claimer, which is the worker's own: no attempt inherits what an earlier one has set."""
        self._given_up: list[Attempt] = []
        """Given back at a stop although they have not ended."""
        self._retire_after = math.inf

    # --- from the claim to the outcome

    def claimed(self, attempts: list[Attempt]) -> None:
        """New attempts wait for a slot, unless this very process still executes an earlier one of the same task."""
        roster = self._roster
        if attempts and self._is_late(attempts[0], now()):
            # All are of one claim, and the heartbeat does not know them yet: other workers may execute them by now.
            for attempt in attempts:
                former = roster.find(attempt.id)
                if former is not None and former.handle is not None:
                    self.lose(former)
                self._give_back(attempt)
            return
        self._context = copy_context()
        if roster.lingering or not roster.held.keys().isdisjoint([a.raw_id for a in attempts]):
            attempts = [a for a in attempts if not self._still_executing(a)]
        roster.put(attempts)
        self._start()

    def recorded(self, ending: Ending, claimed_at: float | None) -> None:
        """An ending is recorded: the attempt is forgotten, and a task whose move was kept goes on."""
        roster = self._roster
        if ending.kept:
            roster.expect(ending.attempt, -1)
        roster.forget(ending.attempt)
        goes_on = ending.kept and claimed_at is not None
        self._consequences.recorded(ending, goes_on)
        if goes_on and claimed_at is not None:
            self.go_on(continued(ending, self._tasks, claimed_at))

    def go_on(self, attempt: Attempt) -> None:
        """The next step of a task that moved and was kept: it comes before all others."""
        if self._is_late(attempt, now()):
            self._give_back(attempt)
            return
        self._roster.put_first(attempt)
        self._start()

    def _still_executing(self, attempt: Attempt) -> bool:
        former = self._roster.find(attempt.id)
        if former is not None and former.handle is None and former not in self._roster.ready:
            former = None  # it has ended, and that we could claim its task says that this is recorded
        elif former is not None and former.moved is not None and attempt.moves > former.moves:
            former = None  # it has moved by itself, and is only returning
        if former is not None:
            self.lose(former)
        lingering = self._roster.lingering.get(attempt.raw_id)
        if former is None and lingering is None:
            return False
        delay = self._poll
        if lingering is not None:
            # Longer each time: each claim leaves an entry in the log.
            lingering.refusals += 1
            delay = min(60.0, delay * 2**lingering.refusals)
        self._give_back(attempt, delay)
        return True

    def _is_late(self, attempt: Attempt, moment: float) -> bool:
        """Whether its lease has run out, if the heartbeat has not renewed it: this process may have stood still."""
        return moment - attempt.held_since > self._lease

    def _give_back(self, attempt: Attempt, delay: float = 0.0) -> None:
        self._roster.held[attempt.raw_id] = attempt
        self._pending.ended(attempt, Released(delay=delay))

    def _start(self) -> None:
        """Starts attempts while there are slots; a stopping worker gives them back instead."""
        if self._flag.stopping:
            self.release_unstarted()
        elif self._starter is None or self._starter.done():
            self._starter = self._begin_next()

    def _begin_next(self) -> asyncio.Task[None] | None:
        """A Task that begins with the next attempt, if there is one and a slot for it."""
        first = None if self._flag.stopping else self._roster.begin()
        return None if first is None else self._begin_in_task(first)

    def _begin_in_task(self, first: Attempt) -> asyncio.Task[None]:
        loop, context = asyncio.get_running_loop(), self._context.copy()
        # Not by the loop's factory of tasks, which may begin it before we have its handle.
        task = first.handle = asyncio.Task(self._begin_with(first), loop=loop, context=context)
        return task

    async def _begin_with(self, first: Attempt) -> None:
        """Attends to attempts one after another. One that waits keeps this Task, and others begin the next."""
        rest = None
        try:
            rest = await self._until_one_waits(first)
        finally:
            if self._starter is asyncio.current_task():
                self._starter = None
            self._start()
        if rest is not None:
            while self._begin_next() is not None:  # as many at once as there are slots: they may all wait
                pass
            await rest

    async def _until_one_waits(self, first: Attempt) -> InlineRest | None:
        this, flag, roster = asyncio.current_task(), self._flag, self._roster
        moment = now()
        turn_ends = moment + TURN_SECONDS
        attempt: Attempt | None = first
        while attempt is not None:
            attempt.stop_flag, attempt.handle = flag, this
            if self._is_late(attempt, moment) and self._contact.overdue:
                self._end(attempt, Released())  # the fence decides whether it is still ours
            else:
                runner, self._runner = self._runner or InlineRunner(self._attend()), None
                if (rest := runner.begin(attempt)) is not None:
                    self._waits.add(attempt.definition)
                    return rest
                self._runner = runner
            if this is None or this.cancelling():
                return None  # it has cancelled itself, and no other attempt is to suffer for it
            moment = now()
            if moment > turn_ends:
                await asyncio.sleep(0)
                moment = now()
                turn_ends = moment + TURN_SECONDS
            attempt = None if flag.stopping else roster.begin()
            while attempt is not None and attempt.definition in self._waits:
                self._begin_in_task(attempt)
                attempt = roster.begin()
        return None

    def _attend(self) -> Generator[Any, Any, None]:
        """Attends to attempts one after another, each from its start to the settler."""
        while True:
            attempt: Attempt = yield ENDED
            steps = self.transactional if attempt.definition.transactional else self.executor
            outcome: Outcome | AlreadyRecorded | MaybeRecorded | None = _UNEXECUTED
            tell: Callable[[Outcome | AlreadyRecorded | MaybeRecorded | None], None] | None = None
            try:
                if attempt.unmarked and not (yield from self._start_mark.write(attempt).__await__()):
                    outcome = Released()
                elif self.tracing is None:
                    outcome = yield from steps.execute(attempt).__await__()
                else:
                    with self.tracing.attempting(attempt) as tell:
                        outcome = yield from steps.execute(attempt).__await__()
                        tell(outcome)
            except GeneratorExit:
                raise
            except BaseException:
                # A fault around the step, ours or a tracer's: without an outcome it would keep slot and lease for ever.
                what = "is given back" if outcome is _UNEXECUTED else "has ended, and that is recorded"
                log.exception("a fault that is not of the step: %r %s", attempt, what, extra=fields(attempt))
            self._end(attempt, outcome)
            del attempt, outcome, tell  # or they would live until the next one comes, with all that an error holds

    def _end(self, attempt: Attempt, outcome: Outcome | AlreadyRecorded | MaybeRecorded | None) -> None:
        """An attempt has ended: its outcome goes to the settler, and its slot to the next one."""
        if forks.count != self._forks:
            forks.end_child(f"{attempt.kind}.{attempt.step} forked")
        attempt.handle = None
        roster = self._roster
        roster.finished += 1
        if roster.finished >= self._retire_after:
            self._life.retire(f"it has made {roster.finished} attempts")
        if outcome is NO_RESULT:  # the most common one first, without a detour
            if roster.held.get(attempt.raw_id) is attempt:
                self._pending.ended(attempt, NO_RESULT)
        elif outcome is None:
            roster.forget(attempt)
        elif isinstance(outcome, (AlreadyRecorded, MaybeRecorded)):
            self._settled_elsewhere(outcome)
        elif roster.holds(attempt):
            self._pending.ended(attempt, outcome)
            tell_error(attempt, outcome)
        if attempt.thread is not None and not attempt.thread.done():
            # A thread cannot be stopped: the attempt keeps its slot until it ends.
            roster.lingering[attempt.raw_id] = attempt
            attempt.thread.add_done_callback(partial(self._thread_ended, attempt))
            log.warning(
                "%s.%s goes on in its thread after its attempt %s ended: it keeps its slot until it ends",
                attempt.kind,
                attempt.step,
                attempt.number,
                extra=fields(attempt),
            )
            return
        self.free(attempt)

    def _settled_elsewhere(self, outcome: AlreadyRecorded | MaybeRecorded) -> None:
        if isinstance(outcome, AlreadyRecorded):
            self.recorded(outcome.ending, outcome.claimed_at)
        else:
            self._pending.unsure(outcome.ending)

    def _thread_ended(self, attempt: Attempt, _: "asyncio.Future[Any]") -> None:
        self.free(attempt)

    def free(self, attempt: Attempt) -> None:
        """Gives the slot of an attempt to the next one."""
        roster, starter, bell = self._roster, self._starter, self._bell
        roster.end(attempt)
        if roster.lingering:
            roster.lingering.pop(attempt.raw_id, None)
        if roster.ready and (starter is None or starter.done() or self._flag.stopping):
            self._start()
        if bell.full or bell.held_back:
            bell.slot_freed(attempt.queue)

    # --- what must not go on

    def lose(self, attempt: Attempt) -> None:
        """Another worker has taken the lease: the attempt is interrupted, and its outcome dropped."""
        log.warning(
            "the lease of %s.%s is lost: attempt %s is interrupted and its outcome dropped",
            attempt.kind,
            attempt.step,
            attempt.number,
            extra=fields(attempt),
        )
        self._roster.lost += 1
        self._roster.forget(attempt)
        self._roster.withdraw(attempt)
        self.executor.interrupt(attempt, Interruption.LOST)

    def cancel(self, attempt: Attempt) -> None:
        """Its task was cancelled."""
        if not self._roster.holds(attempt):
            return
        if attempt.handle is not None:
            self.executor.interrupt(attempt, Interruption.CANCEL)
        elif self._roster.withdraw(attempt):
            self._pending.ended(attempt, Cancelled(""))

    def lose_contact(self) -> None:
        """Other workers may have taken over what is held here: stop working on it; the fence decides later."""
        for attempt in list(self._roster.held.values()):
            if attempt.handle is not None and attempt.interruption is None:
                log.warning(
                    "no beat was accepted for a lease length: %r is interrupted", attempt, extra=fields(attempt)
                )
                self.executor.interrupt(attempt, Interruption.CONTACT)

    # --- when the worker stops

    def retire_after(self, attempts: int) -> None:
        """The worker is to be replaced when it has made so many attempts."""
        self._retire_after = attempts

    def release_unstarted(self, claimed_before: float = math.inf) -> None:
        """Gives back, uncharged, what still waits for a slot."""
        # Only who begins nothing any more may free the number: under it, this worker could execute the task otherwise,
        # and a release that is sent again, because its answer was lost, would meet that execution.
        untouched = self._flag.stopping
        for attempt in self._roster.take_unstarted(claimed_before):
            self._pending.ended(attempt, Released(untouched=untouched))

    async def until_done(self, limit: float, *, unless: asyncio.Event | None = None) -> None:
        """Waits until no step is being executed, for a limited time, or until the event."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while any(a.handle is not None for a in self._roster.held.values()):
                    if unless is not None and unless.is_set():
                        return
                    await asyncio.sleep(0.01)
                    self.release_unstarted()

    def interrupt_all(self) -> None:
        """The grace time is over."""
        for attempt in list(self._roster.held.values()):
            if attempt.handle is not None:
                self.executor.interrupt(attempt, Interruption.STOP)

    def release_all(self) -> None:
        """Gives back what does not end: its outcome will be dropped."""
        for attempt in list(self._roster.held.values()):
            if attempt.handle is not None:
                attempt.interruption = Interruption.LOST
                self._pending.ended(attempt, Released())
                self._given_up.append(attempt)

    async def abandon(self) -> None:
        """Nothing of ours may go on after the worker: what still runs here is interrupted and its leases run out."""
        left = [*self._roster.held.values(), *self._given_up]
        handles = {a.handle for a in left if a.handle is not None}
        for attempt in left:
            self.executor.interrupt(attempt, Interruption.LOST)
        if handles:
            await asyncio.wait(handles, timeout=1)
