-- What the demo asks beyond what every user can ask.

-- lock_demo --
-- Whether no other demo uses this schema; held until the transaction ends.
SELECT pg_try_advisory_xact_lock(hashtext('holdfast demo'), hashtext(:schema::text))

-- counts --
-- How many tasks of a queue are in which phase.
SELECT phase, count(*) FROM holdfast.tasks WHERE queue = :queue::text GROUP BY phase ORDER BY phase

-- drained --
-- How much of a burst each worker has done, when it began and ended, and the sum of the results.
SELECT worker_id, count(*), min(claimed_at), max(finished_at), sum((result #>> '{}')::bigint)::bigint
FROM holdfast.archive
WHERE id BETWEEN :first::uuid AND :last::uuid AND kind = :kind::text AND state = 'done'
GROUP BY worker_id
