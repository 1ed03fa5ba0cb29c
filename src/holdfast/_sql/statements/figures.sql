-- Figures: the log of attempts counted by the minute and the hour, by workers, and read by everybody. A minute is always
-- counted as a whole, from the log, in place of what was there: doing it twice changes nothing.

-- lock_figures --
-- How far figures have come; nothing if another worker is at it, or has looked within `rest`. Whether all transactions that were
-- open when it was last noted have ended: a prepared one, of which there should be none, has lost the id it was noted by. After a
-- day nobody is waited for.
UPDATE holdfast.figure_place p SET looked_at = holdfast.now()
WHERE p.one = (SELECT l.one FROM holdfast.figure_place l
               WHERE l.looked_at > holdfast.now() OR l.looked_at <= holdfast.now() - :rest::interval
               FOR UPDATE SKIP LOCKED)
RETURNING p.settled, p.until, p.seen_at, holdfast.now(),
          p.seen_at < holdfast.now() - interval '1 day'
          OR (NOT EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE l.locktype = 'virtualxid' AND l.virtualxid = ANY (p.seen_open))
              AND NOT EXISTS (SELECT FROM pg_catalog.pg_prepared_xacts x WHERE x.database = current_database()))

-- note_open --
-- Notes which transactions are open now in this database: an attempt that ended before is in the log once all of them have ended.
-- Those of nobody, who only cleans up, write nothing into the log. Not if another worker is at it: it notes them itself.
UPDATE holdfast.figure_place SET seen_at = holdfast.now(),
    seen_open = ARRAY(SELECT l.virtualxid FROM pg_catalog.pg_locks l
                      JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid AND a.datname = current_database() AND a.usesysid IS NOT NULL
                      WHERE l.locktype = 'virtualxid' AND l.granted AND l.pid <> pg_backend_pid() AND l.virtualtransaction = l.virtualxid)
WHERE one = (SELECT p.one FROM holdfast.figure_place p FOR UPDATE SKIP LOCKED)

-- day_with_attempts --
-- When the first day begins that ends after a time and has something in the log; nothing if none has.
SELECT min(h.until) - interval '1 day' FROM holdfast.history h
WHERE h.parent = 'attempt' AND h.until > :since::timestamptz
    AND pg_catalog.pg_relation_size(pg_catalog.format('holdfast.%I', h.name)::regclass) > 0

-- summarize_log --
-- Lets the indexes by time know what was written lately.
SELECT holdfast.summarize_log()

-- forget_minutes --
-- Makes room for minutes that are counted, perhaps once more.
DELETE FROM holdfast.figure WHERE minute >= :since::timestamptz AND minute < :until::timestamptz

-- count_minutes --
-- Counts minutes from the log; answers how many figures that makes.
WITH counted AS (
    INSERT INTO holdfast.figure SELECT * FROM holdfast.count_log(:since::timestamptz, :until::timestamptz) RETURNING 1
)
SELECT count(*) FROM counted

-- forget_hours --
-- Makes room for hours that are counted.
DELETE FROM holdfast.figure_hour WHERE hour >= :since::timestamptz AND hour < :until::timestamptz

-- count_hours --
-- Adds minutes up to hours.
INSERT INTO holdfast.figure_hour (hour, queue, kind, step, done, advanced, snoozed, retried, failed, lost, cancelled, released,
                                  wait, run, wait_seconds, run_seconds)
SELECT date_bin('1 hour', f.minute, 'epoch'), f.queue, f.kind, f.step, sum(f.done), sum(f.advanced), sum(f.snoozed), sum(f.retried), sum(f.failed), sum(f.lost), sum(f.cancelled), sum(f.released),
       ARRAY[sum(f.wait[1]), sum(f.wait[2]), sum(f.wait[3]), sum(f.wait[4]), sum(f.wait[5]), sum(f.wait[6]), sum(f.wait[7]),
              sum(f.wait[8]), sum(f.wait[9]), sum(f.wait[10]), sum(f.wait[11]), sum(f.wait[12]), sum(f.wait[13]), sum(f.wait[14]),
              sum(f.wait[15]), sum(f.wait[16]), sum(f.wait[17]), sum(f.wait[18]), sum(f.wait[19]), sum(f.wait[20]), sum(f.wait[21]),
              sum(f.wait[22]), sum(f.wait[23]), sum(f.wait[24]), sum(f.wait[25]), sum(f.wait[26])]::integer[],
       ARRAY[sum(f.run[1]), sum(f.run[2]), sum(f.run[3]), sum(f.run[4]), sum(f.run[5]), sum(f.run[6]), sum(f.run[7]),
              sum(f.run[8]), sum(f.run[9]), sum(f.run[10]), sum(f.run[11]), sum(f.run[12]), sum(f.run[13]), sum(f.run[14]),
              sum(f.run[15]), sum(f.run[16]), sum(f.run[17]), sum(f.run[18]), sum(f.run[19]), sum(f.run[20]), sum(f.run[21]),
              sum(f.run[22]), sum(f.run[23]), sum(f.run[24]), sum(f.run[25]), sum(f.run[26])]::integer[],
       sum(f.wait_seconds), sum(f.run_seconds)
FROM holdfast.figure f WHERE f.minute >= :since::timestamptz AND f.minute < :until::timestamptz
GROUP BY 1, 2, 3, 4

-- place_figures --
-- Figures have come so far.
UPDATE holdfast.figure_place SET settled = :settled::timestamptz, until = :until::timestamptz

