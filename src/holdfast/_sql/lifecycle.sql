-- The life of a task: every statement that writes `state`, and those a worker needs around them.
--
-- Each statement begins with `-- name --` and a line of prose. `holdfast.` stands for the schema's quoted
-- name; `:name` is a parameter. Rules for all that write tasks: one queue, named by equality; rows are matched with
-- `id = ANY(…)`, never by a join, because joins flip to scans of the whole table; every write that ends an
-- attempt is fenced by queue, id, worker and attempt, and a row that does not come back was lost.
-- Per-row values of a batch travel in one JSON object by id: `:outcomes -> id -> field`. Times that a worker needs
-- for every row travel as seconds: making a datetime of each costs more than the claim itself. Counters stop at
-- their largest value, so that a number written by hand cannot end every worker.

-- enqueue --
-- One new task without a key; an id that exists already is left as it is.
INSERT INTO holdfast.task (id, queue, kind, step, args, priority, run_at, deadline, headers)
VALUES (:id::uuid, :queue::text, :kind::text, :step::text, :args::jsonb, :priority::smallint,
        coalesce(:at::timestamptz, holdfast.now() + :delay::interval),
        coalesce(:expires_at::timestamptz, holdfast.now() + :expires_in::interval), :headers::jsonb)
ON CONFLICT DO NOTHING
RETURNING id

-- enqueue_many --
-- Many new tasks of one queue, without keys; the ids that were new come back.
INSERT INTO holdfast.task (id, queue, kind, step, args, priority, run_at, deadline, headers)
SELECT n.id, :queue::text, n.kind, n.step, n.args, n.priority, coalesce(n.at, holdfast.now() + n.delay),
       coalesce(n.expires_at, holdfast.now() + n.expires_in), n.headers
FROM unnest(:ids::uuid[], :kinds::text[], :steps::text[], :args::jsonb[], :priorities::smallint[],
            :ats::timestamptz[], :delays::interval[], :expire_ats::timestamptz[], :expire_ins::interval[], :headers::jsonb[])
     AS n(id, kind, step, args, priority, at, delay, expires_at, expires_in, headers)
ORDER BY n.id
ON CONFLICT DO NOTHING
RETURNING id

-- copy_tasks --
-- Many new tasks without keys, of any queues. A COPY takes no expressions: their times count from clock, read just before.
COPY holdfast.task (id, queue, kind, step, priority, run_at, created_at, deadline, args, headers) FROM STDIN WITH (ENCODING 'UTF8')

-- clock --
-- What time it is: microseconds since 1970, as a text that every driver reads alike.
SELECT (extract(epoch FROM holdfast.now()) * 1000000)::bigint::text

-- commits_early --
-- Whether commits of this connection do not wait for the disk, unless told to.
SELECT pg_catalog.current_setting('synchronous_commit') = 'off'

-- set_durable --
-- For this transaction only: whether its commit waits for the disk. One that waits already waits for what it did before.
SELECT pg_catalog.set_config('synchronous_commit', CASE
    WHEN NOT :durable::boolean THEN 'off'
    WHEN pg_catalog.current_setting('synchronous_commit') = 'off' THEN 'on'
    ELSE pg_catalog.current_setting('synchronous_commit') END, true)

-- declared --
-- Where tasks of a kind go unless the enqueue says otherwise, for producers without the code.
SELECT queue, priority, first FROM holdfast.kind WHERE name = :kind::text

-- enqueue_keyed --
-- New tasks with keys, each once per key: what came of each, in the order given. The keys are taken in one order, so that
-- two callers with the same ones never wait for each other.
SELECT a.id, a.kind, a.enqueued, a.state
FROM (SELECT n.id, n.queue COLLATE "C" AS queue, n.kind, n.step, n.args, n.priority,
             coalesce(n.at, holdfast.now() + n.delay) AS run_at, coalesce(n.expires_at, holdfast.now() + n.expires_in) AS deadline,
             CASE WHEN n.uniquely THEN holdfast.unique_key(n.kind, n.step, n.args) ELSE n.given END COLLATE "C" AS key,
             n.headers, n.held_for, n.on_conflict, n.place
      FROM unnest(:ids::uuid[], :queues::text[], :kinds::text[], :steps::text[], :args::jsonb[], :priorities::smallint[],
                  :ats::timestamptz[], :delays::interval[], :expire_ats::timestamptz[], :expire_ins::interval[],
                  :keys::text[], :uniques::boolean[], :holds::interval[], :rules::text[], :headers::jsonb[])
           WITH ORDINALITY AS n(id, queue, kind, step, args, priority, at, delay, expires_at, expires_in,
                                given, uniquely, held_for, on_conflict, headers, place)
      ORDER BY queue, key, place) AS t
