-- The life of a task in a worker: how it is claimed, and how an attempt ends.
--
-- `_sql/template.py` says how statements are written. `holdfast.` stands for the schema's quoted name; `:name` is a
-- parameter. Rules for all that write tasks: one queue, named by equality; rows are matched with
-- `id = ANY(…)`, never by a join, because joins flip to scans of the whole table; every write that ends an
-- attempt is fenced by queue, id, worker and attempt, and a row that does not come back was lost.
-- Per-row values of a batch travel in one JSON object by id: `:outcomes -> id -> field`. Times that a worker needs
-- for every row travel as seconds, and ids as bytes: making a datetime and a UUID of each costs more than the claim itself. So do args, without
-- the number of their format, which is the first byte of what jsonb_send gives. Counters stop at
-- their largest value, so that a number written by hand cannot end every worker.

-- claim --
-- Leases due tasks to a worker, by priority, then run_at; the suspects among them apart.
UPDATE holdfast.task t
SET {{> leased}}
WHERE t.queue = :queue::text AND t.id = ANY (({{> suspects}} || {{> first_of_each_priority}})[1 : :limit::integer])
RETURNING {{> claimed}}

-- claim_without_suspects --
-- As `claim`, for a worker that takes no suspects now.
UPDATE holdfast.task t
SET {{> leased}}
WHERE t.queue = :queue::text AND t.id = ANY (({{> first_of_each_priority}})[1 : :limit::integer])
RETURNING {{> claimed}}

-- claim_one --
-- As `claim`, of one task only: the one that a notification has named to a resting worker.
UPDATE holdfast.task t
SET {{> leased}}
WHERE t.queue = :queue::text AND t.id = ANY (ARRAY(
    SELECT c.id FROM holdfast.task c
    WHERE c.id = :id::uuid AND c.crashes <= 0 AND {{> claimable c}}
    FOR UPDATE SKIP LOCKED
))
RETURNING {{> claimed}}

-- fragment leased --
-- What a claim writes. The crash limit is one for all steps, or an object has it by step. What is the same for all rows is a
-- subselect: worked out once.
state = 'running', worker_id = :worker::uuid, attempt = least(t.attempt, 2147483646) + 1,
    claimed_at = holdfast.now(), lease_expires_at = (SELECT holdfast.now() + :lease::interval),
    max_crashes = coalesce(:crash_limit::smallint, (:crash_limits::jsonb -> (t.kind || '.' || t.step))::smallint, t.max_crashes)

-- fragment suspects --
-- Tasks whose worker was lost before: as many as the worker can take.
ARRAY(
    SELECT c.id FROM holdfast.task c
    WHERE {{> claimable c}} AND c.crashes > 0
    ORDER BY c.run_at, c.id
    LIMIT :suspects::integer
    FOR UPDATE SKIP LOCKED
)

-- fragment first_of_each_priority --
-- All other tasks. The LATERAL enters the index once per priority; a mark per priority skips the dead and unclaimable entries
-- in front.
ARRAY(
    SELECT due.id
    FROM (VALUES (9), (8), (7), (6), (5), (4), (3), (2), (1), (0)) AS p(priority)
    CROSS JOIN LATERAL (
        SELECT c.id FROM holdfast.task c
        WHERE {{> claimable c}} AND c.crashes <= 0 AND c.priority = p.priority
          AND (c.run_at, c.id) >= (coalesce((:marks::timestamptz[])[p.priority + 1], '-infinity'),
                                   coalesce((:mark_ids::uuid[])[p.priority + 1], '00000000-0000-0000-0000-000000000000'))
        ORDER BY c.run_at, c.id
        LIMIT :limit::integer
        FOR UPDATE SKIP LOCKED
    ) AS due
    LIMIT :limit::integer)

-- fragment claimed --
-- What a worker needs of a claimed task.
uuid_send(t.id), t.kind, t.step, substr(jsonb_send(t.args), 2), t.attempt, t.moves, t.errors, t.crashes, t.priority,
          date_part('epoch', t.run_at), (SELECT date_part('epoch', holdfast.now())),
          t.key, t.headers, t.deadline

-- next_due --
-- How long until the nearest task that is not due yet, or became due in the last :since seconds; those due for longer are
-- left out, or unclaimable ones would spin. And whether a suspect is due.
SELECT extract(epoch FROM min(soon.run_at) - holdfast.now())::float8,
       EXISTS (SELECT FROM holdfast.task s WHERE s.queue = ANY (:queues::text[]) AND s.state = 'ready' AND s.crashes > 0
                                                  AND s.run_at <= holdfast.now())
