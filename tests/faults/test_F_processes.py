"""Workers that are killed, stopped, stuck or poisoned: see `faults.processes`."""

from in_short import run_short
from in_short import server as server

from holdfast.embedded import Server


def test_F1_kill_9(server: Server) -> None:
    run_short("F1", server)