CROSS JOIN LATERAL holdfast.insert_keyed(t.id, t.queue, t.kind, t.step, t.args, t.priority, t.run_at, t.deadline, t.key,
                                         t.headers, t.held_for, t.on_conflict) AS a
ORDER BY t.place

-- sweep_keys --
-- Takes away keys that hold no longer; answers how many.
WITH swept AS (
    DELETE FROM holdfast.key k WHERE k.ctid = ANY (ARRAY(
        SELECT o.ctid FROM holdfast.key o WHERE o.held_until <= holdfast.now()
        ORDER BY o.held_until LIMIT :limit::integer FOR UPDATE SKIP LOCKED))
    RETURNING k.queue
)
SELECT count(*) FROM swept

-- notify --
-- In the caller's transaction: wakes whoever listens, once it commits.
SELECT pg_catalog.pg_notify(holdfast.channel(), 'queue ' || :queue::text)

-- notify_if_idle --
-- After a commit of our own: wakes a worker only if one may be asleep.
SELECT pg_catalog.pg_notify(holdfast.channel(), 'queue ' || :queue::text)
WHERE EXISTS (
    SELECT FROM holdfast.worker w
    WHERE w.idle AND w.stopped_at IS NULL AND w.seen_at > holdfast.now() - interval '5 minutes' AND :queue::text = ANY (w.queues))

-- say --
-- Tells everybody who listens: what a caller waits for, what has ended, that something was parked.
SELECT pg_catalog.pg_notify(holdfast.channel(), s.said) FROM unnest(:said::text[]) AS s(said)

-- claim --
-- Leases due tasks to a worker, by priority, then run_at. The LATERAL enters the index once per priority;
-- a mark per priority skips the dead and unclaimable entries in front. Only steps the worker knows. Tasks whose
-- worker was lost before are suspects: they come apart, as many as the worker can take.
UPDATE holdfast.task t
SET state = 'running', worker_id = :worker::uuid, attempt = least(t.attempt, 2147483646) + 1,
    claimed_at = holdfast.now(), lease_expires_at = holdfast.now() + :lease::interval,
    max_crashes = coalesce((:crash_limits::jsonb -> (t.kind || '.' || t.step))::smallint, t.max_crashes)
WHERE t.queue = :queue::text AND t.id = ANY ((ARRAY(
    SELECT c.id FROM holdfast.task c
    WHERE c.queue = :queue::text AND c.state = 'ready' AND c.crashes > 0 AND c.run_at <= holdfast.now()
      AND (c.deadline IS NULL OR c.deadline > holdfast.now() OR c.attempt > 0)
      AND c.kind || '.' || c.step = ANY (:known::text[])
      AND c.kind <> ALL (ARRAY(SELECT unnest(k.was || k.name::text) FROM holdfast.kind k WHERE k.paused_at IS NOT NULL))
      AND NOT EXISTS (SELECT FROM holdfast.queue q WHERE q.name = :queue::text AND q.paused_at IS NOT NULL)
    ORDER BY c.run_at, c.id
    LIMIT :suspects::integer
    FOR UPDATE SKIP LOCKED
) || ARRAY(
    SELECT due.id
    FROM generate_series(9, 0, -1) AS p(priority)
    CROSS JOIN LATERAL (
        SELECT c.id FROM holdfast.task c
        WHERE c.queue = :queue::text AND c.state = 'ready' AND c.crashes <= 0 AND c.priority = p.priority
          AND c.run_at <= holdfast.now() AND c.run_at >= (:marks::timestamptz[])[p.priority + 1]
          AND (c.deadline IS NULL OR c.deadline > holdfast.now() OR c.attempt > 0)
          AND c.kind || '.' || c.step = ANY (:known::text[])
          AND c.kind <> ALL (ARRAY(SELECT unnest(k.was || k.name::text) FROM holdfast.kind k WHERE k.paused_at IS NOT NULL))
          AND NOT EXISTS (SELECT FROM holdfast.queue q WHERE q.name = :queue::text AND q.paused_at IS NOT NULL)
        ORDER BY c.run_at, c.id
        LIMIT :limit::integer
        FOR UPDATE SKIP LOCKED
    ) AS due
    LIMIT :limit::integer))[1 : :limit::integer])
