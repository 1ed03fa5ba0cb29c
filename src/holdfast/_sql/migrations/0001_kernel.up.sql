-- The kernel: tasks, their archive, the log of attempts, workers, kinds, changes.
-- `holdfast.` stands for the schema's quoted name and :'schema' for its name as a literal.

-- The clock ------------------------------------------------------------------------------------------

-- Inlined into index conditions, so it must stay this simple; tests replace it to move time.
CREATE FUNCTION holdfast.now() RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
AS 'SELECT pg_catalog.statement_timestamp()';
COMMENT ON FUNCTION holdfast.now() IS 'The only clock that decides: the start of the current statement.';

CREATE FUNCTION holdfast.channel() RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT :'schema'::text $$;
COMMENT ON FUNCTION holdfast.channel() IS 'The notification channel of this schema. Payloads: "queue NAME" (a task of it may be due), "cancel ID", "stop", "pause" (a queue or a kind was paused or resumed), "schedule" (one was made, changed or resumed), "wait ID …" (somebody waits for the ends of these tasks), "ended ID …" (they have ended, or are parked), "failed" (a task was parked).';

-- A time-ordered id of version 7: 12 bits behind the millisecond are its fraction, so that what one statement after another
-- writes is in order.
CREATE FUNCTION holdfast.new_id() RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$
    SELECT (overlay(lpad(to_hex(floor(extract(epoch FROM pg_catalog.clock_timestamp()) * 4096000)::bigint), 15, '0')
                    PLACING '7' FROM 13 FOR 0) || right(gen_random_uuid()::text, 17))::uuid
$$;
COMMENT ON FUNCTION holdfast.new_id() IS 'A new task id: a UUID of version 7, ordered by time.';

-- Names ----------------------------------------------------------------------------------------------
-- Domains, not CHECKs on the table: they are tested when a name is written, not at every update of a row.
-- The length is a test of its own: {0,62} in the expression took ten times as long, a third of a bulk enqueue.

CREATE DOMAIN holdfast.queue_name AS text COLLATE "C"
    CHECK (length(VALUE) <= 63 AND VALUE ~ '^[a-z0-9_][a-z0-9_.-]*$');
CREATE DOMAIN holdfast.kind_name AS text COLLATE "C"
    CHECK (length(VALUE) <= 63 AND VALUE ~ '^[a-z][a-z0-9_-]*$');
CREATE DOMAIN holdfast.step_name AS text COLLATE "C"
    CHECK (length(VALUE) <= 63 AND VALUE ~ '^[A-Za-z_][A-Za-z0-9_]*$');
COMMENT ON DOMAIN holdfast.queue_name IS 'Lower-case letters, digits, _ . and -, at most 63, not beginning with . or -.';
COMMENT ON DOMAIN holdfast.kind_name IS 'Lower-case letters, digits, _ and -, at most 63, beginning with a letter.';
COMMENT ON DOMAIN holdfast.step_name IS 'Letters, digits and _, at most 63, not beginning with a digit.';

-- Tasks ----------------------------------------------------------------------------------------------

