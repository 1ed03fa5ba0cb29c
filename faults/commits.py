"""F7: a request whose answer is lost. Nobody can tell whether it was done; nothing may be lost or done twice."""

from faults.lab import Lab
from faults.proxy import Weather
from faults.suite import Figures, fault


@fault("F7", "connections that break before or after a request is done, 1 to 10 % of all requests", seconds=60)
async def commit_unknown(lab: Lab) -> Figures:
    """Callers, claims, settles, beats, transactional steps and schedules all meet it; nobody is charged."""
    proxy = lab.go_through_proxy()
    async with lab.under_load():
        async for _ in lab.every(0.5, 1.5):
            proxy.weather = Weather(lost=lab.chance.uniform(0.01, 0.1))
        proxy.weather = Weather()
    unknown = len(lab.load.ledger.unknown)
    return {
        "requests lost": str(proxy.lost_before),
        "answers lost": str(proxy.lost_after),
        "callers who saw an error": str(unknown),
    }