RETURNING t.id, t.kind, t.step, t.args, t.attempt, t.moves, t.errors, t.crashes, t.priority,
          date_part('epoch', t.run_at), date_part('epoch', t.claimed_at),
          t.key, t.headers, t.deadline

-- next_due --
-- How long until the nearest task that is not due yet; due ones are left out, or unclaimable ones would spin.
SELECT extract(epoch FROM min(soon.run_at) - holdfast.now())::float8
FROM generate_series(0, 9) AS p(priority)
CROSS JOIN LATERAL (
    SELECT c.run_at FROM holdfast.task c
    WHERE c.queue = :queue::text AND c.state = 'ready' AND c.priority = p.priority AND c.run_at > holdfast.now()
    ORDER BY c.run_at LIMIT 1
) AS soon

-- obstacles --
-- What speaks against going on with tasks that move: the highest priority above the given one of a due task that this
-- worker knows; whether the queue is paused; the kinds that are.
SELECT (
    SELECT p.priority
    FROM generate_series(9, :above::integer + 1, -1) AS p(priority)
    CROSS JOIN LATERAL (
        SELECT FROM holdfast.task c
        WHERE c.queue = :queue::text AND c.state = 'ready' AND c.priority = p.priority AND c.run_at <= holdfast.now()
          AND (c.deadline IS NULL OR c.deadline > holdfast.now() OR c.attempt > 0)
          AND c.kind || '.' || c.step = ANY (:known::text[])
          AND c.kind <> ALL (ARRAY(SELECT unnest(k.was || k.name::text) FROM holdfast.kind k WHERE k.paused_at IS NOT NULL))
        ORDER BY c.run_at, c.id
        LIMIT 1
    ) AS due
    LIMIT 1
), EXISTS (SELECT FROM holdfast.queue q WHERE q.name = :queue::text AND q.paused_at IS NOT NULL),
   ARRAY(SELECT unnest(k.was || k.name::text) FROM holdfast.kind k WHERE k.paused_at IS NOT NULL)

-- unclaimable --
-- How many of the first due tasks (a thousand of each priority) lie in the way of a claim, because this worker does not
-- know them, they are paused, suspects or expired, and when it looked.
SELECT count(*), holdfast.now() FROM generate_series(0, 9) AS p(priority)
CROSS JOIN LATERAL (
    SELECT c.kind, c.step, c.crashes, c.attempt, c.deadline FROM holdfast.task c
    WHERE c.queue = :queue::text AND c.state = 'ready' AND c.priority = p.priority AND c.run_at <= holdfast.now()
    ORDER BY c.run_at, c.id LIMIT 1000
) AS due
WHERE due.crashes > 0 OR NOT due.kind || '.' || due.step = ANY (:known::text[])
   OR due.deadline <= holdfast.now() AND due.attempt = 0
   OR due.kind = ANY (ARRAY(SELECT unnest(k.was || k.name::text) FROM holdfast.kind k WHERE k.paused_at IS NOT NULL))

-- due --
-- Whether a task that this worker may claim is due and waits: tells a draining worker to go on.
SELECT EXISTS (
    SELECT FROM holdfast.task c
    WHERE c.queue = :queue::text AND c.state = 'ready' AND c.run_at <= holdfast.now()
      AND (c.deadline IS NULL OR c.deadline > holdfast.now() OR c.attempt > 0)
      AND c.kind || '.' || c.step = ANY (:known::text[])
      AND c.kind <> ALL (ARRAY(SELECT unnest(k.was || k.name::text) FROM holdfast.kind k WHERE k.paused_at IS NOT NULL))
      AND NOT EXISTS (SELECT FROM holdfast.queue q WHERE q.name = :queue::text AND q.paused_at IS NOT NULL))

