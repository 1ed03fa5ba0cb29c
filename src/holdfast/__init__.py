"""Durable, resumable tasks on PostgreSQL."""

import typing as _typing
from importlib import import_module as _import_module

if _typing.TYPE_CHECKING:
    from holdfast._model.declare.function import Function
    from holdfast._model.declare.kind import Kind
    from holdfast._model.declare.options import EnqueueOptions, KindOptions, StepOptions
    from holdfast._model.declare.tasks import Tasks
    from holdfast._model.enqueue.call import Call, Entry, named
    from holdfast._model.enqueue.ref import Failure, Progress, Ref, TaskInfo
    from holdfast._model.run.context import Context, current_context
    from holdfast._model.run.outcome import Cancel, Done, Fail, Later, Snooze
    from holdfast._model.run.retry import Retry
    from holdfast._model.time.duration import Duration
    from holdfast._model.time.plan_times import Plans
    from holdfast._model.time.recurrence import Cron, Every
    from holdfast._sql.repair import Tally
    from holdfast.app import App
    from holdfast.errors import (
        ConfigError,
        DatabaseUnreachable,
        DeclarationError,
        DecodeError,
        EmbeddedError,
        EncodeError,
        EnqueueRefused,
        FilterError,
        HoldfastError,
        InvalidDuration,
        KeyTaken,
        LeaseLost,
        NoDatabase,
        NoResult,
        NotPermitted,
        ResultTimeout,
        ScheduleError,
        SchemaError,
        TaskCancelled,
        TaskDiscarded,
        TaskExpired,
        TaskNotFound,
        TaskParked,
        WrongState,
    )
    from holdfast.schedules import OccurrenceInfo, ScheduleInfo, Schedules
    from holdfast.sync import SyncApp, SyncRef
    from holdfast.sync_schedules import SyncSchedules
    from holdfast.verbs import ManyOptions, RetryManyOptions

__all__ = [
    "App",
    "Call",
    "Cancel",
    "ConfigError",
    "Context",
    "Cron",
    "DatabaseUnreachable",
    "DeclarationError",
    "DecodeError",
    "Done",
    "Duration",
    "EmbeddedError",
    "EncodeError",
    "EnqueueOptions",
    "EnqueueRefused",
    "Entry",
    "Every",
    "Fail",
    "Failure",
    "FilterError",
    "Function",
    "HoldfastError",
    "InvalidDuration",
    "KeyTaken",
    "Kind",
    "KindOptions",
    "Later",
    "LeaseLost",
    "ManyOptions",
    "NoDatabase",
    "NoResult",
    "NotPermitted",
    "OccurrenceInfo",
    "Plans",
    "Progress",
    "Ref",
    "ResultTimeout",
    "Retry",
    "RetryManyOptions",
    "ScheduleError",
    "ScheduleInfo",
    "Schedules",
    "SchemaError",
    "Snooze",
    "StepOptions",
    "SyncApp",
    "SyncRef",
    "SyncSchedules",
    "Tally",
    "TaskCancelled",
    "TaskDiscarded",
    "TaskExpired",
    "TaskInfo",
    "TaskNotFound",
    "TaskParked",
    "Tasks",
    "WrongState",
    "current_context",
    "named",
]

# Imported at first use: the command line and `holdfast.errors` do not need the driver and the engine.
_HOMES = {
    "_model.enqueue.call": "Call Entry named",
    "_model.run.context": "Context current_context",
    "_model.time.duration": "Duration",
    "_model.declare.function": "Function",
    "_model.declare.kind": "Kind",
    "_model.declare.options": "EnqueueOptions KindOptions StepOptions",
    "_model.run.outcome": "Cancel Done Fail Later Snooze",
    "_model.time.plan_times": "Plans",
    "_model.enqueue.ref": "Failure Progress Ref TaskInfo",
    "_model.run.retry": "Retry",
    "_model.declare.tasks": "Tasks",
    "_sql.repair": "Tally",
    "_model.time.recurrence": "Cron Every",
    "app": "App",
    "schedules": "OccurrenceInfo ScheduleInfo Schedules",
    "sync": "SyncApp SyncRef",
    "sync_schedules": "SyncSchedules",
    "verbs": "ManyOptions RetryManyOptions",
}

if not _typing.TYPE_CHECKING:  # a checker would take it for a promise that every name exists

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
        home = next((home for home, names in _HOMES.items() if name in names.split()), "errors")
        found = globals()[name] = getattr(_import_module(f"holdfast.{home}"), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
