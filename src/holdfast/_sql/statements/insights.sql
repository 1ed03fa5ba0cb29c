-- What people ask: the statements behind CLI, references and the dashboard. None of them writes.

-- only_look --
-- For this transaction only: nothing can be written, and no statement takes longer than this. And what a connection of
-- ours has for good, a transaction through a pooler has for itself.
SELECT pg_catalog.set_config('transaction_read_only', 'on', true),
       pg_catalog.set_config('jit', 'off', true), pg_catalog.set_config('array_nulls', 'on', true),
       pg_catalog.set_config('statement_timeout', ceil(extract(epoch FROM :within::interval) * 1000)::bigint::text, true)

-- task_info --
-- One task, live or archived.
SELECT t.id, t.queue, t.kind, t.step, t.state, t.phase, t.priority, t.run_at, t.moves, t.attempt, t.errors, t.crashes,
       t.worker_id, t.claimed_at, t.lease_expires_at, t.args, t.error, t.key, t.headers, t.created_at, t.finished_at,
       t.result, t.deadline, l.report, l.fraction, l.note
FROM (SELECT * FROM holdfast.tasks WHERE id = :id::uuid ORDER BY finished_at NULLS FIRST LIMIT 1) AS t
LEFT JOIN LATERAL (
    SELECT a.report, a.fraction, a.note FROM holdfast.attempts a WHERE a.task_id = :id::uuid AND a.attempt = t.attempt LIMIT 1
) AS l ON true

-- going_on --
-- Those of these tasks that have neither ended nor expired nor been parked.
SELECT t.id FROM holdfast.task t WHERE t.id = ANY (:ids::uuid[]) AND t.state <> 'parked'
  AND {{> in_time t}}

-- ended --
-- Those of these tasks that have ended, or are expired or parked. With the time when the first of them was made, only the days
-- since then are looked into, and one more, because clocks may differ.
SELECT id, queue, kind, step, state, phase, priority, run_at, moves, attempt, errors, crashes, worker_id, claimed_at,
       lease_expires_at, args, error, key, headers, created_at, finished_at, result, deadline
FROM holdfast.tasks
WHERE id = ANY (:ids::uuid[]) AND (state NOT IN ('ready', 'running', 'waiting') OR phase = 'expired')
  AND (finished_at IS NULL
       OR finished_at >= least(coalesce(:made::timestamptz, '-infinity'), holdfast.now()) - interval '1 day'
      AND finished_at <= CASE WHEN :made::timestamptz IS NULL THEN 'infinity' ELSE holdfast.now() + interval '1 day' END)
ORDER BY finished_at DESC NULLS LAST

-- list_tasks --
-- Tasks that a filter lets through, newest first, page by page: those with an id below the given one.
SELECT id, queue, kind, step, state, phase, priority, run_at, moves, attempt, errors, crashes, worker_id, claimed_at,
       lease_expires_at, args, error, key, headers, created_at, finished_at, result, deadline
