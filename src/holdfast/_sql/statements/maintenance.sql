-- What maintenance does: history comes and goes by the day.

-- ensure_today --
-- The partitions of this day, if nobody has made them: for a write on a caller's connection.
SELECT holdfast.ensure_partition((holdfast.now() AT TIME ZONE 'UTC')::date)
WHERE to_regclass(format('%I.%I', :'schema', to_char(holdfast.now() AT TIME ZONE 'UTC', '"archive_p"YYYYMMDD'))) IS NULL

-- stored_retention --
-- What somebody has said about how long history is kept; null if nobody has. Whoever asks may go on to say it.
SELECT (SELECT s.retention FROM holdfast.setting s)
FROM pg_advisory_xact_lock(hashtextextended(:'schema' || ' history', 0))

-- unmark_partitions --
-- Those that are no longer old enough to be dropped, because the retention was made longer, stay.
DELETE FROM holdfast.partition p
USING holdfast.history h
WHERE h.name = p.name AND p.dropping_at IS NOT NULL AND NOT h.detaching AND h.drop_after > holdfast.now()

-- mark_partitions --
-- Those that are old enough are to be dropped: a mark tells them from what people have detached to keep it.
INSERT INTO holdfast.partition AS p (name, dropping_at)
SELECT h.name, holdfast.now() FROM holdfast.history h WHERE h.drop_after <= holdfast.now()
ON CONFLICT (name) DO UPDATE SET dropping_at = excluded.dropping_at WHERE p.dropping_at IS NULL

-- to_drop --
-- What is to be detached, or is only half detached, and what is to be dropped; the oldest first, what was begun before all.
SELECT t.name, t.parent, t.day, t.attached, t.detaching, t.bytes
FROM (
    SELECT h.name, h.parent, h.day, true AS attached, h.detaching, h.bytes FROM holdfast.history h
    WHERE h.drop_after <= holdfast.now() OR h.detaching
    UNION ALL
    SELECT p.name, split_part(p.name, '_p', 1), to_date(right(p.name, 8), 'YYYYMMDD'), false, false, pg_catalog.pg_total_relation_size(c.oid)
    FROM holdfast.partition p
    JOIN pg_catalog.pg_class c ON c.relname = p.name
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = :'schema'
    WHERE p.dropping_at IS NOT NULL AND NOT c.relispartition
) AS t
ORDER BY t.detaching DESC, t.attached, t.day, t.name COLLATE "C" LIMIT :limit::integer

-- owns_history --
-- Whether this role may detach and drop partitions: only the owner of a table may.
SELECT pg_catalog.pg_has_role(c.relowner, 'USAGE') FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = :'schema' AND c.relname = 'archive'

-- drop_oldest_partition --
-- Drops one day of one table, if there is one to be dropped, for those who do not own it.
SELECT day, bytes FROM holdfast.drop_oldest_partition()

-- detach_partition --
-- Takes a day off without stopping anybody. Must not be in a transaction.
ALTER TABLE holdfast.{{parent}} DETACH PARTITION holdfast.{{partition}} CONCURRENTLY

-- finalize_partition --
-- Goes on with a detachment that was interrupted.
ALTER TABLE holdfast.{{parent}} DETACH PARTITION holdfast.{{partition}} FINALIZE

-- lock_partitions --
-- Nobody makes or attaches partitions until this transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended(:'schema' || ' partitions', 0))

-- droppable --
-- The size of a table that is marked and detached; nothing if it is not.
SELECT pg_catalog.pg_total_relation_size(c.oid)
FROM holdfast.partition p
JOIN pg_catalog.pg_class c ON c.relname = p.name
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = :'schema'
WHERE p.name = :name::text AND p.dropping_at IS NOT NULL AND NOT c.relispartition

-- drop_partition --
-- Drops a day that is detached.
DROP TABLE holdfast.{{partition}}

-- forget_partitions --
-- Partitions that are no longer there need no mark.
DELETE FROM holdfast.partition p
WHERE to_regclass(format('%I.%I', :'schema', p.name)) IS NULL