-- figures_kept --
-- How long figures by the hour are kept.
SELECT coalesce((SELECT s.figures FROM holdfast.setting s), interval '30 days')

-- forget_figures --
-- Figures that are no longer kept: minutes for three days, hours for as long as somebody said. Answers how many rows went.
WITH old(kept) AS (
    SELECT coalesce((SELECT s.figures FROM holdfast.setting s), interval '30 days')
), minutes AS (
    DELETE FROM holdfast.figure f WHERE f.ctid = ANY (ARRAY(
        SELECT o.ctid FROM holdfast.figure o WHERE o.minute < holdfast.now() - (SELECT least(kept, interval '3 days') FROM old)
        ORDER BY o.minute LIMIT :limit::integer))
    RETURNING 1
), hours AS (
    DELETE FROM holdfast.figure_hour f WHERE f.ctid = ANY (ARRAY(
        SELECT o.ctid FROM holdfast.figure_hour o WHERE o.hour < holdfast.now() - (SELECT kept FROM old)
        ORDER BY o.hour LIMIT :limit::integer))
    RETURNING 1
)
SELECT (SELECT count(*) FROM minutes) + (SELECT count(*) FROM hours)

-- figures --
-- Figures of a time span in steps of it, of all tasks or some, and perhaps apart by kind, queue or step. With `hourly`, hours are
-- taken where there are any. What is not counted yet is counted now; if counting is far behind, only of the last `live`. Each row
-- has the beginning of the span, the time now, and from when on nothing was counted although it should have been.
WITH place AS MATERIALIZED (
    SELECT made.start, greatest(made.start, p.until) AS until, greatest(made.start, date_bin('1 hour', p.settled, 'epoch')) AS hours
    FROM (SELECT date_bin(:span::interval, holdfast.now() - :since::interval, 'epoch')) AS made(start)
    LEFT JOIN holdfast.figure_place p ON true
), parts AS (
    SELECT f.hour AS at, f.queue, f.kind, f.step, f.done, f.advanced, f.snoozed, f.retried, f.failed, f.lost, f.cancelled, f.released,
           f.wait, f.run, f.wait_seconds, f.run_seconds
    FROM holdfast.figure_hour f
    WHERE :hourly::boolean AND f.hour >= (SELECT start FROM place) AND f.hour < (SELECT hours FROM place)
    UNION ALL
    SELECT f.* FROM holdfast.figure f
    WHERE f.minute >= (SELECT CASE WHEN :hourly::boolean THEN hours ELSE start END FROM place) AND f.minute < (SELECT until FROM place)
    UNION ALL
    SELECT l.* FROM holdfast.count_log((SELECT greatest(until, holdfast.now() - :live::interval) FROM place),
                                       holdfast.now() + interval '1 minute') AS l
), added AS (
    SELECT CASE :by::text WHEN 'kind' THEN p.kind WHEN 'queue' THEN p.queue WHEN 'step' THEN p.kind || '.' || p.step ELSE '' END AS name,
           date_bin(:span::interval, p.at, 'epoch') AS at,
           ARRAY[sum(p.done), sum(p.advanced), sum(p.snoozed), sum(p.retried), sum(p.failed), sum(p.lost), sum(p.cancelled), sum(p.released)]::bigint[] AS outcomes,
           ARRAY[sum(p.wait[1]), sum(p.wait[2]), sum(p.wait[3]), sum(p.wait[4]), sum(p.wait[5]), sum(p.wait[6]), sum(p.wait[7]),
              sum(p.wait[8]), sum(p.wait[9]), sum(p.wait[10]), sum(p.wait[11]), sum(p.wait[12]), sum(p.wait[13]), sum(p.wait[14]),
              sum(p.wait[15]), sum(p.wait[16]), sum(p.wait[17]), sum(p.wait[18]), sum(p.wait[19]), sum(p.wait[20]), sum(p.wait[21]),
              sum(p.wait[22]), sum(p.wait[23]), sum(p.wait[24]), sum(p.wait[25]), sum(p.wait[26])]::bigint[] AS wait,
           ARRAY[sum(p.run[1]), sum(p.run[2]), sum(p.run[3]), sum(p.run[4]), sum(p.run[5]), sum(p.run[6]), sum(p.run[7]),
              sum(p.run[8]), sum(p.run[9]), sum(p.run[10]), sum(p.run[11]), sum(p.run[12]), sum(p.run[13]), sum(p.run[14]),
              sum(p.run[15]), sum(p.run[16]), sum(p.run[17]), sum(p.run[18]), sum(p.run[19]), sum(p.run[20]), sum(p.run[21]),
              sum(p.run[22]), sum(p.run[23]), sum(p.run[24]), sum(p.run[25]), sum(p.run[26])]::bigint[] AS run,
           sum(p.wait_seconds) AS wait_seconds, sum(p.run_seconds) AS run_seconds
    FROM parts p
    WHERE (:queue::text IS NULL OR p.queue = :queue::text) AND (:kind::text IS NULL OR p.kind = :kind::text)
      AND (:step::text IS NULL OR p.step = :step::text)
    GROUP BY 1, 2
)
SELECT place.start, holdfast.now(), CASE WHEN place.until < holdfast.now() - :live::interval THEN place.until END,
       a.name, a.at, a.outcomes, a.wait, a.run, a.wait_seconds, a.run_seconds
FROM place LEFT JOIN added a ON true ORDER BY a.name, a.at
