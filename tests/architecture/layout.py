"""Figures about the source as it is written: folders, constructors, names, lines."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "holdfast"
MANY_MODULES = 12
MANY_ARGUMENTS = 7


@cache
def modules() -> dict[Path, ast.Module]:
    """Every module of Holdfast, parsed, by its path below the package."""
    return {path.relative_to(SOURCE): ast.parse(path.read_text("utf-8")) for path in sorted(SOURCE.rglob("*.py"))}


def crowded_folders() -> dict[str, int]:
    """Folders with more modules than can be seen at once; `__init__.py` is not counted."""
    counts = Counter(str(path.parent) for path in modules() if path.name != "__init__.py")
    return {folder: count for folder, count in counts.most_common() if count > MANY_MODULES}


def constructors() -> dict[str, dict[str, int]]:
    """The constructors with the most arguments, and that of the worker: how many, and how many lines they have."""
    found = {}
    for path, owner in _classes():
        for made in owner.body:
            if isinstance(made, ast.FunctionDef) and made.name == "__init__":
                given = made.args
                count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - 1
                lines = (made.end_lineno or made.lineno) - made.lineno + 1
                found[f"{path}:{owner.name}"] = {"arguments": count, "lines": lines}
    by_arguments = sorted(found.items(), key=lambda each: (-each[1]["arguments"], -each[1]["lines"]))
    return {
        name: figures
        for name, figures in by_arguments
        if figures["arguments"] > MANY_ARGUMENTS or name.endswith("worker.py:Worker")
    }


def shared_class_names() -> dict[str, list[str]]:
    """The names that more than one class has, and the modules where these are."""
    where = defaultdict(list)
    for path, owner in _classes():
        where[owner.name].append(str(path))
    return {name: paths for name, paths in sorted(where.items(), key=lambda each: -len(each[1])) if len(paths) > 1}


def assigned_from_outside() -> list[str]:
    """Where the engine sets an attribute of another object: `self.beat.blocked_after = …`."""
    return [
        f"{path}:{node.lineno} {ast.unparse(node)}"
        for path, tree in modules().items()
        if path.parts[0] == "_engine"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Attribute)
    ]


def lambdas_to_self() -> list[str]:
    """Where the engine passes a lambda to what it makes in a constructor, because its own parts are not there yet."""
    return [
        f"{path}:{node.lineno}"
        for path, owner in _classes()
        if path.parts[0] == "_engine"
        for made in owner.body
        if isinstance(made, ast.FunctionDef) and made.name == "__init__"
        for node in ast.walk(made)
        if isinstance(node, ast.Lambda) and any(isinstance(n, ast.Name) and n.id == "self" for n in ast.walk(node.body))
    ]


def lines() -> dict[str, dict[str, int]]:
    """Modules and lines of each package."""
    found: dict[str, dict[str, int]] = {}
    for path in modules():
        package = path.parts[0] if len(path.parts) > 1 else "holdfast"
        figures = found.setdefault(package, {"modules": 0, "lines": 0})
        figures["modules"] += 1
        figures["lines"] += len((SOURCE / path).read_text("utf-8").splitlines())
    found["all"] = {each: sum(figures[each] for figures in found.values()) for each in ("modules", "lines")}
    return found


def _classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield path, node
