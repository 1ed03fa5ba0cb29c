-- The claim rule: which tasks a worker may claim. Everything that asks for it includes these fragments: the claim itself,
-- what a worker looks at beside it, and what is counted. The view `tasks` names, as the phase of a task, which of these
-- conditions it does not meet; so a change here needs a migration of that view. A test holds both together.

-- fragment claimable(row) --
-- A task that a worker may claim now. Tasks whose worker was lost before are claimed apart: see `claim`.
{{> is_due row}} AND {{> startable row}} AND NOT {{> queue_is_paused}}

-- fragment is_due(row) --
-- A ready task of the queue whose time has come.
{{row}}.queue = :queue::text AND {{row}}.state = 'ready' AND {{row}}.run_at <= holdfast.now()

-- fragment startable(row) --
-- A task that is not expired, whose step this worker knows, of a kind that is not paused.
{{> in_time row}} AND {{row}}.kind || '.' || {{row}}.step = ANY (:known::text[]) AND {{row}}.kind <> ALL ({{> paused_kinds}})

-- fragment in_time(row) --
-- A task that may still start: its deadline has not passed, or it was started before.
({{row}}.deadline IS NULL OR {{row}}.deadline > holdfast.now() OR {{row}}.attempt > 0)

-- fragment expired(row) --
-- A task that may not start any more. The opposite of `in_time`, for the index of deadlines.
{{row}}.attempt = 0 AND {{row}}.deadline <= holdfast.now()

-- fragment paused_kinds --
-- The paused kinds, by their names and old names.
ARRAY(SELECT unnest(k.was || k.name::text) FROM holdfast.kind k WHERE k.paused_at IS NOT NULL)

-- fragment queue_is_paused --
-- Whether the queue is paused.
EXISTS (SELECT FROM holdfast.queue q WHERE q.name = :queue::text AND q.paused_at IS NOT NULL)