-- children --
-- A part of finish and advance, for attempts that enqueued something. It reads which tasks were really written: so it
-- comes after that, and what belongs to a lost attempt is dropped.
, children AS (
    INSERT INTO holdfast.task (id, queue, kind, step, args, priority, run_at, deadline, headers)
    SELECT n.id, n.queue, n.kind, n.step, n.args, n.priority,
           coalesce(n.at, holdfast.now() + make_interval(secs => n.delay)),
           coalesce(n.expires_at, holdfast.now() + make_interval(secs => n.expires_in)), n.headers
    FROM jsonb_to_recordset(:children::jsonb) AS n(parent uuid, id uuid, queue text, kind text, step text, args jsonb,
                                                   priority smallint, at timestamptz, delay float8,
                                                   expires_at timestamptz, expires_in float8, headers jsonb)
    WHERE n.parent = ANY (ARRAY(SELECT id FROM written))
    ON CONFLICT (id, queue) DO NOTHING
)

-- finish --
-- The task ended well: it leaves for the archive with its result and the record of its last attempt.
WITH gone AS (
    DELETE FROM holdfast.task t
    WHERE t.queue = :queue::text AND t.id = ANY (/*ids*/:ids::uuid[]) AND t.worker_id = :worker::uuid
      AND t.attempt = (:outcomes::jsonb -> t.id::text -> 'attempt')::integer
    RETURNING t.*
)/*children of gone*/
INSERT INTO holdfast.archive (id, queue, kind, step, args, state, priority, run_at, moves, attempt, errors, crashes,
                              worker_id, claimed_at, outcome, key, error, headers, created_at, result, report)
SELECT g.id, g.queue, g.kind, g.step, g.args, 'done', g.priority, g.run_at, g.moves, g.attempt, g.errors, g.crashes,
       g.worker_id, g.claimed_at, 'done', g.key, g.error, g.headers, g.created_at,
       :outcomes::jsonb -> g.id::text -> 'result', :outcomes::jsonb -> g.id::text -> 'report'
FROM gone g
RETURNING id

-- advance --
-- The task moves to its next step. Kept, the same worker goes on under a new attempt and a new lease; else
-- it is ready for any worker. The attempt that ended is logged; its old values come from the client,
-- because RETURNING knows only the new ones.
WITH moved AS (
    UPDATE holdfast.task t
    SET kind = coalesce(:outcomes::jsonb -> t.id::text ->> 'kind', t.kind),
        step = :outcomes::jsonb -> t.id::text ->> 'step',
        args = :outcomes::jsonb -> t.id::text -> 'args',
        run_at = coalesce((:outcomes::jsonb -> t.id::text ->> 'at')::timestamptz,
                          holdfast.now() + (:outcomes::jsonb -> t.id::text ->> 'delay')::interval,
                          holdfast.now()),
        moves = least(t.moves, 2147483646) + 1, errors = 0, crashes = 0, error = NULL,
        attempt = least(t.attempt, 2147483646) + (:keep::boolean)::integer,
        state = CASE WHEN :keep::boolean THEN 'running' ELSE 'ready' END,
        worker_id = CASE WHEN :keep::boolean THEN t.worker_id END,
        lease_expires_at = CASE WHEN :keep::boolean THEN holdfast.now() + :lease::interval END,
        claimed_at = CASE WHEN :keep::boolean THEN holdfast.now() ELSE t.claimed_at END,
        max_crashes = coalesce((:outcomes::jsonb -> t.id::text -> 'max_crashes')::smallint, t.max_crashes)
    WHERE t.queue = :queue::text AND t.id = ANY (/*ids*/:ids::uuid[]) AND t.worker_id = :worker::uuid
      AND t.attempt = (:outcomes::jsonb -> t.id::text -> 'attempt')::integer
      AND t.cancel_at IS NULL
    RETURNING t.id, t.queue, t.kind, t.moves, t.claimed_at
), logged AS (
    INSERT INTO holdfast.attempt (task_id, queue, kind, step, args, moves, attempt, worker_id, claimed_at, outcome, report)
    SELECT m.id, m.queue, coalesce(:outcomes::jsonb -> m.id::text ->> 'old_kind', m.kind), :outcomes::jsonb -> m.id::text ->> 'old_step', :outcomes::jsonb -> m.id::text -> 'old_args',
           m.moves - 1, (:outcomes::jsonb -> m.id::text -> 'attempt')::integer, :worker::uuid,
           to_timestamp((:outcomes::jsonb -> m.id::text -> 'claimed_at')::float8), 'advanced',
           :outcomes::jsonb -> m.id::text -> 'report'
    FROM moved m
)/*children of moved*/
SELECT id, date_part('epoch', claimed_at) FROM moved

