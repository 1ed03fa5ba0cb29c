"""What `worker` and `dev` tell at their start: which database, which steps, and how to enqueue a task."""

import enum
import shlex
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from math import isfinite
from pathlib import Path, PurePath
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from holdfast.cli.output.printing import line

if TYPE_CHECKING:
    from holdfast._db.config.resolve import Database
    from holdfast._model.declare.step import Step
    from holdfast._model.declare.tasks import Tasks

MOST_STEPS = 20
LONGEST_DEFAULT = 30
_AS_TEXT = (str, bytes, date, datetime, time, timedelta, Decimal, UUID, PurePath)


# The database ---------------------------------------------------------------------------------------


def database_in_short(database: "Database", schema: str) -> str:
    """`embedded PostgreSQL 18 in .holdfast`, or `PostgreSQL at ada@localhost/shop (HOLDFAST_URL), schema jobs`."""
    from holdfast import embedded
    from holdfast._db.config.describe import described
    from holdfast._db.config.resolve import embedded_url

    server = embedded.find() if database.url == embedded_url() else None
    if server is not None:
        shown = f"embedded PostgreSQL {server.version.partition('.')[0]} in {folder_in_short(server.folder)}"
    else:
        shown = f"PostgreSQL at {described(database.url)} ({database.source})"
    return line(shown if schema == "holdfast" else f"{shown}, schema {schema}")


def folder_in_short(folder: Path) -> str:
    """A folder as seen from here, or from home."""
    for start, sign in ((Path.cwd(), ""), (Path.home(), "~")):
        if folder.is_relative_to(start):
            return str(PurePath(sign) / folder.relative_to(start))
    return str(folder)


# Steps ----------------------------------------------------------------------------------------------


def known_steps(app: "Tasks") -> "list[Step]":
    """What an App declares, each once: old names are left out."""
    return list({(step.kind, step.name): step for step in app._steps.values()}.values())


def steps_in_short(app: "Tasks") -> str:
    """`3 steps: hello, greeter (ReadName, SayHello)`."""
    kinds: dict[str, list[Step]] = {}
    for step in known_steps(app)[:MOST_STEPS]:
        kinds.setdefault(step.kind, []).append(step)
    told = [
        kind if _is_function(steps[0]) else f"{kind} ({', '.join(s.name for s in steps)})"
        for kind, steps in kinds.items()
    ]
    number = len(known_steps(app))
    more = f" and {number - MOST_STEPS} more" if number > MOST_STEPS else ""
    return f"{number} {'step' if number == 1 else 'steps'}: {', '.join(told)}{more}"


def declared_queues(app: "Tasks") -> list[str]:
    """The queues that tasks of this App go to unless told otherwise."""
    return sorted({step.queue for step in known_steps(app)}) or ["default"]


def start_warnings(app: "Tasks", queues: Sequence[str], only: Sequence[str] = ()) -> list[str]:
    """What is odd: variables that are no settings, no tasks, queues that are not served, moves that cannot be read."""
    from holdfast._db.config.resolve import unknown_variables
    from holdfast._model.declare.graph import edges

    odd = [line(each) for each in unknown_variables().values()]
    if not app._steps:
        return [*odd, "this App declares no tasks: did you name its modules, App(modules=[…])?"]
    ours = [each for each in known_steps(app) if not only or {each.kind, f"{each.kind}.{each.name}"} & set(only)]
    elsewhere = sorted({(step.queue, step.kind) for step in ours if step.queue not in queues})
    found = [
        f"{kind} goes to the queue {queue}, which this worker does not serve: add -q {queue}"
        for queue, kind in elsewhere
    ]
    for kind in app._kinds:
        edges(app, kind, found)
    return odd + found


def _is_function(step: "Step") -> bool:
    from holdfast._model.declare.step import FunctionStep

    return isinstance(step, FunctionStep)


# Commands -------------------------------------------------------------------------------------------


class Parameter(NamedTuple):
    """An argument of a function or a field of a step. `default` is JSON; empty if there is none to show."""

    name: str
    is_text: bool
    is_required: bool
    default: Any = None


def enqueue_commands(app: "Tasks") -> list[str]:
    """For each step where tasks begin, the command that enqueues one: `holdfast enqueue hello name=…`."""
    from holdfast._model.declare.graph import beginnings, edges

    begin = {(kind, step) for kind in app._kinds for step in beginnings(edges(app, kind))}
    return [enqueue_command(step) for step in known_steps(app) if (step.kind, step.name) in begin]


def enqueue_command(step: "Step") -> str:
    """The command that enqueues a task at this step; what has to be filled in is `…`."""
    name = step.kind if _is_function(step) else f"{step.kind}.{step.name}"
    return " ".join(["holdfast", "enqueue", name, *(word for each in parameters(step) if (word := _word(each)))])


def parameters(step: "Step") -> list[Parameter]:
    """What a step takes."""
    import msgspec

    if isinstance(step.target, type) and issubclass(step.target, msgspec.Struct):
        return list(_fields_of_struct(step.target))
    return list(_parameters(step))


def _fields_of_struct(struct: Any) -> "Iterator[Parameter]":
    import msgspec

    hints = get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        yield Parameter(field.encode_name, _is_text(hints.get(field.name)), field.required, _shown(field.default))


def _parameters(step: "Step") -> "Iterator[Parameter]":
    from holdfast._model.declare import annotations as hints

    found = list(hints.signature(step.target).parameters.values())
    if _is_function(step) and step.takes_ctx:
        found = found[1:]
    try:
        types = get_type_hints(step.target, include_extras=True)
    except Exception:  # names that only type checkers know
        types = {}
    for each in found:
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
            is_required = each.default is each.empty
            yield Parameter(each.name, _is_text(types.get(each.name)), is_required, _shown(each.default))


def _is_text(hint: Any) -> bool:
    """Whether a value of this type is a text in JSON."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _is_text(get_args(hint)[0])
    if origin is Union or origin is UnionType:
        return all(_is_text(each) for each in get_args(hint) if each is not NoneType)
    if origin is Literal:
        return all(isinstance(each, str) for each in get_args(hint))
    if not isinstance(hint, type):
        return False
    if issubclass(hint, enum.Enum):
        return all(isinstance(each.value, str) for each in hint)
    return issubclass(hint, _AS_TEXT)


def _shown(default: Any) -> Any:
    """A default that is short and plain enough to be shown."""
    is_plain = isinstance(default, (str, int)) or (isinstance(default, float) and isfinite(default))
    is_short = is_plain and not isinstance(default, enum.Enum) and len(str(default)) <= LONGEST_DEFAULT
    return default if is_short else None


def _word(parameter: Parameter) -> str:
    import json

    name, is_text, is_required, default = parameter
    if is_required:
        return f"{name}=…" if is_text else f"{name}:=…"
    if default is None:
        return ""
    return f"{name}={shlex.quote(str(default))}" if isinstance(default, str) else f"{name}:={json.dumps(default)}"
