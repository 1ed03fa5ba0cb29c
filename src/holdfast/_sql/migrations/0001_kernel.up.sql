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
COMMENT ON FUNCTION holdfast.channel() IS 'The notification channel of this schema. Payloads: "queue NAME", "cancel ID", "stop".';

-- A time-ordered id of version 7, as the Python client makes them.
CREATE FUNCTION holdfast.new_id() RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$
    SELECT encode(
        set_bit(set_bit(
            overlay(uuid_send(gen_random_uuid())
                    PLACING substring(int8send(floor(extract(epoch FROM pg_catalog.clock_timestamp()) * 1000)::bigint) FROM 3)
                    FROM 1 FOR 6),
            52, 1), 53, 1), 'hex')::uuid
$$;
COMMENT ON FUNCTION holdfast.new_id() IS 'A new task id: a UUID of version 7, ordered by time.';

-- Names ----------------------------------------------------------------------------------------------
-- Domains, not CHECKs on the table: they are tested when a name is written, not at every update of a row.

CREATE DOMAIN holdfast.queue_name AS text COLLATE "C"
    CHECK (VALUE ~ '^[a-z0-9_][a-z0-9_.-]{0,62}$');
CREATE DOMAIN holdfast.kind_name AS text COLLATE "C"
    CHECK (VALUE ~ '^[a-z][a-z0-9_-]{0,62}$');
CREATE DOMAIN holdfast.step_name AS text COLLATE "C"
    CHECK (VALUE ~ '^[A-Za-z_][A-Za-z0-9_]{0,62}$');
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
    deadline         timestamptz,
    error            jsonb,
    headers          jsonb,
    created_at       timestamptz NOT NULL DEFAULT holdfast.now(),
    PRIMARY KEY (id, queue),
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
CREATE INDEX task_running ON holdfast.task (queue, worker_id) WHERE state = 'running';
CREATE INDEX task_parked ON holdfast.task (queue, kind, step, id) WHERE state = 'parked';
CREATE UNIQUE INDEX task_key ON holdfast.task (queue, key) WHERE key IS NOT NULL;

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
COMMENT ON COLUMN holdfast.task.max_crashes IS 'Parked when crashes exceed this; 0: parked when its worker is lost, never rerun by itself. Written at claim, from the code.';
COMMENT ON COLUMN holdfast.task.cancel_at IS 'When its cancellation was asked for while it was running.';
COMMENT ON COLUMN holdfast.task.cancel_by IS 'Who asked for the cancellation, and why.';
COMMENT ON COLUMN holdfast.task.key IS 'At most one unfinished task of a queue has this key.';
COMMENT ON COLUMN holdfast.task.deadline IS 'Not started by then means never started.';
COMMENT ON COLUMN holdfast.task.error IS 'The last error of this visit: type, message, traceback, causes.';
COMMENT ON COLUMN holdfast.task.headers IS 'Strings carried along: trace context, who enqueued it, schedule and plan time.';
COMMENT ON COLUMN holdfast.task.created_at IS 'When it was enqueued.';

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
    CONSTRAINT archive_state CHECK (state IN ('done', 'cancelled', 'expired', 'discarded'))
) PARTITION BY RANGE (finished_at);
CREATE INDEX archive_id ON holdfast.archive (id);

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
COMMENT ON COLUMN holdfast.archive.error IS 'The last error, or the reason of the end.';
COMMENT ON COLUMN holdfast.archive.headers IS 'Strings carried along.';
COMMENT ON COLUMN holdfast.archive.created_at IS 'When it was enqueued.';
COMMENT ON COLUMN holdfast.archive.finished_at IS 'When it ended; names the partition.';
COMMENT ON COLUMN holdfast.archive.result IS 'What the last step gave to Done, or the function returned.';

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
    CONSTRAINT attempt_outcome CHECK (outcome IN ('advanced', 'retried', 'failed', 'snoozed', 'lost', 'released'))
) PARTITION BY RANGE (finished_at);
CREATE INDEX attempt_task ON holdfast.attempt (task_id, attempt);

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
COMMENT ON COLUMN holdfast.attempt.error IS 'Type, message, traceback and causes, for retried, failed and lost.';

-- Workers, kinds, changes ----------------------------------------------------------------------------

