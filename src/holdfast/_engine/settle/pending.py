"""The endings that are not recorded yet: the dispatcher adds them, and the settler takes them."""

import asyncio

from holdfast._engine.run.attempt import Attempt
from holdfast._engine.settle.ending import Ending
from holdfast._model.run.outcome import Outcome


class Pending:
    """Endings that wait for the settler. Of the `doubtful` ones, the settler reads first whether they were recorded."""

    def __init__(self) -> None:
        self.endings: list[Ending] = []
        self.doubtful: list[Ending] = []
        self.wake = asyncio.Event()
        self.all_recorded = asyncio.Event()
        self.all_recorded.set()

    def ended(self, attempt: Attempt, outcome: Outcome) -> None:
        """An attempt has ended: the settler records it with the next flush."""
        if not self.endings:  # else the settler is awake already
            self.all_recorded.clear()
            self.wake.set()
        self.endings.append(Ending(attempt, outcome))

    def unsure(self, ending: Ending) -> None:
        """A transaction of the step may have recorded it: the settler reads that, and records `otherwise` if not."""
        self.doubtful.append(ending)
        self.all_recorded.clear()
        self.wake.set()

    def again(self, endings: list[Ending]) -> None:
        """These were not written, and are written anew."""
        self.endings.extend(endings)
