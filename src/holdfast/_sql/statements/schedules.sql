-- Schedules: what workers do to plan them, and what people ask about them. Written as in lifecycle.sql.

-- declare_schedule --
-- What the code declares. Where a person has changed something, that stays; declared anew as before, nothing changes.
INSERT INTO holdfast.schedule AS s (name, definition, declared, declared_version)
VALUES (:name::text, :definition::jsonb, :definition::jsonb, :version::integer)
ON CONFLICT (name) DO UPDATE SET
    declared = excluded.declared, declared_version = excluded.declared_version,
    (definition, version, watermark, next_at, error, failures) = (
        SELECT m.merged,
               CASE WHEN m.merged = s.definition THEN s.version ELSE s.version + 1 END,
               CASE WHEN m.merged = s.definition THEN s.watermark ELSE holdfast.now() END,
               CASE WHEN m.merged = s.definition THEN s.next_at ELSE holdfast.now() END,
               CASE WHEN m.merged = s.definition THEN s.error END,
               CASE WHEN m.merged = s.definition THEN s.failures ELSE 0 END
        FROM (SELECT jsonb_object_agg(f.name, CASE WHEN s.definition -> f.name IS DISTINCT FROM s.declared -> f.name
                                                   THEN s.definition -> f.name ELSE f.value END) AS merged
              FROM jsonb_each(excluded.declared) AS f(name, value)) AS m)
WHERE s.declared IS DISTINCT FROM excluded.declared AND excluded.declared_version >= s.declared_version

-- schedules_due --
-- Schedules to be planned now, those longest due first: the ones made by people, and those this worker's code declares.
-- Those that somebody is just changing are passed over, or they would stand in the way of others.
SELECT name, version, definition::text FROM holdfast.schedule
WHERE paused_at IS NULL AND next_at <= holdfast.now() AND (declared IS NULL OR name = ANY (:declared::text[]))
ORDER BY next_at LIMIT :limit::integer
FOR NO KEY UPDATE SKIP LOCKED

-- next_schedule --
-- Seconds until the next schedule is to be planned.
SELECT extract(epoch FROM min(next_at) - holdfast.now())::float8 FROM holdfast.schedule
WHERE paused_at IS NULL AND next_at IS NOT NULL AND (declared IS NULL OR name = ANY (:declared::text[]))

-- lock_schedules --
-- Takes schedules that nobody else is just planning or changing. What follows is read by statements of its own:
-- whoever had the lock before has committed, and only they see that.
SELECT name, version FROM holdfast.schedule
WHERE name = ANY (:names::text[]) AND paused_at IS NULL AND next_at <= holdfast.now()
ORDER BY name FOR UPDATE SKIP LOCKED

-- schedule_watermarks --
-- How far locked schedules are, and what time it is.
SELECT name, watermark, planned_at, holdfast.now() FROM holdfast.schedule WHERE name = ANY (:names::text[])

-- scope_watermarks --
-- How far each scope is.
SELECT schedule, scope, watermark FROM holdfast.schedule_scope WHERE schedule = ANY (:names::text[])

-- unfinished_occurrences --
-- Scopes with an occurrence whose task is unfinished; a parked one waits for a person and holds nothing up.
SELECT DISTINCT o.schedule, o.scope FROM holdfast.occurrence o
WHERE o.schedule = ANY (:names::text[]) AND o.open
  AND EXISTS (SELECT FROM holdfast.task t WHERE t.id = o.task_id AND t.queue = o.queue AND t.state <> 'parked')

-- close_occurrences --
-- Occurrences whose task has left for the archive hold nothing up any more.
UPDATE holdfast.occurrence o SET open = false
WHERE o.schedule = ANY (:names::text[]) AND o.open
  AND NOT EXISTS (SELECT FROM holdfast.task t WHERE t.id = o.task_id AND t.queue = o.queue)

-- record_occurrences --
-- Each plan time once: the tasks of those that were new are the ones to be enqueued. By hand, one that was skipped counts
-- as new.
INSERT INTO holdfast.occurrence AS o (schedule, scope, plan_time, due_at, task_id, queue, skipped, open)
SELECT n.schedule, n.scope, n.plan_time, n.due_at, n.task_id, n.queue, n.skipped, n.open
FROM jsonb_to_recordset(:occurrences::jsonb) AS n(schedule text, scope text, plan_time timestamptz, due_at timestamptz,
                                                  task_id uuid, queue text, skipped text, open boolean)
ORDER BY n.schedule, n.scope, n.plan_time
ON CONFLICT (schedule, scope, plan_time) DO UPDATE
SET due_at = excluded.due_at, task_id = excluded.task_id, queue = excluded.queue, skipped = NULL, open = excluded.open
WHERE :by_hand::boolean AND o.skipped IS NOT NULL
RETURNING task_id

-- correct_occurrences --
-- A key was taken: the task of these occurrences is the one that holds it.
UPDATE holdfast.occurrence o SET task_id = n.task_id
FROM jsonb_to_recordset(:occurrences::jsonb) AS n(meant uuid, task_id uuid)
WHERE o.task_id = n.meant

