"""An exception as JSON: type, message, attributes, place, traceback and causes. Bounded, and it never raises."""

import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import msgspec

from holdfast._model.json.error_attributes import attributes
from holdfast._model.json.text import cut_middle, safe_text

MAX_MESSAGE = 8 * 1024
MAX_TRACEBACK = 32 * 1024
MAX_CAUSES = 10
MAX_FRAMES = 60  # kept at each end
MAX_PLACE = 300
MAX_ERROR = 1024 * 1024

PLACE = "_holdfast_place"
"""The attribute of an exception that comes from a child process: its frames are not here."""

_write = msgspec.json.Encoder().encode


def encode_error(error: BaseException) -> bytes:
    """`{"type", "message", "place", "traceback", "causes": [{"type", "message", "traceback"}, ...]}`.

    Each has `"attributes"`, if the exception has any that can be stored, such as a code.
    Causes are what `raise ... from` and "during handling of" name, and the members of exception groups.
    """
    try:
        described = {**_described(error), "place": place_of(error)}
        causes = [_described(each) for each in _causes(error)]
        told = _write({**described, "causes": causes})
        if len(told) > MAX_ERROR:  # only with texts that JSON makes much longer
            told = _write({**described, "causes": [{**each, "traceback": ""} for each in causes]})
        return told
    except BaseException:  # of a stranger's class, which may raise anything
        return simple_error(type(error).__name__, "this error could not be described")


def simple_error(type: str, message: str) -> bytes:
    """The JSON of an error that comes without an exception."""
    return _write({"type": _bounded(type), "message": _bounded(message), "traceback": "", "causes": []})


def _described(error: BaseException) -> dict[str, Any]:
    name, message = type_name(error), message_of(error)
    described: dict[str, Any] = {"type": name, "message": message}
    if carried := _attributes(error):
        described["attributes"] = carried
    return {**described, "traceback": _traceback(error, f"{name}: {message}")}


def _attributes(error: BaseException) -> dict[str, Any]:
    try:
        return attributes(error)
    except BaseException:  # it is of a stranger's class, and so are its values
        return {}


def place_of(error: BaseException) -> str:
    """Where it was raised: `shop.mail.Send.run:42`, the innermost line of the user's code; "" if that is not known.

    The user's code is the package of what Holdfast called last: the step itself, unless a resource it asked for.
    """
    brought = getattr(error, PLACE, None)
    if isinstance(brought, str):
        return brought
    package, place, is_ours = None, "", True
    for frame, number in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        top = module.partition(".")[0]
        if top == "holdfast":
            is_ours = True
            continue
        if is_ours:
            package, is_ours = top, False
        if top == package:
            place = f"{module}.{frame.f_code.co_qualname}:{number}"
    return cut_middle(safe_text(place), MAX_PLACE)


def type_name(error: BaseException) -> str:
    cls = type(error)
    module = getattr(cls, "__module__", None)
    name = cls.__qualname__ if module in ("builtins", None) else f"{module}.{cls.__qualname__}"
    return _bounded(name)


def message_of(error: BaseException) -> str:
    """What it says, with its notes."""
    try:
        message = str(error)
    except BaseException as unprintable:
        message = f"<its message cannot be shown: {type(unprintable).__name__}>"
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list):
        message = "\n".join([message, *(each for each in notes if isinstance(each, str))])
    return _bounded(message)


def _bounded(text: str) -> str:
    return cut_middle(safe_text(cut_middle(text, MAX_MESSAGE)), MAX_MESSAGE)


def _traceback(error: BaseException, last_line: str) -> str:
    frames = _from_users_code(error.__traceback__)
    if frames is None:
        return ""
    try:
        lines = list(_frame_lines(frames))
    except BaseException as trouble:
        lines = [f"  (the frames cannot be shown: {type(trouble).__name__})\n"]
    text = "".join(["Traceback (most recent call last):\n", *lines, last_line])
    return cut_middle(safe_text(text), MAX_TRACEBACK)


def _frame_lines(frames: TracebackType) -> Iterator[str]:
    length, each = 0, frames
    while each is not None:
        length, each = length + 1, each.tb_next  # type: ignore[assignment]
    if length <= 2 * MAX_FRAMES:
        yield from traceback.format_tb(frames)
        return
    yield from traceback.format_tb(frames, MAX_FRAMES)
    yield f"  ... {length - 2 * MAX_FRAMES} frames left out ...\n"
    yield from traceback.format_tb(frames, -MAX_FRAMES)


def _from_users_code(frames: TracebackType | None) -> TracebackType | None:
    """The traceback without Holdfast's own frames at its beginning; all of it if there is nothing else."""
    each = frames
    while each is not None:
        module: Any = each.tb_frame.f_globals.get("__name__", "")
        if not (isinstance(module, str) and module.startswith("holdfast.")):
            return each
        each = each.tb_next
    return frames


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Everything behind `error`, nearest first, each once."""
    seen = {id(error)}
    pending = _direct_causes(error)
    while pending and len(seen) <= MAX_CAUSES:
        cause = pending.pop(0)
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        pending += _direct_causes(cause)


def _direct_causes(error: BaseException) -> list[BaseException]:
    causes: list[BaseException] = list(error.exceptions) if isinstance(error, BaseExceptionGroup) else []
    if error.__cause__ is not None:
        causes.append(error.__cause__)
    elif error.__context__ is not None and not error.__suppress_context__:
        causes.append(error.__context__)
    return causes
