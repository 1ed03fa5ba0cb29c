-- Leases: how they are renewed, what running attempts tell meanwhile, and what becomes of tasks whose time has run out.
-- The rules for writing tasks are those of `lifecycle.sql`.

-- beat --
-- Renews the leases of what this worker still holds, even if a lease has passed and nobody took it; and marks what has
-- begun, as `begin` does.
UPDATE holdfast.task t
SET lease_expires_at = holdfast.now() + :lease::interval,
    max_crashes = CASE WHEN t.id = ANY (:begun::uuid[]) THEN greatest(t.max_crashes, -1 - t.max_crashes) ELSE t.max_crashes END
WHERE t.queue = :queue::text AND t.id = ANY (ARRAY(
    SELECT c.id FROM holdfast.task c
    WHERE c.queue = :queue::text AND c.id = ANY (:ids::uuid[]) AND c.state = 'running' AND c.worker_id = :worker::uuid
    ORDER BY c.id FOR UPDATE SKIP LOCKED))
RETURNING t.id, t.attempt, t.cancel_at IS NOT NULL

-- hurriedly --
-- For the rest of this transaction: what is only information need not be on disk before we go on.
SELECT pg_catalog.set_config('synchronous_commit', 'off', true)

-- progress --
-- What running attempts have told of themselves. A late attempt never writes over what a newer one told.
INSERT INTO holdfast.progress AS p (task_id, queue, attempt, fraction, note, report)
SELECT n.task_id, n.queue, n.attempt, n.fraction, n.note, n.report
FROM jsonb_to_recordset(:told::jsonb) AS n(task_id uuid, queue text, attempt integer, fraction float8, note text, report jsonb)
ORDER BY n.task_id
ON CONFLICT (task_id, queue) DO UPDATE
SET attempt = excluded.attempt, fraction = excluded.fraction, note = excluded.note, report = excluded.report,
    updated_at = holdfast.now()
WHERE p.attempt <= excluded.attempt

-- forget_progress --
-- These attempts are over.
DELETE FROM holdfast.progress p
WHERE p.task_id = ANY (ARRAY(SELECT jsonb_object_keys(:attempts::jsonb)::uuid))
  AND p.attempt <= (:attempts::jsonb -> p.task_id::text)::integer

-- sweep_progress --
-- Left behind by workers that died: of attempts that are no longer running. The number of rows that went comes back.
WITH swept AS (
    DELETE FROM holdfast.progress p
    WHERE p.task_id = ANY (ARRAY(
        SELECT s.task_id FROM holdfast.progress s
        WHERE NOT EXISTS (SELECT FROM holdfast.task t
                          WHERE t.id = s.task_id AND t.queue = s.queue AND t.state = 'running' AND t.attempt = s.attempt)
        ORDER BY s.task_id LIMIT :limit::integer FOR UPDATE SKIP LOCKED))
    RETURNING p.task_id
)
SELECT count(*) FROM swept

-- overdue --
-- What time it is, whether a lease has run out or a worker is long silent, and whether a deadline has passed in some queues: who has
-- nothing to reap asks no more than this.
SELECT holdfast.now(),
       EXISTS (SELECT FROM unnest(:queues::text[]) AS q(name) JOIN holdfast.task c ON c.queue = q.name
               WHERE c.state = 'running' AND c.lease_expires_at < holdfast.now())
       OR EXISTS (SELECT FROM holdfast.worker w WHERE w.stopped_at IS NULL AND w.seen_at < holdfast.now() - interval '5 minutes'),
       EXISTS (SELECT FROM unnest(:queues::text[]) AS q(name) JOIN holdfast.task c ON c.queue = q.name
               WHERE c.state = 'ready' AND {{> expired c}})

-- begin --
-- A step that was claimed before there was a slot for it begins now: its max_crashes is the limit again, so from here on
-- the loss of its lease counts as a crash.
UPDATE holdfast.task t SET max_crashes = greatest(t.max_crashes, -1 - t.max_crashes)
WHERE t.queue = :queue::text AND t.id = :id::uuid AND t.worker_id = :worker::uuid AND t.attempt = :attempt::integer
RETURNING t.id

