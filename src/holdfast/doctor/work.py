"""The work: workers, what waits and why, and what recurs."""

from datetime import timedelta

from holdfast._model.read.formats import about, amount, things
from holdfast._model.read.infos import QueueInfo
from holdfast.doctor.context import Diagnosis, Patient, fine, judged, listed, warning
from holdfast.insights import WorkerInfo
from holdfast.insights import database as health


def workers(patient: Patient) -> Diagnosis:
    live = [each for each in patient.workers if each.live]
    lost = [each for each in patient.workers if each.condition == "lost"]
    stuck = [each for each in live if each.stuck]
    look = patient.command("workers")
    if lost:
        return warning(
            f"{things(len(lost), 'worker')} vanished without a word: {listed([_place(each) for each in lost])}",
            "Others take its tasks over after the lease. Killed, out of memory, or its machine is gone.",
            look,
        )
    if stuck:
        return warning(
            f"{listed([f'{each.stuck} of {each.slots} slots of {_place(each)}' for each in stuck])} stuck",
            "Threads went on after their time-out, and cannot be stopped: their slots are not free for others.",
            *(patient.command("stop", str(each.id)) + "   # and start it again" for each in stuck[:3]),
            'Declare such steps with executor="process".',
        )
    late = [each for each in live if each.late]
    if late:
        return warning(
            f"late: {listed([f'{_place(each)} ({listed(list(each.late))})' for each in late])}",
            "These loops have not succeeded for too long: a step blocks the process, the database refuses or does not "
            "answer, or the worker stands still. Its log says more.",
            look,
            *(patient.command("stop", str(each.id)) + "   # and start it again" for each in late[:3]),
        )
    if not live:
        return fine("none is running")
    slots = sum(each.slots for each in live)
    return fine(f"{len(live):,} running, {sum(each.running for each in live):,} of {things(slots, 'slot')} in use")


def _place(worker: WorkerInfo) -> str:
    return f"{worker.name} on {worker.host}"


def versions(patient: Patient) -> Diagnosis:
    found = sorted({each.version for each in patient.workers if each.live} | ({patient.version} - {""}))
    differing = [f"{each.name}: {each.differs}" for each in patient.kinds if each.differs]
    if differing:
        return warning(
            f"kinds are declared differently: {listed(differing, 1)}",
            "Which worker claims a task decides what is done with it.",
            patient.command("kinds"),
        )
    if len(found) > 1:
        return warning(
            f"different versions of Holdfast are in use: {listed(found, 5)}",
            "That is normal during a roll-out, and meant to work between neighbouring versions only.",
            patient.command("workers"),
        )
    return fine(f"Holdfast {found[0]} everywhere" if found else "no worker to compare")


# --- what waits


def deserted(patient: Patient) -> Diagnosis:
    alone = [each for each in patient.queues if each.due and not each.workers and each.paused_at is None]
    if not alone:
        full = [each for each in patient.queues if each.due or each.scheduled or each.running]
        return fine(f"{things(len(full), 'queue')} with tasks" if full else "nothing is due, scheduled or running")
    return judged(
        any(_age(patient, each) > patient.limits.due for each in alone),
        "no live worker serves " + listed([f"{each.name} ({amount(each.due)} due)" for each in alone]),
        "Tasks that are due there wait until one is started.",
        *(patient.command("worker", patient.app, "-q", each.name) for each in alone[:3]),
    )


def late(patient: Patient) -> Diagnosis:
    waiting = [each for each in patient.due if each.known and not each.paused]
    longest = max((each.seconds for each in waiting), default=0.0)
    if longest <= patient.limits.due.total_seconds():
        return fine(f"the oldest task has been due for {about(longest)}" if waiting else "nothing waits")
    queues = {each.queue: each for each in reversed(waiting) if each.seconds > patient.limits.due.total_seconds()}
    told = [f"{name} ({each.kind}.{each.step} for {about(each.seconds)})" for name, each in reversed(queues.items())]
    return judged(
        longest > patient.limits.due_bad.total_seconds(),
        f"tasks have been due for long in {listed(told)}",
        "There is more work than slots, steps hang, or higher priorities go first all the time.",
        patient.command("queues"),
        patient.command("tasks", "state:running"),
        f"More slots: {patient.command('worker', patient.app, '-q', next(iter(queues)), '-c', '50')}",
    )


