"""`holdfast init`: a small App to begin with."""

import shlex
from importlib import resources, util
from pathlib import Path

import click

from holdfast._db.config.resolve import project_file, setting
from holdfast.cli.input.options import Setup, json_option, pass_setup
from holdfast.cli.output.printing import Failure, print_json


@click.command()
@click.argument("file", default="tasks.py", type=click.Path(dir_okay=False, path_type=Path))
@json_option
@pass_setup
def init(setup: Setup, /, file: Path) -> None:
    """Write a small App to begin with, to FILE: tasks.py unless given.

    It has one function and one kind with two steps, and it runs. A file that exists is never overwritten.

    \b
    Example:
      holdfast init
      holdfast init shop/work.py
    """
    _check_name(file)
    advice = _advice(file)
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(resources.files("holdfast.cli.commands").joinpath("init_tasks.py").read_text("utf-8"))
    except FileExistsError:
        raise Failure(
            f"{file} exists already, and nothing was written. Name another one: holdfast init FILE", name="FileExists"
        ) from None
    except FileNotFoundError:
        raise Failure(f"there is no folder {file.parent}: make it first", name="NoFolder") from None
    name = shlex.quote(str(file))
    commands = [f"holdfast dev {name}", "holdfast enqueue hello name=Ada --wait", "holdfast tasks"]
    if setup.json:
        print_json({"file": str(file), "next": commands})
        return
    click.echo(f"wrote {file}. Try next:\n")
    for command, about in zip(commands, ("and in another terminal:", "", ""), strict=True):
        click.echo(f"  {command}" + (f"        # {about}" if about else ""))
    if advice:
        click.echo(f"\n{advice}")


def _check_name(file: Path) -> None:
    """Whether a module in this file can be imported at all."""
    if file.suffix != ".py" or not file.stem.isidentifier():
        raise click.UsageError(f"{str(file)!r} cannot be the name of a module: write for example tasks.py.")
    # A folder without code (a namespace) does not get in the way of a file.
    known = util.find_spec(file.stem)
    is_in_package = (file.parent / "__init__.py").exists()
    if known is not None and known.origin is not None and not is_in_package and not file.exists():
        raise click.UsageError(
            f"another module is called {file.stem!r} ({known.origin}), and Python would import that: "
            "choose another name."
        )


def _advice(file: Path) -> str:
    """How to make this the project's App."""
    project = project_file()
    if project is None or setting("app").value is not None or not file.resolve().is_relative_to(project.parent):
        return ""
    app = file.resolve().relative_to(project.parent).as_posix()
    return f'To leave the name of the file out, write this to {project}:\n\n  [tool.holdfast]\n  app = "{app}"'
