-- What `plant.py` writes; $1 and $2 are the first and the last number, $3 is the span of time and $4 how many there are in all.

-- archived --
-- Finished tasks, spread over the span, in the order of time.
INSERT INTO holdfast.archive (id, queue, kind, step, args, state, priority, run_at, moves, attempt, errors, crashes,
    worker_id, claimed_at, outcome, created_at, finished_at, result)
SELECT gen_random_uuid(), t.queue, t.kind, t.step, jsonb_build_object('n', n.i, 'to', 'someone@example.org'),
    CASE WHEN n.i % 200 = 0 THEN 'cancelled' ELSE 'done' END, n.i % 3, d.due, n.i % 4, 1 + n.i % 3, 0, 0,
    gen_random_uuid(), d.due + d.wait, CASE WHEN n.i % 200 = 0 THEN 'cancelled' ELSE 'done' END, d.due - interval '1 second',
    d.due + d.wait + d.run, to_jsonb(n.i)
FROM generate_series($1::bigint, $2::bigint) AS n(i)

CROSS JOIN LATERAL (SELECT ('[0:3]={mail,default,video,reports}'::text[])[n.i % 4], 'kind_' || n.i % 12,
    CASE WHEN n.i % 12 < 8 THEN 'main' ELSE ('[0:2]={Read,Work,Tell}'::text[])[n.i % 3] END) AS t(queue, kind, step)

CROSS JOIN LATERAL (SELECT holdfast.now() - $3::interval * (1 - n.i / $4::float8) + interval '1 minute' * sin(n.i::float8),
    interval '1 second' * exp(2 * sin(n.i * 7.1) - 4), interval '1 second' * exp(3 * sin(n.i * 3.7) - 2)) AS d(due, wait, run)
WHERE d.due + d.wait + d.run < holdfast.now()
ORDER BY d.due

-- logged --
-- Attempts that were not the last of their tasks: a tenth as many.
INSERT INTO holdfast.attempt (task_id, queue, kind, step, args, moves, attempt, worker_id, claimed_at, finished_at, outcome,
    error, parked, run_at)
SELECT gen_random_uuid(), t.queue, t.kind, t.step, jsonb_build_object('n', n.i), 0, 1, gen_random_uuid(), d.due + d.wait,
    d.due + d.wait + d.run, o.outcome,
    CASE WHEN o.outcome IN ('retried', 'failed', 'lost') THEN jsonb_build_object('type', 'OSError', 'message', 'no answer') END,
    o.outcome = 'failed', d.due
FROM generate_series($1::bigint, $2::bigint, 10) AS n(i)

CROSS JOIN LATERAL (SELECT ('[0:3]={mail,default,video,reports}'::text[])[n.i % 4], 'kind_' || n.i % 12,
    CASE WHEN n.i % 12 < 8 THEN 'main' ELSE ('[0:2]={Read,Work,Tell}'::text[])[n.i % 3] END) AS t(queue, kind, step)

CROSS JOIN LATERAL (SELECT ('[0:4]={retried,advanced,failed,snoozed,lost}'::text[])[n.i / 10 % 5]) AS o(outcome)
CROSS JOIN LATERAL (SELECT holdfast.now() - $3::interval * (1 - n.i / $4::float8) + interval '1 minute' * sin(n.i::float8),
    interval '1 second' * exp(2 * sin(n.i * 7.1) - 4), interval '1 second' * exp(3 * sin(n.i * 3.7) - 2)) AS d(due, wait, run)
WHERE d.due + d.wait + d.run < holdfast.now()
ORDER BY d.due

-- live --
-- Of a hundred unfinished tasks, 50 are scheduled, 40 due, 5 wait for a retry, 1 is running, 4 are parked.
INSERT INTO holdfast.task (id, queue, kind, step, args, state, priority, run_at, attempt, errors, worker_id, lease_expires_at,
    claimed_at, error)
SELECT gen_random_uuid(), t.queue, t.kind, t.step, jsonb_build_object('n', n.i, 'to', 'someone@example.org'),
    CASE WHEN n.i % 100 = 95 THEN 'running' WHEN n.i % 100 > 95 THEN 'parked' ELSE 'ready' END, n.i % 3,
    holdfast.now() + interval '1 second' * CASE WHEN n.i % 100 < 50 THEN n.i / 10 ELSE -(n.i % 3000) END,
    CASE WHEN n.i % 100 < 90 THEN 0 ELSE 1 END, CASE WHEN n.i % 100 < 90 THEN 0 ELSE 1 END,
    CASE WHEN n.i % 100 = 95 THEN gen_random_uuid() END, CASE WHEN n.i % 100 = 95 THEN holdfast.now() + interval '1 hour' END,
    CASE WHEN n.i % 100 >= 90 THEN holdfast.now() - interval '1 second' * (n.i % 3000) END,
    CASE WHEN n.i % 100 >= 90 AND n.i % 100 <> 95 THEN jsonb_build_object('type', ('[0:2]={OSError,KeyError,Fail}'::text[])[n.i % 3],
        'message', 'no answer from host ' || n.i % 50) END
FROM generate_series($1::bigint, $2::bigint) AS n(i)

CROSS JOIN LATERAL (SELECT ('[0:3]={mail,default,video,reports}'::text[])[n.i % 4], 'kind_' || n.i % 12,
    CASE WHEN n.i % 12 < 8 THEN 'main' ELSE ('[0:2]={Read,Work,Tell}'::text[])[n.i % 3] END) AS t(queue, kind, step)

-- counted_since --
-- Figures are to be counted from the beginning of the span on.
UPDATE holdfast.figure_place SET settled = s.at, until = s.at, seen_at = holdfast.now() - interval '2 minutes'
FROM (SELECT date_bin('1 hour', holdfast.now() - $1::interval, 'epoch')) AS s(at)

-- partitions --
-- A partition for each day of the span.
SELECT holdfast.ensure_partition((holdfast.now() - n * interval '1 day')::date) FROM generate_series(-1, $1::integer + 2) AS n
