"""X3: a part of the other tests, through PgBouncer in transaction mode. `--through=pgbouncer` runs all of them so."""

import subprocess
import sys
from pathlib import Path

import pytest

from pgbouncer import MISSING, PROGRAM

TESTS = Path(__file__).parents[1]
CALLERS = "callers/test_transactions.py::test_T7_"
CHOSEN = [
    # Every statement that ends an attempt, what is resent when an answer is lost, and what comes along.
    "lifecycle/test_settle.py",
    "worker/test_lost_answers.py",
    "worker/test_children.py",
    # Transactions: those of steps, and those of all the libraries that callers may use.
    "worker/test_transactional.py",
    f"{CALLERS}committed_it_exists_and_a_worker_runs_it",
    f"{CALLERS}the_holder_of_a_key_is_replaced",
    *(f"{CALLERS}a_thousand_at_once[{library}]" for library in ("psycopg async", "psycopg", "asyncpg")),
]


@pytest.mark.skipif(PROGRAM is None, reason=MISSING)
@pytest.mark.direct("it brings its own")
def test_X3_through_pgbouncer() -> None:
    """In one process: each would start a server and a pooler of its own, and import every library again."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--through=pgbouncer"]
    command += [str(TESTS / each) for each in CHOSEN]
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-10000:]
