"""The database: its server and settings, the way to it, its clock, and whether it can clean up after itself."""

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from uuid import uuid4
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from holdfast._db.driver.connection import DriverError, connect_sync
from holdfast._db.driver.facts import detect_pooler_sync
from holdfast._model.read.formats import about, duration, things
from holdfast._sql.query import quote
from holdfast.doctor.context import Diagnosis, Patient, bad, fine, judged, listed, warning
from holdfast.errors import DatabaseUnreachable
from holdfast.insights import database as health

HEARD_WITHIN = 5.0
"""Seconds that a notification may take."""
_DAYS = range(0, 730, 15)
"""From today on, when the zones are compared: two changes of the clock in each year cannot hide between them."""


def server(patient: Patient) -> Diagnosis:
    found = patient.server
    if found.is_standby:
        return bad(
            "this is a standby: nothing can be written here",
            "Enqueues and workers need the primary.",
            "Use the URL of the primary, or name all servers: postgresql://a,b/database",
        )
    if found.settings.get("default_transaction_read_only") == "on":
        return bad(
            f"transactions of role {found.role} are read-only here",
            "Enqueues and workers have to write.",
            f"ALTER ROLE {quote(found.role)} RESET default_transaction_read_only;",
            f"ALTER DATABASE {quote(found.database)} RESET default_transaction_read_only;",
        )
    encoding = found.settings.get("server_encoding", "UTF8")
    if encoding != "UTF8":
        return bad(
            f"database {found.database} stores texts in {encoding}, not in UTF8",
            "Workers refuse it: names, args and errors are texts of any language, and it cannot hold all of them.",
            "CREATE DATABASE … ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0;   -- then move there with pg_dump",
        )
    return fine(f"PostgreSQL {found.version.split()[0]}, database {found.database}, role {found.role}")


def settings(patient: Patient) -> Diagnosis:
    found, role = patient.server.settings, patient.server.role
    if off := [name for name in ("fsync", "full_page_writes") if found.get(name) == "off"]:
        return bad(
            f"{' and '.join(off)} off on this server",
            "A crash of the machine may destroy the whole database. For tests that is well.",
            *(f"ALTER SYSTEM RESET {name}; SELECT pg_reload_conf();  -- or in postgresql.conf" for name in off),
        )
    if found.get("synchronous_commit") == "off":
        return warning(
            f"synchronous_commit is off for role {role}",
            "App.enqueue waits for the disk all the same. Tasks enqueued in your own transactions or by SQL may be "
            "lost in a crash of the server, and steps that had ended are executed again.",
            f"ALTER ROLE {quote(role)} SET synchronous_commit = on;",
        )
    if found.get("enable_indexscan") == "off":
        return bad(
            f"enable_indexscan is off for role {role}",
            "Each claim reads and sorts whole tables.",
            f"ALTER ROLE {quote(role)} SET enable_indexscan = on;",
        )
    least = patient.limits.timeout
    short = [
        (name, timedelta(milliseconds=int(found[name])))
        for name in health.SETTINGS
        if name.endswith("_timeout") and 0 < int(found.get(name, 0)) < least / timedelta(milliseconds=1)
    ]
    if short:
        return warning(
            listed([f"{name} is {each.total_seconds():g} s" for name, each in short], 4) + f" for role {role}",
            f"Below {about(least.total_seconds())} it ends large claims, chores, transactional steps or idle "
            "connections in the middle. Workers go on, more slowly.",
            *(f"ALTER ROLE {quote(role)} SET {name} = '60s';" for name, _ in short),
        )
    isolation = found.get("default_transaction_isolation", "read committed")
    if isolation != "read committed":
        return warning(
            f"default_transaction_isolation is {isolation} for role {role}",
            "Workers choose READ COMMITTED for each of their transactions all the same. That takes them longer, and "
            "your own transactions that enqueue with a key fail when another one takes the key (40001).",
            f"ALTER ROLE {quote(role)} SET default_transaction_isolation = 'read committed';",
        )
    if found.get("track_activities") == "off":
        return warning(
            f"track_activities is off for role {role}",
            "Nobody can see since when its sessions are at work, and on what: old transactions stay hidden.",
            f"ALTER ROLE {quote(role)} SET track_activities = on;   -- as a superuser",
        )
    return fine("commits wait for the disk, no short time limits")


def connections(patient: Patient) -> Diagnosis:
    found, limits = patient.server, patient.limits
    usable = found.max_connections - found.reserved_connections
    told = f"{found.connections:,} of {usable:,} connections are in use"
    if found.connections < limits.connections * usable:
        return fine(told)
    return judged(
        found.connections >= limits.connections_bad * usable,
        told,
        "When none is left, enqueues fail and workers cannot come back after an interruption.",
        "SELECT application_name, usename, count(*) FROM pg_stat_activity GROUP BY 1, 2 ORDER BY 3 DESC;",
        "Use fewer or smaller pools, a pooler, or raise max_connections.",
    )