FROM unnest(:queues::text[]) AS q(name) CROSS JOIN generate_series(0, 9) AS p(priority)
CROSS JOIN LATERAL (
    SELECT c.run_at FROM holdfast.task c
    WHERE c.queue = q.name AND c.state = 'ready' AND c.priority = p.priority
      AND c.run_at > holdfast.now() - make_interval(secs => :since::float8)
    ORDER BY c.run_at LIMIT 1
) AS soon

-- obstacles --
-- What speaks against going on with tasks that move: the highest priority above the given one of a task that this
-- worker may start; whether the queue is paused; the kinds that are.
SELECT (
    SELECT p.priority
    FROM generate_series(9, :above::integer + 1, -1) AS p(priority)
    CROSS JOIN LATERAL (
        SELECT FROM holdfast.task c
        WHERE {{> is_due c}} AND {{> startable c}} AND c.priority = p.priority
        ORDER BY c.run_at, c.id
        LIMIT 1
    ) AS due
    LIMIT 1
), {{> queue_is_paused}}, {{> paused_kinds}}

-- unclaimable --
-- How many of the first due tasks (a thousand of each priority) lie in the way of a claim, because this worker may not
-- start them or they are suspects, and when it looked.
SELECT count(*), holdfast.now() FROM generate_series(0, 9) AS p(priority)
CROSS JOIN LATERAL (
    SELECT c.kind, c.step, c.crashes, c.attempt, c.deadline FROM holdfast.task c
    WHERE {{> is_due c}} AND c.priority = p.priority
    ORDER BY c.run_at, c.id LIMIT 1000
) AS due
WHERE due.crashes > 0 OR NOT ({{> startable due}})

-- due --
-- Whether a task that this worker may claim is due and waits: tells a draining worker to go on.
SELECT EXISTS (SELECT FROM holdfast.task c WHERE {{> claimable c}})

-- fragment children(written) --
-- What the attempts have enqueued. It reads which tasks were really written, so what belongs to a lost attempt is dropped.
children AS (
    INSERT INTO holdfast.task (id, queue, kind, step, args, priority, run_at, deadline, headers)
    SELECT n.id, n.queue, n.kind, n.step, n.args, n.priority,
           coalesce(n.at, holdfast.now() + make_interval(secs => n.delay)),
           coalesce(n.expires_at, holdfast.now() + make_interval(secs => n.expires_in)), n.headers
    FROM jsonb_to_recordset(:children::jsonb) AS n(parent uuid, id uuid, queue text, kind text, step text, args jsonb,
                                                   priority smallint, at timestamptz, delay float8,
                                                   expires_at timestamptz, expires_in float8, headers jsonb)
    WHERE n.parent = ANY (ARRAY(SELECT id FROM {{written}}))
    ON CONFLICT (id, queue) DO NOTHING
)

-- finish --
-- The task ended well: it leaves for the archive with its result and the record of its last attempt; an earlier error stays
-- with the attempt that raised it. A batch in which all attempts have one number names it once; if nothing has a result or a
-- report either, there are no outcomes at all, and no id is made a text to look for its own.
WITH {{> gone}}
{{> into_archive}}
RETURNING id

-- finish_counted --
-- As `finish`: which ones were written comes back only to who asks for a few. Of a thousand the number is enough, for as a
-- rule it is all of them.
WITH {{> gone}}
{{> into_archive}}

-- finish_with_children --
-- As `finish`, for attempts that enqueued something.
WITH {{> gone}}, {{> children gone}}
{{> into_archive}}
RETURNING id

-- fragment gone --
-- The tasks that leave.
gone AS (
    DELETE FROM holdfast.task t
    WHERE t.queue = :queue::text AND t.id = ANY ({{ids}}) AND t.worker_id = :worker::uuid
      AND t.attempt = coalesce(:attempt::integer, (:outcomes::jsonb -> t.id::text -> 'attempt')::integer)
    RETURNING t.id, t.queue, t.kind, t.step, t.args, t.priority, t.run_at, t.moves, t.attempt, t.errors, t.crashes,
              t.worker_id, t.claimed_at, t.key, t.headers, t.created_at
)

-- fragment into_archive --
-- Their rows in the archive.
INSERT INTO holdfast.archive (id, queue, kind, step, args, state, priority, run_at, moves, attempt, errors, crashes,
                              worker_id, claimed_at, outcome, key, headers, created_at, result, report)
SELECT g.id, g.queue, g.kind, g.step, g.args, 'done', g.priority, g.run_at, g.moves, g.attempt, g.errors, g.crashes,
       g.worker_id, g.claimed_at, 'done', g.key, g.headers, g.created_at,
       CASE WHEN :outcomes::jsonb IS NOT NULL THEN :outcomes::jsonb -> g.id::text -> 'result' END,
       CASE WHEN :outcomes::jsonb IS NOT NULL THEN :outcomes::jsonb -> g.id::text -> 'report' END
