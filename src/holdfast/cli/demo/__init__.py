"""`holdfast demo`: a story about a server, two workers and their tasks, which proves what it promises.

- `story.py`: the seven chapters, what each of them promises, and the user's turn after them
- `stage.py`: what it starts and ends: server, tables, dashboard, workers; and the signals that end it
- `task_log.py`: a task and its attempts, and the rows that show them
- `screen.py`: what it prints, on a terminal and elsewhere
- `tasks.py`: the tasks
"""

import click

from holdfast.cli.input.options import Setup, common_options, pass_setup
from holdfast.cli.output.printing import FAILED, Failure, print_json


@click.command()
@click.option("--once", is_flag=True, help="End after the last chapter. Exit code 1 if a promise was not kept.")
@common_options
@pass_setup
def demo(setup: Setup, /, once: bool) -> None:
    """Show what Holdfast does, in about half a minute.

    It starts the embedded server of this project and two workers, and tells what it does: orders of several steps, a
    flaky call, a delayed step, a burst, a killed worker, a parked task. Without --once it stays until Ctrl-C, for you
    to try commands, and serves the dashboard, at http://localhost:8420 or the next free port. All it started is ended
    with it; the tasks stay in the database.

    With --url it uses that database instead: it makes the tables there if they are missing, and its tasks go to the
    queue `demo`.

    \b
    Example:
      holdfast demo
      holdfast demo --once --json
    """
    from holdfast.cli.demo.screen import Screen
    from holdfast.cli.demo.stage import Stage
    from holdfast.cli.demo.story import Story

    screen = Screen(quiet=setup.json)
    stage = Stage(setup, screen, stays=not once)
    story = Story(stage, screen)
    with stage:
        story.tell()
        if setup.json:
            print_json(story.summary())
        if stage.stays and not story.problems:
            story.stay()
    if story.problems:
        listed = "\n".join(f"  - {each}" for each in story.problems)
        raise Failure(f"the demo did not keep its promises:\n{listed}", FAILED, "NotAsTold")