FROM holdfast.tasks
WHERE {{filter}} AND id < coalesce(:below::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
ORDER BY id DESC LIMIT :limit::integer

-- count_tasks --
-- How many tasks a filter lets through; nobody counts further than the limit.
SELECT count(*) FROM (SELECT FROM holdfast.tasks WHERE {{filter}} LIMIT :limit::integer) AS counted

-- matching --
-- The ids of tasks that a filter lets through, and how each stands, oldest first, above the given one.
SELECT id, concat_ws(' ', state, attempt, extract(epoch FROM run_at)) FROM holdfast.tasks
WHERE {{filter}} AND id > coalesce(:above::uuid, '00000000-0000-0000-0000-000000000000')
ORDER BY id LIMIT :limit::integer

-- how_they_stand --
-- How some tasks stand now, written as `matching` writes it, and whether somebody cancelled them. One that may no longer
-- start is expired, although nobody has put it away yet.
SELECT t.id, CASE WHEN t.state = 'ready' AND {{> expired t}} THEN 'expired' ELSE t.state END,
       concat_ws(' ', t.state, t.attempt, extract(epoch FROM t.run_at)), t.cancel_at IS NOT NULL
FROM holdfast.task t WHERE t.id = ANY (:ids::uuid[])
UNION ALL
SELECT a.id, a.state, NULL, false FROM holdfast.archive a WHERE a.id = ANY (:ids::uuid[])

-- task_attempts --
-- The attempts of one task, in order: the last ones, if there is a limit.
SELECT l.* FROM (
    SELECT task_id, queue, kind, step, moves, attempt, worker_id, claimed_at, finished_at, outcome, error, args, report,
           fraction, note
    FROM holdfast.attempts WHERE task_id = :id::uuid ORDER BY attempt DESC LIMIT :limit::integer
) AS l ORDER BY l.attempt

-- failure_places --
-- Attempts that parked their task, behind a place in the log, in order. The days ahead are empty, and left out.
SELECT l.finished_at, l.task_id, l.attempt FROM holdfast.attempt l
WHERE l.parked AND l.finished_at >= :at::timestamptz AND l.finished_at <= holdfast.now() + interval '1 day'
  AND (l.finished_at, l.task_id, l.attempt) > (:at::timestamptz, :id::uuid, :attempt::integer)
ORDER BY l.finished_at, l.task_id, l.attempt LIMIT :limit::integer

-- failures --
-- Some of these attempts, with what the row of the task says if it is still parked there.
SELECT l.task_id, l.queue, l.kind, l.step, l.args, l.moves, l.attempt, l.claimed_at, l.finished_at, coalesce(t.error, l.error),
       l.report, t.priority, t.errors, t.crashes, t.key, t.headers, t.created_at
FROM holdfast.attempt l
LEFT JOIN holdfast.task t ON t.id = l.task_id AND t.queue = l.queue AND t.attempt = l.attempt AND t.state = 'parked'
WHERE l.parked AND l.task_id = ANY (:ids::uuid[]) AND l.finished_at BETWEEN :first::timestamptz AND :last::timestamptz

-- running --
-- What is being executed, the longest first: only what workers hold is looked at.
SELECT t.id, t.queue, t.kind, t.step, t.attempt, t.worker_id, t.claimed_at,
       date_part('epoch', greatest(holdfast.now() - t.claimed_at, interval '0')), p.fraction, coalesce(p.note, '')
FROM (SELECT r.id, r.queue, r.kind, r.step, r.attempt, r.worker_id, r.claimed_at FROM holdfast.task r
      WHERE r.state = 'running' ORDER BY r.claimed_at LIMIT :limit::integer) AS t
LEFT JOIN holdfast.progress p ON p.task_id = t.id AND p.queue = t.queue AND p.attempt = t.attempt
ORDER BY t.claimed_at, t.id

-- in_hand --
-- What some workers execute, the longest first, no more of each than so many.
SELECT t.id, t.queue, t.kind, t.step, t.attempt, t.worker_id, t.claimed_at,
       date_part('epoch', greatest(holdfast.now() - t.claimed_at, interval '0')), p.fraction, coalesce(p.note, '')
FROM holdfast.worker w CROSS JOIN LATERAL (
    SELECT r.id, r.queue, r.kind, r.step, r.attempt, r.worker_id, r.claimed_at FROM holdfast.task r
    WHERE r.state = 'running' AND r.queue::text = ANY (w.queues) AND r.worker_id = w.id
    ORDER BY r.claimed_at, r.id LIMIT :limit::integer) AS t
LEFT JOIN holdfast.progress p ON p.task_id = t.id AND p.queue = t.queue AND p.attempt = t.attempt
WHERE w.id = ANY (:workers::uuid[]) ORDER BY t.claimed_at, t.id

-- recent_failures --
-- What was parked in the last day, the latest first.
SELECT l.task_id, l.queue, l.kind, l.step, l.attempt, l.finished_at, l.error ->> 'type', left(l.error ->> 'message', 1000)
FROM holdfast.attempt l
WHERE l.parked AND l.finished_at > holdfast.now() - interval '1 day' AND l.finished_at <= holdfast.now() + interval '1 day'
ORDER BY l.finished_at DESC, l.task_id DESC, l.attempt DESC LIMIT :limit::integer

-- task_changes --
-- The repairs and operator actions on one task, in order.
SELECT action, by, why, old, new, at FROM holdfast.change WHERE task_id = :id::uuid ORDER BY id

-- workers --
-- Workers, the newest first. One that was taken for dead never began to stop.
SELECT w.id, w.name, w.host, w.pid, w.version, w.queues, w.limits, w.steps, w.only_steps, w.slots, w.idle, w.stuck, w.started_at, w.seen_at,
       w.stop_requested_at, w.stopping_at, w.stopped_at,
       (SELECT count(*) FROM holdfast.task t
        WHERE t.state = 'running' AND t.queue::text = ANY (w.queues) AND t.worker_id = w.id),
       holdfast.is_live(w),
       CASE WHEN w.stopped_at IS NOT NULL AND w.stopping_at IS NOT NULL THEN 'stopped'
            WHEN NOT holdfast.is_live(w) THEN 'lost'
            WHEN w.stopping_at IS NOT NULL THEN 'stopping'
            ELSE 'running' END, w.loops, w.late
FROM holdfast.worker w ORDER BY w.started_at DESC LIMIT :limit::integer

-- gauges --
-- What a monitor wants to know beside the queues.
SELECT coalesce((SELECT date_part('epoch', holdfast.now() - min(s.next_at)) FROM holdfast.schedule s
                 WHERE s.paused_at IS NULL AND s.next_at <= holdfast.now()), 0),
       pg_catalog.pg_notification_queue_usage(),
       coalesce((SELECT date_part('epoch', max(h.until) - holdfast.now()) FROM holdfast.history h WHERE h.parent = 'archive'), 0),
       coalesce((SELECT date_part('epoch', holdfast.now() - p.until) FROM holdfast.figure_place p), 0),
       count(*) FILTER (WHERE w.live AND w.stopping_at IS NULL), count(*) FILTER (WHERE w.live AND w.stopping_at IS NOT NULL),
       count(*) FILTER (WHERE NOT w.live), count(*) FILTER (WHERE w.live AND w.late <> '{}'),
       coalesce(sum(w.slots) FILTER (WHERE w.live AND w.stopping_at IS NULL), 0)::bigint
FROM (SELECT o.stopping_at, o.late, o.slots, holdfast.is_live(o) AS live FROM holdfast.worker o WHERE o.stopped_at IS NULL) AS w

-- explain --
-- Why a task is not running, or how it stands, in one sentence.
SELECT holdfast.explain(:id::uuid)

-- queues --
-- All queues that have settings, kinds, live workers or unfinished tasks, with bounded counts. The names of tasks' queues
-- are found by jumping from one to the next in each partial index, and each count walks a part of one. Whether workers know
-- their steps is looked at for those of each priority that are due first.
WITH RECURSIVE ready(name) AS (
    (SELECT t.queue::text FROM holdfast.task t WHERE t.state = 'ready' ORDER BY t.queue LIMIT 1)
    UNION ALL
    SELECT (SELECT t.queue::text FROM holdfast.task t WHERE t.state = 'ready' AND t.queue > r.name ORDER BY t.queue LIMIT 1)
    FROM ready r WHERE r.name IS NOT NULL
), running(name) AS (
    (SELECT t.queue::text FROM holdfast.task t WHERE t.state = 'running' ORDER BY t.queue LIMIT 1)
    UNION ALL
    SELECT (SELECT t.queue::text FROM holdfast.task t WHERE t.state = 'running' AND t.queue > r.name ORDER BY t.queue LIMIT 1)
    FROM running r WHERE r.name IS NOT NULL
), parked(name) AS (
    (SELECT t.queue::text FROM holdfast.task t WHERE t.state = 'parked' ORDER BY t.queue LIMIT 1)
    UNION ALL
    SELECT (SELECT t.queue::text FROM holdfast.task t WHERE t.state = 'parked' AND t.queue > r.name ORDER BY t.queue LIMIT 1)
    FROM parked r WHERE r.name IS NOT NULL
), names AS (
    SELECT name::text FROM holdfast.queue UNION SELECT queue::text FROM holdfast.kind
    UNION SELECT unnest(w.queues) FROM holdfast.worker w WHERE holdfast.is_live(w)
    UNION SELECT name FROM ready UNION SELECT name FROM running UNION SELECT name FROM parked
)
SELECT n.name, q.paused_at, q.paused_by, due.count, scheduled.count, running.count, parked.count, oldest.run_at,
       (SELECT count(*) FROM holdfast.worker w WHERE holdfast.is_live(w) AND n.name = ANY (w.queues)), q.retention, unroutable.count,
       unroutable.is_cut
FROM names n
LEFT JOIN holdfast.queue q ON q.name = n.name
CROSS JOIN LATERAL (
    SELECT count(*) FROM (
        SELECT FROM generate_series(0, 9) AS p(priority) CROSS JOIN LATERAL (
            SELECT FROM holdfast.task t
            WHERE t.queue = n.name AND t.state = 'ready' AND t.priority = p.priority AND t.run_at <= holdfast.now()
            ORDER BY t.run_at LIMIT :counted::integer) AS each
        LIMIT :counted::integer) AS counted) AS due
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(DISTINCT s.step), '{}')
    FROM (SELECT DISTINCT w.steps FROM holdfast.worker w WHERE holdfast.is_live(w) AND n.name = ANY (w.queues)) AS alike,
         unnest(alike.steps) AS s(step)
) AS known(steps)
CROSS JOIN LATERAL (
    SELECT coalesce(sum(standing.count) FILTER (WHERE standing.kind || '.' || standing.step <> ALL (known.steps)), 0)::bigint AS count,
           coalesce(bool_or(standing.is_cut), false) AS is_cut
    FROM (SELECT looked.kind, looked.step, count(*), bool_or(looked.place = :looked::integer) AS is_cut
          FROM generate_series(0, 9) AS p(priority) CROSS JOIN LATERAL (
              SELECT t.kind, t.step, row_number() OVER (ORDER BY t.run_at) AS place FROM holdfast.task t
              WHERE t.queue = n.name AND t.state = 'ready' AND t.priority = p.priority AND t.run_at <= holdfast.now()
              ORDER BY t.run_at LIMIT :looked::integer) AS looked
          GROUP BY looked.kind, looked.step) AS standing) AS unroutable