-- stay --
-- The task stays at its step: retried, snoozed and released make it ready again, failed parks it.
WITH stayed AS (
    UPDATE holdfast.task t
    SET state = CASE :outcomes::jsonb -> t.id::text ->> 'outcome' WHEN 'failed' THEN 'parked' ELSE 'ready' END,
        run_at = coalesce((:outcomes::jsonb -> t.id::text ->> 'at')::timestamptz,
                          holdfast.now() + (:outcomes::jsonb -> t.id::text ->> 'delay')::interval,
                          t.run_at),
        errors = least(t.errors, 2147483646) + coalesce((:outcomes::jsonb -> t.id::text -> 'errors')::integer, 0),
        error = coalesce(:outcomes::jsonb -> t.id::text -> 'error', t.error),
        worker_id = NULL, lease_expires_at = NULL
    WHERE t.queue = :queue::text AND t.id = ANY (/*ids*/:ids::uuid[]) AND t.worker_id = :worker::uuid
      AND t.attempt = (:outcomes::jsonb -> t.id::text -> 'attempt')::integer
      AND t.cancel_at IS NULL
    RETURNING t.id, t.queue, t.kind, t.step, t.args, t.state, t.moves, t.attempt, t.claimed_at
), logged AS (
    INSERT INTO holdfast.attempt (task_id, queue, kind, step, args, moves, attempt, worker_id, claimed_at, outcome, error,
                                  report, parked)
    SELECT s.id, s.queue, s.kind, s.step, s.args, s.moves, s.attempt, :worker::uuid, s.claimed_at,
           :outcomes::jsonb -> s.id::text ->> 'outcome', :outcomes::jsonb -> s.id::text -> 'error',
           :outcomes::jsonb -> s.id::text -> 'report', s.state = 'parked'
    FROM stayed s
)
SELECT id, NULL::float8 FROM stayed

-- cancel --
-- The attempt of a cancelled task ended, or the step cancelled its task: it leaves for the archive.
WITH gone AS (
    DELETE FROM holdfast.task t
    WHERE t.queue = :queue::text AND t.id = ANY (/*ids*/:ids::uuid[]) AND t.worker_id = :worker::uuid
      AND t.attempt = (:outcomes::jsonb -> t.id::text -> 'attempt')::integer
    RETURNING t.*
)
INSERT INTO holdfast.archive (id, queue, kind, step, args, state, priority, run_at, moves, attempt, errors, crashes,
                              worker_id, claimed_at, outcome, key, error, headers, created_at, report)
SELECT g.id, g.queue, g.kind, g.step, g.args, 'cancelled', g.priority, g.run_at, g.moves, g.attempt, g.errors, g.crashes,
       g.worker_id, g.claimed_at, 'cancelled', g.key,
       jsonb_build_object('type', 'cancelled', 'message', coalesce(g.cancel_by, :outcomes::jsonb -> g.id::text ->> 'reason')),
       g.headers, g.created_at, :outcomes::jsonb -> g.id::text -> 'report'
FROM gone g
RETURNING id

-- has_written --
-- Whether the transaction around this statement has written anything: never so where each statement is one by itself.
SELECT pg_catalog.pg_current_xact_id_if_assigned() IS NOT NULL

-- begin_to_write --
-- Counts as a write of the transaction around this statement.
SELECT pg_catalog.pg_current_xact_id()::text