-- advance_scopes --
-- How far the scopes of schedules are now; those that are gone are forgotten.
WITH gone AS (
    DELETE FROM holdfast.schedule_scope c
    WHERE c.schedule = ANY (:names::text[]) AND NOT EXISTS (
        SELECT FROM jsonb_to_recordset(:scopes::jsonb) AS n(schedule text, scope text, watermark timestamptz)
        WHERE n.schedule = c.schedule AND n.scope = c.scope)
)
INSERT INTO holdfast.schedule_scope AS c (schedule, scope, watermark)
SELECT n.schedule, n.scope, n.watermark
FROM jsonb_to_recordset(:scopes::jsonb) AS n(schedule text, scope text, watermark timestamptz)
ORDER BY n.schedule, n.scope
ON CONFLICT (schedule, scope) DO UPDATE SET watermark = excluded.watermark WHERE c.watermark < excluded.watermark

-- advance_schedules --
-- When to look next; a failure puts it off and is told.
UPDATE holdfast.schedule s
SET next_at = coalesce(n.next_at, holdfast.now() + make_interval(secs => n.wait)),
    last_at = coalesce(greatest(s.last_at, n.last_at), s.last_at),
    planned_at = CASE WHEN n.error IS NULL THEN holdfast.now() ELSE s.planned_at END,
    error = n.error, failures = CASE WHEN n.error IS NULL THEN 0 ELSE s.failures + 1 END
FROM jsonb_to_recordset(:schedules::jsonb) AS n(name text, version bigint, next_at timestamptz, wait float8, last_at timestamptz, error text)
WHERE s.name = n.name AND s.version = n.version

-- sweep_occurrences --
-- Forgets occurrences older than the history is kept; never what is still open.
DELETE FROM holdfast.occurrence o
WHERE o.ctid = ANY (ARRAY(
    SELECT c.ctid FROM holdfast.occurrence c
    WHERE c.created_at < holdfast.now() - holdfast.longest_retention() AND NOT c.open
    ORDER BY c.created_at LIMIT :limit::integer
    FOR UPDATE SKIP LOCKED))
RETURNING o.plan_time

-- list_schedules --
-- Schedules by name; the next page begins above the last one.
SELECT name, definition::text, condition, next_at, last_at, paused_at, paused_by, error, failures, in_code,
       changed_by_hand, scopes, version, watermark, created_at, holdfast.now()
FROM holdfast.schedules
WHERE (:only::text IS NULL OR name = :only::text) AND name > coalesce(:above::text, '')
ORDER BY name LIMIT :limit::integer

-- list_scopes --
-- The scopes that a schedule had when it was last looked at.
SELECT scope FROM holdfast.schedule_scope WHERE schedule = :name::text ORDER BY scope LIMIT :limit::integer

-- list_occurrences --
-- What became of a schedule's plan times, the newest first.
SELECT schedule, scope, plan_time, due_at, task_id, state, attempts, started_at, finished_at, duration, lateness,
       result::text, error::text, skipped, created_at
FROM holdfast.occurrences
WHERE schedule = :name::text AND (:scope::text IS NULL OR scope = :scope::text) AND plan_time < coalesce(:before::timestamptz, 'infinity')
ORDER BY plan_time DESC, scope LIMIT :limit::integer

-- recent_occurrences --
-- What became of the last plan times of some schedules.
SELECT n.name, o.plan_time, o.state
FROM unnest(:names::text[]) AS n(name) CROSS JOIN LATERAL (
    SELECT r.plan_time, r.state FROM holdfast.occurrences r WHERE r.schedule = n.name
    ORDER BY r.plan_time DESC LIMIT :limit::integer) AS o
ORDER BY n.name, o.plan_time

-- note_backfill --
-- Who made up for which plan times.
SELECT holdfast.note_backfill(:name::text, :options::jsonb)::text

-- occurrences_between --
-- Which plan times of a schedule are there already.
SELECT scope, plan_time FROM holdfast.occurrence
WHERE schedule = :name::text AND plan_time BETWEEN :since::timestamptz AND :until::timestamptz AND skipped IS NULL

-- set_schedule --
-- Makes a schedule, or changes what is given of it.
SELECT holdfast.set_schedule(:name::text, :definition::jsonb, :options::jsonb)

-- pause_schedule --
-- Nothing of it is enqueued until it is resumed.
SELECT holdfast.pause_schedule(:name::text, :options::jsonb)

-- resume_schedule --
-- It goes on from now.
SELECT holdfast.resume_schedule(:name::text, :options::jsonb)

-- delete_schedule --
-- Its occurrences stay.
SELECT holdfast.delete_schedule(:name::text, :options::jsonb)

-- fire_schedule --
-- An occurrence now, whatever its timing says.
SELECT holdfast.fire_schedule(:name::text, :options::jsonb) AS id
