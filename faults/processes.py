"""Faults of processes: killed, stopped, stuck, poisoned."""

from faults.lab import Lab
from faults.suite import Figures, fault, recoveries, spread


@fault("F1", "kill -9 of a random worker, again and again", seconds=60)
async def kill_9(lab: Lab) -> Figures:
    """Each task of a killed worker runs elsewhere (L8)."""
    kills = 0
    async with lab.under_load():
        async for _ in lab.every(1, 3):
            lab.victim().kill()
            lab.start()
            kills += 1
    lost = sum(a.outcome == "lost" for a in lab.history.attempts)
    lab.require(not kills or lost, "L8", f"{kills} workers were killed, and no attempt is logged as lost")
    return {"kills": str(kills), "recovery": spread(recoveries(lab.history))}
