"""`tasks` and `parked`: what filters let through, page by page, and how it is shown."""

import json
import re
import shlex

import pytest

from .conftest import Cli
from .planted import HARMFUL, is_harmless, park, parked, plant, rows, states
from .terminal import Terminal


def ids(cli: Cli, *arguments: object) -> list[str]:
    return [each["id"] for each in cli.json("tasks", *arguments)["tasks"]]


def test_words_one_text_and_short_forms_mean_the_same(cli: Cli) -> None:
    sent = cli.enqueue("send", "--queue", "mail")
    greeted = cli.enqueue("greeter.ReadName", "filename=a.txt")
    later = cli.enqueue("greeter.ReadName", "filename=b.txt", "--delay", "1h")
    park(cli, greeted)
    assert ids(cli) == [later, greeted, sent]
    assert ids(cli, "state:parked", "kind:greeter") == [greeted]
    assert ids(cli, "state:parked kind:greeter") == [greeted]
    assert ids(cli, "--state", "parked", "--kind", "greeter") == [greeted]
    assert ids(cli, "kind:greeter", "--state", "scheduled,parked") == [later, greeted]
    assert ids(cli, "--queue", "mail") == [sent]
    assert ids(cli, "--where", "state:parked kind:greeter") == [greeted]
    assert ids(cli, "args.filename:b.txt") == [later]
    assert ids(cli, "--kind", "nobody") == []


def test_a_negated_term_is_no_option(cli: Cli) -> None:
    sent = cli.enqueue("send", "--queue", "mail", "a=1")
    greeted = cli.enqueue("greeter.ReadName")
    assert ids(cli, "-queue:mail") == [greeted]
    assert ids(cli, "-kind:greeter", "state:ready") == [sent]
    assert ids(cli, "-args.a:1") == [greeted]
    assert sent not in cli("tasks", "--", "-queue:mail").stdout
    assert "no such option" in cli("tasks", "-x", code=2).stderr.lower()
    assert "no such option" in cli("tasks", "--kin:d", code=2).stderr.lower()


def test_what_the_shell_took_for_one_word_is_one_value(cli: Cli) -> None:
    id = parked(cli, message="no such file, or folder")
    parked(cli, message="such no file")
    assert ids(cli, "error:no such file") == [id]
    assert ids(cli, "state:parked", "error:such file, or") == [id]
    assert ids(cli, 'error:"no such file" kind:greeter') == [id]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["parked"], "write field:value"),
        (["stat:parked"], "did you mean state?"),
        (["state:sleeping"], "there is no such state"),
        (["since:soon"], "since:soon"),
        (["--state", "sleeping"], "there is no such state"),
        (["kind:"], "a value is missing"),
    ],
)
def test_what_is_not_understood_is_told(cli: Cli, words: list[str], said: str) -> None:
    assert said in cli("tasks", *words, code=2).stderr
    assert json.loads(cli("tasks", *words, "--json", code=2).stderr)["error"] == "FilterError"


def test_page_by_page(cli: Cli) -> None:
    everything = list(reversed(plant(cli, 5, state="ready")))
    seen: list[str] = []
    below: list[str] = []
    for expected in (2, 2, 1):
        page = cli.json("tasks", "--limit", "2", *below)
        assert len(page["tasks"]) == expected
        assert (page["count"], page["count_is_exact"]) == (5, True)
        seen += [each["id"] for each in page["tasks"]]
        below = ["--below", page["next"]]
    assert page["next"] is None
    assert seen == everything

    first = cli("tasks", "kind:greeter", "-state:done", "--limit", "2")
    assert "(2 of 5; the next: holdfast tasks" in first.stderr
    following = first.stderr.split("the next: ")[1].strip().removesuffix(")")
    second = cli(*shlex.split(following)[1:])
    assert [each.split()[0] for each in second.stdout.splitlines()[1:]] == everything[2:4]
    assert cli("tasks", "--limit", "5").stderr == ""
    assert "no more tasks" in cli("tasks", "--below", everything[-1]).stderr


def test_the_next_page_is_on_the_same_database(cli: Cli) -> None:
    plant(cli, 2)
    cli.environment["HOLDFAST_URL"] = None
    secret = f"{cli.url} password=topsecret"
    said = cli("tasks", "--limit", "1", "--url", secret, "--schema", "holdfast").stderr
    assert "--schema holdfast --url" in said
    assert "topsecret" not in said