-- reap --
-- Expired leases: back to ready with a crash, or parked when the crash budget is used up or the step must
-- not be rerun by itself. A worker that was stopping is not a crash, nor is the loss of a step that is not known to have
-- begun (its max_crashes is negative until then). The lost attempt is logged.
-- Only what had expired at the moment that was read before: this may have been long on its way, in an outage for all.
WITH expired AS MATERIALIZED (
    SELECT c.*, c.max_crashes >= 0 AND NOT EXISTS (
               SELECT FROM holdfast.worker w WHERE w.id = c.worker_id AND w.stopping_at IS NOT NULL) AS crashed
    FROM holdfast.task c
    WHERE c.queue = :queue::text AND c.state = 'running' AND c.cancel_at IS NULL
      AND c.lease_expires_at < least(holdfast.now(), :expired_by::timestamptz)
    ORDER BY c.id LIMIT :limit::integer FOR UPDATE OF c SKIP LOCKED
), logged AS (
    INSERT INTO holdfast.attempt (task_id, queue, kind, step, args, moves, attempt, worker_id, claimed_at, outcome, error,
                                  report, parked, run_at)
    SELECT e.id, e.queue, e.kind, e.step, e.args, e.moves, e.attempt, e.worker_id, e.claimed_at, 'lost',
           jsonb_build_object('type', 'WorkerLost', 'message',
               format('worker %s let its lease run out at %s', e.worker_id, e.lease_expires_at)
               || CASE WHEN e.max_crashes < 0 THEN '; the step is not known to have begun, and no crash is counted' ELSE '' END),
           (SELECT p.report FROM holdfast.progress p WHERE p.task_id = e.id AND p.queue = e.queue AND p.attempt = e.attempt),
           e.max_crashes = 0 OR e.crashes >= e.max_crashes AND e.crashed, e.run_at
    FROM expired e
)
UPDATE holdfast.task t
SET state = CASE WHEN t.max_crashes = 0 OR t.crashes >= t.max_crashes AND t.id = ANY (ARRAY(SELECT e.id FROM expired e WHERE e.crashed))
                 THEN 'parked' ELSE 'ready' END,
    error = CASE
        WHEN t.max_crashes = 0 THEN jsonb_build_object('type', 'WorkerLost', 'message',
            'its worker was lost, and this step must not be rerun by itself (on_lost="fail"): see whether it took effect, then retry or discard it')
        WHEN t.crashes >= t.max_crashes AND t.id = ANY (ARRAY(SELECT e.id FROM expired e WHERE e.crashed)) THEN jsonb_build_object(
            'type', 'WorkerLost', 'message',
            format('its worker was lost %s times at this step (max_crashes=%s): it may be what kills the workers', t.crashes + 1, t.max_crashes))
        ELSE t.error END,
    crashes = least(t.crashes, 32766) + (t.id = ANY (ARRAY(SELECT e.id FROM expired e WHERE e.crashed)))::integer::smallint,
    worker_id = NULL, lease_expires_at = NULL
WHERE t.queue = :queue::text AND t.id = ANY (ARRAY(SELECT e.id FROM expired e))
RETURNING t.id, t.kind, t.step, t.state, t.attempt, t.crashes, t.args, t.priority, t.moves, t.errors, t.claimed_at, t.key, t.error

-- reap_cancelled --
-- Expired leases of tasks whose cancellation was asked for: archived, never rerun.
WITH gone AS (
    DELETE FROM holdfast.task t
    WHERE t.queue = :queue::text AND t.id = ANY (ARRAY(
        SELECT c.id FROM holdfast.task c
        WHERE c.queue = :queue::text AND c.state = 'running' AND c.cancel_at IS NOT NULL
          AND c.lease_expires_at < least(holdfast.now(), :expired_by::timestamptz)
        ORDER BY c.id LIMIT :limit::integer FOR UPDATE SKIP LOCKED))
    RETURNING t.*
)
INSERT INTO holdfast.archive (id, queue, kind, step, args, state, priority, run_at, moves, attempt, errors, crashes,
                              worker_id, claimed_at, outcome, key, error, headers, created_at, report)
SELECT g.id, g.queue, g.kind, g.step, g.args, 'cancelled', g.priority, g.run_at, g.moves, g.attempt, g.errors, g.crashes,
       g.worker_id, g.claimed_at, 'lost', g.key, jsonb_build_object('type', 'cancelled', 'message', g.cancel_by), g.headers, g.created_at,
       (SELECT p.report FROM holdfast.progress p WHERE p.task_id = g.id AND p.queue = g.queue AND p.attempt = g.attempt)
FROM gone g
RETURNING id

-- expire --
-- Tasks that were not started before their deadline: archived. In the order of their index: with SKIP LOCKED any order
-- is safe, and sorting all that have expired would make each batch as dear as the whole.
WITH gone AS (
    DELETE FROM holdfast.task t
    WHERE t.queue = :queue::text AND t.id = ANY (ARRAY(
        SELECT c.id FROM holdfast.task c
        WHERE c.queue = :queue::text AND c.state = 'ready' AND {{> expired c}}
        ORDER BY c.deadline LIMIT :limit::integer FOR UPDATE SKIP LOCKED))
    RETURNING t.*
)
INSERT INTO holdfast.archive (id, queue, kind, step, args, state, priority, run_at, moves, attempt, errors, crashes,
                              key, error, headers, created_at)
SELECT g.id, g.queue, g.kind, g.step, g.args, 'expired', g.priority, g.run_at, g.moves, g.attempt, g.errors, g.crashes, g.key,
       jsonb_build_object('type', 'expired', 'message', format('it was not started before its deadline, %s', g.deadline)),
       g.headers, g.created_at
FROM gone g
RETURNING id

-- strays --
-- Tasks leased to this worker that it does not know of, because the answer to its claim was lost.
SELECT id, attempt FROM holdfast.task
WHERE queue = :queue::text AND state = 'running' AND worker_id = :worker::uuid
