"""The tables: their version, what was changed by hand, who may use them, and the days of history."""

from holdfast._db.migrate import latest
from holdfast._model.read.formats import about, size, things
from holdfast.doctor.context import Diagnosis, Patient, bad, fine, judged, listed, warning
from holdfast.insights import database as health


def is_there(patient: Patient) -> bool:
    """Whether there are tables at all."""
    try:
        return patient.schema.version > 0
    except Exception:  # told by the check
        return True


def version_and_drift(patient: Patient) -> Diagnosis:
    found, name = patient.schema, patient.queries.schema
    migrate = patient.command("migrate")
    if found.version == 0:
        return bad(f"there are no tables in schema {name}", "Nothing can be enqueued or executed.", migrate)
    if found.version > found.latest:
        return judged(
            found.version > found.latest + 1,
            f"version {found.version}, and this code knows {found.latest}",
            "Code works with a schema one version newer than its own, and not with later ones.",
            "Upgrade Holdfast here.",
        )
    if found.pending:
        return judged(
            found.pending > 1,
            f"version {found.version}, and this code has {found.latest}",
            "Code works with a schema one version older than its own, and not with earlier ones.",
            migrate,
        )
    if found.drift:
        missing = [each.removeprefix("missing: ") for each in found.drift if each.startswith("missing: ")]
        return judged(
            bool(missing),
            f"version {found.version}, but changed by hand: {things(len(found.drift), 'difference')}, such as "
            + (missing or list(found.drift))[0].removeprefix("unexpected: ")[:160],
            "What was promised was tested with the tables, indexes and functions as they were applied.",
            patient.command("migrate", "--check"),
        )
    return fine(f"version {found.version}, the latest, and as it was applied")


def grants(patient: Patient) -> Diagnosis:
    ask, queries = patient.ask, patient.queries
    given = ask(queries.grantees())
    gone = sorted({f"{role}" for role, *_, exists in given if not exists})
    lacking: list[tuple[str, str, list[str]]] = []
    if patient.schema.version == latest():  # the rights of another version are not known
        for role, part, *_, exists in given:
            if exists and (rights := patient.follow(health.lacking_rights(queries, role, part))):
                lacking.append((role, part, rights))
    if lacking:
        told = [f"{role} ({part}) lacks {rights[0]}" for role, part, rights in lacking]
        return bad(
            listed(told),
            "What such a role tries is refused by the database.",
            *(patient.command("roles", "grant", part, role) for role, part, _ in lacking),
        )
    if gone:
        return warning(
            f"there is no role any more that was given a part: {listed(gone)}",
            "It was dropped or renamed. Under a new name it has no part.",
            patient.command("roles", "list"),
        )
    if not given:
        return fine("only the owner of the tables uses them")
    return fine(f"{things(len(given), 'part')} given, and the rights for them are there")


def partitions(patient: Patient) -> Diagnosis:
    ahead = {each.parent: each.days_ahead for each in patient.history}
    least = min((ahead.get(name, 0) for name in ("archive", "attempt")), default=0)
    why = "What ends on a day without a partition has to make it first, and everybody waits for that."
    cure = patient.command("maintain")
    if least == 0:
        return bad("there is no partition of history for today", why, cure)
    if least <= patient.limits.days_ahead:
        return warning(f"history has partitions for {things(least, 'day')} from today on only", why, cure)
    return fine(f"history has partitions for {things(least, 'day')} from today on")


def retention(patient: Patient) -> Diagnosis:
    now = patient.ask(patient.queries.clock())
    since = [each.overdue_since for each in patient.history if each.overdue_since is not None]
    late = max((now - each).total_seconds() for each in since) if since else 0.0
    half = sum(each.detaching for each in patient.history)
    if late > patient.limits.overdue.total_seconds():
        overdue = sum(each.overdue for each in patient.history)
        return warning(
            f"{things(overdue, 'partition')} of history should have been dropped, the first {about(late)} ago",
            "Workers drop old days by themselves: none is running, a transaction is in their way, or they may not.",
            patient.command("maintain"),
        )
    total = sum(each.bytes for each in patient.history)
    days = max((each.partitions for each in patient.history), default=0)
    told = f"history takes {size(total)} in {things(days, 'day')}"
    return fine(told + (f"; {things(half, 'partition')} on the way out" if half else ""))
