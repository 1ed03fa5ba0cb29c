"""Which step can follow which, read from the return annotations of `run`.

Annotations may name classes that exist only for type checkers or are defined later: the kind's own steps are
known by their class names wherever they live. A name that stays unknown is an edge to `?` and a warning.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Never, NoReturn, TypeAlias, Union, get_args, get_origin

from holdfast._model.declare import annotations as hints
from holdfast._model.declare.step import MAIN, FunctionStep, Step
from holdfast._model.declare.tasks import Tasks
from holdfast._model.enqueue.call import step_of_class
from holdfast._model.run.outcome import Done, Later

END = "end"
UNKNOWN = "?"
LARGEST = 300
"""Steps of a graph that are put in order."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A possible move: to a step, to `end`, or to `?`; `delayed` if it goes through `Later`."""

    step: str
    delayed: bool = False


Graph: TypeAlias = Mapping[str, Sequence[Edge]]
"""The edges out of each step of a kind."""


def edges(tasks: Tasks, kind: str, warnings: list[str] | None = None) -> dict[str, list[Edge]]:
    """The edges out of each step of `kind`, in the order they are written. Warnings go to the list given."""
    noted: list[str] = [] if warnings is None else warnings
    steps = {step.name: step for step in tasks._steps.values() if step.kind == kind}
    if any(isinstance(step, FunctionStep) for step in steps.values()):
        return {MAIN: [Edge(END)]}
    if END in steps:
        noted.append(f"{kind}.{END}: a graph cannot tell it from the end of a task: rename it, with was=[{END!r}]")
    classes = {step.target.__name__: step.target for step in steps.values()}
    return {name: _edges_of(step, classes, noted) for name, step in steps.items()}


def declared(stored: object) -> dict[str, list[Edge]]:
    """The graph that workers stored about a kind, or what of it is one. It does not say which moves are delayed."""
    found = stored.items() if isinstance(stored, Mapping) else ()
    return {
        step: [Edge(follower) for follower in followers if isinstance(follower, str)]
        for step, followers in found
        if isinstance(followers, list)
    }


def beginnings(graph: Graph, first: str | None = None) -> list[str]:
    """Where tasks seem to begin: the `first` step, if it is known, steps that no other leads to, and of each loop that
    nothing leads into the one that the graph names first."""
    led_to = {edge.step for step, followers in graph.items() for edge in followers if edge.step != step}
    found = {step for step in graph if step not in led_to or step == first}
    reached = reachable(graph, found)
    for step in graph:
        if step not in reached:
            found.add(step)
            reached |= reachable(graph, [step])
    return [step for step in graph if step in found]


def in_order(graph: Graph, first: str | None = None) -> list[str]:
    """The steps as tasks come to them, where nobody kept the order in which they were written.

    First the one that is said to be, or the one that the most others can be reached from, by the shortest ways; then
    those it leads to, and so on.
    A graph too large to look at stays as it is.
    """
    if len(graph) > LARGEST:
        return list(graph)
    found: dict[str, None] = {}
    distances = {step: _distances(graph, step) for step in graph}
    for step in sorted(graph, key=lambda each: (each != first, -len(distances[each]), sum(distances[each].values()))):
        found |= dict.fromkeys(each for each in distances[step] if each in graph)
    return list(found)


def _distances(graph: Graph, begin: str) -> dict[str, int]:
    """How many moves away each step is that can be reached, the nearest first."""
    found, waiting = {begin: 0}, [begin]
    for step in waiting:
        for edge in graph.get(step, ()):
            if edge.step not in found:
                found[edge.step] = found[step] + 1
                waiting.append(edge.step)
    return found


def endless(graph: Graph) -> list[str]:
    """Steps from which moves lead on and on: no way to the end, to `?` or to a step that only raises."""
    sources: dict[str, list[Edge]] = {}
    for step, followers in graph.items():
        for edge in followers:
            sources.setdefault(edge.step, []).append(Edge(step))
    stops = [step for step, followers in graph.items() if not followers]
    ending = reachable(sources, [END, UNKNOWN, *stops])
    return [step for step in graph if step not in ending]


def reachable(graph: Graph, begin: Iterable[str]) -> set[str]:
    """The steps that moves can lead to from these, and these themselves."""
    found = set(begin)
    pending = list(found)
    while pending:
        new = {edge.step for edge in graph.get(pending.pop(), ())} - found
        found |= new
        pending += new
    return found


def _edges_of(step: Step, classes: Mapping[str, type], warnings: list[str]) -> list[Edge]:
    annotation = hints.signature(step.target.run).return_annotation
    if annotation is hints.EMPTY:
        warnings.append(f"{step.kind}.{step.name}: run has no return annotation, so what follows it is not known")
        return [Edge(UNKNOWN)]
    found: list[Edge] = []
    for hint, delayed in _endings(_resolved(annotation, hints.namespace(step.target.run), classes)):
        edge = _edge(step, hint, delayed, warnings)
        if edge is not None and edge not in found:
            found.append(edge)
    return found


def _edge(step: Step, hint: Any, delayed: bool, warnings: list[str]) -> Edge | None:
    if hint is Never or hint is NoReturn:  # it always raises
        return None
    if hint is None or hint is NoneType or hint is Done or get_origin(hint) is Done:
        return Edge(END)
    follower = step_of_class(hint) if isinstance(hint, type) else None
    if follower is not None and follower.kind == step.kind:
        return Edge(follower.name, delayed)
    shown = getattr(hint, "__name__", str(hint))
    warnings.append(f"{step.kind}.{step.name}: its return annotation names {shown}, which is no step of {step.kind}")
    return Edge(UNKNOWN, delayed)


def _endings(hint: Any, delayed: bool = False) -> Iterator[tuple[Any, bool]]:
    """The members of unions, of `Later[...]` and of type aliases, one by one."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Union or origin is UnionType:
        for each in arguments:
            yield from _endings(each, delayed)
    elif origin is Annotated:
        yield from _endings(arguments[0], delayed)
    elif origin is Later:
        yield from _endings(arguments[0], True)
    elif hasattr(hint, "__value__"):  # type X = ...
        yield from _endings(hint.__value__, delayed)
    else:
        yield hint, delayed


def _resolved(annotation: Any, names: dict[str, Any], classes: Mapping[str, type]) -> Any:
    """The annotation as types; names that cannot be found are stand-ins."""
    # what the module itself calls by a name comes first
    extra: dict[str, Any] = {name: cls for name, cls in classes.items() if name not in names}
    for _ in range(100):
        try:
            return hints.resolve(annotation, names, extra)
        except NameError as error:
            if error.name is None or error.name in extra:
                break
            extra[error.name] = _unknown(error.name, classes)
        except Exception:
            break
    return _unknown(str(annotation), {})


def _unknown(name: str, classes: Mapping[str, type]) -> type:
    """A stand-in for a name that exists only for type checkers. As a module, it holds the kind's steps."""

    class Stranger(type):
        def __getattr__(cls, attribute: str) -> Any:
            if attribute.startswith("__"):
                raise AttributeError(attribute)
            return classes.get(attribute) or _unknown(f"{name}.{attribute}", classes)

        def __getitem__(cls, _: Any) -> Any:
            return cls

    return Stranger(name, (), {})
