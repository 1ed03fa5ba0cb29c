-- What `plant.py` writes; $1 and $2 are the first and the last number, $3 is when the history begins, $4 how long it is and $5 how
-- many finished tasks there are. One queue has nine tenths of all tasks. Ids are made as Python makes them, in the order of time.

-- beginning --
-- When a span of history begins.
SELECT holdfast.now() - $1::interval

-- archived --
-- Finished tasks, spread over the span, in the order of time.
INSERT INTO holdfast.archive (id, queue, kind, step, args, state, priority, run_at, moves, attempt, errors, crashes,
    worker_id, claimed_at, outcome, key, created_at, finished_at, result)
SELECT v.id, t.queue, t.kind, t.step, jsonb_build_object('n', n.i, 'to', 'someone@example.org'),
    CASE WHEN n.i % 200 = 0 THEN 'cancelled' ELSE 'done' END, n.i % 3, d.due, n.i % 4, 2, 0, 0,
    md5('worker' || n.i % 200)::uuid, d.due + d.wait, CASE WHEN n.i % 200 = 0 THEN 'cancelled' ELSE 'done' END,
    CASE WHEN n.i % 20 = 0 THEN 'order-' || n.i END, d.due - interval '1 second', d.due + d.wait + d.run, to_jsonb(n.i)
FROM generate_series($1::bigint, $2::bigint) AS n(i)

CROSS JOIN LATERAL (SELECT CASE WHEN n.i % 10 < 9 THEN 'default' ELSE ('[0:4]={mail,video,reports,import,export}'::text[])[n.i / 10 % 5] END,
    CASE WHEN n.i % 100000 = 7 THEN 'rare' ELSE 'kind_' || n.i % 12 END,
    CASE WHEN n.i % 12 < 8 THEN 'main' ELSE ('[0:2]={Read,Work,Tell}'::text[])[n.i % 3] END) AS t(queue, kind, step)

CROSS JOIN LATERAL (SELECT $3::timestamptz + $4::interval * (n.i / $5::float8) + interval '1 minute' * sin(n.i::float8),
    interval '1 second' * exp(2 * sin(n.i * 7.1) - 4), interval '1 second' * exp(3 * sin(n.i * 3.7) - 2)) AS d(due, wait, run)

CROSS JOIN LATERAL (SELECT (lpad(to_hex((extract(epoch FROM d.due) * 1000)::bigint), 12, '0')
    || overlay(overlay(substr(md5('archived' || n.i), 1, 20) PLACING '7' FROM 1) PLACING '8' FROM 5))::uuid) AS v(id)
WHERE d.due + d.wait + d.run < holdfast.now()
ORDER BY d.due

-- logged --
-- For each finished task an attempt that was not its last one.
INSERT INTO holdfast.attempt (task_id, queue, kind, step, args, moves, attempt, worker_id, claimed_at, finished_at, outcome,
    error, parked, run_at)
SELECT v.id, t.queue, t.kind, t.step, jsonb_build_object('n', n.i), 0, 1, md5('worker' || n.i % 200)::uuid, d.due + d.wait,
    d.due + d.wait + d.run, o.outcome,
    CASE WHEN o.outcome IN ('retried', 'failed', 'lost') THEN jsonb_build_object('type', 'OSError', 'message', 'no answer') END,
    o.outcome = 'failed', d.due
FROM generate_series($1::bigint, $2::bigint) AS n(i)

CROSS JOIN LATERAL (SELECT CASE WHEN n.i % 10 < 9 THEN 'default' ELSE ('[0:4]={mail,video,reports,import,export}'::text[])[n.i / 10 % 5] END,
    CASE WHEN n.i % 100000 = 7 THEN 'rare' ELSE 'kind_' || n.i % 12 END,
    CASE WHEN n.i % 12 < 8 THEN 'main' ELSE ('[0:2]={Read,Work,Tell}'::text[])[n.i % 3] END) AS t(queue, kind, step)

CROSS JOIN LATERAL (SELECT ('[0:4]={retried,advanced,failed,snoozed,lost}'::text[])[CASE WHEN n.i % 10 = 0 THEN n.i / 10 % 5 ELSE 1 END]) AS o(outcome)
CROSS JOIN LATERAL (SELECT $3::timestamptz + $4::interval * (n.i / $5::float8) + interval '1 minute' * sin(n.i::float8),
    interval '1 second' * exp(2 * sin(n.i * 7.1) - 4), interval '1 second' * exp(3 * sin(n.i * 3.7) - 2)) AS d(due, wait, run)

CROSS JOIN LATERAL (SELECT (lpad(to_hex((extract(epoch FROM d.due) * 1000)::bigint), 12, '0')
    || overlay(overlay(substr(md5('archived' || n.i), 1, 20) PLACING '7' FROM 1) PLACING '8' FROM 5))::uuid) AS v(id)
WHERE d.due + d.wait + d.run < holdfast.now()
ORDER BY d.due

-- live --
-- Of a thousand unfinished tasks, made in the last two days, 440 are scheduled, 368 due, 50 wait for a retry, 2 are running, 140 are
-- parked: 100 of those at one step with one error, the others in many groups. Errors have tracebacks of some thousand characters.
INSERT INTO holdfast.task (id, queue, kind, step, args, state, priority, run_at, attempt, errors, worker_id, lease_expires_at,
    claimed_at, key, error, created_at)
