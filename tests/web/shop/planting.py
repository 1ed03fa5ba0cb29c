"""A day in the life of the shop, planted by SQL: what is done, due, running, scheduled, retried and parked.

All of it is made up from one seed; only the times depend on when it is planted.
"""

import math
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import takewhile

from holdfast import App, Cron, Every
from holdfast._db.driver.connection import connect_sync, run_sync
from holdfast._sql import figures
from holdfast._sql.plans import drive_sync
from holdfast._sql.queries import queries
from holdfast.testing.blocking import blocking

from . import SCHEDULES, tasks
from .rows import WORKERS, Row, Rows, attempt
from .stories import ERRORS, PARKED, Parked, way_of

WEIGHTS = {"send_mail": 46, "order": 24, "invoice": 12, "resize_image": 14, "sync_stock": 3, "report": 1}
"""Of a hundred finished tasks."""
PACES = {"send_mail": 0.18, "report": 14.0, "resize_image": 1.1}
"""Seconds that a step takes, more or less."""
DUE = {"order": 6, "send_mail": 17, "invoice": 2, "resize_image": 5}
RUNNING = {"order": 9, "send_mail": 14, "invoice": 2, "resize_image": 4, "report": 1}
JUST_DONE = {"order": 11, "send_mail": 18, "invoice": 6}
SCHEDULED = {"send_mail": 212, "order": 38}
RETRYING = {"send_mail": 4, "order": 3, "sync_stock": 1}


