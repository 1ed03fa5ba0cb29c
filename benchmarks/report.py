"""A run on paper: a table for the terminal, and a Markdown page with a chart."""

from typing import Any

from benchmarks.results import TARGETS, Result, Results, number
from benchmarks.systems import SYSTEMS
from benchmarks.workloads import WORKLOADS

READING = [
    "## Pages on large tables",
    "",
    "`python -m benchmarks.pages` plants 5 million archived and 1 million live tasks, 5 million attempts, 200"
    " workers and 500 schedules in a server of its own, in a quarter of an hour. Nine of ten tasks are in one"
    " queue, and 100,000 are parked with one error. Then it opens every page of the dashboard and runs every"
    " command that reads, with filters for what is rare, old or not there at all, and tells for each how many"
    " statements it sent and how long the server planned and executed them. It ends with 1 if one took more than"
    " 100 ms; `--json FILE` keeps the figures, `--archived` and `--live` make it smaller.",
    "",
]


def page(results: Results, chart: str) -> str:
    """The Markdown report. `chart` is where the picture lies, seen from it."""
    facts = results.facts
    machine, sizes, postgres = facts["machine"], facts["sizes"], facts["postgres"]
    lines = [
        "# Benchmarks",
        "",
        "Generated from the last run of `make bench`. Absolute figures belong to one machine and one hour:",
        "what counts are ratios between systems that took turns on the same machine.",
        "",
        f"Measured {_when(facts)} on {machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB,"
        f" {machine['system']}; load before the run {machine['load_before']}. Server and workers share the machine.",
        f"PostgreSQL {postgres['server_version']}, fsync {postgres['fsync']},"
        f" synchronous_commit {postgres['synchronous_commit']}, min_wal_size {postgres['min_wal_size']},"
        f" shared_buffers {postgres['shared_buffers']};"
        f" Python {facts['python']}, "
        + ", ".join(f"{name} {version}" for name, version in facts["packages"].items() if version)
        + ".",
        "",
        *_busy(machine),
        f"This run: {sizes['rounds']} round(s) of {len({r.workload for r in results.figures})} of {len(WORKLOADS)}"
        f" workloads, with {len(facts['settings'])} of {len(SYSTEMS)} systems. Each figure is the median of the rounds"
        f" with its range; in each round all systems take turns, each on a fresh database. It took"
        f" {facts['took_seconds'] / 60:.0f} minutes."
        + (" Parts measured later may have fewer systems: those in their tables." if "began" in facts else ""),
        "",
        f"![Drained tasks a second, single enqueues and latency of all systems]({chart})",
        "",
        "## Targets",
        "",
        *_table(["target", "wanted", "found", ""], [row for target in TARGETS if (row := _target(target, results))]),
        "",
        "## Systems",
        "",
        *_table(["system", "version", "settings", "keeps of a finished task"], _systems(results)),
        "",
        "Slow systems get fewer tasks: PgQueuer a third, chancy a tenth, procrastinate and absurd a fiftieth, DBOS a"
        " hundredth.",
        "",
    ]
    for workload in dict.fromkeys(r.workload for r in results.figures):
        lines += _section(workload, results)
    lines += [
        "## How it is measured",
        "",
        f"- *drain*: {sizes['tasks']:,} tasks wait already, in analyzed tables; from the start of the workers to the"
        " last task. All must be recorded as done afterwards. CPU and memory are read from the system, WAL and commits"
        " from the server.",
        "- *turns*: what takes seconds is measured several times in each round: fast systems take nine turns at drains"
        " side by side, three at bulk enqueues, at drains of one process, beside archived tasks and of ten priorities."
        " The median of these is the figure of the round. Targets against others are medians of ratios, turn by turn.",
        "- *slices*: a machine that others use as well is half as fast for seconds at a time. Drains whose ratios are"
        " targets therefore go on side by side, each for a tenth of a second before the others do: one and two"
        " processes of Holdfast and of graphile-worker, hindered drains and clean ones. Each has a server of its own,"
        " all alike; workers and server are stopped by a signal meanwhile. Callers that enqueue one task after another"
        f" go on in slices of half a second, {sizes['seconds']:.0f} seconds in all: those of all systems are there at"
        " the same time, on one server, and what counts is what they have enqueued.",
        "- *latency*: from the return of the enqueue, which is after its commit, to the first line of the task."
        " Less than nothing means that the task began before its producer had read the answer. Side by side: workers of"
        " Holdfast and of graphile-worker are idle at the same time, and get ten blocks of tasks each, by turns.",
        "- *mixed*: half of the rate at which enqueue and drain, one after the other, would keep up.",
        "- *hindered drains*: side by side with a clean drain of the same system; the part is of that one. With an old"
        f" snapshot held open {sizes['snapshot']:,} tasks are drained. Slow systems are not hindered any further.",
        "- *Python*: one that a distribution ships is built with profile-guided optimization. Without it, as pyenv"
        " builds by default, a worker and all peers in Python take about 1.4 times as much CPU time.",
        "- *raw SQL*: what the server does without a queue around it: pgbench's single inserts and a COPY from Python"
        " into Holdfast's own table, batches of 500 claimed and deleted by pgbench in a bare one.",
        "",
        *READING,
        "Run it yourself: `make bench` (an hour and a half; peers are installed into `benchmarks/.peers`),"
        " `make bench ARGS=--quick` (two minutes, Holdfast and the server alone), `make bench ARGS=--help`.",
        "",
    ]
    return "\n".join(lines)