def pooler(patient: Patient) -> Diagnosis:
    database = patient.database
    with closing(connect_sync(database.url, "holdfast doctor")) as connection:
        is_pooled = detect_pooler_sync(connection)
        if is_pooled and database.direct_url is None:
            return fine("through a pooler: workers find tasks by polling; direct_url would let them be notified")
        channel = f"holdfast_doctor_{uuid4().hex[:12]}"
        url = "HOLDFAST_DIRECT_URL" if database.direct_url else "HOLDFAST_URL"
        try:
            with closing(connect_sync(database.listen_url, "holdfast doctor")) as listening:
                if detect_pooler_sync(listening):
                    return warning(
                        f"{url} goes through a pooler as well",
                        "Notifications do not come through it: workers find tasks by polling, up to a second later.",
                        f"Set {url} to the address of the server itself.",
                    )
                listening.execute(b"LISTEN " + quote(channel).encode())
                connection.execute(b"NOTIFY " + quote(channel).encode())
                heard = any(True for _ in listening.notifies(timeout=HEARD_WITHIN, stop_after=1))
        except DatabaseUnreachable as error:
            return bad(
                f"{url} cannot be reached: {' '.join(str(error).split())}",
                "Workers beat and listen there: without it they give up what they hold.",
                patient.command("config"),
            )
    if not heard:
        return bad(
            f"a notification did not arrive by {url}",
            "It is another database, or something in between swallows it. Workers would beat and listen in vain.",
            patient.command("config"),
        )
    way = "through a pooler, and directly for notifications" if is_pooled else "straight to the server"
    return fine(f"{way}: notifications arrive")


def clock(patient: Patient) -> Diagnosis:
    found = patient.follow(health.skew(patient.queries))
    off = abs(found.seconds)
    if off - found.uncertainty <= patient.limits.skew.total_seconds():
        told = f"{duration(off)}" if off >= 0.001 else "less than 1 ms"
        return fine(f"this machine and the database differ by {told}")
    return warning(
        f"the database's clock is {duration(off)} {'ahead of' if found.seconds > 0 else 'behind'} this machine's",
        "Only the database's clock decides, so nothing runs early or late. But times that code makes here (at=, "
        "deadline=) are off by as much, and so are times in logs.",
        "timedatectl set-ntp true   # on the machine that is wrong",
    )


def time_zones(patient: Patient) -> Diagnosis:
    zones = patient.ask(health.zones(patient.queries))
    today = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    instants = [today + timedelta(days=n) for n in _DAYS]
    wrong = [f"{zone} ({trouble})" for zone in zones if (trouble := _zone_trouble(patient, zone, instants))]
    if wrong:
        return warning(
            f"Python here and the database do not agree on {listed(wrong)}",
            "Workers plan schedules with Python's zone data. One of the two is out of date.",
            "pip install --upgrade tzdata   # or update the package tzdata, here and on the server",
        )
    if not zones:
        return fine("no schedule has a zone of its own")
    return fine(f"{things(len(zones), 'zone')} of schedules, and Python and the database agree")


def _zone_trouble(patient: Patient, zone: str, instants: Sequence[datetime]) -> str | None:
    try:
        here = [int((each.astimezone(ZoneInfo(zone)).utcoffset() or timedelta(0)).total_seconds()) for each in instants]
    except (ZoneInfoNotFoundError, ValueError):
        return "unknown to Python"
    try:
        there = patient.ask(health.offsets(patient.queries, zone, instants))
    except DriverError:
        return "unknown to the database"
    first = next((at for at, ours, theirs in zip(instants, here, there, strict=True) if ours != theirs), None)
    return None if first is None else f"from {first:%Y-%m-%d} on"


# --- cleaning up


