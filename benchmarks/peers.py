"""Peers, from their published packages, in an environment of their own under `.peers`, which git ignores."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.systems import PEER_NODE, PEER_PYTHON, PEERS, SYSTEMS, System

PYTHON_PACKAGES = ["pgqueuer", "asyncpg", "procrastinate", "chancy", "absurd-sdk", "absurdctl", "dbos", "uvloop"]
NODE_PACKAGES = ["graphile-worker@latest", "pg@latest"]
NODE = "node@22"
PG_BOSS = ["pg-boss@latest", "pg-boss@12.35.0"]
"""The newest, else the newest that could be installed everywhere."""


def install() -> dict[str, str]:
    """Installs what is missing; answers why a package could not be."""
    troubles: dict[str, str] = {}
    if not PEER_PYTHON.exists():
        # Debian's Python has no ensurepip, and needs none: the pip of this environment installs into that one.
        _run([sys.executable, "-m", "venv", "--without-pip", str(PEERS / "py")], troubles, "python")
    for package in PYTHON_PACKAGES:
        if PEER_PYTHON.exists() and not _python_version(package):
            pip = [sys.executable, "-m", "pip", "--python", str(PEER_PYTHON)]
            _run([*pip, "install", "--quiet", package], troubles, package)
    npm = shutil.which("npm")
    folder = PEERS / "node"
    if npm is None:
        return troubles | dict.fromkeys(("graphile-worker", "pg-boss"), "npm is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "package.json").exists():
        (folder / "package.json").write_text('{"private": true}\n')
    for package in [NODE, *NODE_PACKAGES]:
        name = package.partition("@")[0]
        if not _node_version(name):
            _run([npm, "install", "--no-audit", "--no-fund", package], troubles, name, folder)
    for package in PG_BOSS:
        if not _node_version("pg-boss"):
            _run([npm, "install", "--no-audit", "--no-fund", package], troubles, "pg-boss", folder)
    return {name: why for name, why in troubles.items() if not (_python_version(name) or _node_version(name))}


def versions() -> dict[str, str]:
    """What is installed, by system."""
    return {s.name: found for s in SYSTEMS if s.package and (found := version(s))}


def version(system: System) -> str | None:
    if system.package is None:
        return None
    is_node = system.adapter.endswith(".mjs")
    program = PEER_NODE if is_node else PEER_PYTHON
    found = _node_version(system.package) if is_node else _python_version(system.package)
    return found if program.exists() else None


def _node_version(name: str) -> str | None:
    file = PEERS / "node" / "node_modules" / name / "package.json"
    return str(json.loads(file.read_text())["version"]) if file.exists() else None


def _python_version(name: str) -> str | None:
    folders = (PEERS / "py").glob(f"lib/python*/site-packages/{name.replace('-', '_')}-*.dist-info")
    return next((folder.name.removesuffix(".dist-info").rpartition("-")[2] for folder in folders), None)


def _run(command: list[str], troubles: dict[str, str], what: str, folder: Path | None = None) -> None:
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if ran.returncode:
        said = [line for line in (ran.stderr or ran.stdout).splitlines() if "warn" not in line.lower()]
        troubles[what] = said[-1] if said else f"exit code {ran.returncode}"