-- may_sweep --
-- One sweeps at a time, and nobody changes the settings meanwhile.
SELECT pg_try_advisory_xact_lock(hashtextextended(:'schema' || ' history', 0))

-- to_sweep --
-- The oldest partition with rows of queues whose retention has ended before that of others: its parent and its day, where
-- to go on in it, how many blocks it has, up to which retention rows are deleted, which queues have a retention of their own,
-- which of them are meant, and whether all others are.
SELECT h.name, h.parent, (h.until AT TIME ZONE 'UTC' - interval '1 day') AT TIME ZONE 'UTC', h.until,
       CASE WHEN p.sweeping = due.span THEN p.block ELSE 0 END,
       pg_catalog.pg_relation_size(format('%I.%I', :'schema', h.name)::regclass) / current_setting('block_size')::bigint, due.span,
       ARRAY(SELECT q.name::text FROM holdfast.queue q WHERE q.retention IS NOT NULL),
       ARRAY(SELECT q.name::text FROM holdfast.queue q WHERE q.retention <= due.span),
       holdfast.retention() <= due.span
FROM holdfast.history h
LEFT JOIN holdfast.partition p ON p.name = h.name
CROSS JOIN LATERAL (
    SELECT max(each.span) FROM (SELECT q.retention FROM holdfast.queue q UNION ALL SELECT holdfast.retention()) AS each(span)
    WHERE each.span < holdfast.longest_retention() AND h.until AT TIME ZONE 'UTC' + each.span <= holdfast.now() AT TIME ZONE 'UTC'
) AS due(span)
WHERE NOT h.detaching AND h.drop_after > holdfast.now() AND (p.swept IS NULL OR p.swept < due.span) AND due.span IS NOT NULL
ORDER BY h.until, h.name LIMIT 1

-- sweep --
-- Deletes what queues no longer keep from some blocks of a day. No index is needed, and none is paid for. By the parent:
-- a worker that does not own the tables has rights on that only.
WITH gone AS (
    DELETE FROM holdfast.{{parent}} r
    WHERE r.finished_at >= :since::timestamptz AND r.finished_at < :until::timestamptz
      AND r.ctid >= :first::text::tid AND r.ctid < :below::text::tid
      AND CASE WHEN r.queue = ANY (:named::text[]) THEN r.queue = ANY (:expired::text[]) ELSE :others::boolean END
    RETURNING 1
)
SELECT count(*) FROM gone

-- note_sweep --
-- How far it came; at the end of the partition, up to which retention it is swept.
INSERT INTO holdfast.partition (name, sweeping, block) VALUES (:name::text, :span::interval, :block::bigint)
ON CONFLICT (name) DO UPDATE SET sweeping = excluded.sweeping, block = excluded.block,
    swept = CASE WHEN :ended::boolean THEN excluded.sweeping ELSE holdfast.partition.swept END

-- forget_workers --
-- Workers that stopped longer ago than anything is kept.
DELETE FROM holdfast.worker w
WHERE w.id = ANY (ARRAY(
    SELECT o.id FROM holdfast.worker o WHERE o.stopped_at < holdfast.now() - holdfast.longest_retention()
    ORDER BY o.id LIMIT :limit::integer FOR UPDATE SKIP LOCKED))
RETURNING w.id

-- forget_changes --
-- What people did is kept for 30 days at least, and for as long as the task it was done to is unfinished.
DELETE FROM holdfast.change c
WHERE c.id = ANY (ARRAY(
    SELECT o.id FROM holdfast.change o
    WHERE o.at < holdfast.now() - greatest(holdfast.longest_retention(), interval '30 days')
      AND NOT EXISTS (SELECT FROM holdfast.task t WHERE t.id = o.task_id)
    ORDER BY o.at LIMIT :limit::integer FOR UPDATE SKIP LOCKED))
RETURNING c.id

-- retention --
-- How long history is kept.
SELECT holdfast.retention(:queue::text)

-- set_queue --
-- Changes settings of a queue.
SELECT holdfast.set_queue(:name::text, :options::jsonb)

-- set_default --
-- Changes what holds for all queues that say nothing else.
SELECT holdfast.set_default(:options::jsonb)
