"""X3: a part of the other tests, through PgBouncer in transaction mode. `--through=pgbouncer` runs all of them so."""

import subprocess
import sys
from pathlib import Path

import pytest

from pgbouncer import MISSING, PROGRAM

TESTS = Path(__file__).parents[1]
CHOSEN = [
    "lifecycle/test_settle.py",
    "worker/test_steps.py",
    "worker/test_enqueue.py",
    "worker/test_children.py",
    "worker/test_transactional.py",
    "worker/test_lost_answers.py",
    "callers/test_transactions.py",
]


@pytest.mark.skipif(PROGRAM is None, reason=MISSING)
@pytest.mark.parametrize("file", CHOSEN)
@pytest.mark.direct("it brings its own")
def test_X3_through_pgbouncer(file: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--through=pgbouncer", str(TESTS / file)]
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-10000:]
