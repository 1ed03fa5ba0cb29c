"""`holdfast schedules`: what recurs, when it comes next, what became of it, and the verbs of people."""

import click

from holdfast.cli.input.options import common_options


class _Group(click.Group):
    """Without a command, the list."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not any(each in self.commands for each in args) and "--help" not in args:
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group("schedules", cls=_Group)
@common_options
def schedules() -> None:
    """Show what recurs, and change it.

    \b
    Example:
      holdfast schedules
      holdfast schedules show nightly
      holdfast schedules next nightly -n 20
      holdfast schedules fire nightly
      holdfast schedules pause nightly --why "the warehouse moves"
    """


# The commands add themselves to the group.
from holdfast.cli.commands.schedules import act, look, make  # noqa: E402, F401