def unroutable(patient: Patient) -> Diagnosis:
    strangers = [each for each in patient.due if not each.known]
    if not strangers:
        return fine("live workers know every step at which a task is due")
    told = [f"{each.kind}.{each.step} ({things(each.tasks, 'task')} in {each.queue})" for each in strangers]
    mine = [each for each in strangers if patient.steps is not None and f"{each.kind}.{each.step}" in patient.steps]
    cure = [patient.command("worker", patient.app, "-q", each.queue) for each in mine[:1]]
    hint = " The code of this App knows it: its workers serve other queues, or are not deployed yet." if mine else ""
    return warning(
        f"no live worker of the queue knows {listed(told)}",
        "They wait, and nothing is charged. Normal for a moment in a roll-out; else the step was renamed or removed, "
        f"or the name is wrong.{hint}",
        *cure,
        patient.command("tasks", "state:unroutable", f"queue:{strangers[0].queue}"),
    )


def leases(patient: Patient) -> Diagnosis:
    expired = patient.ask(health.expired_leases(patient.queries, grace=patient.limits.lease))
    if not expired:
        return fine("every running task has a lease")
    told = [f"{things(each.tasks, 'task')} in {each.queue} since {about(each.seconds)}" for each in expired]
    served = any(each.served for each in expired)
    return judged(
        served,
        f"leases have ended, and nobody took the tasks over: {listed(told)}",
        "Live workers do so by themselves within a minute: theirs cannot, see their logs."
        if served
        else "Their worker is gone. The next worker of the queue takes them over.",
        *(patient.command("worker", patient.app, "-q", each.queue) for each in expired[:3] if not each.served),
        patient.command("tasks", "state:running"),
    )


def pauses(patient: Patient) -> Diagnosis:
    queues = [each for each in patient.queues if each.paused_at is not None and each.due]
    kinds = sorted({each.kind for each in patient.due if each.paused})
    if not queues and not kinds:
        since = [each.paused_at for each in patient.queues] + [each.paused_at for each in patient.kinds]
        count = sum(1 for each in since if each is not None)
        return fine(f"{things(count, 'pause')}, and nothing waits for it" if count else "nothing is paused")
    told = [f"queue {each.name} ({amount(each.due)} due, by {each.paused_by or 'somebody'})" for each in queues]
    told += [f"kind {name}" for name in kinds]
    return warning(
        f"paused, and tasks are due: {listed(told)}",
        "Nothing of it begins until somebody resumes it.",
        *(patient.command("resume", each.name, "--queue") for each in queues[:3]),
        *(patient.command("resume", name, "--kind") for name in kinds[:3]),
    )


def parked(patient: Patient) -> Diagnosis:
    now, before = patient.ask(health.parked_lately(patient.queries))
    total = sum(each.parked for each in patient.queues)
    if now >= patient.limits.parked and now > 2 * before / 23:
        return warning(
            f"{things(now, 'task')} parked in the last hour, {before:,} in the 23 hours before",
            "Something that worked does so no longer: a service, a file, a deployment.",
            patient.command("parked"),
        )
    waiting = f"{things(total, 'task')} wait{'s' if total == 1 else ''} for a person (holdfast parked)"
    return fine(waiting if total else "no task is parked")


def schedules(patient: Patient) -> Diagnosis:
    limits = patient.limits
    found = patient.ask(health.late_schedules(patient.queries, grace=limits.schedule))
    broken = [each for each in found if each.error]
    tardy = [each for each in found if not each.error]
    if broken:
        return warning(
            f"{things(len(broken), 'schedule')} cannot be planned: "
            + listed([f"{each.name} ({each.error})" for each in broken], 2),
            "None of its tasks is enqueued until that is repaired; then as catch_up says.",
            *(patient.command("schedules", "show", each.name) for each in broken[:3]),
        )
    if tardy:
        longest = max(each.seconds or 0.0 for each in tardy)
        served = any(each.served for each in tardy)
        return judged(
            longest > limits.schedule_bad.total_seconds(),
            f"{things(len(tardy), 'schedule')} should have been planned: "
            + listed([f"{each.name} {about(each.seconds or 0.0)} ago" for each in tardy]),
            "Workers plan them by themselves: those that run are behind, see their logs."
            if served
            else "No live worker plans them: none is running, or none whose code declares them.",
            patient.command("schedules", "list") if served else patient.command("worker", patient.app),
        )
    return fine("none is late")


def _age(patient: Patient, queue: QueueInfo) -> timedelta:
    if queue.oldest_due is None:
        return timedelta(0)
    now = patient.ask(patient.queries.clock())
    return now - queue.oldest_due