CROSS JOIN LATERAL (
    SELECT count(*) FROM (
        SELECT FROM generate_series(0, 9) AS p(priority) CROSS JOIN LATERAL (
            SELECT FROM holdfast.task t
            WHERE t.queue = n.name AND t.state = 'ready' AND t.priority = p.priority AND t.run_at > holdfast.now()
            ORDER BY t.run_at LIMIT :counted::integer) AS each
        LIMIT :counted::integer) AS counted) AS scheduled
CROSS JOIN LATERAL (
    SELECT count(*) FROM (
        SELECT FROM holdfast.task t WHERE t.queue = n.name AND t.state = 'running'
        ORDER BY t.worker_id LIMIT :counted::integer) AS counted) AS running
CROSS JOIN LATERAL (
    SELECT count(*) FROM (
        SELECT FROM holdfast.task t WHERE t.queue = n.name AND t.state = 'parked'
        ORDER BY t.kind, t.step LIMIT :counted::integer) AS counted) AS parked
CROSS JOIN LATERAL (
    SELECT min(first.run_at) AS run_at FROM generate_series(0, 9) AS p(priority) CROSS JOIN LATERAL (
        SELECT t.run_at FROM holdfast.task t
        WHERE t.queue = n.name AND t.state = 'ready' AND t.priority = p.priority AND t.run_at <= holdfast.now()
        ORDER BY t.run_at LIMIT 1) AS first) AS oldest