def _when(facts: dict[str, Any]) -> str:
    return f"in parts from {facts['began']} to {facts['when']}" if "began" in facts else str(facts["when"])


def _busy(machine: dict[str, Any]) -> list[str]:
    if machine["load_before"] <= machine["cores"] / 2:
        return []
    return [
        f"**The machine was busy with other things when the run began (load {machine['load_before']} on"
        f" {machine['cores']} cores): no figure here says how fast anything is.**",
        "",
    ]


def terminal(results: Results) -> str:
    """The figures as plain text."""
    lines = [f"{name}: {value}" for name, value in _flat(results.facts)]
    for workload in dict.fromkeys(r.workload for r in results.figures):
        found = results.of(workload)
        lines += ["", found[0].workload_title]
        width = max(len(r.system) for r in found)
        for r in found:
            lines.append(f"  {r.system:{width}}  {r.title:26} {r.shown:>10} {r.unit:14} ({r.range})")
        lines += [f"  {system}: {why}" for system, why in results.failures.get(workload, {}).items()]
    for workload in results.failures.keys() - {r.workload for r in results.figures}:
        lines += ["", workload, *(f"  {system}: {why}" for system, why in results.failures[workload].items())]
    judged = [row for target in TARGETS if (row := _target(target, results))]
    if judged:
        lines += ["", "Targets", *(f"  {row[3]:4} {row[0]:52} {row[2]:>8}  wanted {row[1]}" for row in judged)]
    lines += ["", *(f"{system} was not measured: {why}" for system, why in results.absent.items())]
    return "\n".join(lines).rstrip()


def _section(workload: str, results: Results) -> list[str]:
    found = results.of(workload)
    figures = list(dict.fromkeys(r.figure for r in found))
    heads = list(dict.fromkeys(f"{r.title} ({r.unit})" for name in figures for r in found if r.figure == name))
    rows = []
    for system in dict.fromkeys(r.system for r in found):
        rows.append([system, *(_cell(results.find(workload, system, name)) for name in figures)])
    failures = [f"{system}: {why}." for system, why in results.failures.get(workload, {}).items()]
    return [
        f"## {found[0].workload_title}",
        "",
        *_table(["system", *heads], rows),
        "",
        *failures,
        *([""] * bool(failures)),
    ]


def _cell(result: Result | None) -> str:
    return "-" if result is None else f"{result.shown} ({result.range})"


def _target(target: Any, results: Results) -> list[str] | None:
    found = target.found(results)
    if found is None:
        return None
    wanted = f"{'<=' if target.at_most else '>='} {number(target.wanted)}"
    return [target.title, wanted, number(found), "met" if target.met(results) else "not met"]


def _systems(results: Results) -> list[list[str]]:
    facts = results.facts
    versions = {"holdfast": facts["packages"]["holdfast"], **facts["peers"]}
    rows = [[n, versions.get(n) or "-", s, facts["keeps"][n]] for n, s in facts["settings"].items()]
    return rows + [[name, "-", f"not measured: {why}", "-"] for name, why in results.absent.items()]


def _table(heads: list[str], rows: list[list[str]]) -> list[str]:
    if not rows:
        return ["Nothing was measured."]
    return [
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
        *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows),
    ]


def _flat(facts: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in facts.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{name} ") if name not in ("keeps",) else []
        else:
            found.append((f"{prefix}{name}", value))
    return found
