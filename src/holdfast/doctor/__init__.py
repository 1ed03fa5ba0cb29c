"""`holdfast doctor`: is everything as it should be? Small checks, each with what it found, why it matters, what to do.

`examine` makes all of them. One that cannot be made says so and does not stop the others.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from holdfast._model.json.redact import redact
from holdfast.doctor import database, schema, work
from holdfast.doctor.context import Diagnosis as Diagnosis
from holdfast.doctor.context import Level as Level
from holdfast.doctor.context import Limits as Limits
from holdfast.doctor.context import Patient as Patient
from holdfast.doctor.context import warning
from holdfast.errors import DatabaseUnreachable

CHECKS: dict[str, Callable[[Patient], Diagnosis]] = {
    "schema": schema.version_and_drift,
    "roles": schema.grants,
    "server": database.server,
    "settings": database.settings,
    "connections": database.connections,
    "pooler": database.pooler,
    "clock": database.clock,
    "time zones": database.time_zones,
    "autovacuum": database.autovacuum,
    "dead rows": database.dead_rows,
    "transactions": database.transactions,
    "wraparound": database.wraparound,
    "notifications": database.notifications,
    "partitions": schema.partitions,
    "retention": schema.retention,
    "workers": work.workers,
    "versions": work.versions,
    "queues": work.deserted,
    "due": work.late,
    "unroutable": work.unroutable,
    "leases": work.leases,
    "pauses": work.pauses,
    "parked": work.parked,
    "schedules": work.schedules,
}
"""All checks, in the order in which they are made."""


def examine(patient: Patient, only: Collection[str] = tuple(CHECKS)) -> Iterator[Diagnosis]:
    """Makes the checks one after another. Where there are no tables, nothing but that is told."""
    for name, check in CHECKS.items():
        if name not in only:
            continue
        found = replace(_made(check, patient), check=name)
        yield found
        if check is schema.version_and_drift and found.level == "bad" and not schema.is_there(patient):
            return


def worst(found: list[Diagnosis]) -> Level:
    """The level of the whole."""
    levels = {each.level for each in found}
    return "bad" if "bad" in levels else "warning" if "warning" in levels else "fine"


def _made(check: Callable[[Patient], Diagnosis], patient: Patient) -> Diagnosis:
    try:
        return check(patient)
    except DatabaseUnreachable:
        raise  # the others would find the same
    except Exception as error:
        said = " ".join(redact(str(error)).split()) or type(error).__name__
        return warning(f"this could not be checked: {said}", "Nobody knows whether it is as it should be.")