def test_counts_end_somewhere(cli: Cli) -> None:
    assert cli("tasks", "--count").stdout == "0\n"
    plant(cli, 1234)
    assert cli("tasks", "state:parked", "--count").stdout == "1,234\n"
    assert cli.json("tasks", "--count", "state:done") == {"count": 0, "count_is_exact": True}
    plant(cli, 8767)
    assert cli("tasks", "--count").stdout == "10,000+\n"
    assert cli.json("tasks", "--count") == {"count": 10_000, "count_is_exact": False}
    assert "(20 of 10,000+; the next: " in cli("tasks").stderr


def test_nothing_is_no_failure(cli: Cli) -> None:
    assert cli("tasks").stderr == "no tasks.\n"
    assert cli("tasks", "kind:greeter").stderr == "no task matches kind:greeter\n"
    assert cli.json("tasks") == {"tasks": [], "next": None, "count": 0, "count_is_exact": True}


def test_tasks_are_shown_harmlessly(cli: Cli) -> None:
    later = cli.enqueue("greeter.ReadName", "--delay", "1h")
    bad = parked(cli, message=HARMFUL)
    result = cli("tasks")
    shown = result.stdout.splitlines()
    assert shown[0].split() == ["ID", "TASK", "STATE", "QUEUE", "ATTEMPT", "ERRORS", "WHEN", "ERROR"]
    assert "FileNotFoundError: red \\u202e turned second line \\x08" in next(each for each in shown if bad in each)
    assert re.search(r"scheduled .* in 5\d min", next(each for each in shown if later in each))
    assert is_harmless(result.output)
    assert is_harmless(cli("tasks", "--json").output)
    assert is_harmless(cli("tasks", "key:\x1b[2J").output)


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_a_table_fits_its_terminal(cli: Cli, columns: int) -> None:
    found = [parked(cli, "greeter.AStepWithALongName", "a long message " * 10) for _ in range(2)]
    with Terminal(cli.url, "tasks", columns=columns) as terminal:
        assert terminal.ended() == 0
        lines = terminal.shown.splitlines()
        assert len(lines) == 3
        assert max(map(len, lines)) <= columns
        assert [each.split()[0] for each in lines[1:]] == list(reversed(found))
        assert ("FileNot" in lines[1]) == (columns >= 80)
        assert ("ATTEMPT" in lines[0]) == (columns >= 120)


def test_parked_groups_by_where_and_why(cli: Cli) -> None:
    assert cli("parked").stdout == "nothing is parked.\n"
    files = [parked(cli, message=f"no file {n}") for n in range(3)]
    others = [parked(cli, type="ValueError"), parked(cli, "greeter.SayHello", type='Odd "quoted" error')]
    cli.enqueue("greeter.ReadName")

    shown = cli("parked").stdout
    assert re.search(r"^3 +greeter\.ReadName +FileNotFoundError .* no file 2$", shown, re.MULTILINE)
    assert f"holdfast show {files[2]}\n" in shown
    assert len(re.findall("^  holdfast retry", shown, re.MULTILINE)) == 3
    groups = cli.json("parked", "step:ReadName")["groups"]
    assert [(each["count"], each["error_type"]) for each in groups] == [(3, "FileNotFoundError"), (1, "ValueError")]
    assert groups[0]["example"] == files[2]
    assert cli("parked", "kind:nobody").stdout == "nothing that matches kind:nobody is parked.\n"
    assert cli.json("parked", "--limit", "1")["more"] is True
    assert "--limit shows more" in cli("parked", "--limit", "2").stderr

    command = next(each for each in shown.splitlines() if "FileNotFoundError" in each and "retry" in each)
    assert command.strip() == (
        "holdfast retry --where 'state:parked kind:greeter step:ReadName error_type:FileNotFoundError place:null'"
    )
    cli(*shlex.split(command)[1:], "--yes")
    assert states(cli, files) == ["ready"] * 3
    assert states(cli, others) == ["parked"] * 2
    odd = next(each for each in shown.splitlines() if "Odd" in each and "retry" in each)
    cli(*shlex.split(odd)[1:], "--yes")
    assert states(cli, others) == ["parked", "ready"]


def test_parked_shows_nothing_harmful_and_takes_an_error_that_says_nothing(cli: Cli) -> None:
    parked(cli, message=HARMFUL, type=f"Evil{HARMFUL}")
    silent = cli.enqueue("send")
    rows(cli, "update holdfast.task set state = 'parked', error = '{}' where id = $1::uuid", silent)
    result = cli("parked")
    assert "holdfast retry --where 'state:parked kind:send step:main error_type:null place:null'" in result.stdout
    assert is_harmless(result.output)
