"""APP on the command line: `shop.app:app`, `shop.app`, `hello.py`, `hello.py:app`, or the setting `app`.

A file is imported under the name other code would import it by, with its folder on the path: child processes of
steps with `executor="process"` find it again by that name.
"""

import importlib
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TypeVar

import click

from holdfast._db.config.resolve import project_file, setting
from holdfast._model.declare.tasks import Tasks
from holdfast.app import App
from holdfast.cli.output.printing import FAILED, USAGE, Failure, clean
from holdfast.errors import ConfigError, DeclarationError

T = TypeVar("T")
_MODULE = re.compile(r"[\w-]+(\.[\w-]+)*")
_WITH_NAME = re.compile(r"(?s)(.+):([A-Za-z_][\w.]*)")


def load_app(spec: str | None, *, url: str | None = None, schema: str | None = None) -> App:
    """The App that was named, with everything in it declared; on another database or schema if they are given."""
    app = _found(*_located(spec))
    # What was said on the command line goes before what the code says.
    app.use(url, schema=schema)
    _told(app.load, "its modules")
    return app


def _located(spec: str | None) -> tuple[str, str | None]:
    """The module's or file's name and the App's name in it. Puts the current folder on the path."""
    _on_path(Path.cwd())
    return _configured() if spec is None else _split(spec)


def _split(spec: str) -> tuple[str, str | None]:
    match = _WITH_NAME.fullmatch(spec)
    return (match[1], match[2]) if match else (spec, None)


def _configured() -> tuple[str, str | None]:
    found = setting("app")
    if found.value is None:
        raise click.UsageError(
            "no APP was named. Give a module or a file, such as shop.app:app or hello.py, set HOLDFAST_APP, "
            'or write app = "shop.app:app" under [tool.holdfast] in pyproject.toml.'
        )
    target, name = _split(found.value)
    file = project_file()
    if found.is_from_project and file is not None:
        # It is meant to be seen from where it was written down.
        _on_path(file.parent)
        target = str(file.parent / target) if _is_file_name(target) else target
    return target, name


def _found(target: str, name: str | None) -> App:
    module = _from_file(Path(target)) if _is_file_name(target) else _from_name(target)
    if name is not None:
        return _named(module, target, name)
    apps = {id(each): (label, each) for label, each in reversed(vars(module).items()) if isinstance(each, App)}
    if len(apps) == 1:
        return next(iter(apps.values()))[1]
    if apps:
        labels = sorted(label for label, _ in apps.values())
        raise _usage(f"{target} has {len(apps)} Apps, {', '.join(labels)}: say which one, {target}:{labels[0]}")
    if any(isinstance(each, Tasks) for each in vars(module).values()):
        raise _usage(f"{target} has Tasks, but no App: make one that includes them, app = App(include=[tasks])")
    raise _usage(f"there is no App in {target}: write app = App() in it, or name the module that has one")


def _named(module: ModuleType, target: str, name: str) -> App:
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            apps = [label for label, each in vars(module).items() if isinstance(each, App)]
            meant = (
                f": did you mean {target}:{_nearest(name, apps) or apps[0]}?" if apps else ": write app = App() in it"
            )
            raise _usage(f"there is no {name} in {target}{meant}")
        found = getattr(found, part)
    if isinstance(found, App):
        return found
    match found:
        case Tasks():
            what, advice = "a Tasks", "make an App that includes them, App(include=[…])"
        case type():
            what, advice = "a class", f"make one of it, {name.rpartition('.')[2]} = App()"
        case _:
            what, advice = f"a {type(found).__name__}", "name a variable of the module that holds one, app = App()"
    raise _usage(f"{target}:{name} is not an App but {what}: {advice}")


def _nearest(name: str, known: Iterable[str]) -> str | None:
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(known), 1)), None)


