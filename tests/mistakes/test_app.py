"""APP on the command line: what cannot be found, imported, or is something else. More: tests/cli/test_load.py."""

import sys

import pytest

from .conftest import FAILED, USAGE, Project

APP = "from holdfast import App, Tasks\n"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("helo.py", "helo.py does not exist: did you mean hello.py?"),
        ("elsewhere.py", "there is no elsewhere.py in "),
        ("helo", "there is no module 'helo' in "),
        ("helo", "did you mean hello?"),
        ("hello.app", "did you mean hello:app?"),
        ("hello", None),
    ],
)
def test_09_a_slip_in_the_name(nowhere: Project, spec: str, said: str | None) -> None:
    if said is None:
        assert nowhere.process("graph", spec).code == 0
    else:
        nowhere.process("graph", spec).once(said, code=USAGE)


def test_09_a_file_that_python_does_not_understand(nowhere: Project) -> None:
    nowhere.write("slip.py", APP + "app = App()\ndef f(a: int -> int: ...\n")
    said = nowhere.process("worker", "slip.py")
    said.once("importing slip failed: SyntaxError: ", "slip.py", "line 3", "def f(a: int -> int", code=FAILED)


def test_09_a_package_that_is_not_installed_here(nowhere: Project) -> None:
    nowhere.write("needy.py", "import not_installed_anywhere\n")
    said = nowhere.process("worker", "needy.py")
    said.telling(
        "error: importing needy failed: ModuleNotFoundError: No module named 'not_installed_anywhere'.",
        f"Is it installed for {sys.executable}?",
        'needy.py", line 1',
    )
    assert said.code == FAILED
    # Only the user's own lines: nothing of importlib or of Holdfast.
    assert "importlib" not in said.err and "holdfast/cli" not in said.err


def test_09_a_module_of_the_app_that_is_not_there(nowhere: Project) -> None:
    nowhere.write("shop.py", APP + "app = App(modules=['shop_mail'])\n")
    said = nowhere.process("worker", "shop.py")
    said.once("App(modules=[…]): there is no module 'shop_mail'. Check its spelling", code=FAILED)
    nowhere.write("shop.py", APP + "app = App(modules='shop_mail')\n")
    nowhere.process("worker", "shop.py").once("shop.py:2: App(modules='shop_mail'): give a list", code=FAILED)


@pytest.mark.parametrize(
    ("text", "spec", "said"),
    [
        ("application = App()", "shop.py:app", "there is no app in shop.py: did you mean shop.py:application?"),
        ("app = 1", "shop.py:ap", "there is no ap in shop.py: write app = App() in it"),
        ("app = 1", "shop.py", "there is no App in shop.py: write app = App() in it"),
        ("one = App()\ntwo = App()", "shop.py", "shop.py has 2 Apps, one, two: say which one, shop.py:one"),
        ("tasks = Tasks()", "shop.py", "shop.py has Tasks, but no App: make one that includes them"),
        (
            "tasks = Tasks()",
            "shop.py:tasks",
            "not an App but a Tasks: make an App that includes them, App(include=[…])",
        ),
        ("app = App", "shop.py:app", "not an App but a class: make one of it, app = App()"),
        ("def make(): return App()", "shop.py:make", "not an App but a function: name a variable of the module"),
    ],
)
def test_10_no_app_or_not_the_one(nowhere: Project, text: str, spec: str, said: str) -> None:
    nowhere.write("shop.py", APP + text + "\n")
    nowhere.process("graph", spec).once(said, code=USAGE)


def test_10_an_app_without_tasks(project: Project) -> None:
    project.write("shop.py", APP + "app = App()\n")
    said = project.process("worker", "shop.py", "--drain").telling("this App declares no tasks", "App(modules=[…])")
    assert said.code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("App(include=Tasks())", "App(include=tasks): give a list of them, App(include=[tasks])"),
        ("App(include=[hello])", "takes Tasks, not a module: give the Tasks in it, or name it, App(modules=['hello'])"),
        ("App(include=[3])", "App(include=[…]) takes Tasks, not a int"),
    ],
)
def test_10_what_is_included_is_no_tasks(nowhere: Project, text: str, said: str) -> None:
    nowhere.write("shop.py", APP + f"import hello\napp = {text}\n")
    nowhere.process("graph", "shop.py").once("shop.py:3: ", said, code=FAILED)
