"""`holdfast check`: a gate for deployments (T20). Real rows, decoded with the code that is about to be deployed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from .conftest import Cli, Process
from .planted import HARMFUL, is_harmless, park, plant, plant_kind, plant_worker, rows
from .terminal import Terminal

OLD = """
from dataclasses import dataclass
from holdfast import App

app = App()
greeter = app.kind("greeter")

@greeter.step
@dataclass
class ReadName:
    filename: str
    def run(self) -> "Download": ...

@greeter.step
@dataclass
class Download:
    link: str
    def run(self) -> None: ...

@app.task
def send(to: str, copies: int = 1) -> None: ...
"""
FETCH = OLD.replace("Download", "Fetch").replace("link:", "url:")
NOBODY = "postgresql://127.0.0.1:1/nobody"


class Shop:
    """An App that is written anew for each deployment: another module each, or Python would keep the old one."""

    def __init__(self, cli: Cli, project: Path) -> None:
        self._cli = cli
        self._project = project
        self._written = 0

    def deploy(self, text: str) -> str:
        self._written += 1
        (self._project / f"shop{self._written}.py").write_text(text)
        return f"shop{self._written}.py"

    def check(self, text: str, *options: object, code: int = 0) -> str:
        """What is told about this code."""
        return self._cli("check", self.deploy(text), *options, code=code).output

    def findings(self, text: str, *options: object, code: int = 0) -> list[dict[str, Any]]:
        told = json.loads(self._cli("check", self.deploy(text), *options, "--json", code=code).stdout)
        assert told["ok"] is (code == 0)
        found: list[dict[str, Any]] = told["findings"]
        return found


@pytest.fixture
def shop(cli: Cli, project: Path) -> Shop:
    return Shop(cli, project)


def problems(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in findings if each["level"] == "problem"]


# --- tasks


def test_t20_all_is_fine(cli: Cli, shop: Shop) -> None:
    assert "no unfinished tasks" in shop.check(OLD)
    cli.enqueue("greeter.ReadName", "filename=a", "unknown=ignored")
    cli.enqueue("greeter.Download", "link=a")
    cli.enqueue("send", "to=a", "--queue", "mail", "--delay", "1h")
    told = shop.check(OLD)
    assert "Code  1 kind and 1 function, 3 steps; queues: default" in told
    assert "Tasks  3 unfinished tasks decoded" in told
    assert "This code can execute every unfinished task." in told
    assert shop.findings(OLD) == []


def test_t20_what_would_park_is_grouped_with_its_error_and_examples(cli: Cli, shop: Shop) -> None:
    missing = [cli.enqueue("greeter.Download", "url=a") for _ in range(5)]
    wrong = cli.enqueue("greeter.Download", "link:=3")
    fine = cli.enqueue("greeter.Download", "link=a")
    found = problems(shop.findings(OLD, code=1))
    assert [(each["about"], each["subject"], each["tasks"]) for each in found] == [
        ("park", "greeter.Download", 5),
        ("park", "greeter.Download", 1),
    ]
    assert found[0]["message"] == "would park: Download: Object missing required field `link`"
    assert found[0]["examples"] == missing[:3]
    assert found[1]["message"] == "would park: Download.link: Expected `str`, got `int`"
    assert found[1]["examples"] == [wrong]
    told = shop.check(OLD, "--limit-examples", 1, code=1)
    assert "✗ greeter.Download: would park: Download: Object missing required field `link` (5 tasks)" in told
    assert f"    such as {missing[0]}\n" in told
    assert missing[1] not in told
    assert fine not in told
    assert "error: 6 unfinished tasks would not be executed by this code" in told
    assert "such as" not in shop.check(OLD, "--limit-examples", 0, code=1)
    error = json.loads(cli("check", shop.deploy(OLD), "--json", code=1).stderr)
    assert error["error"] == "CheckFailed"


def test_t20_a_renamed_step_without_was_is_unroutable_with_the_cure(cli: Cli, shop: Shop) -> None:
    old = cli.enqueue("greeter.Download", "link=a")
    (found,) = problems(shop.findings(FETCH.replace("Fetch", "Downloads"), code=1))
    assert (found["about"], found["subject"], found["tasks"], found["examples"]) == (
        "unroutable", "greeter.Download", 1, [old],
    )  # fmt: skip
    assert "greeter has no step Download" in found["message"]
    assert found["advice"] == (
        "Did you mean Downloads? If it was renamed: @greeter.step(name='Downloads', was=['Download'])"
    )
    (found,) = problems(shop.findings(FETCH, code=1))
    assert found["advice"] == "If it was renamed: @greeter.step(was=['Download'])"


def test_t20_was_and_its_upgrade_are_honoured(cli: Cli, shop: Shop) -> None:
    cli.enqueue("greeter.Download", "link=a")
    cli.enqueue("greeter.Download", "link=b")
    renamed = FETCH.replace("@greeter.step\n@dataclass\nclass Fetch", "{}\n@dataclass\nclass Fetch")
    (found,) = problems(shop.findings(renamed.format("@greeter.step(was=['Download'])"), code=1))
    assert found["message"] == "would park: Fetch: Object missing required field `url`"
    upgraded = renamed.format("@greeter.step(was={'Download': lambda args: {'url': args['link']}})")
    (found,) = shop.findings(upgraded)
    assert (found["level"], found["about"], found["subject"], found["tasks"]) == (
        "information", "old name", "greeter.Fetch", 2,
    )  # fmt: skip
    assert "was='Download' is still needed" in found["message"]
    broken = renamed.format("@greeter.step(was={'Download': lambda args: {'url': args['uri']}})")
    (found,) = problems(shop.findings(broken, code=1))
    assert "the upgrade of its old args raised KeyError: 'uri'" in found["message"]
    rows(cli, "delete from holdfast.task")
    assert "was='Download' is not needed by any unfinished task" in shop.check(upgraded)


def test_t20_a_renamed_kind(cli: Cli, shop: Shop) -> None:
    cli.enqueue("greeter.ReadName", "filename=a")
    cli.enqueue("send", "to=a")
    new = OLD.replace('app.kind("greeter"{})', "").replace('"greeter"', '"greeters"{}').replace("def send", "def sent")
    found = problems(shop.findings(new.format(""), code=1))
    assert [(each["about"], each["subject"]) for each in found] == [
        ("unroutable", "greeter.ReadName"),
        ("unroutable", "send.main"),
    ]
    assert "there is no kind greeter" in found[0]["message"]
    assert found[0]["advice"] == (
        "Did you mean greeters? If it was renamed, write was=['greeter'] where it is declared now"
    )
    renamed = new.format(', was=["greeter"]').replace("@app.task", "@app.task(was=['send'])")
    found = shop.findings(renamed)
    assert {(each["subject"], each["message"], each["tasks"]) for each in found} == {
        ("greeters", "was='greeter' is still needed", 1),
        ("sent", "was='send' is still needed", 1),
    }


def test_t20_a_kind_that_became_a_function(cli: Cli, shop: Shop) -> None:
    cli.enqueue("send.Write", "to=a")
    (found,) = problems(shop.findings(OLD, code=1))
    assert found["message"] == "no worker with this code would execute it: send is a function now"


def test_parked_tasks_are_information_unless_strict(cli: Cli, shop: Shop) -> None:
    for args in ("url=a", "link=fine"):
        park(cli, cli.enqueue("greeter.Download", args))
    park(cli, cli.enqueue("greeter.Gone"))
    found = shop.findings(OLD)
    assert [(each["level"], each["about"], each["subject"], each["tasks"]) for each in found] == [
        ("information", "park", "greeter.Download", 1),
        ("information", "unroutable", "greeter.Gone", 1),
    ]
    assert found[0]["message"].startswith("would park again: ")
    assert "This code can execute every unfinished task." in shop.check(OLD)
    assert len(problems(shop.findings(OLD, "--strict", code=1))) == 2
    assert "2 unfinished tasks would not be executed" in shop.check(OLD, "--strict", code=1)


def test_running_tasks_count(cli: Cli, shop: Shop) -> None:
    """They are with a worker of the old code, and come to the new one if it stops."""
    id = cli.enqueue("greeter.Download", "url=a")
    rows(
        cli,
        "update holdfast.task set state = 'running', worker_id = gen_random_uuid(), attempt = 1,"
        " lease_expires_at = holdfast.now() + '1h', claimed_at = holdfast.now() where id = $1::uuid",
        id,
    )
    (found,) = problems(shop.findings(OLD, code=1))
    assert found["examples"] == [id]


def test_only_some_queues(cli: Cli, shop: Shop) -> None:
    cli.enqueue("elsewhere", "--queue", "theirs")
    cli.enqueue("greeter.ReadName", "filename=a", "--queue", "mail")
    cli.enqueue("send", "to=a")
    shop.check(OLD, code=1)
    assert "2 unfinished tasks decoded" in shop.check(OLD, "-q", "mail,default")
    assert "1 unfinished task decoded" in shop.check(OLD, "-q", "mail")
    shop.check(OLD, "-q", "mail", "-q", "theirs", code=1)
    assert "cannot be the name of a queue" in shop.check(OLD, "-q", "Bad!", code=2)


def test_many_tasks_are_read_page_by_page(cli: Cli, shop: Shop) -> None:
    plant(cli, 2500, state="ready", kind="send", step="main")  # all without `to`
    (found,) = problems(shop.findings(OLD, "--limit-examples", 1000, code=1))
    assert found["tasks"] == 2500
    ids = [UUID(id) for id in found["examples"]]
    assert len(ids) == 1000
    assert ids == sorted(ids)
    with Terminal(cli.url, "check", "shop1.py") as terminal:
        assert terminal.ended() == 1
    assert "1,000 tasks were read …\r\x1b[2K2,000 tasks were read …" in terminal.shown
    told = cli("check", "shop1.py", code=1)
    assert "were read" not in told.output  # nobody watches, and it is not that many


def test_progress_is_told_now_and_then_where_nobody_watches(
    cli: Cli, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.cli.commands.check.PAGE", 2)
    monkeypatch.setattr("holdfast.cli.commands.check.NOW_AND_THEN", 4)
    for _ in range(9):
        cli.enqueue("send", "to=a")
    assert shop.check(OLD).count("were read") == 2
    assert "were read" not in cli("check", "shop1.py", "--json").output


def test_errors_that_hold_values_are_told_apart_only_so_far(cli: Cli, shop: Shop) -> None:
    picky = OLD.replace(
        "    link: str\n", "    n: int\n    def __post_init__(self): raise ValueError(f'not {self.n}')\n"
    )
    plant(cli, 50, state="ready", step="Download")
    found = problems(shop.findings(picky, code=1))
    assert len(found) == 21
    assert sum(each["tasks"] for each in found) == 50
    assert found[0]["message"] == "would park: other errors"
    assert found[0]["tasks"] == 30
    assert "would park: Download: not 1" in [each["message"] for each in found]


@pytest.mark.parametrize("raised", ["SystemExit(3)", "KeyError()", "BaseException('odd')"])
def test_whatever_decoding_raises_is_a_finding(cli: Cli, shop: Shop, raised: str) -> None:
    cli.enqueue("greeter.Download", "link=a")
    cli.enqueue("send", "to=a")
    odd = OLD.replace("    link: str\n", f"    link: str\n    def __post_init__(self): raise {raised}\n")
    (found,) = problems(shop.findings(odd, code=1))
    assert found["subject"] == "greeter.Download"


def test_nothing_harmful_is_printed(cli: Cli, shop: Shop) -> None:
    cli.enqueue("greeter.Download", f"link={HARMFUL}")
    rude = OLD.replace("    link: str\n", "    link: str\n    def __post_init__(self): raise ValueError(self.link)\n")
    told = shop.check(rude, code=1)
    assert "red" in told
    assert is_harmless(told)


def test_nothing_is_changed_or_executed(cli: Cli, shop: Shop) -> None:
    cli.enqueue("greeter.Download", "url=a")
    cli.enqueue("send", "to=a")
    before = rows(cli, "select * from holdfast.task order by id")
    shop.check(OLD.replace("def send(to: str, copies: int = 1) -> None: ...", "def send(to: str): 1 / 0"), code=1)
    assert rows(cli, "select * from holdfast.task order by id") == before
    assert rows(cli, "select count(*) from holdfast.kind") == [(0,)]


# --- code


def test_the_code_alone(cli: Cli, shop: Shop) -> None:
    cli.enqueue("greeter.Gone")
    told = shop.check(OLD, "--no-database")
    assert "No problem in this code." in told
    assert "Tasks" not in told
    assert cli.json("check", "shop1.py", "--no-database", "--url", NOBODY)["tasks"] is None


def test_t23_warnings_do_not_fail_unless_strict(shop: Shop) -> None:
    vague = OLD.replace('-> "Download"', '-> "Nobody"') + '\nempty = app.kind("empty")\n'
    found = shop.findings(vague)
    assert [(each["level"], each["about"], each["subject"]) for each in found] == [
        ("warning", "graph", "greeter.ReadName"),
        ("warning", "no steps", "empty"),
    ]
    assert found[0]["message"] == "its return annotation names Nobody, which is no step of greeter"
    assert "! greeter.ReadName: its return annotation names Nobody" in shop.check(vague, "--no-database")
    assert "there are warnings, and this check is strict" in shop.check(vague, "--strict", code=1)


def test_t23_steps_that_nothing_leads_to_and_loops_without_end(shop: Shop) -> None:
    odd = OLD.replace('-> "Download"', '-> "ReadName"')
    found = {each["about"]: each for each in shop.findings(odd, "--no-database", "--strict")}
    assert found["beginnings"]["message"] == "no step leads to ReadName, Download: tasks begin there"
    assert found["endless"]["message"] == "no move leads from ReadName to the end"
    assert {each["level"] for each in found.values()} == {"information"}
    # Where something is unknown it may lead anywhere.
    assert [each["about"] for each in shop.findings(odd.replace("-> None", "-> 'Nobody'"))] == ["graph"]


def test_code_that_no_worker_could_run_is_a_problem(shop: Shop) -> None:
    unresolved = OLD.replace("to: str,", "to: 'Missing',")
    (found,) = problems(shop.findings(unresolved, "--no-database", code=1))
    assert (found["about"], found["subject"]) == ("annotations", "send")
    assert "Missing" in found["message"]
    resource = OLD + "\n@app.resource\ndef client():\n    yield 1\n"
    (found,) = problems(shop.findings(resource, "--no-database", code=1))
    assert (found["about"], found["subject"]) == ("resource", "client")
    assert "the code has 1 problem" in shop.check(resource, "--no-database", code=1)


def test_an_app_without_tasks(shop: Shop) -> None:
    assert "declares no tasks" in shop.check("from holdfast import App\napp = App()\n", code=1)


# --- other versions


def test_another_version_that_was_declared(cli: Cli, shop: Shop) -> None:
    plant_kind(cli, "greeter", "slow", {"ReadName": ["Fetch"], "Fetch": ["end"]})
    plant_kind(cli, "send", graph={"main": ["end"]})
    plant_kind(cli, "another", graph={"main": ["end"]})
    (found,) = shop.findings(OLD)
    assert (found["level"], found["about"], found["subject"]) == ("information", "version", "greeter")
    assert found["message"] == (
        "it differs from what workers declared last: new: Download; gone: Fetch; moves changed: ReadName; "
        "queue default instead of slow"
    )
    rows(cli, "update holdfast.kind set graph = '[1]', queue = 'default' where name = 'greeter'")
    assert "new: Download, ReadName" in shop.findings(OLD)[0]["message"]


def test_live_workers_of_other_code(cli: Cli, shop: Shop) -> None:
    plant_worker(cli, "old", steps=["greeter.Download", "greeter.Pack", "another.main"], queues=["mail"])
    plant_worker(cli, "dead", steps=["greeter.Dead"], silent="1h")
    cli.enqueue("another", "--queue", "mail")
    found = shop.findings(OLD, code=1)
    assert [(each["level"], each["about"], each["subject"]) for each in found] == [
        ("warning", "version", "greeter.Pack"),
        ("information", "queue", "default"),
        ("problem", "unroutable", "another.main"),
    ]
    assert "a live worker knows it and this code does not" in found[0]["message"]
    assert found[1]["message"] == "no live worker serves it; here go tasks of greeter, send"
    assert "if it is another App's, check only the queues of this one, with -q" in found[2]["advice"]


def test_t20_a_deployment_from_worker_to_worker(
    cli: Cli, shop: Shop, project: Path, start: Callable[..., Process]
) -> None:
    """A real worker of the old code runs; the new code is checked, renamed with `was=`, and checked again."""
    (project / "oldshop.py").write_text(
        OLD.replace('-> "Download": ...', '-> "Download": return Download(self.filename)')
    )
    worker = start("worker", "oldshop.py", url=cli.url)
    cli.enqueue("greeter.Download", "link=a", "--delay", "1h")
    worker.says("serves")
    told = {(each["level"], each["about"], each["subject"]): each["message"] for each in shop.findings(FETCH, code=1)}
    assert told.keys() == {
        ("information", "version", "greeter"),
        ("warning", "version", "greeter.Download"),
        ("problem", "unroutable", "greeter.Download"),
    }
    assert told["information", "version", "greeter"] == (
        "it differs from what workers (1 live) declared last: new: Fetch; gone: Download; moves changed: ReadName"
    )
    cured = FETCH.replace(
        "@greeter.step\n@dataclass\nclass Fetch",
        "@greeter.step(was={'Download': lambda args: {'url': args['link']}})\n@dataclass\nclass Fetch",
    )
    assert problems(shop.findings(cured)) == []


# --- the database


def test_a_database_that_is_not_there(cli: Cli, shop: Shop, project: Path) -> None:
    assert "cannot connect to PostgreSQL" in shop.check(OLD, "--url", NOBODY, code=4)
    assert "schema 'elsewhere' is missing" in shop.check(OLD, "--schema", "elsewhere", code=1)
    nowhere = Cli("")("check", shop.deploy(OLD), code=2).stderr
    assert "no database was named" in nowhere
    assert "--no-database checks the code alone" in nowhere


WARNED = """
from dataclasses import dataclass
from holdfast import App

app = App()
kind = app.kind("kind")

@kind.step
@dataclass
class Begin:
    def run(self) -> "Nowhere": ...
"""


def test_T20_warnings_are_told_in_the_end_too(cli: Cli, project: Path) -> None:
    (project / "warned.py").write_text(WARNED)
    assert "No problem in this code, but there is 1 warning." in cli("check", "warned.py", "--no-database").stdout
    assert "This code can execute every unfinished task, but there is 1 warning." in cli("check", "warned.py").stdout


def test_T20_a_database_without_tables(cli: Cli, project: Path) -> None:
    (project / "warned.py").write_text(WARNED)
    said = cli("check", "warned.py", "--schema", "fresh", code=1).stderr
    assert "Run: holdfast migrate --schema fresh. Or check the code alone: --no-database" in said