SELECT (lpad(to_hex((extract(epoch FROM c.at) * 1000)::bigint), 12, '0')
        || overlay(overlay(substr(md5('live' || n.i), 1, 20) PLACING '7' FROM 1) PLACING '8' FROM 5))::uuid,
    t.queue, t.kind, t.step, jsonb_build_object('n', n.i, 'to', 'someone@example.org'), s.state, n.i % 3,
    holdfast.now() + interval '1 second' * CASE WHEN n.i % 100 < 49 THEN n.i / 10 ELSE -(n.i % 3000) END,
    CASE WHEN n.i % 100 < 44 OR n.i % 100 BETWEEN 49 AND 83 THEN 0 ELSE 1 END,
    CASE WHEN n.i % 100 < 44 OR n.i % 100 BETWEEN 49 AND 83 THEN 0 ELSE 1 END,
    CASE WHEN s.state = 'running' THEN md5('worker' || n.i / 500 % 200)::uuid END,
    CASE WHEN s.state = 'running' THEN holdfast.now() + interval '1 hour' END,
    CASE WHEN n.i % 100 >= 85 OR s.state = 'running' THEN c.at + interval '1 second' END,
    CASE WHEN n.i % 20 = 0 THEN 'order-live-' || n.i END,
    CASE WHEN s.state = 'parked' THEN
        jsonb_build_object('type', CASE WHEN n.i % 100 >= 90 THEN 'OSError' ELSE 'Error' || n.i / 100 % 40 END,
                           'message', 'no answer from host ' || n.i % 50, 'place', 'shop.kinds:42', 'traceback', trace.text)
         WHEN n.i % 100 BETWEEN 44 AND 48 THEN jsonb_build_object('type', 'KeyError', 'message', 'not yet') END, c.at
FROM (SELECT string_agg(format(E'  File "/srv/%s/%s.py", line %s, in %s\n', left(md5('a' || l), 8), md5('b' || l), l * 7, left(md5('c' || l), 12)), '')
      FROM generate_series(1, 40) AS l) AS trace(text), generate_series($1::bigint, $2::bigint) AS n(i)

CROSS JOIN LATERAL (SELECT CASE WHEN n.i % 500 = 84 THEN 'running' WHEN n.i % 100 > 85 THEN 'parked' ELSE 'ready' END) AS s(state)

CROSS JOIN LATERAL (SELECT CASE WHEN n.i % 100 >= 90 OR n.i / 100 % 10 < 9 THEN 'default' ELSE ('[0:4]={mail,video,reports,import,export}'::text[])[n.i / 1000 % 5] END,
    CASE WHEN n.i % 100000 = 7 THEN 'rare' WHEN n.i % 100 >= 90 THEN 'kind_0' ELSE 'kind_' || n.i / 100 % 12 END,
    CASE WHEN n.i / 100 % 12 < 8 OR n.i % 100 >= 90 THEN 'main' ELSE ('[0:2]={Read,Work,Tell}'::text[])[n.i / 1200 % 3] END) AS t(queue, kind, step)

CROSS JOIN LATERAL (SELECT holdfast.now() - interval '2 days' * (1 - n.i / $3::float8)) AS c(at)

-- kinds --
-- What workers have declared.
INSERT INTO holdfast.kind (name, queue, priority, first, graph, about)
SELECT k.name, 'default', 0, CASE WHEN k.i < 8 THEN 'main' ELSE 'Read' END,
    CASE WHEN k.i < 8 THEN '{"main": ["done"]}' ELSE '{"Read": ["Work"], "Work": ["Tell", "Work"], "Tell": ["done"]}' END::jsonb, '{}'
FROM (SELECT 'kind_' || i, i FROM generate_series(0, 11) AS i UNION ALL SELECT 'rare', 0) AS k(name, i)
ON CONFLICT (name) DO NOTHING

-- workers --
-- So many workers, all alive for an hour whatever happens; one queue has none, and one kind no worker that knows it.
INSERT INTO holdfast.worker (id, name, host, pid, version, queues, steps, kinds, slots, started_at, seen_at)
SELECT md5('worker' || i)::uuid, 'worker-' || i, 'host-' || i % 20, 1000 + i, '1.0', '{default,mail,video,reports,import}',
    ARRAY(SELECT 'kind_' || k || '.' || s FROM generate_series(0, 10) AS k, unnest('{main,Read,Work,Tell}'::text[]) AS s),
    (SELECT jsonb_object_agg('kind_' || k, 'same') FROM generate_series(0, 10) AS k), 10, holdfast.now() - interval '1 day',
    holdfast.now() + interval '1 hour'
FROM generate_series(0, $1::integer - 1) AS i ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at

-- schedules --
-- So many schedules, each with occurrences of two days by the hour, whose tasks have ended.
WITH made AS (
    INSERT INTO holdfast.schedule (name, definition, next_at, last_at)
    SELECT 'schedule-' || i, $2::jsonb, holdfast.now() + interval '1 hour', holdfast.now()
    FROM generate_series(0, $1::integer - 1) AS i ON CONFLICT (name) DO NOTHING RETURNING name
)
INSERT INTO holdfast.occurrence (schedule, scope, plan_time, due_at, task_id, queue)
SELECT m.name, '', p.at, p.at, a.id, a.queue
FROM made m CROSS JOIN generate_series(date_bin('1 hour', holdfast.now() - interval '2 days', 'epoch'), holdfast.now(), interval '1 hour') AS p(at)
CROSS JOIN (SELECT id, queue FROM holdfast.archive LIMIT 1) AS a

-- counted_since --
-- Figures are to be counted from the beginning of the span on.
UPDATE holdfast.figure_place SET settled = s.at, until = s.at, seen_at = holdfast.now() - interval '2 minutes'
FROM (SELECT date_bin('1 hour', holdfast.now() - $1::interval, 'epoch')) AS s(at)

-- partitions --
-- A partition for each day of the span.
SELECT holdfast.ensure_partition((holdfast.now() - n * interval '1 day')::date) FROM generate_series(-1, $1::integer + 2) AS n