def _is_file_name(target: str) -> bool:
    return target.endswith(".py") or "/" in target or "\\" in target


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise _usage(_no_file(path))
    file = path.resolve()
    folder, parts = file.parent, [file.stem]
    while (folder / "__init__.py").is_file():  # a module of a package is imported as that
        folder, parts = folder.parent, [folder.name, *parts]
    if any("." in part for part in parts):
        raise _usage(f"{path.name} cannot be imported: its name has more than one dot. Rename it")
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    _on_path(folder)
    module = _from_name(name)
    origin = getattr(module, "__file__", None)
    if origin is None or not Path(origin).samefile(file):
        raise _usage(
            f"{path} cannot be imported: another module is called {name!r} ({origin or 'built in'}). Rename the file"
        )
    return module


def _no_file(path: Path) -> str:
    if path.is_dir():
        return f"{path} is a folder, not a file. Give a Python file, such as hello.py, or a module, such as shop.app"
    folder = path.resolve().parent
    nearest = _nearest(path.name, (each.name for each in folder.glob("*.py")))
    if nearest is not None:
        return f"{path} does not exist: did you mean {path.with_name(nearest)}?"
    return f"{path} does not exist: there is no {path.name} in {folder}"


def _from_name(name: str) -> ModuleType:
    if not _MODULE.fullmatch(name):
        raise _usage(f"{name!r} is not the name of a module. Write for example shop.app, shop.app:app or hello.py")
    try:
        return _told(lambda: importlib.import_module(name), name)
    except ModuleNotFoundError as error:
        # Only the module itself or a package above it: `_told` has told everything else.
        raise _usage(f"there is no module {error.name!r} in {Path.cwd()} or on Python's path{_meant(name)}") from None


def _meant(name: str) -> str:
    """What a name that cannot be imported may stand for."""
    if Path(f"{name}.py").is_file():
        return f". There is a file {name}.py: name it so"
    above, _, last = name.rpartition(".")
    if isinstance(getattr(sys.modules.get(above), last, None), Tasks):
        return f": did you mean {above}:{last}?"
    nearest = _nearest(name, (file.stem for file in Path.cwd().glob("*.py")))
    return f": did you mean {nearest}?" if nearest else ""


def _told(importing: Callable[[], T], what: str) -> T:
    """Runs the user's code; its own errors are shown where they happened."""
    try:
        return importing()
    except ModuleNotFoundError as error:
        if error.name is not None and (what == error.name or what.startswith(f"{error.name}.")):
            raise
        raise _own_error(error, what) from None
    except (DeclarationError, ConfigError) as error:
        where = _last_frame(error.__traceback__)
        raise Failure(f"{where}{error}", FAILED, type(error).__name__) from None
    except (Exception, SystemExit) as error:
        raise _own_error(error, what) from None


def _own_error(error: BaseException, what: str) -> Failure:
    frames = _users_frames(error.__traceback__)
    shown = "".join(traceback.format_exception(type(error), error, frames))
    # The other environment, where it is installed, is the likely one.
    hint = f". Is it installed for {sys.executable}?" if isinstance(error, ModuleNotFoundError) else ""
    return Failure(
        f"importing {what} failed: {type(error).__name__}: {error}{hint}\n\n{clean(shown).rstrip()}",
        name="ImportError",
    )


def _users_frames(frames: TracebackType | None) -> TracebackType | None:
    each = frames
    while each is not None:
        file = each.tb_frame.f_code.co_filename
        if "importlib" not in file and file != __file__ and each.tb_frame.f_globals.get("__name__") != "holdfast.app":
            return each
        each = each.tb_next
    return None if isinstance(frames, TracebackType) else frames


def _last_frame(frames: TracebackType | None) -> str:
    """`hello.py:12: ` of the user's code that an error came from."""
    users = [
        frame
        for frame, _ in traceback.walk_tb(_users_frames(frames))
        if not str(frame.f_globals.get("__name__", "")).startswith("holdfast.")
    ]
    if not users:
        return ""
    return f"{users[-1].f_code.co_filename}:{users[-1].f_lineno}: "


def _on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _usage(message: str) -> Failure:
    return Failure(message, USAGE, "NoApp")
