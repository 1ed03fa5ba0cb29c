"""The errors of Holdfast. Every message says what happened and what to do next.

    HoldfastError
    ├── ConfigError             a setting is wrong or missing
    │   ├── NoDatabase          no database was named; the message lists the ways to name one
    │   ├── ScheduleError       a schedule, a cron line or a time zone is wrong, or there is no such schedule
    │   ├── FilterError         a filter such as "state:parked since:1h" is not understood
    │   └── InvalidDuration     "90s", "1h30m", a number of seconds or a timedelta was expected (also a ValueError)
    ├── DeclarationError        a task, kind, step or resource is declared wrongly (raised at import)
    ├── EnqueueRefused          refused at the door: nothing was written
    │   └── KeyTaken            on_conflict="raise" and an unfinished task holds the key
    ├── EncodeError             a value cannot be stored as JSON, or is not of its field's type
    ├── DecodeError             stored args do not fit the step's fields
    ├── DatabaseUnreachable     the server cannot be reached or refuses us; passwords are removed
    ├── SchemaError             the schema is missing, too old or too new for this code
    │   └── NotPermitted        this database role may not do that; the message says how it is let
    ├── EmbeddedError           the embedded server cannot be set up, started or stopped
    ├── TaskNotFound            no such task, live or archived
    ├── LeaseLost               this attempt no longer holds its task; raised by ctx.move, to be let pass
    ├── WrongState              the task is not in a state that allows this
    └── NoResult                `ref.result()` has none to give
        ├── TaskParked
        ├── TaskCancelled
        ├── TaskExpired
        ├── TaskDiscarded
        └── ResultTimeout       (also a TimeoutError)

`Fail`, `Snooze` and `Cancel` are not errors of Holdfast but words a step says by raising them;
they live with the other outcomes in `holdfast._model.run.outcome`.
"""


class HoldfastError(Exception):
    """The root of all errors raised by Holdfast."""


class ConfigError(HoldfastError):
    """A setting is wrong or missing."""


class NoDatabase(ConfigError):
    """No database was named."""


class ScheduleError(ConfigError):
    """A schedule, a cron line or a time zone is wrong, or there is no such schedule."""


class FilterError(ConfigError):
    """A filter is not understood."""


class InvalidDuration(ConfigError, ValueError):
    """A duration is not one, or is outside what can be stored."""


class DeclarationError(HoldfastError):
    """A task, kind, step or resource is declared wrongly."""


class EnqueueRefused(HoldfastError):
    """The enqueue was refused at the door; nothing was written."""


class KeyTaken(EnqueueRefused):
    """An unfinished task already holds this key."""


class EncodeError(HoldfastError):
    """A value cannot be stored as JSON, or is not of the type that its field has."""


class DecodeError(HoldfastError):
    """Stored args do not fit the fields of their step."""


class DatabaseUnreachable(HoldfastError):
    """The database server cannot be reached, or refuses this connection. `permanent` if waiting will not help."""

    permanent = False


class SchemaError(HoldfastError):
    """The schema is missing, too old or too new for this code."""


class NotPermitted(SchemaError):
    """The database role of this connection was not given the part that this needs."""


class EmbeddedError(HoldfastError):
    """The embedded server cannot be set up, started or stopped."""


class TaskNotFound(HoldfastError):
    """There is no such task, live or archived."""


class LeaseLost(HoldfastError):
    """The attempt no longer holds its task: another may be running, or the task was cancelled."""


class WrongState(HoldfastError):
    """The task is not in a state that allows this."""


class NoResult(HoldfastError):
    """The task has no result to give."""


class TaskParked(NoResult):
    """The task is parked: it failed and waits for a person."""


class TaskCancelled(NoResult):
    """The task was cancelled."""


class TaskExpired(NoResult):
    """The task was not started before its deadline."""


class TaskDiscarded(NoResult):
    """The task was discarded while parked."""


class ResultTimeout(NoResult, TimeoutError):
    """The task did not finish in the time given to `result()`."""
