"""The benchmark suite: its workloads run, small, and what is written about a run says what was measured."""

import dataclasses
import json
import os
import signal
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from benchmarks import __main__ as command
from benchmarks import slices
from benchmarks.bench import Bench, Figure, Sizes, Workload, at_once, one_by_one
from benchmarks.chart import draw
from benchmarks.place import Place, _sessions, place
from benchmarks.report import page, terminal
from benchmarks.results import Results
from benchmarks.runner import run
from benchmarks.systems import SYSTEMS, Crew, System, Trouble
from benchmarks.workloads import WORKLOADS

pytestmark = pytest.mark.direct("it creates databases of its own and starts processes that need no pooler")

TINY = Sizes(
    tasks=500,
    seconds=0.2,
    samples=5,
    mixed_seconds=0.3,
    behind=300,
    unroutable=300,
    snapshot=500,
    settle_seconds=0.2,
    idle_after=0.2,
    idle_seconds=0.2,
    rounds=1,
    most_turns=1,
)
CHOSEN = {"enqueue-16", "bulk", "drain", "steps", "latency-race", "mixed", "unroutable", "idle", "race"}
"""One of each kind: each starts several processes."""
OURS = [system for system in SYSTEMS if system.package is None]
TASKS = Figure("drained", "tasks/s")
FACTS: dict[str, Any] = {
    "took_seconds": 300,
    "when": "2026-01-01T00:00:00+00:00",
    "machine": {"system": "Linux", "processor": "a <fast> one", "cores": 2, "memory_gb": 8.0, "load_before": 0.1},
    "python": "3.13.0",
    "packages": {"holdfast": "1.0", "uvloop": None},
    "postgres": {"server_version": "18.0", "fsync": "on", "synchronous_commit": "on"}
    | {"min_wal_size": "1GB", "shared_buffers": "256MB"},
    "peers": {"graphile-worker": "0.18.0"},
    "sizes": {"rounds": 3, "tasks": 1000, "snapshot": 3000, "seconds": 4.0},
    "settings": {"holdfast": "defaults", "graphile-worker": "localQueue 1,000"},
    "keeps": {"holdfast": "everything", "graphile-worker": "nothing"},
}


@pytest.fixture(scope="module")
def server(holdfast_server: str) -> Iterator[Place]:
    with place(holdfast_server) as found:
        yield found


@pytest.fixture
def results() -> Results:
    made = Results(FACTS, absent={"pg-boss": "npm is not installed"})
    for value in (300.0, 500.0, 400.0):
        made.add("drain", "Drain", "holdfast", "rate", TASKS, [value])
    for value in (100.0, 250.0, 400.0):
        made.add("drain", "Drain", "graphile-worker", "rate", TASKS, [value])
    made.fail("drain", "chancy", "chancy ended: no such table")
    return made


def test_workloads_run_and_give_what_they_say(server: Place) -> None:
    workloads = [workload for workload in WORKLOADS if workload.name in CHOSEN]
    assert len(workloads) == len(CHOSEN)
    kept: list[int] = []
    results = run(
        server, workloads, OURS, TINY, absent={}, versions={}, keep=lambda so_far: kept.append(len(so_far.figures))
    )
    assert kept == sorted(set(kept))
    assert (len(kept), kept[-1]) == (len(workloads), len(results.figures))
    assert results.failures == {}
    for workload in workloads:
        for system in OURS:
            found = {r.figure for r in results.of(workload.name) if r.system == system.name}
            wanted = set(workload.figures) if workload.suits(system) and system.name == "holdfast" else found
            # What only a server of its own, or one with an extension, can tell.
            assert wanted - found <= {"postgres_cpu", "statements"}, (workload.name, system.name)
            assert found or not workload.suits(system), (workload.name, system.name)
    assert all(r.median > 0 for r in results.figures if r.unit == "tasks/s")
    rates = [r for r in results.figures if r.workload == "drain" and r.figure == "rate"]
    assert {r.system for r in rates} == {"holdfast", "raw SQL"}


def test_a_system_that_fails_is_listed_with_the_reason_and_the_others_are_measured(server: Place) -> None:
    broken = System("broken", "nothing_like_that.py", "none", "nothing")
    (bulk,) = [workload for workload in WORKLOADS if workload.name == "bulk"]
    results = run(server, [bulk], [broken, OURS[0]], TINY, absent={}, versions={}, keep=lambda _: None)
    assert "nothing_like_that" in results.failures["bulk"]["broken"]
    assert [r.system for r in results.figures] == ["holdfast"]