CREATE TABLE holdfast.worker (
    id                uuid PRIMARY KEY,
    name              text NOT NULL,
    host              text NOT NULL,
    pid               integer NOT NULL,
    version           text NOT NULL,
    queues            text[] NOT NULL,
    steps             text[] NOT NULL,
    slots             integer NOT NULL,
    idle              boolean NOT NULL DEFAULT false,
    stuck             integer NOT NULL DEFAULT 0,
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
COMMENT ON COLUMN holdfast.worker.steps IS 'The steps it knows, as kind.Step; it claims nothing else.';
COMMENT ON COLUMN holdfast.worker.slots IS 'How many steps it executes at once.';
COMMENT ON COLUMN holdfast.worker.idle IS 'It may be waiting for a notification. Set before it sleeps, cleared lazily.';
COMMENT ON COLUMN holdfast.worker.stuck IS 'Slots held by threads that went on after their timeout or cancellation.';
COMMENT ON COLUMN holdfast.worker.started_at IS 'When it started.';
COMMENT ON COLUMN holdfast.worker.seen_at IS 'When it last reported; written with each beat.';
COMMENT ON COLUMN holdfast.worker.stop_requested_at IS 'When holdfast.stop_workers() asked it to stop.';
COMMENT ON COLUMN holdfast.worker.stopping_at IS 'When it began to stop: it claims nothing any more and finishes what it has.';
COMMENT ON COLUMN holdfast.worker.stopped_at IS 'When it had stopped, or was taken for dead after five minutes of silence.';

CREATE TABLE holdfast.kind (
    name     holdfast.kind_name PRIMARY KEY,
    queue    holdfast.queue_name NOT NULL,
    priority smallint NOT NULL,
    first    holdfast.step_name,
    graph    jsonb NOT NULL,
    seen_at  timestamptz NOT NULL DEFAULT holdfast.now()
);
COMMENT ON TABLE holdfast.kind IS 'The kinds that workers declared at their start, so that graphs can be drawn and SQL can enqueue without the code.';
COMMENT ON COLUMN holdfast.kind.name IS 'The name of the kind.';
COMMENT ON COLUMN holdfast.kind.queue IS 'Where its tasks go unless the enqueue says otherwise.';
COMMENT ON COLUMN holdfast.kind.priority IS 'The priority of its tasks unless the enqueue says otherwise.';
COMMENT ON COLUMN holdfast.kind.first IS 'Its only step if it has just one, else null.';
COMMENT ON COLUMN holdfast.kind.graph IS 'Which step can follow which: {"ReadName": ["SayHello"], …}.';
COMMENT ON COLUMN holdfast.kind.seen_at IS 'When a worker last declared it anew.';

CREATE TABLE holdfast.change (
    id      uuid PRIMARY KEY DEFAULT holdfast.new_id(),
    task_id uuid,
    action  text NOT NULL,
    by      text NOT NULL,
    why     text,
    old     jsonb,
    new     jsonb,
    at      timestamptz NOT NULL DEFAULT holdfast.now()
);
CREATE INDEX change_task ON holdfast.change (task_id);
COMMENT ON TABLE holdfast.change IS 'Every repair and operator action: who, when, why, the old and the new value.';
COMMENT ON COLUMN holdfast.change.id IS 'UUID of version 7, ordered by time.';
COMMENT ON COLUMN holdfast.change.task_id IS 'The task it was done to, if to one.';
COMMENT ON COLUMN holdfast.change.action IS 'retry, cancel, discard or stop.';
COMMENT ON COLUMN holdfast.change.by IS 'Who: as given, else the database role.';
COMMENT ON COLUMN holdfast.change.why IS 'The reason given.';
COMMENT ON COLUMN holdfast.change.old IS 'The values before.';
COMMENT ON COLUMN holdfast.change.new IS 'The values after.';
COMMENT ON COLUMN holdfast.change.at IS 'When.';

-- Partitions -----------------------------------------------------------------------------------------

-- CREATE … LIKE and ATTACH rather than PARTITION OF: that would lock the parent against every finish.
CREATE FUNCTION holdfast.ensure_partition(day date) RETURNS void
LANGUAGE plpgsql
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
LANGUAGE sql
AS $$
    SELECT holdfast.ensure_partition(((holdfast.now() AT TIME ZONE 'UTC')::date + n))
    FROM generate_series(-1, days) AS n
$$;
COMMENT ON FUNCTION holdfast.ensure_partitions(integer) IS 'Makes the partitions from yesterday to some days ahead.';

SELECT holdfast.ensure_partitions();

-- The public verbs -----------------------------------------------------------------------------------

CREATE FUNCTION holdfast.check_options(options jsonb, known text[]) RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    unknown text;
BEGIN
    IF jsonb_typeof(options) <> 'object' THEN
        RAISE EXCEPTION 'holdfast: options must be a JSON object' USING ERRCODE = '22023';
    END IF;
    SELECT string_agg(o, ', ') INTO unknown FROM jsonb_object_keys(options) AS o WHERE o <> ALL (known);
    IF unknown IS NOT NULL THEN
        RAISE EXCEPTION 'holdfast: unknown option: %', unknown
            USING ERRCODE = '22023', HINT = 'Known are ' || array_to_string(known, ', ') || '.';
    END IF;
END
$$;
COMMENT ON FUNCTION holdfast.check_options(jsonb, text[]) IS 'Internal: refuses options that are no object or have a name that is not known.';

CREATE FUNCTION holdfast.check_args(args jsonb, step text) RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF args IS NULL OR jsonb_typeof(args) <> 'object' THEN
        RAISE EXCEPTION 'holdfast: the args of % must be a JSON object', step
            USING ERRCODE = '22023', HINT = 'Give the fields of the step by name: {"filename": "name.txt"}.';
    END IF;
    IF octet_length(args::text) > 1048576 THEN
        RAISE EXCEPTION 'holdfast: the args of % take % bytes; the limit is 1048576', step, octet_length(args::text)
            USING ERRCODE = '22023', HINT = 'Store the data elsewhere and pass a reference to it.';
    END IF;
END
$$;
COMMENT ON FUNCTION holdfast.check_args(jsonb, text) IS 'Internal: refuses args that are no object or too large.';

CREATE FUNCTION holdfast.enqueue(step text, args jsonb DEFAULT '{}', options jsonb DEFAULT '{}') RETURNS uuid
LANGUAGE plpgsql
AS $$
DECLARE
    task_kind text := split_part(step, '.', 1);
    task_step text := nullif(substr(step, length(split_part(step, '.', 1)) + 2), '');
    task_queue text;
    task_id uuid;
    declared holdfast.kind;
BEGIN
    IF step IS NULL OR task_kind !~ '^[a-z][a-z0-9_-]{0,62}$'
       OR (position('.' IN step) > 0 AND coalesce(task_step, '') !~ '^[A-Za-z_][A-Za-z0-9_]{0,62}$') THEN
        RAISE EXCEPTION 'holdfast: % is not the name of a step', quote_nullable(left(step, 200))
            USING ERRCODE = '22023', HINT = 'Write kind.Step, such as greeter.ReadName, or the kind alone for a function.';
    END IF;
    PERFORM holdfast.check_args(args, step);
    PERFORM holdfast.check_options(options, ARRAY['id', 'queue', 'priority', 'delay', 'at', 'key', 'headers']);
    IF options ? 'delay' AND options ? 'at' THEN
        RAISE EXCEPTION 'holdfast: give delay or at, not both' USING ERRCODE = '22023';
    END IF;
    IF jsonb_typeof(options -> 'key') NOT IN ('string', 'null') THEN
        RAISE EXCEPTION 'holdfast: key must be a string' USING ERRCODE = '22023';
    END IF;
    IF jsonb_typeof(options -> 'headers') NOT IN ('object', 'null') THEN
        RAISE EXCEPTION 'holdfast: headers must be a JSON object' USING ERRCODE = '22023';
    END IF;

    SELECT * INTO declared FROM holdfast.kind WHERE name = task_kind;
    IF FOUND AND task_step IS NULL AND declared.first IS NULL THEN
        RAISE EXCEPTION 'holdfast: % has several steps: name the one to begin with', step
            USING ERRCODE = '22023', HINT = 'Write kind.Step, such as greeter.ReadName.';
    END IF;
    task_id := coalesce((options ->> 'id')::uuid, holdfast.new_id());
    task_queue := coalesce(options ->> 'queue', declared.queue, 'default');
    INSERT INTO holdfast.task (id, queue, kind, step, args, priority, run_at, key, headers)
    VALUES (
        task_id, task_queue, task_kind, coalesce(task_step, declared.first, 'main'), args,
        coalesce((options ->> 'priority')::smallint, declared.priority, 0),
        coalesce((options ->> 'at')::timestamptz, holdfast.now() + (options ->> 'delay')::interval, holdfast.now()),
        options ->> 'key', nullif(options -> 'headers', 'null')
    );
    PERFORM pg_notify(holdfast.channel(), 'queue ' || task_queue);
    RETURN task_id;
END
$$;
COMMENT ON FUNCTION holdfast.enqueue(text, jsonb, jsonb) IS
    'Enqueues a task: select holdfast.enqueue(''greeter.ReadName'', ''{"filename": "name.txt"}''). Options: id, queue, priority, delay, at, key, headers.';

-- Looks the task up, locks it, and refuses clearly: HF404 no such task, HF409 not in such a state.
CREATE FUNCTION holdfast.lock_task(id uuid, verb text, states text[]) RETURNS holdfast.task
LANGUAGE plpgsql
AS $$
DECLARE
    found_task holdfast.task;
    ended text;
BEGIN
    SELECT * INTO found_task FROM holdfast.task t WHERE t.id = lock_task.id FOR UPDATE;
    IF NOT FOUND THEN
        SELECT a.state INTO ended FROM holdfast.archive a WHERE a.id = lock_task.id LIMIT 1;
        IF ended IS NULL THEN
            RAISE EXCEPTION 'holdfast: there is no task %', id USING ERRCODE = 'HF404',
                HINT = 'Is this the right database, and the right schema?';
        END IF;
        RAISE EXCEPTION 'holdfast: cannot % task %: it is already %', verb, id, ended USING ERRCODE = 'HF409',
            HINT = 'Finished tasks are history; enqueue a new one.';
    END IF;
    IF NOT found_task.state = ANY (states) THEN
        RAISE EXCEPTION 'holdfast: cannot % task %: it is %', verb, id, found_task.state USING ERRCODE = 'HF409',
            HINT = CASE found_task.state WHEN 'running' THEN 'Wait until the attempt ends, or cancel it.'
                                         ELSE 'This is possible only when it is ' || array_to_string(states, ' or ') || '.' END;
    END IF;
    RETURN found_task;
END
$$;
COMMENT ON FUNCTION holdfast.lock_task(uuid, text, text[]) IS 'Internal: the row of an unfinished task, locked, or a clear error.';

CREATE FUNCTION holdfast.retry(id uuid, options jsonb DEFAULT '{}') RETURNS text
LANGUAGE plpgsql
AS $$
DECLARE
    t holdfast.task;
BEGIN
    PERFORM holdfast.check_options(options, ARRAY['args', 'step', 'by', 'why', 'expected_attempt']);
    t := holdfast.lock_task(id, 'retry', ARRAY['parked', 'ready']);
    IF t.attempt <> (options ->> 'expected_attempt')::integer THEN
        RAISE EXCEPTION 'holdfast: task % was changed: it is at attempt %, not %', id, t.attempt, options ->> 'expected_attempt'
            USING ERRCODE = 'HF409', HINT = 'Somebody else may have retried it; look at it again.';
    END IF;
    IF options ? 'args' THEN
        PERFORM holdfast.check_args(options -> 'args', coalesce(options ->> 'step', t.step));
    END IF;
    UPDATE holdfast.task u
    SET state = 'ready', run_at = holdfast.now(), errors = 0, crashes = 0, error = NULL,
        args = coalesce(options -> 'args', u.args),
        -- Another step is another visit.
        moves = u.moves + (coalesce(options ->> 'step', u.step) <> u.step)::integer,
        step = coalesce(options ->> 'step', u.step)
    WHERE u.queue = t.queue AND u.id = t.id;
    INSERT INTO holdfast.change (task_id, action, by, why, old, new)
    VALUES (id, 'retry', coalesce(options ->> 'by', session_user), options ->> 'why',
            jsonb_build_object('state', t.state, 'step', t.step, 'args', t.args, 'attempt', t.attempt, 'error', t.error - 'traceback'),
            jsonb_strip_nulls(jsonb_build_object('step', options -> 'step', 'args', options -> 'args')));
    PERFORM pg_notify(holdfast.channel(), 'queue ' || t.queue);
    RETURN 'ready';
END
$$;
COMMENT ON FUNCTION holdfast.retry(uuid, jsonb) IS
    'Resumes a parked task at its step with a fresh budget. Options: args and step (repair), by, why, expected_attempt (refuse if somebody was faster).';

CREATE FUNCTION holdfast.cancel(id uuid, options jsonb DEFAULT '{}') RETURNS text
LANGUAGE plpgsql
AS $$
DECLARE
    t holdfast.task;
    who text := coalesce(options ->> 'by', session_user);
    reason text := concat_ws(': ', 'cancelled by ' || coalesce(options ->> 'by', session_user), nullif(options ->> 'why', ''));
BEGIN
    PERFORM holdfast.check_options(options, ARRAY['by', 'why']);
    t := holdfast.lock_task(id, 'cancel', ARRAY['ready', 'running', 'waiting', 'parked']);
    INSERT INTO holdfast.change (task_id, action, by, why, old)
    VALUES (id, 'cancel', who, options ->> 'why', jsonb_build_object('state', t.state, 'step', t.step));
    IF t.state = 'running' THEN
        UPDATE holdfast.task u SET cancel_at = coalesce(u.cancel_at, holdfast.now()), cancel_by = coalesce(u.cancel_by, reason)
        WHERE u.queue = t.queue AND u.id = t.id;
        PERFORM pg_notify(holdfast.channel(), 'cancel ' || t.id);
        RETURN 'cancelling';
    END IF;
    PERFORM holdfast.archive_task(t, 'cancelled', reason);
    RETURN 'cancelled';
END
$$;
COMMENT ON FUNCTION holdfast.cancel(uuid, jsonb) IS
    'Cancels a task: at once unless it is running, else its step is told ("cancelling") and it is never retried. Options: by, why.';

CREATE FUNCTION holdfast.discard(id uuid, options jsonb DEFAULT '{}') RETURNS text
LANGUAGE plpgsql
AS $$
DECLARE
    t holdfast.task;
BEGIN
    PERFORM holdfast.check_options(options, ARRAY['by', 'why']);
    t := holdfast.lock_task(id, 'discard', ARRAY['parked']);
    INSERT INTO holdfast.change (task_id, action, by, why, old)
    VALUES (id, 'discard', coalesce(options ->> 'by', session_user), options ->> 'why',
            jsonb_build_object('state', t.state, 'step', t.step, 'error', t.error - 'traceback'));
    PERFORM holdfast.archive_task(t, 'discarded', NULL);
    RETURN 'discarded';
END
$$;
COMMENT ON FUNCTION holdfast.discard(uuid, jsonb) IS 'Gives a parked task up: it is archived as discarded. Options: by, why.';

CREATE FUNCTION holdfast.archive_task(t holdfast.task, final_state text, reason text) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM holdfast.ensure_partition((holdfast.now() AT TIME ZONE 'UTC')::date)
    WHERE to_regclass(format('%I.%I', :'schema', to_char(holdfast.now() AT TIME ZONE 'UTC', '"archive_p"YYYYMMDD'))) IS NULL;
    DELETE FROM holdfast.task d WHERE d.queue = t.queue AND d.id = t.id;
    INSERT INTO holdfast.archive (id, queue, kind, step, args, state, priority, run_at, moves, attempt, errors, crashes,
                                  key, error, headers, created_at)
    VALUES (t.id, t.queue, t.kind, t.step, t.args, final_state, t.priority, t.run_at, t.moves, t.attempt, t.errors, t.crashes,
            t.key, CASE WHEN reason IS NULL THEN t.error
                        ELSE jsonb_build_object('type', final_state, 'message', reason, 'causes',
                                                CASE WHEN t.error IS NULL THEN '[]' ELSE jsonb_build_array(t.error) END) END,
            t.headers, t.created_at);
END
$$;
COMMENT ON FUNCTION holdfast.archive_task(holdfast.task, text, text) IS 'Internal: moves a task that is not running, and is locked by the caller, to the archive.';

CREATE FUNCTION holdfast.stop_workers(worker uuid DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    asked integer;
BEGIN
    UPDATE holdfast.worker w SET stop_requested_at = coalesce(w.stop_requested_at, holdfast.now())
    WHERE w.stopped_at IS NULL AND (stop_workers.worker IS NULL OR w.id = stop_workers.worker);
    GET DIAGNOSTICS asked = ROW_COUNT;
    INSERT INTO holdfast.change (action, by, new)
    VALUES ('stop', session_user, jsonb_build_object('worker', coalesce(worker::text, 'all')));
    PERFORM pg_notify(holdfast.channel(), 'stop');
    RETURN asked;
END
$$;
COMMENT ON FUNCTION holdfast.stop_workers(uuid) IS
    'Asks one worker, or all, to stop as SIGTERM does; answers how many were asked. All have stopped when: select count(*) from holdfast.worker where stopped_at is null is 0.';

-- Views for people -----------------------------------------------------------------------------------

CREATE VIEW holdfast.tasks AS
    SELECT t.id, t.queue, t.kind, t.step, t.state,
           CASE
               WHEN t.state <> 'ready' THEN t.state
               WHEN t.run_at > holdfast.now() AND t.errors > 0 THEN 'retrying'
               WHEN t.run_at > holdfast.now() THEN 'scheduled'
               WHEN NOT EXISTS (
                   SELECT FROM holdfast.worker w
                   WHERE w.stopped_at IS NULL AND w.seen_at > holdfast.now() - interval '1 minute'
                     AND t.queue::text = ANY (w.queues) AND t.kind || '.' || t.step = ANY (w.steps)
               ) THEN 'unroutable'
               ELSE 'due'
           END AS phase,
           t.priority, t.run_at, t.moves, t.attempt, t.errors, t.crashes, t.worker_id, t.claimed_at, t.lease_expires_at,
           t.args, t.error, t.key, t.headers, t.created_at, NULL::timestamptz AS finished_at, NULL::jsonb AS result
    FROM holdfast.task t
    UNION ALL
    SELECT a.id, a.queue, a.kind, a.step, a.state, a.state, a.priority, a.run_at, a.moves, a.attempt, a.errors, a.crashes,
           a.worker_id, a.claimed_at, NULL, a.args, a.error, a.key, a.headers, a.created_at, a.finished_at, a.result
    FROM holdfast.archive a;
COMMENT ON VIEW holdfast.tasks IS
    'All tasks, live and archived. phase says more than state: scheduled, retrying, due, unroutable (no live worker knows the step), running, waiting, parked, done, cancelled, expired, discarded.';

CREATE VIEW holdfast.attempts AS
    SELECT l.task_id, l.queue, l.kind, l.step, l.moves, l.attempt, l.worker_id, l.claimed_at, l.finished_at, l.outcome,
           l.error, l.args
    FROM holdfast.attempt l
    UNION ALL
    SELECT a.id, a.queue, a.kind, a.step, a.moves, a.attempt, a.worker_id, a.claimed_at, a.finished_at, a.outcome,
           CASE WHEN a.outcome <> 'done' THEN a.error END, a.args
    FROM holdfast.archive a WHERE a.outcome IS NOT NULL
    UNION ALL
    SELECT t.id, t.queue, t.kind, t.step, t.moves, t.attempt, t.worker_id, t.claimed_at, NULL, NULL, NULL, t.args
    FROM holdfast.task t WHERE t.state = 'running';
COMMENT ON VIEW holdfast.attempts IS 'The log of all attempts; the running ones have no outcome yet.';

CREATE VIEW holdfast.parked AS
    SELECT t.id, t.queue, t.kind, t.step, t.errors, t.crashes, t.attempt, t.error ->> 'type' AS error_type,
           t.error ->> 'message' AS error_message, t.claimed_at, t.args, t.error
    FROM holdfast.task t WHERE t.state = 'parked';
COMMENT ON VIEW holdfast.parked IS 'Tasks that wait for a person: repair the cause, then select holdfast.retry(id).';
