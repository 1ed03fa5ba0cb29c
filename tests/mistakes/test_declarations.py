"""Declarations that cannot work: refused at import, with the cure. More: tests/unit/test_declare.py."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, DeclarationError, Later, Retry, Tasks
from holdfast.errors import ConfigError

from .conftest import FAILED, Project


def refusal(declare: Any, function: Any) -> str:
    with pytest.raises(DeclarationError) as caught:
        declare(function)
    return str(caught.value)


def test_11_a_step_without_run(nowhere: Project) -> None:
    nowhere.write(
        "shop.py",
        "from dataclasses import dataclass\nfrom holdfast import App\napp = App()\nkind = app.kind('k')\n"
        "@kind.step\n@dataclass\nclass Idle:\n    name: str\n",
    )
    said = nowhere.process("worker", "shop.py")
    # The place, the class and the cure, in one line.
    said.once("shop.py:5: @k.step: Idle has no run method: write def run(self)", code=FAILED)


def test_13_a_function_where_a_step_belongs() -> None:
    def send(to: str) -> None: ...

    said = refusal(Tasks().kind("k").step, send)
    assert "a step is a class with fields and a run method" in said
    assert said.endswith(": a function is a task of its own, @app.task")


def test_13_a_kind_without_a_name() -> None:
    @dataclass
    class Step:
        def run(self) -> None: ...

    assert 'greeter = app.kind("greeter"), and then @greeter.step' in refusal(Tasks().kind, Step)


def test_14_a_path_as_a_field() -> None:
    @dataclass
    class Read:
        file: Path

        def run(self) -> None: ...

    said = refusal(Tasks().kind("k").step, Read)
    assert "the field file of " in said
    assert "cannot be stored as JSON: Path. Use str for a path." in said


def test_15_a_context_without_annotation() -> None:
    def send(ctx, to: str) -> None: ...  # type: ignore[no-untyped-def]

    assert refusal(Tasks().task, send).endswith("to be given the context, annotate it: ctx: Context")

    def fine(ctx: Context, to: str) -> None: ...

    Tasks().task(fine)


def test_15_a_method() -> None:
    class Mail:
        def send(self, to: str) -> None: ...

    assert "a method cannot be a task: write a function outside of the class" in refusal(Tasks().task, Mail.send)


def test_16_two_tasks_of_one_name_in_two_modules(nowhere: Project) -> None:
    for name in ("mail", "orders"):
        nowhere.write(f"{name}.py", "from shop import app\n@app.task\ndef send() -> None: ...\n")
    nowhere.write("shop.py", "from holdfast import App\napp = App(modules=['mail', 'orders'])\n")
    said = nowhere.process("worker", "shop.py")
    said.once("two kinds named 'send' (mail.send and orders.send): rename one", "@app.task(name=…)", code=FAILED)


def test_16_names_that_are_not_allowed_come_with_one_that_is() -> None:
    def sendMail() -> None: ...

    assert refusal(Tasks().task, sendMail).endswith("Give a name with name='send_mail'")
    assert refusal(Tasks().kind, "Order Flow").endswith("Write kind('order_flow')")
    assert refusal(Tasks().task, lambda: None).endswith("Give a name with name=")


@pytest.mark.parametrize("duration", ["5 minutes", "10min", -1])
def test_29_slips_in_durations(duration: Any) -> None:
    examples = 'Write for example "250ms", "90s", "1h30m" or "7d"'
    for declare in (
        lambda: Tasks().task(timeout=duration)(print_nothing),
        lambda: Retry(5, delay=duration),
        lambda: Later(object(), duration),
    ):
        with pytest.raises((DeclarationError, ConfigError)) as caught:
            declare()
        assert repr(duration) in str(caught.value) and examples in str(caught.value)


def print_nothing() -> None: ...


def test_29_at_a_declaration_the_command_line_tells_the_place(nowhere: Project) -> None:
    nowhere.write("shop.py", "from holdfast import App, Retry\napp = App()\nretry = Retry(5, delay='10min')\n")
    said = nowhere.process("worker", "shop.py")
    said.once("shop.py:3: Retry(delay=): '10min' is not a duration. Write for example", code=FAILED)


@pytest.mark.parametrize(("text", "shown"), [("5 minutes", "'5 minutes'"), ("10min", "'10min'"), ("-1", "-1.0")])
def test_29_on_the_command_line_nobody_writes_a_timedelta(nowhere: Project, text: str, shown: str) -> None:
    said = nowhere.cli("enqueue", "hello", "name=Ada", "--delay", text)
    said.once(f"invalid value for '--delay': {shown} is", 'Write for example "250ms"', code=2)
    assert "timedelta" not in said.err
