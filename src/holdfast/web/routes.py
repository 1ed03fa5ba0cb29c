"""What the dashboard is made of: pages that tell something, and actions that change something.

A page is a function that reads, and a template that shows what it found:

    @page("/queues", "Queues", "queues.html", menu=True)
    async def queues(look: Look) -> QueueList: ...

An action is a function that does something, and the page to go to afterwards:

    @action("/queues/{name}/pause")
    async def pause(act: Act, *, name: str, why: str | None = None) -> Paused: ...

Both are also the JSON API, under `/api`: their keyword arguments are what can be asked, checked by their types, and
what they return is the answer. So a page, its JSON and its description in OpenAPI cannot differ.
"""

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from holdfast._model.json.problems import problem_in
from holdfast.web.view.problems import Problem

MISSING = inspect.Parameter.empty


@dataclass(frozen=True)
class Parameter:
    """What can be asked, or must be."""

    name: str
    type: Any
    default: Any

    @cached_property
    def plain(self) -> Any:
        """Its type without None, and without what is noted about it."""
        found = self.type
        while get_origin(found) in (Union, UnionType, Annotated):
            found = next(each for each in get_args(found) if each is not NoneType)
        return found

    @property
    def takes_many(self) -> bool:
        return get_origin(self.plain) is list

    @property
    def takes_object(self) -> bool:
        return self.plain is dict or get_origin(self.plain) is dict

    def of_text(self, texts: Sequence[str]) -> Any:
        """Its value from a query or a form."""
        try:
            if self.takes_many:
                return msgspec.convert([each for each in texts if each], self.type, strict=False)
            if self.takes_object:
                return msgspec.convert(json.loads(texts[-1]), self.type)
            return msgspec.convert(texts[-1], self.type, strict=False)
        except (msgspec.ValidationError, ValueError, RecursionError) as error:
            raise Problem(400, "Not understood", f"{self.name}: {error}") from None


@dataclass(frozen=True)
class Place:
    """A page or an action: where it is, and the function behind it."""

    path: str
    function: Callable[..., Awaitable[Any]]

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def about(self) -> str:
        return inspect.getdoc(self.function) or ""

    @cached_property
    def parameters(self) -> list[Parameter]:
        hints = get_type_hints(self.function, include_extras=True)
        return [
            Parameter(each.name, hints[each.name], each.default)
            for each in inspect.signature(self.function).parameters.values()
            if each.kind is inspect.Parameter.KEYWORD_ONLY
        ]

    @cached_property
    def answer(self) -> Any:
        """The type of what it returns."""
        return get_type_hints(self.function)["return"]

    def given(self, texts: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """Its arguments from texts: what is empty counts as not given."""
        found: dict[str, Any] = {}
        for each in self.parameters:
            told = [text for text in texts.get(each.name, ()) if text.strip()]
            if told:
                for text in told:
                    _refuse_unstorable(each.name, text)
                found[each.name] = each.of_text(told)
            elif each.default is MISSING:
                raise Problem(400, "Something is missing", f"{each.name} must be given")
        return found

    def given_json(self, path: Mapping[str, str], body: Any) -> dict[str, Any]:
        """Its arguments from the path and a JSON object."""
        if not isinstance(body, dict):
            raise Problem(400, "Not understood", "the body must be a JSON object")
        _refuse_unstorable("the body", body)
        _refuse_unstorable("the path", path)
        found: dict[str, Any] = {}
        for each in self.parameters:
            if each.name in path:
                found[each.name] = each.of_text([path[each.name]])
            elif each.name in body:
                found[each.name] = msgspec.convert(body.pop(each.name), each.type)
            elif each.default is MISSING:
                raise Problem(400, "Something is missing", f"{each.name} must be given")
        if body:
            known = ", ".join(each.name for each in self.parameters if each.name not in path)
            raise Problem(400, "Not understood", f"there is no {sorted(body)[0]!r} here: give {known}")
        return found


def _refuse_unstorable(name: str, given: Any) -> None:
    """What no database can store, or look for, is a mistake of whoever asks."""
    if problem := problem_in(given):
        raise Problem(400, "Not understood", f"{name}{problem.removeprefix('value')}")


@dataclass(frozen=True)
class Page(Place):
    """Something to look at. `menu`: it is in the navigation; `live`: it is looked at again while it is open."""

    title: str = ""
    template: str = ""
    menu: bool = False
    live: bool = True


@dataclass(frozen=True)
class Action(Place):
    """Something to do. `then` gives the path of the page that shows what came of it."""

    then: Callable[[Any], str] = str


def page(
    path: str, title: str, template: str, *, menu: bool = False, live: bool = True
) -> Callable[[Callable[..., Awaitable[Any]]], Page]:
    """Makes a page of a function `async def name(look, *, …) -> Answer`."""
    return lambda function: Page(path, function, title, template, menu, live)


def action(path: str, then: Callable[[Any], str]) -> Callable[[Callable[..., Awaitable[Any]]], Action]:
    """Makes an action of a function `async def name(act, *, …) -> Answer`."""
    return lambda function: Action(path, function, then)