def test_fast_systems_take_several_turns_and_the_median_of_a_round_counts(server: Place) -> None:
    systems = [
        System(name, f"{name}.py", "none", "nothing", few=few) for name, few in (("a", 1), ("b", 1), ("slow", 0.1))
    ]
    values = {"a": [1.0, 9.0, 2.0, 30.0, 10.0, 20.0], "b": [5.0] * 6, "slow": [7.0, 8.0]}
    order: list[str] = []

    def measure(bench: Bench, system: System) -> dict[str, float]:
        order.append(system.name)
        return {"rate": values[system.name].pop(0)}

    sizes = dataclasses.replace(TINY, rounds=2, most_turns=3)
    for turns, found in ((4, [2.0, 20.0]), (1, [3.0, 4.0])):
        workload = Workload("rest", "Rest", {"rate": TASKS}, one_by_one(measure), turns=turns)
        results = run(server, [workload], systems, sizes, absent={}, versions={}, keep=lambda _: None)
        assert {r.system: r.values for r in results.figures} == {"a": found, "b": [5.0] * 2, "slow": [7.0, 8.0]}
        values = {"a": [3.0, 4.0], "b": [5.0] * 2, "slow": [7.0, 8.0]}
    assert "".join(each[0] for each in order) == "absbaab" + "sbaabba" + "abs" + "sba"


def test_what_needs_little_is_measured_of_all_systems_at_once_each_in_a_database_of_its_own(server: Place) -> None:
    all_there = threading.Barrier(3, timeout=30)
    systems = [System(name, f"{name}.py", "none", "nothing") for name in ("slow", "broken", "quick")]
    databases: set[str] = set()

    def measure(bench: Bench, system: System) -> dict[str, float]:
        databases.add(bench.place.name)
        bench.place.create()
        all_there.wait()
        if system.name == "broken":
            raise Trouble("it cannot rest")
        ((found,),) = bench.place.execute("SELECT current_database() = 'holdfast_bench'", at_work=True)
        time.sleep(0.3 if system.name == "slow" else 0.0)
        return {"rate": float(found)}

    workload = Workload("rest", "Rest", {"rate": TASKS}, at_once(measure))
    results = run(server, [workload], systems, TINY, absent={}, versions={}, keep=lambda _: None)
    assert [(r.system, r.median) for r in results.figures] == [("slow", 0.0), ("quick", 0.0)]  # in their order
    assert results.failures == {"rest": {"broken": "it cannot rest"}}
    assert len(databases) == 3


class OneAtATime(Crew):
    """Handles ten tasks at each look, and knows who is at it, and for how long."""

    at_it: ClassVar[list["OneAtATime"]] = []
    began: ClassVar[list["OneAtATime"]] = []
    moment: ClassVar[float] = 0.0
    recorded = False

    @classmethod
    def pass_time(cls, seconds: float) -> None:
        OneAtATime.moment += seconds

    def go(self) -> float:
        self.go_on()
        return self.moment

    def go_on(self) -> None:
        assert not self.at_it, "the others stand still meanwhile"
        self.at_it.append(self)
        self.began.append(self)

    def stand_still(self) -> None:
        self.at_it.remove(self)

    def take_in(self, timeout: float) -> int:
        assert self.at_it == [self]
        self.pass_time(timeout)
        self.counts[0] += 10
        self.ended = self.moment
        return self.counts[0]

    def until(self, count: int, patience: float = 0.0) -> None:
        assert self.counts[0] >= count
        self.recorded = True


