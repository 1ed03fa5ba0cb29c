-- What people ask: the statements behind CLI, references and the dashboard. None of them writes.

-- task_info --
-- One task, live or archived.
SELECT id, queue, kind, step, state, phase, priority, run_at, moves, attempt, errors, crashes, worker_id, claimed_at,
       lease_expires_at, args, error, key, headers, created_at, finished_at, result
FROM holdfast.tasks WHERE id = :id::uuid
ORDER BY finished_at NULLS FIRST LIMIT 1

-- list_tasks --
-- Tasks, newest first, page by page: those with an id below the given one.
SELECT id, queue, kind, step, state, phase, priority, run_at, moves, attempt, errors, crashes, worker_id, claimed_at,
       lease_expires_at, args, error, key, headers, created_at, finished_at, result
FROM holdfast.tasks
WHERE (:below::uuid IS NULL OR id < :below::uuid)
  AND (:state::text IS NULL OR state = :state::text OR phase = :state::text)
  AND (:kind::text IS NULL OR kind = :kind::text)
  AND (:queue::text IS NULL OR queue = :queue::text)
ORDER BY id DESC LIMIT :limit::integer

-- task_attempts --
-- The attempts of one task, in order.
SELECT task_id, queue, kind, step, moves, attempt, worker_id, claimed_at, finished_at, outcome, error, args
FROM holdfast.attempts WHERE task_id = :id::uuid ORDER BY attempt

-- task_changes --
-- The repairs and operator actions on one task, in order.
SELECT action, by, why, old, new, at FROM holdfast.change WHERE task_id = :id::uuid ORDER BY id

-- workers --
-- Workers, the newest first.
SELECT id, name, host, pid, version, queues, steps, slots, idle, stuck, started_at, seen_at, stop_requested_at, stopping_at, stopped_at
FROM holdfast.worker ORDER BY started_at DESC LIMIT :limit::integer
