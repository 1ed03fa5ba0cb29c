"""A log that nobody's logging can break.

Handlers, filters and record factories are the user's, and each may raise. A worker loses no slot, no lease and no beat
for that: what cannot be logged is said on stderr instead, and everything goes on.
"""

import logging
import sys
import traceback
from contextlib import suppress
from typing import Any


class Log(logging.LoggerAdapter[logging.Logger]):
    """The logger of this name; logging with it never raises."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name))

    def log(self, level: int, msg: object, *args: object, **options: Any) -> None:
        """Logs as a logger does; the other methods come through here."""
        if not self.isEnabledFor(level):
            return
        try:
            self.logger.log(level, msg, *args, stacklevel=2, **options)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            _say(logging.getLevelName(level), msg, error)


def _say(level: str, unlogged: object, error: BaseException) -> None:
    """On stderr, unless the user has told logging to be silent about its own errors."""
    if logging.raiseExceptions:
        with suppress(BaseException):  # stderr may be closed, or the user's as well
            where = "".join(traceback.format_exception(error))
            sys.stderr.write(f"{where}holdfast could not log this, because logging raised the error above.\n")
            sys.stderr.write(f"{level} {unlogged}\n")