class Standing(OneAtATime):
    """Does nothing."""

    def take_in(self, timeout: float) -> int:
        time.sleep(timeout)
        return 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes only where it is passed."""
    monkeypatch.setattr(slices, "time", SimpleNamespace(monotonic=lambda: OneAtATime.moment))
    monkeypatch.setattr(OneAtATime, "moment", 0.0)
    monkeypatch.setattr(OneAtATime, "began", [])


def test_drains_side_by_side_go_on_one_at_a_time_and_only_their_own_time_counts(
    server: Place, clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE", 0.25)
    crews = [OneAtATime(OURS[0], server, [], [0]) for _ in range(3)]
    rates = slices.by_turns(crews, 600)
    assert all(crew.recorded for crew in crews)
    active = 0.6  # sixty looks of a hundredth of a second
    assert rates == pytest.approx([600 / active] * 3)
    assert OneAtATime.moment == pytest.approx(3 * active)
    there, back = [*map(id, OneAtATime.began[:3])], [*map(id, OneAtATime.began[3:6])]
    assert there == back[::-1] == [*map(id, crews)], "nobody always comes after the same one"


def test_a_drain_side_by_side_that_does_not_end_is_given_up(server: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "PATIENCE", 0.0)
    with pytest.raises(Trouble, match="holdfast handled 0 of 10 in 0 s"):
        slices.by_turns([Standing(OURS[0], server, [], [0])], 10)


def test_the_last_line_of_a_slice_that_is_read_in_the_next_one_ends_the_first(
    server: Place, clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE", 0.25)

    class Late(OneAtATime):
        def take_in(self, timeout: float) -> int:
            self.pass_time(timeout)
            self.ended = 0.2
            return 10 if self.moment > 0.265 else 0  # not in its first slice

    rates = slices.by_turns([Late(OURS[0], server, [], [10]), OneAtATime(OURS[0], server, [], [0])], 10)
    assert rates[0] == pytest.approx(10 / 0.25), "the time of others is neither added nor taken away"


def states(server: Place) -> set[str]:
    found: set[str] = set()
    for pid in (server.pid, *_sessions(server.pid or 0)):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            found.add(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0])
    return found - {"Z"}


def test_servers_of_their_own_stand_still_while_others_go_on_and_none_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[str, str]] = []

    class Looking(Crew):
        def go(self) -> float:
            return time.monotonic()

        def take_in(self, timeout: float) -> int:
            for name, each in servers.items():
                goes_on = each is self.place
                while ("T" in states(each)) is goes_on:  # a signal takes a moment
                    time.sleep(0.01)
                if goes_on:
                    assert each.execute("SELECT 1") == [(1,)]
                    seen.append((name, "".join(n for n, other in servers.items() if other is not each)))
            return 0

    with place(None) as server:
        servers = {"a": server.beside(0), "b": server.beside(1)}
        assert len({server.url, *(each.url for each in servers.values())}) == 3
        assert server.beside(0) is servers["a"]
        monkeypatch.setattr(slices, "PATIENCE", 0.3)
        with pytest.raises(Trouble, match="handled 0 of 10"):
            slices.by_turns([Looking(OURS[0], each, [], [0]) for each in servers.values()], 10)
        assert {("a", "b"), ("b", "a")} <= set(seen)
        for each in servers.values():
            assert "T" not in states(each)
            assert each.execute("SELECT 1") == [(1,)]


def test_workers_that_stand_still_do_nothing_until_they_go_on(server: Place) -> None:
    bench = Bench(server, TINY)
    bench.fresh(OURS[0])
    with Crew.of(OURS[0], server) as crew:
        crew.go()
        crew.stand_still()
        bench.fill(OURS[0], 100)
        assert crew.take_in(0.5) == 0
        crew.go_on()
        crew.until(100)


def alive(group: int) -> list[str]:
    """The processes of a group that have not ended; whoever has is listed until somebody asks how."""
    found: list[str] = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            state, _, its_group = file.read_text().rpartition(")")[2].split()[:3]
            found += [file.parent.name] if int(its_group) == group and state != "Z" else []
    return found


@pytest.mark.parametrize("system", OURS, ids=lambda system: system.name)
def test_callers_enqueue_only_in_their_slices(server: Place, system: System) -> None:
    bench = Bench(server, TINY).apart(system)
    bench.fresh(system)
    callers = slices.Callers(system, bench.place, 2)
    group = callers._child.pid
    try:
        time.sleep(0.5)  # what was on its way arrives
        before = system.waiting(bench.place)
        time.sleep(0.3)
        assert system.waiting(bench.place) == before > 0
        callers.warm_up()
        for _ in range(5):
            callers.go_on()
        assert callers.rate() > 0
        assert system.waiting(bench.place) > before + 4
    finally:
        callers.end()
        bench.place.drop()
    end = time.monotonic() + 30
    while alive(group) and time.monotonic() < end:
        time.sleep(0.05)
    assert not alive(group), "nor is anything left of what it has started"


def test_callers_that_end_by_themselves_are_told_with_the_reason_and_the_others_are_measured(
    server: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    (single,) = [workload for workload in WORKLOADS if workload.name == "enqueue-1"]
    go_on = slices.Callers.go_on

    def dies(callers: slices.Callers) -> None:
        if callers._system.name == "holdfast":
            os.killpg(callers._child.pid, signal.SIGKILL)
        go_on(callers)

    monkeypatch.setattr(slices.Callers, "go_on", dies)
    results = run(server, [single], OURS, TINY, absent={}, versions={}, keep=lambda _: None)
    assert results.failures == {"enqueue-1": {"holdfast": "holdfast ended: exit code -9"}}
    assert [r.system for r in results.figures] == ["raw SQL"]


def test_figures_are_medians_with_their_range_and_ratios_are_taken_round_by_round(results: Results) -> None:
    ours = results.find("drain", "holdfast")
    assert ours is not None
    assert (ours.median, ours.range) == (400, "300 to 500")
    assert results.ratio("drain", "holdfast", "graphile-worker") == 2.0  # of 3, 2 and 1: not of the medians
    assert results.ratio("drain", "holdfast", "DBOS") is None


def test_ratios_are_taken_turn_by_turn_where_both_had_as_many() -> None:
    made = Results(FACTS)
    for system, rounds in {
        "holdfast": [[10.0, 20.0, 90.0], [40.0, 40.0, 40.0]],
        "graphile-worker": [[10.0, 40.0, 30.0], [20.0, 10.0, 20.0]],
        "DBOS": [[5.0], [8.0]],
    }.items():
        for turns in rounds:
            made.add("drain", "Drain", system, "rate", TASKS, turns)
    ours = made.find("drain", "holdfast")
    assert ours is not None
    assert ours.values == [20.0, 40.0]
    assert made.ratio("drain", "holdfast", "graphile-worker") == 2.0  # of 1, 0.5, 3, 2, 4 and 2
    assert made.ratio("drain", "holdfast", "DBOS") == 4.5  # of 4 and 5: it had one turn in each round
    for result in made.figures:
        result.turns = []  # as in the files of earlier runs
    assert made.ratio("drain", "holdfast", "graphile-worker") == pytest.approx((20 / 30 + 40 / 20) / 2)


def test_the_report_tells_machine_settings_figures_targets_and_who_is_missing(results: Results) -> None:
    for system, rate in (("holdfast", 50.0), ("graphile-worker", 25.0)):
        results.add("race", "Side by side", system, "rate", TASKS, [rate])
    for text in (page(results, "chart.svg"), terminal(results)):
        for part in ("a <fast> one", "18.0", "localQueue 1,000", "400", "300 to 500", "npm is not installed"):
            assert part in text
        assert "chancy ended: no such table" in text.replace("chancy: chancy", "chancy")
        assert "against graphile-worker" in text
    assert "| drain, one process, against graphile-worker | >= 1.25 | 2.00 | met |" in page(results, "chart.svg")
    assert "The machine was busy" not in page(results, "chart.svg")


def test_a_report_says_that_the_machine_was_busy(results: Results) -> None:
    results.facts = {**FACTS, "machine": {**FACTS["machine"], "load_before": 5.0}}
    assert "**The machine was busy with other things" in page(results, "chart.svg")


def test_a_report_survives_its_json(results: Results) -> None:
    again = Results.from_json(json.loads(json.dumps(results.to_json())))
    assert page(again, "x") == page(results, "x")
    assert draw(again) == draw(results)


def test_a_workload_that_is_measured_once_more_is_added_to_the_rest(results: Results) -> None:
    results.add("bulk", "Bulk", "holdfast", "rate", TASKS, [1.0])
    busy = {"machine": {**FACTS["machine"], "load_before": 9.0}}
    anew = Results({**FACTS, **busy, "when": "2026-02-02T00:00:00+00:00", "settings": {"holdfast": "defaults"}})
    anew.add("drain", "Drain", "holdfast", "rate", TASKS, [7.0])
    both = anew.added_to(results)
    assert [(r.workload, r.values) for r in both.figures] == [("bulk", [1.0]), ("drain", [7.0])]
    assert both.failures == {}
    assert both.facts["took_seconds"] == 600
    assert both.facts["machine"] == FACTS["machine"], "a later part is busy with the one before"
    assert both.facts["settings"] == FACTS["settings"]
    assert "in parts from 2026-01-01T00:00:00+00:00 to 2026-02-02T00:00:00+00:00" in page(both, "x")


def test_the_chart_is_a_picture_with_a_bar_for_each_system(results: Results) -> None:
    root = ElementTree.fromstring(draw(results))
    bars = [element for element in root.iter() if element.tag.endswith("rect")]
    assert [bar.attrib["class"] for bar in bars] == ["ours", "theirs"]
    assert float(bars[0].attrib["width"]) > float(bars[1].attrib["width"])


def test_the_command_refuses_names_it_does_not_know_and_writes_its_files(tmp_path: Path, results: Results) -> None:
    with pytest.raises(SystemExit, match=r"no such workload: drian\. There are: .*drain"):
        command.main(["--only", "drian"])
    with pytest.raises(SystemExit, match="no such system: celery"):
        command.main(["--systems", "celery"])
    command.write(results, tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"results.json", "report.md", "chart.svg"}
