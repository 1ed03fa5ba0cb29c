"""Durable, resumable tasks on PostgreSQL."""

from holdfast._model.call import Call, Entry, named
from holdfast._model.context import Context, current_context
from holdfast._model.duration import Duration
from holdfast._model.function import Function
from holdfast._model.kind import Kind
from holdfast._model.options import EnqueueOptions, KindOptions, StepOptions
from holdfast._model.outcome import Cancel, Done, Fail, Later, Snooze
from holdfast._model.reference import Failure, Ref, TaskInfo
from holdfast._model.retry import Retry
from holdfast._model.tasks import Tasks
from holdfast.app import App
from holdfast.errors import (
    ConfigError,
    DatabaseUnreachable,
    DeclarationError,
    DecodeError,
    EmbeddedError,
    EncodeError,
    EnqueueRefused,
    HoldfastError,
    InvalidDuration,
    KeyTaken,
    NoDatabase,
    NoResult,
    ResultTimeout,
    SchemaError,
    TaskCancelled,
    TaskDiscarded,
    TaskExpired,
    TaskNotFound,
    TaskParked,
    WrongState,
)
from holdfast.sync import SyncApp, SyncRef

__all__ = [
    "App",
    "Call",
    "Cancel",
    "ConfigError",
    "Context",
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
    "Fail",
    "Failure",
    "Function",
    "HoldfastError",
    "InvalidDuration",
    "KeyTaken",
    "Kind",
    "KindOptions",
    "Later",
    "NoDatabase",
    "NoResult",
    "Ref",
    "ResultTimeout",
    "Retry",
    "SchemaError",
    "Snooze",
    "StepOptions",
    "SyncApp",
    "SyncRef",
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