CREATE TABLE holdfast.task (
    id               uuid NOT NULL,
    queue            holdfast.queue_name NOT NULL DEFAULT 'default',
    kind             holdfast.kind_name NOT NULL,
    step             holdfast.step_name NOT NULL,
    args             jsonb NOT NULL DEFAULT '{}',
    state            text NOT NULL DEFAULT 'ready' COLLATE "C",
    priority         smallint NOT NULL DEFAULT 0,
    run_at           timestamptz NOT NULL DEFAULT holdfast.now(),
    moves            integer NOT NULL DEFAULT 0,
    attempt          integer NOT NULL DEFAULT 0,
    errors           integer NOT NULL DEFAULT 0,
    crashes          smallint NOT NULL DEFAULT 0,
    worker_id        uuid,
    lease_expires_at timestamptz,
    claimed_at       timestamptz,
    max_crashes      smallint NOT NULL DEFAULT 3,
    cancel_at        timestamptz,
    cancel_by        text,
    key              text COLLATE "C",
    replaced_by      uuid,
    deadline         timestamptz,
    error            jsonb,
    headers          jsonb,
    created_at       timestamptz NOT NULL DEFAULT holdfast.now(),
    -- Every claim puts a second entry beside the first: with room for both, no page has to be split or searched for dead ones.
    PRIMARY KEY (id, queue) WITH (fillfactor = 45),
    CONSTRAINT task_state CHECK (state IN ('ready', 'running', 'waiting', 'parked')),
    CONSTRAINT task_priority CHECK (priority BETWEEN 0 AND 9),
    -- What a Python datetime can hold: a worker must be able to read every row.
    CONSTRAINT task_run_at CHECK (run_at BETWEEN '1000-01-01 00:00+00' AND '9999-01-01 00:00+00'),
    CONSTRAINT task_args CHECK (jsonb_typeof(args) = 'object'),
    CONSTRAINT task_lease CHECK ((state = 'running') = (worker_id IS NOT NULL)
                             AND (state = 'running') = (lease_expires_at IS NOT NULL)),
    CONSTRAINT task_parked_error CHECK (state <> 'parked' OR error IS NOT NULL)
) WITH (
    -- Every claim and every end leaves a dead row version: vacuum early and without pauses.
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_analyze_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX task_ready ON holdfast.task (queue, priority, run_at, id) WHERE state = 'ready';
CREATE INDEX task_suspect ON holdfast.task (queue, run_at, id) WHERE state = 'ready' AND crashes > 0;
CREATE INDEX task_running ON holdfast.task (queue, worker_id) WHERE state = 'running';
CREATE INDEX task_parked ON holdfast.task (queue, kind, step, id) WHERE state = 'parked';
CREATE UNIQUE INDEX task_key ON holdfast.task (queue, key) WHERE key IS NOT NULL;
CREATE INDEX task_deadline ON holdfast.task (queue, deadline) WHERE state = 'ready' AND attempt = 0 AND deadline IS NOT NULL;

COMMENT ON TABLE holdfast.task IS 'Unfinished tasks, one row each, with the step where each one stands. Finished ones are in archive.';
COMMENT ON COLUMN holdfast.task.id IS 'UUID of version 7, made by whoever enqueued the task.';
COMMENT ON COLUMN holdfast.task.queue IS 'The queue whose workers may claim it; also the shard key.';
COMMENT ON COLUMN holdfast.task.kind IS 'The registered name of its type, such as greeter.';
COMMENT ON COLUMN holdfast.task.step IS 'The step where it stands, such as ReadName; main for a plain function.';
COMMENT ON COLUMN holdfast.task.args IS 'The fields of the current step.';
COMMENT ON COLUMN holdfast.task.state IS 'ready: to be claimed once run_at is past; running: leased by worker_id; waiting: for an event or children; parked: stopped by an error, waits for holdfast.retry(id).';
COMMENT ON COLUMN holdfast.task.priority IS '0 to 9; higher is claimed first.';
COMMENT ON COLUMN holdfast.task.run_at IS 'Not claimed before this time: a delay, or the wait before a retry.';
COMMENT ON COLUMN holdfast.task.moves IS 'How many moves from step to step were recorded. With the id it names the visit.';
COMMENT ON COLUMN holdfast.task.attempt IS 'The number of the last execution of a step, counted over the whole life, never reset. It is the fence: a write by an older attempt changes nothing.';
COMMENT ON COLUMN holdfast.task.errors IS 'Errors at this visit; a move or holdfast.retry(id) sets it to 0.';
COMMENT ON COLUMN holdfast.task.crashes IS 'Workers lost at this visit; a move or holdfast.retry(id) sets it to 0.';
COMMENT ON COLUMN holdfast.task.worker_id IS 'The worker that holds the lease; null unless running.';
COMMENT ON COLUMN holdfast.task.lease_expires_at IS 'When the lease ends unless renewed; after that any worker may reap the task. Null unless running.';
COMMENT ON COLUMN holdfast.task.claimed_at IS 'When the last attempt began.';
COMMENT ON COLUMN holdfast.task.max_crashes IS 'Parked when crashes exceed this; 0: parked when its worker is lost, never rerun by itself; negative (-1 less the limit): the step was claimed ahead and is not known to have begun, so no crash is counted if its worker is lost. Written at claim, from the code.';
COMMENT ON COLUMN holdfast.task.cancel_at IS 'When its cancellation was asked for while it was running.';
COMMENT ON COLUMN holdfast.task.cancel_by IS 'Who asked for the cancellation, and why.';
COMMENT ON COLUMN holdfast.task.key IS 'At most one unfinished task of a queue has this key.';
COMMENT ON COLUMN holdfast.task.replaced_by IS 'The id that the last enqueue which replaced what this task does had for a task of its own.';
COMMENT ON COLUMN holdfast.task.deadline IS 'Not started by then means never started: it is archived as expired. It no longer counts once the first attempt has begun.';
COMMENT ON COLUMN holdfast.task.error IS 'The last error of this visit: type, message, attributes (what the exception carried, such as a code), place, traceback, causes.';
COMMENT ON COLUMN holdfast.task.headers IS 'Strings carried along: trace context, who enqueued it, schedule and plan time.';
COMMENT ON COLUMN holdfast.task.created_at IS 'When it was enqueued.';

CREATE TABLE holdfast.key (
    queue      holdfast.queue_name NOT NULL,
    key        text NOT NULL COLLATE "C",
    task_id    uuid NOT NULL,
    kind       holdfast.kind_name NOT NULL,
    held_until timestamptz NOT NULL,
    PRIMARY KEY (queue, key)
);
CREATE INDEX key_held_until ON holdfast.key (held_until);

COMMENT ON TABLE holdfast.key IS 'Keys that hold for a while whatever becomes of their task (unique_for). An unfinished task holds its key without a row here.';
COMMENT ON COLUMN holdfast.key.queue IS 'The queue in which the key counts.';
COMMENT ON COLUMN holdfast.key.key IS 'The key.';
COMMENT ON COLUMN holdfast.key.task_id IS 'The task it was taken for; it may have ended, or be archived no more.';
COMMENT ON COLUMN holdfast.key.kind IS 'The kind of that task.';
COMMENT ON COLUMN holdfast.key.held_until IS 'Until then no other task gets this key. Later the row means nothing: it is taken over, or swept. To free a key earlier, delete its row.';

CREATE TABLE holdfast.archive (
    id          uuid NOT NULL,
    queue       text NOT NULL COLLATE "C",
    kind        text NOT NULL COLLATE "C",
    step        text NOT NULL COLLATE "C",
    args        jsonb NOT NULL,
    state       text NOT NULL COLLATE "C",
    priority    smallint NOT NULL,
    run_at      timestamptz NOT NULL,
    moves       integer NOT NULL,
    attempt     integer NOT NULL,
    errors      integer NOT NULL,
    crashes     smallint NOT NULL,
    worker_id   uuid,
    claimed_at  timestamptz,
    outcome     text COLLATE "C",
    key         text COLLATE "C",
    error       jsonb,
    headers     jsonb,
    created_at  timestamptz NOT NULL,
    finished_at timestamptz NOT NULL DEFAULT holdfast.now(),
    result      jsonb,
    report      jsonb,
    CONSTRAINT archive_state CHECK (state IN ('done', 'cancelled', 'expired', 'discarded'))
) PARTITION BY RANGE (finished_at);
CREATE INDEX archive_id ON holdfast.archive (id);
-- For figures: by time at next to no cost, because rows come in the order of time.
CREATE INDEX archive_finished_at ON holdfast.archive USING brin (finished_at) WITH (pages_per_range = 32);

COMMENT ON TABLE holdfast.archive IS 'Finished tasks with their result and the record of their last attempt; a partition per UTC day of finished_at.';
COMMENT ON COLUMN holdfast.archive.id IS 'The id it had as a task.';
COMMENT ON COLUMN holdfast.archive.queue IS 'The queue it was in.';
COMMENT ON COLUMN holdfast.archive.kind IS 'The registered name of its type.';
COMMENT ON COLUMN holdfast.archive.step IS 'The last step it stood at.';
COMMENT ON COLUMN holdfast.archive.args IS 'The fields of that last step.';
COMMENT ON COLUMN holdfast.archive.state IS 'done; cancelled: by a person or by its own step; expired: not started before its deadline; discarded: given up while parked.';
COMMENT ON COLUMN holdfast.archive.priority IS '0 to 9.';
COMMENT ON COLUMN holdfast.archive.run_at IS 'When its last attempt was due.';
COMMENT ON COLUMN holdfast.archive.moves IS 'How many moves from step to step were recorded.';
COMMENT ON COLUMN holdfast.archive.attempt IS 'The number of the last execution of a step; 0 if it never ran.';
COMMENT ON COLUMN holdfast.archive.errors IS 'Errors at the last visit.';
COMMENT ON COLUMN holdfast.archive.crashes IS 'Workers lost at the last visit.';
COMMENT ON COLUMN holdfast.archive.worker_id IS 'The worker of the last attempt, if the task was running when it ended.';
COMMENT ON COLUMN holdfast.archive.claimed_at IS 'When the last attempt began.';
COMMENT ON COLUMN holdfast.archive.outcome IS 'How the last attempt ended (done, cancelled, lost); null if the task was not running when it ended.';
COMMENT ON COLUMN holdfast.archive.key IS 'The key it held while unfinished.';
COMMENT ON COLUMN holdfast.archive.error IS 'The last error, or the reason of the end; null if done: an earlier error is in its attempt.';
COMMENT ON COLUMN holdfast.archive.headers IS 'Strings carried along.';
COMMENT ON COLUMN holdfast.archive.created_at IS 'When it was enqueued.';
COMMENT ON COLUMN holdfast.archive.finished_at IS 'When it ended; names the partition.';
COMMENT ON COLUMN holdfast.archive.result IS 'What the last step gave to Done, or the function returned.';
COMMENT ON COLUMN holdfast.archive.report IS 'Figures that the last attempt told with ctx.report, such as {"rows": 42}.';

CREATE TABLE holdfast.attempt (
    task_id     uuid NOT NULL,
    queue       text NOT NULL COLLATE "C",
    kind        text NOT NULL COLLATE "C",
    step        text NOT NULL COLLATE "C",
    args        jsonb NOT NULL,
    moves       integer NOT NULL,
    attempt     integer NOT NULL,
    worker_id   uuid,
    claimed_at  timestamptz,
    finished_at timestamptz NOT NULL DEFAULT holdfast.now(),
    outcome     text NOT NULL COLLATE "C",
    error       jsonb,
    report      jsonb,
    parked      boolean NOT NULL DEFAULT false,
    run_at      timestamptz,
    CONSTRAINT attempt_outcome CHECK (outcome IN ('advanced', 'retried', 'failed', 'snoozed', 'lost', 'released'))
) PARTITION BY RANGE (finished_at);
CREATE INDEX attempt_task ON holdfast.attempt (task_id, attempt);
CREATE INDEX attempt_finished_at ON holdfast.attempt USING brin (finished_at) WITH (pages_per_range = 32);
CREATE INDEX attempt_parked ON holdfast.attempt (finished_at, task_id, attempt) WHERE parked;

COMMENT ON TABLE holdfast.attempt IS 'Every attempt that was not the last of its task; a partition per UTC day of finished_at. The view attempts has all of them.';
COMMENT ON COLUMN holdfast.attempt.task_id IS 'The task.';
COMMENT ON COLUMN holdfast.attempt.queue IS 'Its queue.';
COMMENT ON COLUMN holdfast.attempt.kind IS 'Its kind.';
COMMENT ON COLUMN holdfast.attempt.step IS 'The step that was executed.';
COMMENT ON COLUMN holdfast.attempt.args IS 'The fields it was executed with.';
COMMENT ON COLUMN holdfast.attempt.moves IS 'The visit: how many moves had been recorded before.';
COMMENT ON COLUMN holdfast.attempt.attempt IS 'The number of this execution over the life of the task.';
COMMENT ON COLUMN holdfast.attempt.worker_id IS 'The worker that executed it.';
COMMENT ON COLUMN holdfast.attempt.claimed_at IS 'When it began.';
COMMENT ON COLUMN holdfast.attempt.finished_at IS 'When its end was recorded; names the partition.';
COMMENT ON COLUMN holdfast.attempt.outcome IS 'advanced: moved on; retried: error, tried again later; failed: error, parked; snoozed: asked to be called again; lost: its worker vanished; released: handed back unfinished, uncharged.';
COMMENT ON COLUMN holdfast.attempt.error IS 'Type, message, place, traceback and causes, for retried, failed and lost.';
COMMENT ON COLUMN holdfast.attempt.report IS 'Figures that the attempt told with ctx.report, such as {"rows": 42}.';
COMMENT ON COLUMN holdfast.attempt.run_at IS 'When it was due.';
COMMENT ON COLUMN holdfast.attempt.parked IS 'Whether its end parked the task: every failed one, and a lost one if its worker was lost too often or it must not be rerun.';

-- Apart from the rows of tasks, which are hot. Logged, although it is only information: an unlogged table cannot be read
-- on a standby, and with it neither could the views and explain().
CREATE TABLE holdfast.progress (
    task_id    uuid NOT NULL,
    queue      text NOT NULL COLLATE "C",
    attempt    integer NOT NULL,
    fraction   double precision,
    note       text NOT NULL DEFAULT '',
    report     jsonb,
    updated_at timestamptz NOT NULL DEFAULT holdfast.now(),
    PRIMARY KEY (task_id, queue)
) WITH (fillfactor = 50);
COMMENT ON TABLE holdfast.progress IS 'What running attempts have told of themselves, written about once a second; for others there is no row. It means nothing once the task is at another attempt.';
COMMENT ON COLUMN holdfast.progress.task_id IS 'The task.';
COMMENT ON COLUMN holdfast.progress.queue IS 'Its queue.';
COMMENT ON COLUMN holdfast.progress.attempt IS 'The number of the attempt that told it.';
COMMENT ON COLUMN holdfast.progress.fraction IS 'How far it has come, from 0 to 1; null if it told only figures.';
COMMENT ON COLUMN holdfast.progress.note IS 'What it is doing, in its own words.';
COMMENT ON COLUMN holdfast.progress.report IS 'Figures so far, such as {"rows": 42}; the last ones are kept with the attempt.';
COMMENT ON COLUMN holdfast.progress.updated_at IS 'When it was written.';

-- Workers, kinds, queues, changes --------------------------------------------------------------------

CREATE TABLE holdfast.worker (
    id                uuid PRIMARY KEY,
    name              text NOT NULL,
    host              text NOT NULL,
    pid               integer NOT NULL,
    version           text NOT NULL,
    queues            text[] NOT NULL,
    limits            jsonb NOT NULL DEFAULT '{}',
    steps             text[] NOT NULL,
    only_steps        text[] NOT NULL DEFAULT '{}',
    kinds             jsonb NOT NULL DEFAULT '{}',
    slots             integer NOT NULL,
    lease             interval NOT NULL DEFAULT '1 minute',
    schedules         text[] NOT NULL DEFAULT '{}',
    idle              boolean NOT NULL DEFAULT false,
    stuck             integer NOT NULL DEFAULT 0,
    loops             jsonb NOT NULL DEFAULT '{}',
    late              text[] NOT NULL DEFAULT '{}',
    started_at        timestamptz NOT NULL DEFAULT holdfast.now(),
    seen_at           timestamptz NOT NULL DEFAULT holdfast.now(),
    stop_requested_at timestamptz,
    stopping_at       timestamptz,
    stopped_at        timestamptz
) WITH (fillfactor = 50);

COMMENT ON TABLE holdfast.worker IS 'Worker processes: information for people, wake-ups and explanations, never the proof of a lease.';
COMMENT ON COLUMN holdfast.worker.id IS 'A fresh UUID at each start of a process.';
COMMENT ON COLUMN holdfast.worker.name IS 'A label for people; may repeat.';
COMMENT ON COLUMN holdfast.worker.host IS 'The machine it runs on.';
COMMENT ON COLUMN holdfast.worker.pid IS 'Its process id on that machine.';
COMMENT ON COLUMN holdfast.worker.version IS 'The version of Holdfast it runs.';
COMMENT ON COLUMN holdfast.worker.queues IS 'The queues it serves.';
COMMENT ON COLUMN holdfast.worker.limits IS 'How many steps of a queue it executes at once, for those that have a limit: {"mail": 5}.';
COMMENT ON COLUMN holdfast.worker.only_steps IS 'The kinds and steps of its App that it was told to keep to; empty: all.';
COMMENT ON COLUMN holdfast.worker.steps IS 'The steps it knows, as kind.Step; it claims nothing else.';
COMMENT ON COLUMN holdfast.worker.kinds IS 'A fingerprint of each kind as its code declares it, {"greeter": "9f86d081"}: workers of two versions differ.';
COMMENT ON COLUMN holdfast.worker.slots IS 'How many steps it executes at once.';
COMMENT ON COLUMN holdfast.worker.lease IS 'How long its leases last: silent for longer, it holds nothing any more, and does not count as live.';
COMMENT ON COLUMN holdfast.worker.schedules IS 'The schedules that its code declares; it plans these, and those that no code declares.';
COMMENT ON COLUMN holdfast.worker.idle IS 'It may be waiting for a notification. Set before it sleeps, cleared lazily.';
COMMENT ON COLUMN holdfast.worker.stuck IS 'Slots held by threads that went on after their timeout or cancellation.';
COMMENT ON COLUMN holdfast.worker.loops IS 'How long before its last report each of its loops had succeeded, in seconds: {"claim": 0.4}.';
COMMENT ON COLUMN holdfast.worker.late IS 'The loops that had not succeeded for too long by then; empty if all is well.';
COMMENT ON COLUMN holdfast.worker.started_at IS 'When it started.';
COMMENT ON COLUMN holdfast.worker.seen_at IS 'When it last reported; written with each beat.';
COMMENT ON COLUMN holdfast.worker.stop_requested_at IS 'When holdfast.stop_workers() asked it to stop.';
COMMENT ON COLUMN holdfast.worker.stopping_at IS 'When it began to stop: it claims nothing any more and finishes what it has.';
COMMENT ON COLUMN holdfast.worker.stopped_at IS 'When it had stopped, or was taken for dead after five minutes of silence, or a longer lease.';

CREATE TABLE holdfast.kind (
    name      holdfast.kind_name PRIMARY KEY,
    queue     holdfast.queue_name NOT NULL,
    priority  smallint NOT NULL,
    first     holdfast.step_name,
    graph     jsonb NOT NULL,
    about     jsonb NOT NULL DEFAULT '{}',
    was       text[] NOT NULL DEFAULT '{}',
    seen_at   timestamptz NOT NULL DEFAULT holdfast.now(),
    paused_at timestamptz,
    paused_by text
);
COMMENT ON TABLE holdfast.kind IS 'The kinds that workers declared at their start, so that graphs can be drawn and SQL can enqueue without the code.';
COMMENT ON COLUMN holdfast.kind.name IS 'The name of the kind.';
COMMENT ON COLUMN holdfast.kind.queue IS 'Where its tasks go unless the enqueue says otherwise.';
COMMENT ON COLUMN holdfast.kind.priority IS 'The priority of its tasks unless the enqueue says otherwise.';
COMMENT ON COLUMN holdfast.kind.first IS 'Its only step if it has just one, else null.';
COMMENT ON COLUMN holdfast.kind.graph IS 'Which step can follow which: {"ReadName": ["SayHello"], …}.';
COMMENT ON COLUMN holdfast.kind.about IS 'For each step: the names of its fields, and with how many errors at the step a task is parked, if that is one number.';
COMMENT ON COLUMN holdfast.kind.was IS 'Its old names, under which tasks may still stand: a pause holds for them too.';
COMMENT ON COLUMN holdfast.kind.seen_at IS 'When a worker last declared it anew.';
COMMENT ON COLUMN holdfast.kind.paused_at IS 'Since when none of its tasks is claimed; null unless paused. Workers that declare it anew leave it alone.';
COMMENT ON COLUMN holdfast.kind.paused_by IS 'Who paused it, and why.';

CREATE TABLE holdfast.queue (
    name      holdfast.queue_name PRIMARY KEY,
    paused_at timestamptz,
    paused_by text,
    retention interval
);
COMMENT ON TABLE holdfast.queue IS 'Settings of queues. A queue needs no row here: it exists by being named.';
COMMENT ON COLUMN holdfast.queue.name IS 'The name of the queue.';
COMMENT ON COLUMN holdfast.queue.paused_at IS 'Since when none of its tasks is claimed; null unless paused.';
COMMENT ON COLUMN holdfast.queue.paused_by IS 'Who paused it, and why.';
COMMENT ON COLUMN holdfast.queue.retention IS 'How long its finished tasks and their attempts are kept; null: as for all. Changed by holdfast.set_queue.';

CREATE TABLE holdfast.setting (
    one       boolean PRIMARY KEY DEFAULT true,
    retention interval,
    figures   interval,
    CONSTRAINT setting_one CHECK (one)
);
COMMENT ON TABLE holdfast.setting IS 'What holds for all queues that say nothing else: one row, or none. Changed by holdfast.set_default.';
COMMENT ON COLUMN holdfast.setting.one IS 'Always true: there is one row.';
COMMENT ON COLUMN holdfast.setting.retention IS 'How long finished tasks and their attempts are kept; null: 7 days.';
COMMENT ON COLUMN holdfast.setting.figures IS 'How long figures are kept; null: 30 days.';

CREATE TABLE holdfast.change (
    id      uuid PRIMARY KEY DEFAULT holdfast.new_id(),
    task_id uuid,
    action  text NOT NULL,
    by      text NOT NULL,
    role    text NOT NULL DEFAULT session_user,
    why     text,
    old     jsonb,
    new     jsonb,
    at      timestamptz NOT NULL DEFAULT holdfast.now()
);
CREATE INDEX change_task ON holdfast.change (task_id);
CREATE INDEX change_at ON holdfast.change (at);
COMMENT ON TABLE holdfast.change IS 'Every repair and operator action: who, when, why, the old and the new value.';
COMMENT ON COLUMN holdfast.change.id IS 'UUID of version 7, ordered by time.';
COMMENT ON COLUMN holdfast.change.task_id IS 'The task it was done to, if to one.';
COMMENT ON COLUMN holdfast.change.action IS 'retry, cancel, discard, again, stop, pause, resume or set.';
COMMENT ON COLUMN holdfast.change.by IS 'Who: as given, else the database role.';
COMMENT ON COLUMN holdfast.change.role IS 'The database role that logged in, whoever it says it is.';
COMMENT ON COLUMN holdfast.change.why IS 'The reason given.';
COMMENT ON COLUMN holdfast.change.old IS 'The values before.';
COMMENT ON COLUMN holdfast.change.new IS 'The values after.';
COMMENT ON COLUMN holdfast.change.at IS 'When.';

CREATE TABLE holdfast.grantee (
    role       text NOT NULL,
    part       text NOT NULL,
    granted_at timestamptz NOT NULL DEFAULT holdfast.now(),
    granted_by text NOT NULL DEFAULT session_user,
    PRIMARY KEY (role, part),
    CONSTRAINT grantee_part CHECK (part IN ('producer', 'worker', 'viewer', 'operator'))
);
COMMENT ON TABLE holdfast.grantee IS 'Which database roles were given which part, by holdfast roles grant: their rights are renewed by every migration.';
COMMENT ON COLUMN holdfast.grantee.role IS 'The name of the role.';
COMMENT ON COLUMN holdfast.grantee.part IS 'producer: may enqueue; worker: may claim and execute; viewer: may look at everything; operator: may look, retry, cancel, pause and so on.';
COMMENT ON COLUMN holdfast.grantee.granted_at IS 'When it was first given.';
COMMENT ON COLUMN holdfast.grantee.granted_by IS 'The role that gave it.';

CREATE FUNCTION holdfast.is_live(w holdfast.worker) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT w.stopped_at IS NULL AND w.seen_at > holdfast.now() - w.lease $$;
COMMENT ON FUNCTION holdfast.is_live(holdfast.worker) IS 'Whether a worker has reported within the length of its lease and not stopped: select * from holdfast.worker w where holdfast.is_live(w).';

-- Partitions -----------------------------------------------------------------------------------------

-- CREATE … LIKE and ATTACH rather than PARTITION OF: that would lock the parent against every finish.
CREATE FUNCTION holdfast.ensure_partition(day date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    parent text;
    child text;
BEGIN
    -- One maker at a time: two would meet in "relation already exists".
    PERFORM pg_advisory_xact_lock(hashtextextended(:'schema' || ' partitions', 0));
    FOREACH parent IN ARRAY ARRAY['archive', 'attempt'] LOOP
        child := parent || to_char(day, '"_p"YYYYMMDD');
        IF NOT EXISTS (
            SELECT FROM pg_catalog.pg_inherits i
            JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
            JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = :'schema' AND c.relname = child
        ) THEN
            EXECUTE format('CREATE TABLE IF NOT EXISTS %I.%I (LIKE %I.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)',
                           :'schema', child, :'schema', parent);
            EXECUTE format('ALTER TABLE %I.%I ATTACH PARTITION %I.%I FOR VALUES FROM (%L) TO (%L)',
                           :'schema', parent, :'schema', child,
                           to_char(day, 'YYYY-MM-DD') || ' 00:00:00+00',
                           to_char(day + 1, 'YYYY-MM-DD') || ' 00:00:00+00');
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION holdfast.ensure_partition(date) IS 'Makes the partitions of archive and attempt for one UTC day, if they are missing.';

CREATE FUNCTION holdfast.ensure_partitions(days integer DEFAULT 14) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT holdfast.ensure_partition(((holdfast.now() AT TIME ZONE 'UTC')::date + n))
    FROM generate_series(-1, days) AS n
$$;
COMMENT ON FUNCTION holdfast.ensure_partitions(integer) IS 'Makes the partitions from yesterday to some days ahead.';

SELECT holdfast.ensure_partitions();

CREATE TABLE holdfast.partition (
    name        text PRIMARY KEY,
    dropping_at timestamptz,
    swept       interval,
    sweeping    interval,
    block       bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE holdfast.partition IS 'What maintenance is doing to old partitions: which it is dropping, and how far it has deleted from which.';
COMMENT ON COLUMN holdfast.partition.name IS 'The partition: archive_p or attempt_p, and the day.';
COMMENT ON COLUMN holdfast.partition.dropping_at IS 'When maintenance chose it to be dropped: once it is detached, it is dropped too. Null if it is not to be.';
COMMENT ON COLUMN holdfast.partition.swept IS 'Rows of queues with a retention up to this are deleted.';
COMMENT ON COLUMN holdfast.partition.sweeping IS 'Rows of queues with a retention up to this are being deleted.';
COMMENT ON COLUMN holdfast.partition.block IS 'They are deleted up to this block of the table.';

CREATE FUNCTION holdfast.retention(queue text DEFAULT NULL) RETURNS interval
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT coalesce((SELECT q.retention FROM holdfast.queue q WHERE q.name = $1),
                    (SELECT s.retention FROM holdfast.setting s), interval '7 days')
$$;
COMMENT ON FUNCTION holdfast.retention(text) IS 'How long finished tasks of a queue and their attempts are kept at least; without a name, those of queues that say nothing else.';

CREATE FUNCTION holdfast.longest_retention() RETURNS interval
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT greatest(holdfast.retention(), max(q.retention)) FROM holdfast.queue q $$;
COMMENT ON FUNCTION holdfast.longest_retention() IS 'Internal: the longest retention of any queue: older days are dropped whole.';

-- Figures --------------------------------------------------------------------------------------------

CREATE TABLE holdfast.figure (
    minute       timestamptz NOT NULL,
    queue        text NOT NULL COLLATE "C",
    kind         text NOT NULL COLLATE "C",
    step         text NOT NULL COLLATE "C",
    done         integer NOT NULL DEFAULT 0,
    advanced     integer NOT NULL DEFAULT 0,
    snoozed      integer NOT NULL DEFAULT 0,
    retried      integer NOT NULL DEFAULT 0,
    failed       integer NOT NULL DEFAULT 0,
    lost         integer NOT NULL DEFAULT 0,
    cancelled    integer NOT NULL DEFAULT 0,
    released     integer NOT NULL DEFAULT 0,
    wait         integer[] NOT NULL,
    run          integer[] NOT NULL,
    wait_seconds double precision NOT NULL,
    run_seconds  double precision NOT NULL,
    PRIMARY KEY (minute, queue, kind, step)
);
COMMENT ON TABLE holdfast.figure IS 'The log of attempts, counted by the minute in which they ended. Written by workers a little later; kept for three days.';
COMMENT ON COLUMN holdfast.figure.minute IS 'The beginning of the minute.';
COMMENT ON COLUMN holdfast.figure.queue IS 'The queue of the tasks.';
COMMENT ON COLUMN holdfast.figure.kind IS 'Their kind.';
COMMENT ON COLUMN holdfast.figure.step IS 'The step that was executed.';
COMMENT ON COLUMN holdfast.figure.done IS 'How many attempts ended so: their tasks were finished.';
COMMENT ON COLUMN holdfast.figure.advanced IS 'How many attempts ended so: moved on to another step.';
COMMENT ON COLUMN holdfast.figure.snoozed IS 'How many attempts ended so: asked to be called again.';
COMMENT ON COLUMN holdfast.figure.retried IS 'How many attempts ended so: an error, tried again later.';
COMMENT ON COLUMN holdfast.figure.failed IS 'How many attempts ended so: an error, parked.';
COMMENT ON COLUMN holdfast.figure.lost IS 'How many attempts ended so: their worker vanished.';
COMMENT ON COLUMN holdfast.figure.cancelled IS 'How many attempts ended so: their tasks were cancelled.';
COMMENT ON COLUMN holdfast.figure.released IS 'How many attempts ended so: handed back unfinished.';
COMMENT ON COLUMN holdfast.figure.wait IS 'How many of them, without lost and released ones, had waited how long, from due to claimed: as many as holdfast.buckets() has bounds, and one more.';
COMMENT ON COLUMN holdfast.figure.run IS 'How many took how long, from claimed to recorded, likewise.';
COMMENT ON COLUMN holdfast.figure.wait_seconds IS 'How long they had waited, all together.';
COMMENT ON COLUMN holdfast.figure.run_seconds IS 'How long they took, all together.';

CREATE TABLE holdfast.figure_hour (LIKE holdfast.figure INCLUDING COMMENTS);
ALTER TABLE holdfast.figure_hour RENAME COLUMN minute TO hour;
ALTER TABLE holdfast.figure_hour ADD PRIMARY KEY (hour, queue, kind, step);
COMMENT ON TABLE holdfast.figure_hour IS 'The figures by the hour, for longer spans of time; kept for 30 days unless holdfast.set_default says otherwise.';
COMMENT ON COLUMN holdfast.figure_hour.hour IS 'The beginning of the hour, in UTC.';

CREATE TABLE holdfast.figure_place (
    one       boolean PRIMARY KEY DEFAULT true,
    settled   timestamptz NOT NULL,
    until     timestamptz NOT NULL,
    seen_at   timestamptz NOT NULL,
    seen_open text[] NOT NULL DEFAULT '{}',
    looked_at timestamptz NOT NULL,
    CONSTRAINT figure_place_one CHECK (one)
);
COMMENT ON TABLE holdfast.figure_place IS 'How far figures have come: one row.';
COMMENT ON COLUMN holdfast.figure_place.one IS 'Always true: there is one row.';
COMMENT ON COLUMN holdfast.figure_place.settled IS 'Minutes before this one are counted for good; so are the hours before.';
COMMENT ON COLUMN holdfast.figure_place.until IS 'Minutes before this one are counted; those from settled on once more, when nobody can add to them.';
COMMENT ON COLUMN holdfast.figure_place.seen_at IS 'When it was noted which transactions were open. Once they have ended, the minutes before are complete.';
COMMENT ON COLUMN holdfast.figure_place.seen_open IS 'The virtual ids of those transactions.';
COMMENT ON COLUMN holdfast.figure_place.looked_at IS 'When a worker last did something about figures.';

INSERT INTO holdfast.figure_place (settled, until, seen_at, looked_at)
SELECT m, m, m, m FROM date_bin('1 minute', holdfast.now(), 'epoch') AS m;

CREATE FUNCTION holdfast.buckets() RETURNS double precision[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '{0.001,0.002,0.005,0.01,0.02,0.05,0.1,0.2,0.5,1,2,5,10,20,50,100,200,500,1000,2000,5000,10000,20000,50000,100000}'::float8[] $$;
COMMENT ON FUNCTION holdfast.buckets() IS 'The bounds between the buckets of waits and runs, in seconds. They never change: figures of all times are added up.';

-- One row of the log each, then one for each combination of buckets, then one for each figure. Whatever the statistics of a
-- young day say, it must not read all of the day.
CREATE FUNCTION holdfast.count_log(since timestamptz, until timestamptz) RETURNS SETOF holdfast.figure
LANGUAGE sql STABLE SET enable_seqscan = off SET jit = off
AS $$
    WITH log AS (
        SELECT l.finished_at, l.queue, l.kind, l.step, l.outcome, l.run_at, l.claimed_at
        FROM holdfast.attempt l WHERE l.finished_at >= since AND l.finished_at < until
        UNION ALL
        SELECT a.finished_at, a.queue, a.kind, a.step, a.outcome, a.run_at, a.claimed_at
        FROM holdfast.archive a WHERE a.finished_at >= since AND a.finished_at < until AND a.outcome IS NOT NULL
    ), timed AS (
        -- How long lost and released ones took tells when somebody noticed, and nothing about the step.
        SELECT date_bin('1 minute', l.finished_at, 'epoch') AS minute, l.queue, l.kind, l.step, l.outcome,
               CASE WHEN l.outcome NOT IN ('lost', 'released') THEN date_part('epoch', greatest(l.claimed_at - l.run_at, interval '0')) END AS wait,
               CASE WHEN l.outcome NOT IN ('lost', 'released') THEN date_part('epoch', greatest(l.finished_at - l.claimed_at, interval '0')) END AS run,
               l.run_at IS NOT NULL AS due
        FROM log l
    ), bucketed AS MATERIALIZED (
        SELECT t.minute, t.queue, t.kind, t.step, t.outcome, CASE WHEN t.due THEN width_bucket(t.wait, holdfast.buckets()) END AS w,
               width_bucket(t.run, holdfast.buckets()) AS r, count(*) AS n, sum(t.wait) FILTER (WHERE t.due) AS wait, sum(t.run) AS run
        FROM timed t GROUP BY 1, 2, 3, 4, 5, 6, 7
    )
    SELECT b.minute, b.queue, b.kind, b.step,
           coalesce(sum(b.n) FILTER (WHERE b.outcome = 'done'), 0)::integer, coalesce(sum(b.n) FILTER (WHERE b.outcome = 'advanced'), 0)::integer,
           coalesce(sum(b.n) FILTER (WHERE b.outcome = 'snoozed'), 0)::integer, coalesce(sum(b.n) FILTER (WHERE b.outcome = 'retried'), 0)::integer,
           coalesce(sum(b.n) FILTER (WHERE b.outcome = 'failed'), 0)::integer, coalesce(sum(b.n) FILTER (WHERE b.outcome = 'lost'), 0)::integer,
           coalesce(sum(b.n) FILTER (WHERE b.outcome = 'cancelled'), 0)::integer, coalesce(sum(b.n) FILTER (WHERE b.outcome = 'released'), 0)::integer,
           ARRAY[coalesce(sum(b.n) FILTER (WHERE b.w = 0), 0), coalesce(sum(b.n) FILTER (WHERE b.w = 1), 0), coalesce(sum(b.n) FILTER (WHERE b.w = 2), 0),
                 coalesce(sum(b.n) FILTER (WHERE b.w = 3), 0), coalesce(sum(b.n) FILTER (WHERE b.w = 4), 0), coalesce(sum(b.n) FILTER (WHERE b.w = 5), 0),
                 coalesce(sum(b.n) FILTER (WHERE b.w = 6), 0), coalesce(sum(b.n) FILTER (WHERE b.w = 7), 0), coalesce(sum(b.n) FILTER (WHERE b.w = 8), 0),
                 coalesce(sum(b.n) FILTER (WHERE b.w = 9), 0), coalesce(sum(b.n) FILTER (WHERE b.w = 10), 0), coalesce(sum(b.n) FILTER (WHERE b.w = 11), 0),
                 coalesce(sum(b.n) FILTER (WHERE b.w = 12), 0), coalesce(sum(b.n) FILTER (WHERE b.w = 13), 0), coalesce(sum(b.n) FILTER (WHERE b.w = 14), 0),
                 coalesce(sum(b.n) FILTER (WHERE b.w = 15), 0), coalesce(sum(b.n) FILTER (WHERE b.w = 16), 0), coalesce(sum(b.n) FILTER (WHERE b.w = 17), 0),
                 coalesce(sum(b.n) FILTER (WHERE b.w = 18), 0), coalesce(sum(b.n) FILTER (WHERE b.w = 19), 0), coalesce(sum(b.n) FILTER (WHERE b.w = 20), 0),
                 coalesce(sum(b.n) FILTER (WHERE b.w = 21), 0), coalesce(sum(b.n) FILTER (WHERE b.w = 22), 0), coalesce(sum(b.n) FILTER (WHERE b.w = 23), 0),
                 coalesce(sum(b.n) FILTER (WHERE b.w = 24), 0), coalesce(sum(b.n) FILTER (WHERE b.w = 25), 0)]::integer[],
           ARRAY[coalesce(sum(b.n) FILTER (WHERE b.r = 0), 0), coalesce(sum(b.n) FILTER (WHERE b.r = 1), 0), coalesce(sum(b.n) FILTER (WHERE b.r = 2), 0),
                 coalesce(sum(b.n) FILTER (WHERE b.r = 3), 0), coalesce(sum(b.n) FILTER (WHERE b.r = 4), 0), coalesce(sum(b.n) FILTER (WHERE b.r = 5), 0),
                 coalesce(sum(b.n) FILTER (WHERE b.r = 6), 0), coalesce(sum(b.n) FILTER (WHERE b.r = 7), 0), coalesce(sum(b.n) FILTER (WHERE b.r = 8), 0),
                 coalesce(sum(b.n) FILTER (WHERE b.r = 9), 0), coalesce(sum(b.n) FILTER (WHERE b.r = 10), 0), coalesce(sum(b.n) FILTER (WHERE b.r = 11), 0),
                 coalesce(sum(b.n) FILTER (WHERE b.r = 12), 0), coalesce(sum(b.n) FILTER (WHERE b.r = 13), 0), coalesce(sum(b.n) FILTER (WHERE b.r = 14), 0),
                 coalesce(sum(b.n) FILTER (WHERE b.r = 15), 0), coalesce(sum(b.n) FILTER (WHERE b.r = 16), 0), coalesce(sum(b.n) FILTER (WHERE b.r = 17), 0),
                 coalesce(sum(b.n) FILTER (WHERE b.r = 18), 0), coalesce(sum(b.n) FILTER (WHERE b.r = 19), 0), coalesce(sum(b.n) FILTER (WHERE b.r = 20), 0),
                 coalesce(sum(b.n) FILTER (WHERE b.r = 21), 0), coalesce(sum(b.n) FILTER (WHERE b.r = 22), 0), coalesce(sum(b.n) FILTER (WHERE b.r = 23), 0),
                 coalesce(sum(b.n) FILTER (WHERE b.r = 24), 0), coalesce(sum(b.n) FILTER (WHERE b.r = 25), 0)]::integer[],
           coalesce(sum(b.wait), 0), coalesce(sum(b.run), 0)
    FROM bucketed b GROUP BY 1, 2, 3, 4
$$;
COMMENT ON FUNCTION holdfast.count_log(timestamptz, timestamptz) IS 'Internal: figures of a span of time, counted from the log.';

-- A young part of the log that the index does not know yet is read whole. Who does not own the tables cannot change that.
CREATE FUNCTION holdfast.summarize_log() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms'
AS $$
DECLARE
    index oid;
BEGIN
    FOR index IN
        SELECT x.indexrelid FROM pg_catalog.pg_class c
        JOIN pg_catalog.pg_index x ON x.indrelid = c.oid
        JOIN pg_catalog.pg_class i ON i.oid = x.indexrelid
        JOIN pg_catalog.pg_am m ON m.oid = i.relam AND m.amname = 'brin'
        WHERE c.relnamespace = to_regnamespace(quote_ident(:'schema')) AND c.relispartition
          AND c.relname IN (SELECT t.name || to_char(holdfast.now() AT TIME ZONE 'UTC' - n * interval '1 day', '"_p"YYYYMMDD')
                            FROM (VALUES ('archive'), ('attempt')) AS t(name), generate_series(0, 1) AS n)
        ORDER BY c.relname
    LOOP
        BEGIN
            PERFORM brin_summarize_new_values(index);
        EXCEPTION WHEN lock_not_available OR query_canceled THEN
            NULL;  -- somebody cleans it up, and does the same
        END;
    END LOOP;
END
$$;
COMMENT ON FUNCTION holdfast.summarize_log() IS 'Internal: lets the indexes by time know what was written today and yesterday.';