-- fences --
-- What the rows say now: read after a write that did not come back, or whose answer was lost.
SELECT id, state, worker_id, attempt, moves, cancel_at IS NOT NULL, date_part('epoch', claimed_at)
FROM holdfast.task WHERE queue = :queue::text AND id = ANY (:ids::uuid[])

-- recorded --
-- Which of these attempts are in the log: read after a commit whose answer was lost.
SELECT l.task_id, l.attempt, l.outcome FROM holdfast.attempt l
WHERE l.task_id = ANY (:ids::uuid[]) AND l.finished_at > holdfast.now() - interval '1 day'
UNION ALL
SELECT a.id, a.attempt, a.outcome FROM holdfast.archive a
WHERE a.id = ANY (:ids::uuid[]) AND a.finished_at > holdfast.now() - interval '1 day' AND a.outcome IS NOT NULL

-- beat --
-- Renews the leases of what this worker still holds, even if a lease has passed and nobody took it.
UPDATE holdfast.task t
SET lease_expires_at = holdfast.now() + :lease::interval
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

-- reap --
-- Expired leases: back to ready with a crash, or parked when the crash budget is used up or the step must
-- not be rerun by itself. A worker that was stopping is not a crash. The lost attempt is logged.
WITH expired AS MATERIALIZED (
    SELECT c.*, NOT EXISTS (SELECT FROM holdfast.worker w WHERE w.id = c.worker_id AND w.stopping_at IS NOT NULL) AS crashed
    FROM holdfast.task c
    WHERE c.queue = :queue::text AND c.state = 'running' AND c.lease_expires_at < holdfast.now() AND c.cancel_at IS NULL
    ORDER BY c.id LIMIT :limit::integer FOR UPDATE OF c SKIP LOCKED
), logged AS (
    INSERT INTO holdfast.attempt (task_id, queue, kind, step, args, moves, attempt, worker_id, claimed_at, outcome, error,
                                  report, parked)
    SELECT e.id, e.queue, e.kind, e.step, e.args, e.moves, e.attempt, e.worker_id, e.claimed_at, 'lost',
           jsonb_build_object('type', 'WorkerLost', 'message', format('worker %s let its lease run out at %s', e.worker_id, e.lease_expires_at)),
           (SELECT p.report FROM holdfast.progress p WHERE p.task_id = e.id AND p.queue = e.queue AND p.attempt = e.attempt),
           e.max_crashes = 0 OR e.crashes >= e.max_crashes AND e.crashed
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
        WHERE c.queue = :queue::text AND c.state = 'running' AND c.lease_expires_at < holdfast.now() AND c.cancel_at IS NOT NULL
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
        WHERE c.queue = :queue::text AND c.state = 'ready' AND c.attempt = 0 AND c.deadline <= holdfast.now()
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

-- register --
-- A worker announces itself.
INSERT INTO holdfast.worker (id, name, host, pid, version, queues, limits, steps, only_steps, kinds, slots, schedules)
VALUES (:worker::uuid, :name::text, :host::text, :pid::integer, :version::text, :queues::text[], :limits::jsonb, :steps::text[],
        :only::text[], :kinds::jsonb, :slots::integer, :schedules::text[])
ON CONFLICT (id) DO UPDATE SET seen_at = holdfast.now()

-- seen --
-- A worker is alive; answers whether it was asked to stop.
UPDATE holdfast.worker SET seen_at = holdfast.now(), stuck = :stuck::integer, stopped_at = NULL
WHERE id = :worker::uuid RETURNING stop_requested_at IS NOT NULL

-- idle --
-- A worker may be about to sleep, or is busy again.
UPDATE holdfast.worker SET idle = :idle::boolean WHERE id = :worker::uuid

-- stopping --
-- The first act of a stop: from now on a lost lease of this worker is not a crash.
UPDATE holdfast.worker SET stopping_at = holdfast.now(), idle = false WHERE id = :worker::uuid

-- stopped --
-- The last act of a stop.
UPDATE holdfast.worker SET stopped_at = holdfast.now(), idle = false WHERE id = :worker::uuid

-- bury --
-- Workers that were silent for long are taken for dead, so that nobody waits for them to stop; a beat revives one.
UPDATE holdfast.worker SET stopped_at = holdfast.now(), idle = false
WHERE stopped_at IS NULL AND seen_at < holdfast.now() - interval '5 minutes'

-- declare_kind --
-- A worker tells what it knows about a kind.
INSERT INTO holdfast.kind AS k (name, queue, priority, first, graph, about, was)
VALUES (:name::text, :queue::text, :priority::smallint, :first::text, :graph::jsonb, :about::jsonb, :was::text[])
ON CONFLICT (name) DO UPDATE
SET queue = excluded.queue, priority = excluded.priority, first = excluded.first, graph = excluded.graph,
    about = excluded.about, was = excluded.was, seen_at = holdfast.now()
WHERE (k.queue, k.priority, k.first, k.graph, k.about, k.was)
      IS DISTINCT FROM (excluded.queue, excluded.priority, excluded.first, excluded.graph, excluded.about, excluded.was)

-- ensure_partitions --
-- Partitions for the coming days.
SELECT holdfast.ensure_partitions()

-- archived --
-- Whether a task has already ended: read before an enqueue is sent again, whose answer was lost.
SELECT EXISTS (SELECT FROM holdfast.archive WHERE id = :id::uuid)

-- server --
-- Which server this is: a new one must not meet the identity and attempts given out by an old one.
SELECT extract(epoch FROM pg_catalog.pg_postmaster_start_time())::text || ' ' || pg_catalog.pg_is_in_recovery()::text

-- place --
-- Which database of which server this is: two URLs that answer the same are one.
SELECT extract(epoch FROM pg_catalog.pg_postmaster_start_time())::text || ' ' || pg_catalog.current_database()

-- same_server --
-- Divides by zero if this is another server: so nothing that follows in the transaction is executed there.
SELECT 1 / (extract(epoch FROM pg_catalog.pg_postmaster_start_time())::text || ' ' || pg_catalog.pg_is_in_recovery()::text
            = :server::text)::integer

-- isolation --
-- What this connection's transactions default to: claims need READ COMMITTED.
SELECT pg_catalog.current_setting('default_transaction_isolation'), pg_catalog.current_setting('transaction_read_only')

-- retry --
-- Resumes a parked task.
SELECT holdfast.retry(:id::uuid, :options::jsonb)

-- cancel_task --
-- Cancels a task.
SELECT holdfast.cancel(:id::uuid, :options::jsonb)

-- discard --
-- Gives a parked task up.
SELECT holdfast.discard(:id::uuid, :options::jsonb)

-- retry_many --
-- Resumes those of these tasks that stand as they were seen, may still start and are locked by nobody. With a spacing, each is due that
-- much later than the one before it, the first not before the given time: the answers say when.
SELECT c.id, holdfast.retry(c.id, :options::jsonb || CASE WHEN c.at IS NULL THEN '{}' ELSE jsonb_build_object('at', c.at) END), c.at
FROM (SELECT l.id, greatest(:first::timestamptz, holdfast.now()) + (row_number() OVER (ORDER BY l.id) - 1) * :spacing::interval AS at
      FROM (SELECT id FROM holdfast.lock_free(:ids::uuid[])
            WHERE concat_ws(' ', state, attempt, extract(epoch FROM run_at)) = (:seen::text[])[array_position(:ids::uuid[], id)]
              AND (attempt = 0 AND deadline <= holdfast.now()) IS NOT TRUE) AS l) AS c

-- cancel_many --
-- Cancels those of these tasks that nobody has cancelled yet, and that are locked by nobody.
SELECT c.id, holdfast.cancel(c.id, :options::jsonb) FROM holdfast.lock_free(:ids::uuid[]) AS c WHERE c.cancel_at IS NULL

-- discard_many --
-- Gives up those of these tasks that are parked and locked by nobody.
SELECT c.id, holdfast.discard(c.id, :options::jsonb) FROM holdfast.lock_free(:ids::uuid[]) AS c WHERE c.state = 'parked'

-- stop_workers --
-- Asks workers to stop.
SELECT holdfast.stop_workers(:worker::uuid)

-- pause --
-- Pauses a queue or a kind.
SELECT holdfast.pause(:name::text, :options::jsonb)

-- resume --
-- Lets the tasks of a paused queue or kind be claimed again.
SELECT holdfast.resume(:name::text, :options::jsonb)