WHERE n.name IS NOT NULL
ORDER BY n.name COLLATE "C"

-- kinds --
-- What workers declared, how many live ones know any of a kind's steps, and which of them declare it alike. Of a fleet of alike
-- workers one is looked at.
WITH alike AS MATERIALIZED (
    SELECT w.steps, w.kinds, count(*) AS workers, array_agg(w.name ORDER BY w.name) AS names
    FROM holdfast.worker w WHERE holdfast.is_live(w) GROUP BY w.steps, w.kinds
), knowing AS MATERIALIZED (
    SELECT known.kind, sum(known.workers)::bigint AS workers
    FROM (SELECT DISTINCT a.steps, a.kinds, split_part(s.step, '.', 1) AS kind, a.workers FROM alike a, unnest(a.steps) AS s(step)) AS known
    GROUP BY known.kind
)
SELECT k.name, k.queue, k.priority, k.paused_at, k.paused_by, k.graph, coalesce(n.workers, 0), k.seen_at, k.about,
       (SELECT jsonb_object_agg(d.fingerprint, d.workers)
        FROM (SELECT a.kinds ->> k.name AS fingerprint, jsonb_agg(name ORDER BY name) AS workers
              FROM alike a, unnest(a.names) AS each(name) WHERE a.kinds ? k.name GROUP BY 1) AS d), k.first
