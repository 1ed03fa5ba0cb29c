-- The verbs of people. Most are functions of the schema, so that psql has them too.

-- retry --
-- Resumes a parked task.
SELECT holdfast.retry(:id::uuid, :options::jsonb)

-- cancel_task --
-- Cancels a task.
SELECT holdfast.cancel(:id::uuid, :options::jsonb)

-- discard --
-- Gives a parked task up.
SELECT holdfast.discard(:id::uuid, :options::jsonb)

-- again --
-- Enqueues a task that has ended anew.
SELECT holdfast.again(:id::uuid, :options::jsonb)

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
SELECT holdfast.stop_workers(:worker::uuid, :options::jsonb)

-- pause --
-- Pauses a queue or a kind.
SELECT holdfast.pause(:name::text, :options::jsonb)

-- resume --
-- Lets the tasks of a paused queue or kind be claimed again.
SELECT holdfast.resume(:name::text, :options::jsonb)
