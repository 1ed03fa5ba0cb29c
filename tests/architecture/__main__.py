"""Prints the figures of the architecture. They are for people: nothing fails because of them."""

import argparse
import asyncio
import json
import logging
from collections.abc import Iterable
from typing import Any

from . import layout
from .walks import walks


def figures(with_walks: bool) -> dict[str, Any]:
    """All figures by what they are about."""
    found: dict[str, Any] = {}
    if with_walks:
        logging.getLogger("holdfast").disabled = True
        logging.disable()  # one of the walks ends with a parked task, as it should
        found["walks"] = {name: {**walk.figures, "modules": walk.files} for name, walk in asyncio.run(walks()).items()}
    return found | {
        "folders": layout.crowded_folders(),
        "constructors": layout.constructors(),
        "attributes set from outside in _engine": layout.assigned_from_outside(),
        "lambdas to self in constructors of _engine": layout.lambdas_to_self(),
        "class names used twice": layout.shared_class_names(),
        "lines": layout.lines(),
    }


def report(found: dict[str, Any]) -> Iterable[str]:
    """The figures for people."""
    if "walks" in found:
        yield "Walks: modules passed, functions called, changes of module"
        for name, walk in found["walks"].items():
            yield f"  {name:38} {walk['files']:4} {walk['functions']:5} {walk['changes of file']:5}"
    yield f"\nFolders with more than {layout.MANY_MODULES} modules"
    for folder, count in found["folders"].items():
        yield f"  {folder:38} {count:4}"
    yield f"\nConstructors with more than {layout.MANY_ARGUMENTS} arguments, and the worker's: arguments, lines"
    for name, figures in found["constructors"].items():
        yield f"  {name:50} {figures['arguments']:3} {figures['lines']:4}"
    for about in ("attributes set from outside in _engine", "lambdas to self in constructors of _engine"):
        yield f"\n{about.capitalize()}: {len(found[about])}"
        yield from (f"  {each}" for each in found[about])
    shared = found["class names used twice"]
    yield f"\nClass names used twice or more: {len(shared)}"
    for name, paths in shared.items():
        yield f"  {name:18} {', '.join(paths)}"
    yield "\nPackages: modules, lines"
    for package, figures in found["lines"].items():
        yield f"  {package:18} {figures['modules']:4} {figures['lines']:6}"


parser = argparse.ArgumentParser(prog="python -m tests.architecture", description=__doc__)
parser.add_argument("--json", action="store_true", help="print one JSON object, with the modules of each walk")
parser.add_argument("--no-walks", action="store_true", help="leave out what is measured on a server")
options = parser.parse_args()
answer = figures(not options.no_walks)
print(json.dumps(answer, indent=2) if options.json else "\n".join(report(answer)))
