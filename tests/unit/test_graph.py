"""T23: which step can follow which, from annotations however they are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Union

from holdfast import Done, Later, Tasks
from holdfast._model.declare.graph import END, UNKNOWN, Edge, edges

from .steps_elsewhere import kind, tasks

if TYPE_CHECKING:
    from .steps_elsewhere import Pack


@kind.step(name="Begin")
@dataclass
class Start:
    async def run(self) -> Pack | Later[Ship | Start]: ...  # type: ignore[empty-body]


@kind.step
@dataclass
class Ship:
    def run(self) -> Later[Start] | Annotated[Ship, "again"] | None: ...


@kind.step
@dataclass
class Deliver:
    def run(self) -> Done[str] | Nowhere | Later[Nothing] | None: ...  # type: ignore[name-defined]  # noqa: F821


@kind.step
@dataclass
class Stop:
    def run(self) -> NoReturn:
        raise ValueError


@kind.step
@dataclass
class Silent:
    def run(self):  # type: ignore[no-untyped-def]
        ...


@kind.step
@dataclass
class Vague:
    def run(self) -> Any: ...


@kind.step
@dataclass
class Quoted:
    def run(self) -> "Start | Later['Ship']": ...  # type: ignore[empty-body]  # noqa: UP037


@kind.step
@dataclass
class Broken:
    def run(self) -> Start[3].oops: ...  # type: ignore


Alias = Union[Start, "Later[Ship]"]


@kind.step
@dataclass
class Aliased:
    def run(self) -> Alias: ...  # type: ignore[empty-body]


def test_t23_the_graph_resolves_across_modules() -> None:
    graph = edges(tasks, "parcel")
    assert graph["Begin"] == [Edge("Pack"), Edge("Ship", delayed=True), Edge("Begin", delayed=True)]
    assert graph["Ship"] == [Edge("Begin", delayed=True), Edge("Ship"), Edge(END)]
    assert graph["Pack"] == [Edge("Begin"), Edge("Ship"), Edge(END)]
    assert graph["Quoted"] == graph["Aliased"] == [Edge("Begin"), Edge("Ship", delayed=True)]
    assert graph["Stop"] == []


def test_t23_unknown_names_are_edges_to_a_question_mark_and_warnings() -> None:
    warnings: list[str] = []
    graph = edges(tasks, "parcel", warnings)
    assert graph["Deliver"] == [Edge(END), Edge(UNKNOWN), Edge(UNKNOWN, delayed=True)]
    assert graph["Lost"] == [Edge(END), Edge(UNKNOWN), Edge("Begin")]
    assert graph["Silent"] == graph["Vague"] == graph["Broken"] == [Edge(UNKNOWN)]
    told = "\n".join(warnings)
    for name in ("Nowhere", "Nothing", "somewhere.Unheard", "parcel.Silent: run has no", "parcel.Vague", "oops"):
        assert name in told
    assert len(warnings) == 6


def test_t23_a_step_of_another_kind_is_unknown() -> None:
    other = Tasks()
    foreign = other.kind("foreign")

    @foreign.step
    @dataclass
    class Wrong:
        def run(self) -> Start: ...  # type: ignore[empty-body]

    assert edges(other, "foreign") == {"Wrong": [Edge(UNKNOWN)]}


def test_old_names_are_not_in_the_graph() -> None:
    app = Tasks()
    renamed = app.kind("new", was=["old"])

    @renamed.step(was=["Before"])
    @dataclass
    class Now:
        def run(self) -> Later[Now] | None: ...

    assert edges(app, "new") == {"Now": [Edge("Now", delayed=True), Edge(END)]}
    assert edges(app, "old") == {}


def test_a_function_ends_after_main() -> None:
    app = Tasks()

    @app.task
    def f() -> int: ...  # type: ignore[empty-body]

    assert edges(app, "f") == {"main": [Edge(END)]}