def autovacuum(patient: Patient) -> Diagnosis:
    why = "Old versions of rows are never removed: each claim reads more of them, and the disk fills up."
    if off := [name for name in ("autovacuum", "track_counts") if patient.server.settings.get(name) == "off"]:
        cure = [f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();" for name in off]
        return bad(f"{' and '.join(off)} off on this server", why, *cure)
    if off := [each.name for each in patient.tables if not each.autovacuum]:
        schema = quote(patient.queries.schema)
        cure = [f"ALTER TABLE {schema}.{quote(name)} RESET (autovacuum_enabled);" for name in off]
        return bad(f"autovacuum is turned off for {listed(off)}", why, *cure)
    visits = [each.vacuumed_at for each in patient.tables if each.vacuumed_at is not None]
    return fine("on for all tables" + (f", here last at {max(visits).astimezone():%Y-%m-%d %H:%M}" if visits else ""))


def dead_rows(patient: Patient) -> Diagnosis:
    limits, schema = patient.limits, quote(patient.queries.schema)
    now = patient.ask(patient.queries.clock())
    held = [each for each in patient.transactions if _is_old(patient, each)]
    many = [
        each
        for each in patient.tables
        # Past the point where autovacuum comes, and it does not come, or to no avail.
        if each.dead > max(limits.dead, 3 * each.vacuum_at)
        and (held or each.vacuumed_at is None or now - each.vacuumed_at > limits.vacuumed)
    ]
    if many:
        told = [f"{each.dead:,} in {each.name} (live: {each.live:,})" for each in many]
        return judged(
            any(each.dead > limits.dead_bad for each in many),
            listed(told),
            "Claims step over dead rows and become slower. Autovacuum has not come yet, is kept busy elsewhere, or may "
            "not remove them: see transactions.",
            *(f"VACUUM (ANALYZE) {schema}.{quote(each.name)};" for each in many if not each.partitions),
        )
    task = next((each for each in patient.tables if each.name == "task"), None)
    return fine(f"{task.dead:,} in task (live: {task.live:,})" if task else "none")


def transactions(patient: Patient) -> Diagnosis:
    limits = patient.limits
    old = [each for each in patient.transactions if _is_old(patient, each)]
    hidden = "" if patient.server.sees_all else "; those of other roles are hidden (GRANT pg_read_all_stats)"
    if not old:
        longest = max((each.seconds or 0.0 for each in patient.transactions), default=0.0)
        told = f"the longest is open for {about(longest)}" if longest >= 1 else "none is open for long"
        return fine(told + hidden)
    is_bad = any((each.seconds or 0.0) > limits.transaction_bad.total_seconds() for each in old)
    return judged(
        is_bad,
        listed([_told(each) for each in old]) + hidden,
        "Rows that they may still see cannot be removed, by anybody: tables grow and claims become slower.",
        *(_ending(each) for each in old[:5]),
    )


def _is_old(patient: Patient, each: health.Transaction) -> bool:
    if each.seconds is not None:
        return each.seconds > patient.limits.transaction.total_seconds()
    return (each.xids or 0) > patient.limits.transaction_xids


def _told(each: health.Transaction) -> str:
    what = {"slot": "replication slot", "prepared": "prepared transaction"}.get(each.what, f"pid {each.pid}")
    name = f" {each.name}" if each.name else ""
    state = f", {each.state}" if each.state and each.what != "prepared" else ""
    age = f" for {about(each.seconds)}" if each.seconds is not None else f", {each.xids:,} transactions behind"
    return f"{what}{name}{state}{age}"


def _ending(each: health.Transaction) -> str:
    literal = "'" + str(each.name or "").replace("'", "''") + "'"
    if each.what == "slot":
        return f"SELECT pg_drop_replication_slot({literal});   -- only if nobody needs it any more"
    if each.what == "prepared":
        return f"ROLLBACK PREPARED {literal};   -- or COMMIT PREPARED, as its program would have done"
    return f"SELECT pg_terminate_backend({each.pid});"


def wraparound(patient: Patient) -> Diagnosis:
    found, limits = patient.server, patient.limits
    begin = int(found.settings["autovacuum_freeze_max_age"])
    begin_multi = int(found.settings["autovacuum_multixact_freeze_max_age"])
    age = max(found.frozen_age, found.multixact_age)
    told = f"{found.frozen_age / 1e6:,.0f} million transactions since the oldest row, of 2,000"
    if found.frozen_age <= limits.frozen * begin and found.multixact_age <= limits.frozen * begin_multi:
        return fine(told)
    return judged(
        age > limits.frozen_bad,
        told
        if found.frozen_age >= found.multixact_age
        else f"{age / 1e6:,.0f} million multixacts since the oldest, of 2,000",
        "Autovacuum should have frozen old rows long ago: something holds it up. At 2,000 million the server refuses "
        "to write.",
        "End old transactions (see transactions), then: VACUUM (FREEZE, VERBOSE);",
    )


def notifications(patient: Patient) -> Diagnosis:
    used, limits = patient.server.notifications, patient.limits
    told = f"the queue of notifications is {used:.0%} full"
    if used <= limits.notifications:
        return fine(told)
    return judged(
        used > limits.notifications_bad,
        f"the queue of notifications is {used:.2%} full" if used < 0.01 else told,
        "A session that listens is in a long transaction and takes none out. When it is full, every enqueue fails.",
        "SELECT pid, application_name, state, xact_start FROM pg_stat_activity ORDER BY xact_start;",
        "SELECT pg_terminate_backend(PID);",
    )