FROM gone g

-- advance --
-- The task moves to its next step. Kept, the same worker goes on under a new attempt and a new lease; else
-- it is ready for any worker. The attempt that ended is logged; its old values come from the client,
-- because RETURNING knows only the new ones.
WITH {{> moved}}
SELECT id, date_part('epoch', claimed_at) FROM moved

-- advance_with_children --
-- As `advance`, for attempts that enqueued something.
WITH {{> moved}}, {{> children moved}}
SELECT id, date_part('epoch', claimed_at) FROM moved

-- fragment moved --
-- The tasks that move, and the log of their attempts.
moved AS (
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
    WHERE t.queue = :queue::text AND t.id = ANY ({{ids}}) AND t.worker_id = :worker::uuid
      AND t.attempt = (:outcomes::jsonb -> t.id::text -> 'attempt')::integer
      AND t.cancel_at IS NULL
    RETURNING t.id, t.queue, t.kind, t.moves, t.claimed_at
), logged AS (
    INSERT INTO holdfast.attempt (task_id, queue, kind, step, args, moves, attempt, worker_id, claimed_at, outcome, report, run_at)
    SELECT m.id, m.queue, coalesce(:outcomes::jsonb -> m.id::text ->> 'old_kind', m.kind), :outcomes::jsonb -> m.id::text ->> 'old_step', :outcomes::jsonb -> m.id::text -> 'old_args',
           m.moves - 1, (:outcomes::jsonb -> m.id::text -> 'attempt')::integer, :worker::uuid,
           to_timestamp((:outcomes::jsonb -> m.id::text -> 'claimed_at')::float8), 'advanced',
           :outcomes::jsonb -> m.id::text -> 'report', to_timestamp((:outcomes::jsonb -> m.id::text -> 'run_at')::float8)
    FROM moved m
)

-- stay --
-- The task stays at its step: retried, snoozed and released make it ready again, failed parks it. One that never began has no
-- outcome: it gives back its number, and nothing is logged.
WITH stayed AS (
    UPDATE holdfast.task t
    SET state = CASE :outcomes::jsonb -> t.id::text ->> 'outcome' WHEN 'failed' THEN 'parked' ELSE 'ready' END,
        run_at = coalesce((:outcomes::jsonb -> t.id::text ->> 'at')::timestamptz,
                          holdfast.now() + (:outcomes::jsonb -> t.id::text ->> 'delay')::interval,
                          t.run_at),
        errors = least(t.errors, 2147483646) + coalesce((:outcomes::jsonb -> t.id::text -> 'errors')::integer, 0),
        error = coalesce(:outcomes::jsonb -> t.id::text -> 'error', t.error),
        attempt = t.attempt - (:outcomes::jsonb -> t.id::text ->> 'outcome' IS NULL)::integer,
        claimed_at = CASE WHEN t.attempt > 1 OR :outcomes::jsonb -> t.id::text ->> 'outcome' IS NOT NULL THEN t.claimed_at END,
        worker_id = NULL, lease_expires_at = NULL
    WHERE t.queue = :queue::text AND t.id = ANY ({{ids}}) AND t.worker_id = :worker::uuid
      AND t.attempt = (:outcomes::jsonb -> t.id::text -> 'attempt')::integer
      AND t.cancel_at IS NULL
    RETURNING t.id, t.queue, t.kind, t.step, t.args, t.state, t.moves, t.attempt, t.claimed_at
), logged AS (
    INSERT INTO holdfast.attempt (task_id, queue, kind, step, args, moves, attempt, worker_id, claimed_at, outcome, error,
                                  report, parked, run_at)
    SELECT s.id, s.queue, s.kind, s.step, s.args, s.moves, s.attempt, :worker::uuid, s.claimed_at,
           :outcomes::jsonb -> s.id::text ->> 'outcome', :outcomes::jsonb -> s.id::text -> 'error',
           :outcomes::jsonb -> s.id::text -> 'report', s.state = 'parked',
           to_timestamp((:outcomes::jsonb -> s.id::text -> 'run_at')::float8)
    FROM stayed s WHERE :outcomes::jsonb -> s.id::text ->> 'outcome' IS NOT NULL
)
SELECT id, NULL::float8 FROM stayed

-- cancel --
-- The attempt of a cancelled task ended, or the step cancelled its task: it leaves for the archive.
WITH gone AS (
    DELETE FROM holdfast.task t
    WHERE t.queue = :queue::text AND t.id = ANY ({{ids}}) AND t.worker_id = :worker::uuid
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