class Shop(Rows):
    """The shop in a database, which must be migrated, and empty."""

    def plant(self, *, finished: int) -> None:
        """All of it, with so many tasks that have come to their end."""
        blocking(self._declare())
        self._plant_workers()
        self._plant_history(finished)
        self._plant_schedules()
        for group in PARKED:
            self._plant_parked(group)
        self._count()
        self.now = self.clock()
        self._plant_unfinished()
        self.beat()

    def beat(self) -> None:
        """Workers tell that they are alive, and keep what they have claimed."""
        self.run("update holdfast.worker set seen_at = holdfast.now()")
        self.run("update holdfast.task set lease_expires_at = holdfast.now() + '29 s' where state = 'running'")

    # --- what code declares, and who runs it

    async def _declare(self) -> None:
        """Kinds and schedules come into the database as they always do: a worker brings them."""
        async with App(self.url, include=[tasks]) as app, app.worker(name="first", queues=["none"]):
            pass
        self.run("delete from holdfast.occurrence")  # should one have been due just now
        self.run("delete from holdfast.task")

    def _plant_workers(self) -> None:
        for number, (name, served, slots) in enumerate(WORKERS):
            self.workers[name] = self.id(self.now - timedelta(hours=9, minutes=number))
            self.run(
                """insert into holdfast.worker
                       (id, name, host, pid, version, queues, slots, started_at, steps, kinds, schedules)
                   select $1::uuid, $2, $2 || '.shop.internal', $3::int, '1.4.2', $4::text[], $5::int,
                          holdfast.now() - interval '9 hours', steps, kinds, schedules
                   from holdfast.worker where name = 'first'""",
                *(self.workers[name], name, 7 + 11 * number, served, slots),
            )
        self.run("delete from holdfast.worker where name = 'first'")

    # --- what is over

    def _plant_history(self, finished: int) -> None:
        self.run(
            """select holdfast.ensure_partition((holdfast.now() - n * interval '1 day')::date)
               from generate_series(0, 33) as n"""
        )
        archived: list[Row] = []
        logged: list[Row] = []
        for due in self._moments(finished):
            kind = self.chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            done, before = self._finished(kind, due)
            archived.append(done)
            logged += before
        self.write("archive", archived)
        self.write("attempt", logged)

    def _moments(self, count: int) -> Iterator[datetime]:
        """More by day than by night, with a rush in the evening. It is always the same hour of the shop's day."""
        made = 0
        while made < count:
            hours = self.chance.uniform(0.02, 25)
            day = 0.5 + 0.5 * math.sin((16 - hours) / 12 * math.pi)
            rush = math.exp(-(((hours - 4) / 1.4) ** 2))
            if self.chance.random() < 0.2 + 0.4 * day + 0.4 * rush:
                made += 1
                yield self.now - timedelta(hours=hours)

    def _finished(self, kind: str, due: datetime) -> tuple[Row, list[Row]]:
        """A task that came to its end, step by step, sometimes after an error; and the attempts before the last."""
        task = self.task(kind, due)
        before: list[Row] = []
        ready, steps = due, way_of(kind, self.chance)
        for moves, step in enumerate(steps):
            task |= {"step": step, "moves": moves}
            while True:
                claimed = ready + self.span(0.06)
                ended = min(claimed + self.span(PACES.get(kind, 0.35)), self.now)
                task |= {"attempt": len(before) + 1, "claimed_at": claimed, "worker_id": self.worker(kind)}
                error = (
                    self.chance.choice(ERRORS[kind]) if self.chance.random() < self._trouble(kind, claimed) else None
                )
                if step == steps[-1] and error is None:
                    return task | {"state": "done", "outcome": "done", "finished_at": ended, "result": "ok"}, before
                outcome = "advanced" if error is None else "retried"
                before.append(attempt(task, ready, ended, outcome, error))
                ready = ended if error is None else ended + timedelta(seconds=5)
                if error is None:
                    break
        raise AssertionError("a way has an end")

    def _trouble(self, kind: str, at: datetime) -> float:
        """The chance of an error. The mail server was away for a while, nine hours ago."""
        hours = (self.now - at).total_seconds() / 3600
        return 0.3 if kind == "send_mail" and 8.6 < hours < 9.4 else 0.01

    # --- what recurs

    def _plant_schedules(self) -> None:
        archived: list[Row] = []
        occurrences: list[Row] = []
        for name, (timing, _) in SCHEDULES.items():
            [(kind,)] = self.run(
                "select split_part(definition ->> 'step', '.', 1) from holdfast.schedule where name = $1", name
            )
            past = self._past(timing)
            for at in past:
                told = {"schedule": name, "scope": "", "plan_time": at, "due_at": at, "created_at": at, "open": False}
                if name == "stock-hamburg" and self.chance.random() < 0.15:
                    occurrences.append(
                        told | {"skipped": "the one before was unfinished", "task_id": None, "queue": None}
                    )
                    continue
                done, _ = self._finished(kind, at)
                archived.append(done)
                occurrences.append(told | {"skipped": None, "task_id": done["id"], "queue": done["queue"]})
            self.run(
                """update holdfast.schedule set planned_at = holdfast.now(), next_at = $2::timestamptz,
                       last_at = $3::timestamptz where name = $1""",
                *(name, next(iter(timing.after(self.now))), past[-1] if past else None),
            )
        self.write("archive", archived)
        self.write("occurrence", occurrences)
        self.run(
            """select holdfast.pause_schedule('newsletter', '{"by": "grace", "why": "the autumn issue is late"}')"""
        )

    def _past(self, timing: Cron | Every) -> list[datetime]:
        """The last twenty plan times, of a month at most."""
        until = self.now - timedelta(seconds=30)
        found: list[datetime] = []
        for hours in (2, 6, 24, 24 * 31):
            if len(found) < 20:
                found = list(takewhile(lambda at: at < until, timing.after(self.now - timedelta(hours=hours))))
        return found[-20:]

    # --- what is not over

    def _plant_unfinished(self) -> None:
        made: list[Row] = []
        for kind, count in DUE.items():
            made += [self.task(kind, self.ago(0.1, 9)) for _ in range(count)]
        for kind, count in SCHEDULED.items():
            for _ in range(count):
                later = self.task(kind, self.now + timedelta(minutes=self.chance.uniform(3, 1400)))
                made.append(later | ({"step": "AwaitRestock", "moves": 1} if kind == "order" else {}))
        for kind, count in RETRYING.items():
            for _ in range(count):
                again = self.task(kind, self.now + timedelta(seconds=self.chance.uniform(4, 90)), step=self._step(kind))
                again |= {"id": self.id(self.ago(0.2, 3)), "attempt": 1, "errors": 1, "error": ERRORS[kind][-1]}
                made.append(again | {"claimed_at": self.ago(0.1, 1)})
        for kind, count in RUNNING.items():
            for _ in range(count):
                claimed = self.ago(0.1, 9 if kind != "report" else 40)
                running = self.task(kind, claimed, step=self._step(kind)) | {
                    "state": "running",
                    "attempt": 1,
                    "claimed_at": claimed,
                }
                made.append(
                    running | {"worker_id": self.worker(kind), "lease_expires_at": self.now + timedelta(seconds=29)}
                )
        self.write("task", made)
        done = [self._finished(kind, self.ago(0.5, 9)) for kind, count in JUST_DONE.items() for _ in range(count)]
        self.write("archive", [task for task, _ in done])
        self.write("attempt", [each for _, before in done for each in before])

    def _step(self, kind: str) -> str:
        return self.chance.choice(way_of(kind, self.chance)[:3])

    def _plant_parked(self, group: Parked) -> None:
        """Tasks that stopped alike, each with the attempts that led there."""
        parked: list[Row] = []
        logged: list[Row] = []
        for number in range(group.count):
            due = self.ago(80, group.minutes * 60) if number else self.ago(76, 78)
            task = self.task(group.kind, due)
            task["args"] |= dict(group.about)
            way = way_of(group.kind, random.Random(1))
            way = way[: way.index(group.step)]
            ready = due
            for number, step in enumerate([*way, *[group.step] * group.errors]):
                fails = number >= len(way)
                task |= {"step": step, "moves": min(number, len(way)), "attempt": number + 1}
                task |= {"claimed_at": ready + self.span(0.06), "worker_id": self.worker(group.kind)}
                ended = min(task["claimed_at"] + self.span(PACES.get(group.kind, 0.6)), self.now)
                outcome, error = ("retried", group.error) if fails else ("advanced", None)
                logged.append(attempt(task, ready, ended, outcome, error))
                ready = ended + timedelta(seconds=5 * 2 ** (number - len(way)) if fails else 0)
            logged[-1] |= {"outcome": "failed", "parked": True}
            parked.append(task | {"state": "parked", "errors": group.errors, "error": group.error, "worker_id": None})
        self.write("task", parked)
        self.write("attempt", logged)

    # --- figures

    def _count(self) -> None:
        """As workers count what is in the log, but from yesterday on."""
        self.run(
            """update holdfast.figure_place
               set settled = s.at, until = s.at, seen_at = holdfast.now() - interval '2 minutes'
               from (select date_bin('1 hour', holdfast.now() - interval '26 hours', 'epoch')) as s(at)"""
        )
        more = True
        while more:
            with connect_sync(self.url) as connection:
                connection.execute(b"begin")
                more = drive_sync(figures.roll_up(queries("holdfast")), lambda query: run_sync(connection, query)).more
                connection.execute(b"commit")