FROM holdfast.kind k LEFT JOIN knowing n ON n.kind = k.name
ORDER BY k.name

-- known_steps --
-- The steps of a kind that were declared, or that a live worker knows, by its name or an old one.
SELECT holdfast.known_steps(:kind::text)

-- standing_now --
-- Where ready, running and parked tasks stand. Ready ones are found by jumping from priority to priority of each queue: some of each
-- that are due first, and some that come next; parked ones by jumping from step to step. The last columns say whether
-- there may be more of these, and whether anything was left out.
WITH RECURSIVE ready(queue, priority) AS (
    (SELECT t.queue::text, t.priority FROM holdfast.task t WHERE t.state = 'ready' ORDER BY t.queue, t.priority LIMIT 1)
    UNION ALL
    SELECT n.queue, n.priority FROM ready r CROSS JOIN LATERAL (
        SELECT t.queue::text, t.priority FROM holdfast.task t
        WHERE t.state = 'ready' AND (t.queue, t.priority) > (r.queue, r.priority)
        ORDER BY t.queue, t.priority LIMIT 1) AS n
), seen AS MATERIALIZED (
    SELECT e.kind, e.step, e.state, e.place = r.share AS is_last
    FROM (SELECT queue, priority, greatest(20, :looked::integer / (2 * count(*) OVER ())) AS share FROM (SELECT * FROM ready LIMIT 1000) AS l) AS r
    CROSS JOIN LATERAL (
        (SELECT t.kind, t.step, 'ready' AS state, row_number() OVER (ORDER BY t.run_at) AS place FROM holdfast.task t
         WHERE t.queue = r.queue AND t.state = 'ready' AND t.priority = r.priority AND t.run_at <= holdfast.now()
         ORDER BY t.run_at LIMIT r.share)
        UNION ALL
        (SELECT t.kind, t.step, 'scheduled', row_number() OVER (ORDER BY t.run_at) FROM holdfast.task t
         WHERE t.queue = r.queue AND t.state = 'ready' AND t.priority = r.priority AND t.run_at > holdfast.now()
         ORDER BY t.run_at LIMIT r.share)) AS e
    UNION ALL
    SELECT p.kind, p.step, 'parked', e.place = p.share
    FROM (SELECT queue, kind, step, greatest(20, least(:counted::integer, :parked::integer / count(*) OVER ())) AS share
          FROM (SELECT * FROM holdfast.parked_steps WHERE :kind::text IS NULL OR kind = :kind::text LIMIT 1000) AS l) AS p
    CROSS JOIN LATERAL (
        SELECT row_number() OVER () AS place FROM holdfast.task t
        WHERE t.state = 'parked' AND t.queue = p.queue AND t.kind = p.kind AND t.step = p.step LIMIT p.share) AS e
    UNION ALL
    SELECT e.kind, e.step, 'running', e.place = :counted::integer
    FROM (SELECT t.kind, t.step, row_number() OVER () AS place FROM holdfast.task t WHERE t.state = 'running' LIMIT :counted::integer) AS e
)
-- Of parked ones each step is looked at by itself, of others all together.
SELECT s.kind, s.step, s.state, count(s.kind), coalesce(CASE s.state WHEN 'parked' THEN bool_or(s.is_last) ELSE s.state = ANY (m.cut) END, false),
       m.cut <> '{}'
FROM (SELECT coalesce(array_agg(DISTINCT state) FILTER (WHERE is_last), '{}') AS cut FROM seen) AS m
LEFT JOIN seen s ON :kind::text IS NULL OR s.kind = :kind::text
GROUP BY s.kind, s.step, s.state, m.cut ORDER BY s.kind, s.step, s.state

-- unfinished --
-- Unfinished tasks in the order of their ids, page by page: those above the given one.
SELECT t.id, t.queue, t.kind, t.step, t.args, t.state FROM holdfast.task t
WHERE t.id > coalesce(:above::uuid, '00000000-0000-0000-0000-000000000000')
ORDER BY t.id LIMIT :limit::integer
