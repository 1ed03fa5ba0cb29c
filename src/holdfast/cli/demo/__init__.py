"""`holdfast demo`: a server, two workers and their tasks, told as a story that proves what it says.

- `story.py`: the chapters in their order, what is expected of them, and the summary
- `frame.py`: the first chapter, and what comes after the last
- `chapters.py`: orders, a flaky call, a delayed step, a burst
- `trouble.py`: a killed worker, a parked task
- `stage.py`: what is started for it, and ended with it: server, workers
- `screen.py`: how it is told: in place and in colour on a terminal, else line by line
- `measures.py`, `demo.sql`: what it asks the database beyond what every user can ask
- `background.py`: a call in a thread, so that something can be shown meanwhile
- `ending.py`: Ctrl-C, obeyed where nothing is left half done
- `tasks.py`: the tasks
"""

import click

from holdfast.cli.input.options import Setup, common_options, pass_setup
from holdfast.cli.output.printing import FAILED, Failure, print_json


@click.command()
@click.option("--once", is_flag=True, help="End when all is told. Exit code 1 if a task did not end as told.")
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
    from contextlib import ExitStack

    from holdfast.cli.demo.ending import Ending
    from holdfast.cli.demo.screen import Screen
    from holdfast.cli.demo.stage import Stage
    from holdfast.cli.demo.story import Story

    screen = Screen(quiet=setup.json)
    with Ending() as ending, ExitStack() as stack:
        stage = Stage(setup, stack, ending, screen.say)
        stage.stays = not once
        story = Story(stage, screen)
        try:
            story.tell()
            if setup.json:
                print_json(story.summary())
            if not once and not story.problems:
                story.stay()
        except KeyboardInterrupt:
            screen.interrupted()
            raise
        finally:
            ending.begin()
            screen.is_ending = True
    if story.problems:
        listed = "\n".join(f"  - {each}" for each in story.problems)
        raise Failure(f"the demo did not end as told:\n{listed}", FAILED, "NotAsTold")
