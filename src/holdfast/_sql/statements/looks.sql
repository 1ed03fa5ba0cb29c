-- Looks at tasks by any filter, each bounded by how many tasks it looks at, so that its time does not grow with their number. Where
-- the bound is met, the answer says so.

-- look --
-- Tasks that a filter lets through, among the newest so many below an id, newest first. The last one that was looked at comes
-- too, if there may be others behind it: its id is in the last column.
SELECT v.id, v.queue, v.kind, v.step, v.state, v.phase, v.priority, v.run_at, v.moves, v.attempt, v.errors, v.crashes,
       v.worker_id, v.claimed_at, v.lease_expires_at, v.args, v.error, v.key, v.headers, v.created_at, v.finished_at,
       v.result, v.deadline,
       CASE WHEN f.place = :most::integer THEN f.id END
FROM (SELECT l.id, l.place, ({{filter}}) IS TRUE AS fits
      FROM (SELECT *, row_number() OVER (ORDER BY id DESC) AS place FROM holdfast.tasks
            WHERE {{filter_tables}} AND id < coalesce(:below::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
            ORDER BY id DESC LIMIT :most::integer) AS l
      WHERE ({{filter}}) OR l.place = :most::integer
      ORDER BY l.id DESC LIMIT :limit::integer) AS f
LEFT JOIN LATERAL (SELECT * FROM holdfast.tasks t WHERE t.id = f.id LIMIT 1) AS v ON f.fits
ORDER BY f.id DESC

-- look_count --
-- How many tasks a filter lets through among the newest so many, and whether there may be others behind them.
SELECT count(*) FILTER (WHERE f.fits), coalesce(bool_or(f.place = :most::integer), false)
FROM (SELECT l.place, ({{filter}}) IS TRUE AS fits
      FROM (SELECT *, row_number() OVER (ORDER BY id DESC) AS place FROM holdfast.tasks
            WHERE {{filter_tables}} ORDER BY id DESC LIMIT :most::integer) AS l
      WHERE ({{filter}}) OR l.place = :most::integer LIMIT :limit::integer) AS f

-- look_at_few --
-- As `look`, for running and parked tasks, which may be older than all others. Of running ones there are no more than workers
-- have slots. Of parked ones the newest at each step are found, the same number at each: below the first step where these were
-- not all, nothing is told yet.
WITH found AS MATERIALIZED (
    SELECT e.id, e.place = c.share AS is_last
    FROM (SELECT queue, kind, step, greatest(:limit::integer, least(:most::integer, :spread::integer / count(*) OVER ())) AS share
          FROM (SELECT * FROM holdfast.parked_steps WHERE {{filter_steps}} AND 'parked' = ANY (:states::text[]) LIMIT 1000) AS p) AS c
    CROSS JOIN LATERAL (
        SELECT t.id, row_number() OVER (ORDER BY t.id DESC) AS place FROM holdfast.task t
        WHERE t.state = 'parked' AND t.queue = c.queue AND t.kind = c.kind AND t.step = c.step
          AND t.id < coalesce(:below::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        ORDER BY t.id DESC LIMIT c.share) AS e
    UNION ALL
    SELECT r.id, false
    FROM (SELECT t.id FROM holdfast.task t WHERE t.state = 'running' AND 'running' = ANY (:states::text[]) OFFSET 0) AS r
    WHERE r.id < coalesce(:below::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
), seen AS MATERIALIZED (
    SELECT f.id, f.is_last OR row_number() OVER (ORDER BY f.id DESC) = :most::integer AS is_last
    FROM found f ORDER BY f.id DESC LIMIT :most::integer
), looked(until) AS MATERIALIZED (
    SELECT (SELECT s.id FROM seen s WHERE s.is_last ORDER BY s.id DESC LIMIT 1)
)
SELECT v.id, v.queue, v.kind, v.step, v.state, v.phase, v.priority, v.run_at, v.moves, v.attempt, v.errors, v.crashes,
       v.worker_id, v.claimed_at, v.lease_expires_at, v.args, v.error, v.key, v.headers, v.created_at, v.finished_at,
       v.result, v.deadline,
       looked.until
FROM looked LEFT JOIN LATERAL (
    SELECT t.* FROM (SELECT s.id FROM seen s WHERE looked.until IS NULL OR s.id >= looked.until ORDER BY s.id DESC) AS s
    CROSS JOIN LATERAL (
        SELECT * FROM (SELECT * FROM holdfast.tasks WHERE id = s.id AND state IN ('running', 'parked') LIMIT 1) AS each
        WHERE {{filter}}) AS t
    LIMIT :limit::integer) AS v ON true
ORDER BY v.id DESC

-- count_few --
-- As `look_count`, for running and parked tasks; at least so many at each step are looked at. If the filter is plain, nothing of it
-- has to be looked up.
SELECT count(*) FILTER (WHERE f.fits), coalesce(bool_or(f.is_last), false)
FROM (SELECT :is_plain::boolean OR v.id IS NOT NULL AS fits, s.is_last OR s.place = :most::integer AS is_last
      FROM (SELECT u.id, u.is_last, row_number() OVER () AS place FROM (
            SELECT e.id, e.place = c.share AS is_last
            FROM (SELECT queue, kind, step, greatest(:least::integer, :most::integer / count(*) OVER ()) AS share
                  FROM (SELECT * FROM holdfast.parked_steps WHERE {{filter_steps}} AND 'parked' = ANY (:states::text[]) LIMIT 1000) AS p) AS c
            CROSS JOIN LATERAL (
                SELECT t.id, row_number() OVER (ORDER BY t.id DESC) AS place FROM holdfast.task t
                WHERE t.state = 'parked' AND t.queue = c.queue AND t.kind = c.kind AND t.step = c.step
                ORDER BY t.id DESC LIMIT c.share) AS e
            UNION ALL
            SELECT e.id, e.place = :most::integer
            FROM (SELECT t.id, row_number() OVER () AS place FROM holdfast.task t
                  WHERE t.state = 'running' AND 'running' = ANY (:states::text[]) AND {{filter_steps}} LIMIT :most::integer) AS e) AS u
            LIMIT :most::integer) AS s
      LEFT JOIN LATERAL (
          SELECT id FROM (SELECT * FROM holdfast.tasks WHERE id = s.id AND state IN ('running', 'parked') LIMIT 1) AS each
          WHERE {{filter}}) AS v ON NOT :is_plain::boolean) AS f

-- parked_groups --
-- Parked tasks that a filter lets through, grouped by where and how they stopped, the largest group first. The newest at each step
-- are looked at, the same number at each; the last column says whether these were all of the step.
WITH seen AS MATERIALIZED (
    SELECT c.kind, c.step, l.number = c.share AS is_last, l.id, l.error_type, l.place, l.at, l.fits
    FROM (SELECT queue, kind, step, greatest(10, :most::integer / count(*) OVER ()) AS share
          FROM (SELECT * FROM holdfast.parked_steps WHERE {{filter_steps}} LIMIT 1000) AS p) AS c
    CROSS JOIN LATERAL (
        SELECT e.id, e.number, nullif(e.error ->> 'type', '') AS error_type, nullif(e.error ->> 'place', '') AS place,
               coalesce(e.claimed_at, e.created_at) AS at, ({{filter}}) IS TRUE AS fits
        FROM (SELECT *, row_number() OVER (ORDER BY t.id DESC) AS number FROM holdfast.tasks t
              WHERE t.state = 'parked' AND t.queue = c.queue AND t.kind = c.kind AND t.step = c.step
              ORDER BY t.id DESC LIMIT c.share) AS e) AS l
)
SELECT g.kind, g.step, g.error_type, (SELECT t.error ->> 'message' FROM holdfast.task t WHERE t.id = g.example),
       g.count, g.newest, g.oldest, g.example, g.place,
       NOT EXISTS (SELECT FROM seen s WHERE s.is_last AND s.kind = g.kind AND s.step = g.step)
FROM (SELECT s.kind, s.step, s.error_type, s.place, count(*), max(s.at) AS newest, min(s.at) AS oldest,
             (array_agg(s.id ORDER BY s.at DESC, s.id DESC))[1] AS example
      FROM seen s WHERE s.fits GROUP BY s.kind, s.step, s.error_type, s.place) AS g
ORDER BY g.count DESC, g.newest DESC LIMIT :limit::integer
