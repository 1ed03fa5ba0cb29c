"""Annotations as real types, also when they are strings that cannot be resolved yet."""

import inspect
import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, get_type_hints

EMPTY = inspect.Parameter.empty
"""Stands where no annotation was written."""


def signature(function: Callable[..., Any]) -> inspect.Signature:
    """The parameters of `function`, with annotations that may still be strings or forward references."""
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def namespace(function: Callable[..., Any]) -> dict[str, Any]:
    """The globals in which the annotations of `function` were written."""
    return getattr(inspect.unwrap(function), "__globals__", {})


def resolve(annotation: Any, names: dict[str, Any], extra: Mapping[str, Any] | None = None) -> Any:
    """`annotation` with every string in it replaced by what it names; NameError if a name is not there."""
    if annotation is EMPTY:
        return Any
    holder = SimpleNamespace(__annotations__={"it": annotation})
    return get_type_hints(holder, names, dict(extra or {}), include_extras=True)["it"]


def names_context(annotation: Any, names: dict[str, Any], context: type) -> bool:
    """Whether `annotation` means `context`; a name imported only for type checkers is known by its text."""
    try:
        return resolve(annotation, names) is context
    except Exception:
        text = str(getattr(annotation, "__forward_arg__", annotation))
        return text.strip("'\" ").rpartition(".")[2] == context.__name__
