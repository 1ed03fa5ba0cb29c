-- The schema as all migrations together make it, for reading and for reviews; partitions are left out.
-- Nothing runs this file. It is written by: python -m tests.migrations.schema_picture --write

CREATE SCHEMA holdfast;

CREATE DOMAIN holdfast.kind_name AS text COLLATE pg_catalog."C"
	CONSTRAINT kind_name_check CHECK (((length(VALUE) <= 63) AND (VALUE ~ '^[a-z][a-z0-9_-]*$'::text)));

COMMENT ON DOMAIN holdfast.kind_name IS 'Lower-case letters, digits, _ and -, at most 63, beginning with a letter.';

CREATE DOMAIN holdfast.queue_name AS text COLLATE pg_catalog."C"
	CONSTRAINT queue_name_check CHECK (((length(VALUE) <= 63) AND (VALUE ~ '^[a-z0-9_][a-z0-9_.-]*$'::text)));

COMMENT ON DOMAIN holdfast.queue_name IS 'Lower-case letters, digits, _ . and -, at most 63, not beginning with . or -.';

CREATE DOMAIN holdfast.step_name AS text COLLATE pg_catalog."C"
	CONSTRAINT step_name_check CHECK (((length(VALUE) <= 63) AND (VALUE ~ '^[A-Za-z_][A-Za-z0-9_]*$'::text)));

COMMENT ON DOMAIN holdfast.step_name IS 'Letters, digits and _, at most 63, not beginning with a digit.';

CREATE FUNCTION holdfast.again(id uuid, options jsonb DEFAULT '{}'::jsonb) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    a "holdfast".archive;
    new uuid := "holdfast".new_id();
BEGIN
    PERFORM "holdfast".check_options(options, ARRAY['by', 'why']);
    SELECT * INTO a FROM "holdfast".archive f WHERE f.id = again.id LIMIT 1;
    IF NOT FOUND THEN
        PERFORM "holdfast".lock_task(id, 'again', ARRAY['ready', 'running', 'waiting', 'parked']);
        RAISE EXCEPTION 'holdfast: cannot enqueue task % again: it has not ended', id USING ERRCODE = 'HF409',
            HINT = 'To resume a parked task is to retry it.';
    END IF;
    -- A key that was to be held for longer is now held by the new one.
    UPDATE "holdfast".key k SET task_id = new WHERE k.queue = a.queue AND k.key = a.key AND k.task_id = a.id;
    PERFORM "holdfast".enqueue(a.kind || '.' || a.step, a.args, jsonb_strip_nulls(jsonb_build_object(
        'id', new, 'queue', a.queue, 'priority', a.priority, 'key', a.key, 'on_conflict', CASE WHEN a.key IS NOT NULL THEN 'raise' END,
        'headers', coalesce(a.headers, '{}') || jsonb_build_object('holdfast-again', a.id))));
    INSERT INTO "holdfast".change (task_id, action, by, why, old, new)
    VALUES (id, 'again', coalesce(options ->> 'by', session_user), options ->> 'why',
            jsonb_build_object('state', a.state, 'step', a.step), jsonb_build_object('id', new));
    RETURN new;
END
$$;

COMMENT ON FUNCTION holdfast.again(id uuid, options jsonb) IS 'Enqueues a task that has ended anew, at the step where it ended and with the same args, and answers the new id. Its header holdfast-again names the old one, whose changes name the new one. Options: by, why.';

CREATE FUNCTION holdfast.now() RETURNS timestamp with time zone
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$SELECT pg_catalog.statement_timestamp()$$;

COMMENT ON FUNCTION holdfast.now() IS 'The only clock that decides: the start of the current statement.';

CREATE TABLE holdfast.task (
    id uuid NOT NULL,
    queue holdfast.queue_name DEFAULT 'default'::text NOT NULL,
    kind holdfast.kind_name NOT NULL,
    step holdfast.step_name NOT NULL,
    args jsonb DEFAULT '{}'::jsonb NOT NULL,
    state text DEFAULT 'ready'::text NOT NULL COLLATE pg_catalog."C",
    priority smallint DEFAULT 0 NOT NULL,
    run_at timestamp with time zone DEFAULT holdfast.now() NOT NULL,
    moves integer DEFAULT 0 NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    errors integer DEFAULT 0 NOT NULL,
    crashes smallint DEFAULT 0 NOT NULL,
    worker_id uuid,
    lease_expires_at timestamp with time zone,
    claimed_at timestamp with time zone,
    max_crashes smallint DEFAULT 3 NOT NULL,
    cancel_at timestamp with time zone,
    cancel_by text,
    key text COLLATE pg_catalog."C",
    replaced_by uuid,
    deadline timestamp with time zone,
    error jsonb,
    headers jsonb,
    created_at timestamp with time zone DEFAULT holdfast.now() NOT NULL,
    CONSTRAINT task_args CHECK ((jsonb_typeof(args) = 'object'::text)),
    CONSTRAINT task_lease CHECK ((((state = 'running'::text) = (worker_id IS NOT NULL)) AND ((state = 'running'::text) = (lease_expires_at IS NOT NULL)))),
    CONSTRAINT task_parked_error CHECK (((state <> 'parked'::text) OR (error IS NOT NULL))),
    CONSTRAINT task_priority CHECK (((priority >= 0) AND (priority <= 9))),
    CONSTRAINT task_run_at CHECK (((run_at >= '1000-01-01 00:00:00+00'::timestamp with time zone) AND (run_at <= '9999-01-01 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT task_state CHECK ((state = ANY (ARRAY['ready'::text, 'running'::text, 'waiting'::text, 'parked'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_insert_scale_factor='0.2', autovacuum_analyze_scale_factor='0.1', autovacuum_vacuum_cost_delay='0');

COMMENT ON TABLE holdfast.task IS 'Unfinished tasks, one row each, with the step where each one stands. Finished ones are in archive.';

COMMENT ON COLUMN holdfast.task.id IS 'UUID of version 7, made by whoever enqueued the task.';

COMMENT ON COLUMN holdfast.task.queue IS 'The queue whose workers may claim it; also the shard key.';

COMMENT ON COLUMN holdfast.task.kind IS 'The registered name of its type, such as greeter.';

COMMENT ON COLUMN holdfast.task.step IS 'The step where it stands, such as ReadName; main for a plain function.';

COMMENT ON COLUMN holdfast.task.args IS 'The fields of the current step.';

COMMENT ON COLUMN holdfast.task.state IS 'ready: to be claimed once run_at is past; running: leased by worker_id; waiting: for an event or children; parked: stopped by an error, waits for "holdfast".retry(id).';

COMMENT ON COLUMN holdfast.task.priority IS '0 to 9; higher is claimed first.';

COMMENT ON COLUMN holdfast.task.run_at IS 'Not claimed before this time: a delay, or the wait before a retry.';

COMMENT ON COLUMN holdfast.task.moves IS 'How many moves from step to step were recorded. With the id it names the visit.';

COMMENT ON COLUMN holdfast.task.attempt IS 'The number of the last execution of a step, counted over the whole life, never reset. It is the fence: a write by an older attempt changes nothing.';

COMMENT ON COLUMN holdfast.task.errors IS 'Errors at this visit; a move or "holdfast".retry(id) sets it to 0.';

COMMENT ON COLUMN holdfast.task.crashes IS 'Workers lost at this visit; a move or "holdfast".retry(id) sets it to 0.';

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

CREATE FUNCTION holdfast.archive_task(t holdfast.task, final_state text, reason text) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM "holdfast".ensure_partition(("holdfast".now() AT TIME ZONE 'UTC')::date)
    WHERE to_regclass(format('%I.%I', 'holdfast', to_char("holdfast".now() AT TIME ZONE 'UTC', '"archive_p"YYYYMMDD'))) IS NULL;
    DELETE FROM "holdfast".task d WHERE d.queue = t.queue AND d.id = t.id;
    INSERT INTO "holdfast".archive (id, queue, kind, step, args, state, priority, run_at, moves, attempt, errors, crashes,
                                  key, error, headers, created_at)
    VALUES (t.id, t.queue, t.kind, t.step, t.args, final_state, t.priority, t.run_at, t.moves, t.attempt, t.errors, t.crashes,
            t.key, CASE WHEN reason IS NULL THEN t.error
                        ELSE jsonb_build_object('type', final_state, 'message', reason, 'causes',
                                                CASE WHEN t.error IS NULL THEN '[]' ELSE jsonb_build_array(t.error) END) END,
            t.headers, t.created_at);
    PERFORM pg_notify("holdfast".channel(), 'ended ' || t.id);
END
$$;

COMMENT ON FUNCTION holdfast.archive_task(t holdfast.task, final_state text, reason text) IS 'Internal: moves a task that is not running, and is locked by the caller, to the archive.';

CREATE FUNCTION holdfast.buckets() RETURNS double precision[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT '{0.001,0.002,0.005,0.01,0.02,0.05,0.1,0.2,0.5,1,2,5,10,20,50,100,200,500,1000,2000,5000,10000,20000,50000,100000}'::float8[] $$;

COMMENT ON FUNCTION holdfast.buckets() IS 'The bounds between the buckets of waits and runs, in seconds. They never change: figures of all times are added up.';

CREATE FUNCTION holdfast.cancel(id uuid, options jsonb DEFAULT '{}'::jsonb) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    t "holdfast".task;
    who text := coalesce(options ->> 'by', session_user);
    reason text := concat_ws(': ', 'cancelled by ' || coalesce(options ->> 'by', session_user), nullif(options ->> 'why', ''));
BEGIN
    PERFORM "holdfast".check_options(options, ARRAY['by', 'why']);
    t := "holdfast".lock_task(id, 'cancel', ARRAY['ready', 'running', 'waiting', 'parked']);
    INSERT INTO "holdfast".change (task_id, action, by, why, old)
    VALUES (id, 'cancel', who, options ->> 'why', jsonb_build_object('state', t.state, 'step', t.step));
    IF t.state = 'running' THEN
        UPDATE "holdfast".task u SET cancel_at = coalesce(u.cancel_at, "holdfast".now()), cancel_by = coalesce(u.cancel_by, reason)
        WHERE u.queue = t.queue AND u.id = t.id;
        PERFORM pg_notify("holdfast".channel(), 'cancel ' || t.id);
        RETURN 'cancelling';
    END IF;
    PERFORM "holdfast".archive_task(t, 'cancelled', reason);
    RETURN 'cancelled';
END
$$;

COMMENT ON FUNCTION holdfast.cancel(id uuid, options jsonb) IS 'Cancels a task: at once unless it is running, else its step is told ("cancelling") and it is never retried. Options: by, why.';

CREATE FUNCTION holdfast.channel() RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT 'holdfast'::text $$;

COMMENT ON FUNCTION holdfast.channel() IS 'The notification channel of this schema. Payloads: "queue NAME" (a task of it may be due), "cancel ID", "stop", "pause" (a queue or a kind was paused or resumed), "schedule" (one was made, changed or resumed), "wait ID …" (somebody waits for the ends of these tasks), "ended ID …" (they have ended, or are parked), "failed" (a task was parked).';

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

COMMENT ON FUNCTION holdfast.check_args(args jsonb, step text) IS 'Internal: refuses args that are no object or too large.';

CREATE FUNCTION holdfast.check_definition(name text, definition jsonb) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS $_$
BEGIN
    IF name IS NULL OR name !~ '^[a-z0-9_][a-z0-9_.-]{0,62}$' THEN
        RAISE EXCEPTION 'holdfast: % is not the name of a schedule', quote_nullable(left(name, 200))
            USING ERRCODE = '22023', HINT = 'Lower-case letters, digits, _ . and -, at most 63, not beginning with . or -.';
    END IF;
    IF jsonb_typeof(definition -> 'timing') IS DISTINCT FROM 'object'
       OR definition #> '{timing,function}' IS NOT NULL OR NOT definition -> 'timing' ?| ARRAY['cron', 'every', 'times'] THEN
        RAISE EXCEPTION 'holdfast: schedule % needs a timing', name USING ERRCODE = '22023',
            HINT = 'Such as {"cron": "0 3 * * *", "tz": "Europe/Berlin"}, {"every": "15m"} or {"times": ["2027-01-01T00:00:00Z"]}. A function is declared in the code.';
    END IF;
    IF coalesce(definition ->> 'step', '') !~ '^[a-z][a-z0-9_-]{0,62}([.][A-Za-z_][A-Za-z0-9_]{0,62})?$' THEN
        RAISE EXCEPTION 'holdfast: schedule % needs the name of a step', name USING ERRCODE = '22023',
            HINT = 'Write kind.Step, such as greeter.ReadName, or the kind alone for a function.';
    END IF;
    PERFORM "holdfast".check_args(definition -> 'args', definition ->> 'step');
    IF jsonb_typeof(definition -> 'scopes') NOT IN ('array', 'null') OR jsonb_typeof(definition -> 'options') <> 'object' THEN
        RAISE EXCEPTION 'holdfast: schedule %: scopes must be an array of strings, options an object', name USING ERRCODE = '22023',
            HINT = 'Scopes that come from a function or a query are declared in the code.';
    END IF;
    IF definition ->> 'catch_up' = 'skip' AND definition ->> 'overlap' = 'queue' THEN
        RAISE EXCEPTION 'holdfast: schedule %: overlap queue lets a plan wait, catch_up skip drops what is late', name
            USING ERRCODE = '22023', HINT = 'Choose another catch_up.';
    END IF;
    IF definition ->> 'catch_up' NOT IN ('skip', 'latest', 'all') OR definition ->> 'overlap' NOT IN ('allow', 'skip', 'queue') THEN
        RAISE EXCEPTION 'holdfast: schedule %: catch_up is skip, latest or all; overlap is allow, skip or queue', name
            USING ERRCODE = '22023';
    END IF;
END
$_$;

COMMENT ON FUNCTION holdfast.check_definition(name text, definition jsonb) IS 'Internal: refuses a definition that no worker could follow.';

CREATE FUNCTION holdfast.check_given_id(given uuid, task_queue text) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    found_state text;
BEGIN
    SELECT a.state INTO found_state FROM "holdfast".archive a WHERE a.id = given LIMIT 1;
    IF NOT FOUND THEN
        SELECT 'in queue ' || o.queue INTO found_state FROM "holdfast".task o WHERE o.id = given AND o.queue <> task_queue LIMIT 1;
    END IF;
    IF FOUND THEN
        PERFORM "holdfast".refuse_id(given, found_state);
    END IF;
END
$$;

COMMENT ON FUNCTION holdfast.check_given_id(given uuid, task_queue text) IS 'Internal: refuses an id that a finished task has, or one of another queue.';

CREATE FUNCTION holdfast.check_known(kind text, step text, strict boolean) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    known text[] := "holdfast".known_steps(kind);
    said text := format('holdfast: nobody knows the step %s.%s', kind, left(step, 200));
    hint text := CASE WHEN known = '{}' THEN format('No worker has declared the kind %s so far.', kind)
                      ELSE format('The steps of %s are: %s.', kind, array_to_string(known, ', ')) END;
BEGIN
    IF step = ANY (known) THEN
        RETURN;
    ELSIF strict THEN
        RAISE EXCEPTION '%', said USING ERRCODE = 'HF409', HINT = hint || ' With force, the task waits there until a worker knows it.';
    END IF;
    RAISE NOTICE '%', said USING HINT = hint || ' The task waits there until a worker knows it.';
END
$$;

COMMENT ON FUNCTION holdfast.check_known(kind text, step text, strict boolean) IS 'Internal: tells, or if strict refuses, a step that nobody knows.';

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
    IF jsonb_typeof(options -> 'by') NOT IN ('string', 'null') OR jsonb_typeof(options -> 'why') NOT IN ('string', 'null') THEN
        RAISE EXCEPTION 'holdfast: by and why must be strings'
            USING ERRCODE = '22023', HINT = 'They are kept for people: {"by": "ann", "why": "the disk is repaired"}.';
    END IF;
END
$$;

COMMENT ON FUNCTION holdfast.check_options(options jsonb, known text[]) IS 'Internal: refuses options that are no object, have a name that is not known, or say by and why with other things than strings.';

CREATE TABLE holdfast.figure (
    minute timestamp with time zone NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    step text NOT NULL COLLATE pg_catalog."C",
    done integer DEFAULT 0 NOT NULL,
    advanced integer DEFAULT 0 NOT NULL,
    snoozed integer DEFAULT 0 NOT NULL,
    retried integer DEFAULT 0 NOT NULL,
    failed integer DEFAULT 0 NOT NULL,
    lost integer DEFAULT 0 NOT NULL,
    cancelled integer DEFAULT 0 NOT NULL,
    released integer DEFAULT 0 NOT NULL,
    wait integer[] NOT NULL,
    run integer[] NOT NULL,
    wait_seconds double precision NOT NULL,
    run_seconds double precision NOT NULL
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

COMMENT ON COLUMN holdfast.figure.wait IS 'How many of them, without lost and released ones, had waited how long, from due to claimed: as many as "holdfast".buckets() has bounds, and one more.';

COMMENT ON COLUMN holdfast.figure.run IS 'How many took how long, from claimed to recorded, likewise.';

COMMENT ON COLUMN holdfast.figure.wait_seconds IS 'How long they had waited, all together.';

COMMENT ON COLUMN holdfast.figure.run_seconds IS 'How long they took, all together.';

CREATE FUNCTION holdfast.count_log(since timestamp with time zone, until timestamp with time zone) RETURNS SETOF holdfast.figure
    LANGUAGE sql STABLE
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
    WITH log AS (
        SELECT l.finished_at, l.queue, l.kind, l.step, l.outcome, l.run_at, l.claimed_at
        FROM "holdfast".attempt l WHERE l.finished_at >= since AND l.finished_at < until
        UNION ALL
        SELECT a.finished_at, a.queue, a.kind, a.step, a.outcome, a.run_at, a.claimed_at
        FROM "holdfast".archive a WHERE a.finished_at >= since AND a.finished_at < until AND a.outcome IS NOT NULL
    ), timed AS (
        -- How long lost and released ones took tells when somebody noticed, and nothing about the step.
        SELECT date_bin('1 minute', l.finished_at, 'epoch') AS minute, l.queue, l.kind, l.step, l.outcome,
               CASE WHEN l.outcome NOT IN ('lost', 'released') THEN date_part('epoch', greatest(l.claimed_at - l.run_at, interval '0')) END AS wait,
               CASE WHEN l.outcome NOT IN ('lost', 'released') THEN date_part('epoch', greatest(l.finished_at - l.claimed_at, interval '0')) END AS run,
               l.run_at IS NOT NULL AS due
        FROM log l
    ), bucketed AS MATERIALIZED (
        SELECT t.minute, t.queue, t.kind, t.step, t.outcome, CASE WHEN t.due THEN width_bucket(t.wait, "holdfast".buckets()) END AS w,
               width_bucket(t.run, "holdfast".buckets()) AS r, count(*) AS n, sum(t.wait) FILTER (WHERE t.due) AS wait, sum(t.run) AS run
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

COMMENT ON FUNCTION holdfast.count_log(since timestamp with time zone, until timestamp with time zone) IS 'Internal: figures of a span of time, counted from the log.';

CREATE FUNCTION holdfast.delete_schedule(name text, options jsonb DEFAULT '{}'::jsonb) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    s "holdfast".schedule;
BEGIN
    PERFORM "holdfast".check_options(options, ARRAY['by', 'why']);
    SELECT * INTO s FROM "holdfast".schedule f WHERE f.name = delete_schedule.name FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'not there';
    END IF;
    IF s.declared IS NOT NULL
       AND EXISTS (SELECT FROM "holdfast".worker w WHERE "holdfast".is_live(w) AND delete_schedule.name = ANY (w.schedules)) THEN
        RAISE EXCEPTION 'holdfast: schedule % is declared in the code of a live worker and would come back', name USING ERRCODE = 'HF459',
            HINT = 'Remove it there, or pause it.';
    END IF;
    DELETE FROM "holdfast".schedule d WHERE d.name = s.name;
    INSERT INTO "holdfast".change (action, by, why, old, new)
    VALUES ('delete', coalesce(options ->> 'by', session_user), options ->> 'why', s.definition, jsonb_build_object('schedule', name));
    RETURN 'deleted';
END
$$;

COMMENT ON FUNCTION holdfast.delete_schedule(name text, options jsonb) IS 'Deletes a schedule; its occurrences and tasks stay. Answers deleted, or not there. One that a live worker''s code declares is refused: pause it. Options: by, why.';

CREATE FUNCTION holdfast.discard(id uuid, options jsonb DEFAULT '{}'::jsonb) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    t "holdfast".task;
BEGIN
    PERFORM "holdfast".check_options(options, ARRAY['by', 'why']);
    t := "holdfast".lock_task(id, 'discard', ARRAY['parked']);
    INSERT INTO "holdfast".change (task_id, action, by, why, old)
    VALUES (id, 'discard', coalesce(options ->> 'by', session_user), options ->> 'why',
            jsonb_build_object('state', t.state, 'step', t.step, 'error', t.error - 'traceback'));
    PERFORM "holdfast".archive_task(t, 'discarded', NULL);
    RETURN 'discarded';
END
$$;

COMMENT ON FUNCTION holdfast.discard(id uuid, options jsonb) IS 'Gives a parked task up: it is archived as discarded. Options: by, why.';

CREATE FUNCTION holdfast.drop_oldest_partition() RETURNS TABLE(day date, bytes bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '200ms'
    AS $_$
DECLARE
    old record;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('holdfast' || ' partitions', 0));
    SELECT o.name, o.day INTO old
    FROM (SELECT h.name, h.day FROM "holdfast".history h WHERE h.drop_after <= "holdfast".now() OR h.detaching
          UNION ALL
          SELECT p.name, to_date(right(p.name, 8), 'YYYYMMDD') FROM "holdfast".partition p
          JOIN pg_catalog.pg_class c ON c.relname = p.name AND c.relnamespace = to_regnamespace(quote_ident('holdfast'))
          WHERE p.dropping_at IS NOT NULL AND NOT c.relispartition) AS o
    WHERE o.name ~ '^(archive|attempt)_p[0-9]{8}$'
    ORDER BY o.day, o.name COLLATE "C" LIMIT 1;
    IF FOUND THEN
        day := old.day;
        bytes := pg_total_relation_size(format('%I.%I', 'holdfast', old.name)::regclass);
        EXECUTE format('DROP TABLE %I.%I', 'holdfast', old.name);
        DELETE FROM "holdfast".partition p WHERE p.name = old.name;
        RETURN NEXT;
    END IF;
END
$_$;

COMMENT ON FUNCTION holdfast.drop_oldest_partition() IS 'Internal: drops the oldest partition that the retention lets go, for a worker that does not own the tables; answers its day and size, or nothing.';

CREATE FUNCTION holdfast.enqueue(step text, args jsonb DEFAULT '{}'::jsonb, options jsonb DEFAULT '{}'::jsonb) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    t "holdfast".task := "holdfast".new_task(step, args, options);
    made uuid := "holdfast".insert_task(t, (options ->> 'unique_for')::interval, coalesce(options ->> 'on_conflict', 'skip'));
BEGIN
    IF options ->> 'id' IS NOT NULL AND made = t.id THEN
        PERFORM "holdfast".check_given_id(t.id, t.queue);
    END IF;
    RETURN made;
END
$$;

COMMENT ON FUNCTION holdfast.enqueue(step text, args jsonb, options jsonb) IS 'Enqueues a task: select "holdfast".enqueue(''greeter.ReadName'', ''{"filename": "name.txt"}''). Options: id, queue, priority, delay, at, headers; deadline (not started by then, a length of time or a time, means never started); key, or unique (a key made from kind, step and args); unique_for (the key also holds for so long, even if the task has ended); on_conflict while the key is held: skip (answers the id of the task that holds it), raise, or replace (new args and time for that one if it was never started).';

CREATE FUNCTION holdfast.enqueue_many(entries jsonb, options jsonb DEFAULT '{}'::jsonb) RETURNS SETOF uuid
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    defaults jsonb := coalesce(options, '{}');
    entry jsonb;
    tasks "holdfast".task[];
    rules text[];
    spans interval[];
    given integer[];
    ids uuid[];
    written uuid[];
    n integer;
    said text;
    advice text;
BEGIN
    IF entries IS NULL OR jsonb_typeof(entries) <> 'array' THEN
        RAISE EXCEPTION 'holdfast: the entries must be a JSON array' USING ERRCODE = '22023',
            HINT = 'Such as [{"step": "greeter.ReadName", "args": {"filename": "name.txt"}, "priority": 5}].';
    END IF;
    PERFORM "holdfast".check_options(defaults, ARRAY['queue', 'priority', 'delay', 'at', 'deadline', 'key', 'unique', 'unique_for', 'on_conflict', 'headers']);
    FOR entry, n IN SELECT e.value, e.ordinality FROM jsonb_array_elements(entries) WITH ORDINALITY AS e LOOP
        IF jsonb_typeof(entry) <> 'object' OR jsonb_typeof(entry -> 'step') IS DISTINCT FROM 'string' THEN
            RAISE EXCEPTION 'holdfast: an entry must be a JSON object with the name of a step' USING ERRCODE = '22023',
                HINT = 'Such as {"step": "greeter.ReadName", "args": {"filename": "name.txt"}, "priority": 5}.';
        END IF;
        tasks[n] := "holdfast".new_task(entry ->> 'step', coalesce(entry -> 'args', '{}'), defaults || (entry - 'step' - 'args'));
        ids[n] := tasks[n].id;
        rules[n] := coalesce(entry ->> 'on_conflict', defaults ->> 'on_conflict', 'skip');
        spans[n] := ((defaults || entry) ->> 'unique_for')::interval;
        IF entry ->> 'id' IS NOT NULL THEN
            given := given || n;
        END IF;
    END LOOP;
    SELECT r.ordinality INTO n
    FROM (SELECT i.ordinality, row_number() OVER (PARTITION BY i.id ORDER BY i.ordinality) AS nth
          FROM unnest(ids) WITH ORDINALITY AS i(id, ordinality)) AS r
    WHERE r.nth > 1 ORDER BY r.ordinality LIMIT 1;
    IF FOUND THEN
        PERFORM "holdfast".refuse_id(ids[n], 'given twice');
    END IF;
    n := NULL;
    WITH made AS (
        INSERT INTO "holdfast".task (id, queue, kind, step, args, priority, run_at, deadline, headers)
        SELECT t.id, t.queue, t.kind, t.step, t.args, t.priority, t.run_at, t.deadline, t.headers
        FROM unnest(tasks) WITH ORDINALITY AS t WHERE t.key IS NULL
        ORDER BY t.ordinality
        ON CONFLICT DO NOTHING
        RETURNING task.id
    )
    SELECT array_agg(m.id) INTO written FROM made m;
    PERFORM "holdfast".wake(t.queue, min(t.run_at)) FROM unnest(tasks) AS t WHERE t.id IN (SELECT unnest(written)) GROUP BY t.queue;
    -- Keys in one order, so that two callers with the same ones never wait for each other.
    FOR n IN SELECT t.ordinality FROM unnest(tasks) WITH ORDINALITY AS t
             WHERE t.id NOT IN (SELECT unnest(written)) ORDER BY t.queue, t.key, t.ordinality LOOP
        ids[n] := "holdfast".insert_task(tasks[n], spans[n], rules[n]);
    END LOOP;
    FOREACH n IN ARRAY coalesce(given, '{}') LOOP
        IF ids[n] = tasks[n].id THEN
            PERFORM "holdfast".check_given_id(ids[n], tasks[n].queue);
        END IF;
    END LOOP;
    RETURN QUERY SELECT i.id FROM unnest(ids) WITH ORDINALITY AS i(id, ordinality) ORDER BY i.ordinality;
EXCEPTION WHEN OTHERS THEN
    IF n IS NULL THEN
        RAISE;
    END IF;
    GET STACKED DIAGNOSTICS said = MESSAGE_TEXT, advice = PG_EXCEPTION_HINT;
    RAISE EXCEPTION 'holdfast: entries[%]: %', n - 1, regexp_replace(said, '^holdfast: ', '')
        USING ERRCODE = SQLSTATE, HINT = coalesce(nullif(advice, ''), 'Nothing was enqueued.');
END
$$;

COMMENT ON FUNCTION holdfast.enqueue_many(entries jsonb, options jsonb) IS 'Enqueues many tasks, all or none: select "holdfast".enqueue_many(''[{"step": "greeter.ReadName", "args": {"filename": "name.txt"}}]''). An entry may have any option of enqueue; the options here are defaults for all. The ids come in the order of the entries; an error names the entry as entries[0], entries[1] and so on.';

CREATE FUNCTION holdfast.ensure_partition(day date) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    parent text;
    child text;
BEGIN
    -- One maker at a time: two would meet in "relation already exists".
    PERFORM pg_advisory_xact_lock(hashtextextended('holdfast' || ' partitions', 0));
    FOREACH parent IN ARRAY ARRAY['archive', 'attempt'] LOOP
        child := parent || to_char(day, '"_p"YYYYMMDD');
        IF NOT EXISTS (
            SELECT FROM pg_catalog.pg_inherits i
            JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
            JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = 'holdfast' AND c.relname = child
        ) THEN
            EXECUTE format('CREATE TABLE IF NOT EXISTS %I.%I (LIKE %I.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)',
                           'holdfast', child, 'holdfast', parent);
            EXECUTE format('ALTER TABLE %I.%I ATTACH PARTITION %I.%I FOR VALUES FROM (%L) TO (%L)',
                           'holdfast', parent, 'holdfast', child,
                           to_char(day, 'YYYY-MM-DD') || ' 00:00:00+00',
                           to_char(day + 1, 'YYYY-MM-DD') || ' 00:00:00+00');
        END IF;
    END LOOP;
END
$$;

COMMENT ON FUNCTION holdfast.ensure_partition(day date) IS 'Makes the partitions of archive and attempt for one UTC day, if they are missing.';

CREATE FUNCTION holdfast.ensure_partitions(days integer DEFAULT 14) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT "holdfast".ensure_partition((("holdfast".now() AT TIME ZONE 'UTC')::date + n))
    FROM generate_series(-1, days) AS n
$$;

COMMENT ON FUNCTION holdfast.ensure_partitions(days integer) IS 'Makes the partitions from yesterday to some days ahead.';

CREATE FUNCTION holdfast.error_line(error jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT coalesce(nullif(concat_ws(': ', "holdfast".one_line(error ->> 'type', 100), "holdfast".one_line(error ->> 'message')), ''),
                    'an error that says nothing')
$$;

COMMENT ON FUNCTION holdfast.error_line(error jsonb) IS 'Internal: type and message of an error in one line.';

CREATE FUNCTION holdfast.expire_holder(task_queue text, task_key text) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    t "holdfast".task;
BEGIN
    SELECT * INTO t FROM "holdfast".task h
    WHERE h.queue = task_queue AND h.key = task_key AND h.state = 'ready' AND h.attempt = 0 AND h.deadline <= "holdfast".now()
    FOR UPDATE;
    IF FOUND THEN
        PERFORM "holdfast".archive_task(t, 'expired', format('it was not started before its deadline, %s', t.deadline));
    END IF;
END
$$;

COMMENT ON FUNCTION holdfast.expire_holder(task_queue text, task_key text) IS 'Internal: archives the task that holds a key if its deadline has passed before it was started.';

CREATE FUNCTION holdfast.explain(id uuid) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    t "holdfast".task;
    a "holdfast".archive;
    forgotten integer;
BEGIN
    SELECT * INTO t FROM "holdfast".task l WHERE l.id = explain.id;
    IF FOUND THEN
        forgotten := "holdfast".forgotten_attempts(id, t.attempt - (t.state = 'running')::integer);
        RETURN CASE t.state WHEN 'ready' THEN "holdfast".explain_ready(t)
                                 || CASE WHEN t.attempt = 0 AND t.deadline > "holdfast".now()
                                         THEN '; it will expire at ' || "holdfast".the_time(t.deadline) || ' unless it is started before'
                                         ELSE '' END
                            WHEN 'running' THEN "holdfast".explain_running(t)
                            WHEN 'parked' THEN "holdfast".explain_parked(t)
                            ELSE 'It waits for an event or for other tasks' END || '.'
            || CASE WHEN forgotten > 0 THEN format(' Its first %s no longer in the log: history is kept for %s.',
                                                   CASE forgotten WHEN 1 THEN 'attempt is' ELSE forgotten || ' attempts are' END,
                                                   "holdfast".how_long("holdfast".retention(t.queue)))
                    ELSE '' END;
    END IF;
    SELECT * INTO a FROM "holdfast".archive e WHERE e.id = explain.id LIMIT 1;
    IF FOUND THEN
        RETURN "holdfast".explain_ended(a) || '.';
    END IF;
    RETURN format('There is no task %s: it is in another database or schema than %s.%s, was never committed, or ended longer ago than finished tasks are kept (%s at most).',
        coalesce(id::text, 'without an id'), current_database(), 'holdfast', "holdfast".how_long("holdfast".longest_retention()));
END
$$;

COMMENT ON FUNCTION holdfast.explain(id uuid) IS 'Says in one sentence why a task is not running, or how it stands, with the command to use: select "holdfast".explain(id).';

CREATE TABLE holdfast.archive (
    id uuid NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    step text NOT NULL COLLATE pg_catalog."C",
    args jsonb NOT NULL,
    state text NOT NULL COLLATE pg_catalog."C",
    priority smallint NOT NULL,
    run_at timestamp with time zone NOT NULL,
    moves integer NOT NULL,
    attempt integer NOT NULL,
    errors integer NOT NULL,
    crashes smallint NOT NULL,
    worker_id uuid,
    claimed_at timestamp with time zone,
    outcome text COLLATE pg_catalog."C",
    key text COLLATE pg_catalog."C",
    error jsonb,
    headers jsonb,
    created_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone DEFAULT holdfast.now() NOT NULL,
    result jsonb,
    report jsonb,
    CONSTRAINT archive_state CHECK ((state = ANY (ARRAY['done'::text, 'cancelled'::text, 'expired'::text, 'discarded'::text])))
)
PARTITION BY RANGE (finished_at);

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

CREATE FUNCTION holdfast.explain_ended(a holdfast.archive) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT format('It was %s at %s', a.state, "holdfast".the_time(a.finished_at)) || CASE a.state
        WHEN 'done' THEN ', after ' || "holdfast".how_many(a.attempt, 'attempt')
        WHEN 'discarded' THEN coalesce(
            (SELECT format(' by %s%s', "holdfast".one_line(c.by, 100), coalesce(' (' || "holdfast".one_line(c.why) || ')', ''))
             FROM "holdfast".change c WHERE c.task_id = a.id AND c.action = 'discard' ORDER BY c.id DESC LIMIT 1), '')
            || ', while it was parked at ' || a.kind || '.' || a.step || ': ' || "holdfast".error_line(a.error)
        ELSE coalesce(': ' || "holdfast".one_line(a.error ->> 'message'), '') END
        || coalesce((SELECT format('; its key %s is held until %s all the same', "holdfast".one_line(k.key), "holdfast".the_time(k.held_until))
                     FROM "holdfast".key k WHERE k.queue = a.queue AND k.key = a.key AND k.task_id = a.id AND k.held_until > "holdfast".now()), '')
$$;

COMMENT ON FUNCTION holdfast.explain_ended(a holdfast.archive) IS 'Internal: how a task ended.';

CREATE FUNCTION holdfast.explain_parked(t holdfast.task) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT format('It is parked%s at %s: %s; repair the cause, then resume it (holdfast retry %s, or select %I.retry(%L)),'
                  ' or give it up (holdfast discard %s, or select %I.discard(%L))%s',
        ' since ' || "holdfast".the_time(p.parked_at), t.kind || '.' || t.step, "holdfast".error_line(t.error),
        t.id, 'holdfast', t.id, t.id, 'holdfast', t.id,
        '; until then it holds the key ' || "holdfast".one_line(t.key) || ', and no other task of queue ' || t.queue || ' gets that')
    FROM "holdfast".parked p WHERE p.id = t.id
$$;

COMMENT ON FUNCTION holdfast.explain_parked(t holdfast.task) IS 'Internal: why a task is parked, and what to do about it.';

CREATE FUNCTION holdfast.explain_ready(t holdfast.task) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    moment timestamptz := "holdfast".now();
    full_name text := t.kind || '.' || t.step;
    its_phase text := (SELECT v.phase FROM "holdfast".tasks v WHERE v.id = t.id AND v.state = 'ready');
    parking text;
    live record;
    knew record;
    before bigint;
    holding record;
BEGIN
    IF its_phase = 'expired' THEN
        RETURN format('It is expired: it was not started before its deadline, %s; any live worker of queue %s will archive it',
            "holdfast".the_time(t.deadline), t.queue);
    ELSIF its_phase = 'retrying' THEN
        SELECT coalesce((substring(t.headers ->> 'holdfast-retry' FROM '^[0-9]{1,9}')::integer + 1)::text, k.about -> t.step ->> 'errors')
        INTO parking FROM "holdfast".kind k WHERE k.name = t.kind OR t.kind = ANY (k.was) LIMIT 1;
        RETURN format('It waits for its next attempt at %s (in %s) after %s at this step%s, the last of them %s', "holdfast".the_time(t.run_at),
            "holdfast".how_long(t.run_at - moment), "holdfast".how_many(t.errors, 'error'), coalesce(', of ' || parking || ' that park it', ''),
            "holdfast".error_line(t.error));
    ELSIF its_phase = 'scheduled' THEN
        RETURN format('It is not due until %s (in %s)', "holdfast".the_time(t.run_at), "holdfast".how_long(t.run_at - moment));
    ELSIF its_phase = 'paused' THEN
        RETURN 'It is due, but '
            || (SELECT string_agg(format('%s %s is paused since %s by %s; to resume it: holdfast resume %s, or select %I.resume(%L, %L)',
                           p.what, p.name, "holdfast".the_time(p.paused_at), coalesce("holdfast".one_line(p.paused_by), 'somebody'), p.name,
                           'holdfast', p.name, jsonb_build_object('what', p.what)), '; and ' ORDER BY p.what DESC)
                FROM (SELECT 'queue' AS what, q.name::text, q.paused_at, q.paused_by FROM "holdfast".queue q WHERE q.name = t.queue
                      UNION ALL
                      SELECT 'kind', k.name, k.paused_at, k.paused_by FROM "holdfast".kind k WHERE k.name = t.kind OR t.kind = ANY (k.was)) AS p
                WHERE p.paused_at IS NOT NULL);
    END IF;

    SELECT count(*) AS workers, count(*) FILTER (WHERE w.serves) AS serving, count(*) FILTER (WHERE w.serves AND w.knows) AS able,
           count(*) FILTER (WHERE w.serves AND w.knows AND w.claims) AS claiming,
           coalesce(sum(w.slots) FILTER (WHERE w.serves AND w.knows AND w.claims), 0) AS slots,
           array_agg(w.id) FILTER (WHERE w.serves AND w.knows AND w.claims) AS ids
    INTO live
    FROM (SELECT o.id, least(o.slots, (o.limits ->> t.queue)::integer) AS slots, t.queue::text = ANY (o.queues) AS serves, full_name = ANY (o.steps) AS knows,
                 o.stopping_at IS NULL AND o.stop_requested_at IS NULL AS claims
          FROM "holdfast".worker o WHERE "holdfast".is_live(o)) AS w;
    IF live.workers = 0 THEN
        RETURN format('It is due, but no worker is alive: start one that serves queue %s and knows the step %s', t.queue, full_name);
    ELSIF live.serving = 0 THEN
        RETURN format('It is due, but no live worker serves queue %s; served are: %s', t.queue, "holdfast".one_line(
            (SELECT string_agg(DISTINCT s.queue, ', ') FROM "holdfast".worker w, unnest(w.queues) AS s(queue) WHERE "holdfast".is_live(w))));
    ELSIF live.able = 0 THEN
        SELECT "holdfast".one_line(w.name, 100) AS name, "holdfast".one_line(w.version, 100) AS version, w.seen_at, "holdfast".is_live(w) AS live,
               "holdfast".one_line(array_to_string(w.queues, ', ')) AS queues
        INTO knew FROM "holdfast".worker w WHERE full_name = ANY (w.steps) ORDER BY "holdfast".is_live(w) DESC, w.seen_at DESC LIMIT 1;
        RETURN format('It is due and %s queue %s, but none knows the step %s: %s',
            CASE live.serving WHEN 1 THEN '1 live worker serves' ELSE live.serving || ' live workers serve' END, t.queue, full_name,
            CASE WHEN knew.live THEN format('worker %s does, and serves %s', knew.name, knew.queues)
                 WHEN knew.seen_at IS NOT NULL THEN format('the last that did was worker %s of version %s, seen until %s; it may have been renamed or removed',
                                                           knew.name, knew.version, "holdfast".the_time(knew.seen_at))
                 ELSE 'see whether the name is right and the code deployed' END);
    ELSIF live.claiming = 0 THEN
        RETURN format('It is due, but all live workers that serve queue %s and know the step %s are stopping', t.queue, full_name);
    END IF;

    IF t.crashes > 0 THEN
        SELECT count(*) INTO before
        FROM (SELECT FROM "holdfast".task c
              WHERE c.queue = t.queue AND c.state = 'ready' AND c.crashes > 0 AND (c.run_at, c.id) < (t.run_at, t.id)
              ORDER BY c.run_at, c.id LIMIT 10001) AS counted;
        RETURN format('It is due since %s (for %s) and a suspect, because its worker was lost %s at this step: a worker tries one suspect'
                      ' at a time, and it %s in queue %s',
            "holdfast".the_time(t.run_at), "holdfast".how_long(moment - t.run_at), "holdfast".how_many(t.crashes, 'time'),
            CASE before WHEN 0 THEN 'is the next' ELSE 'has ' || "holdfast".how_many(before, 'other', 10000) || ' before it' END, t.queue);
    END IF;
    SELECT count(*) INTO before
    FROM (SELECT FROM generate_series(t.priority, 9) AS p(priority)
          CROSS JOIN LATERAL (
              SELECT FROM "holdfast".task c
              WHERE c.queue = t.queue AND c.state = 'ready' AND c.priority = p.priority AND c.run_at <= moment
                AND (p.priority > t.priority OR (c.run_at, c.id) < (t.run_at, t.id))
              ORDER BY c.run_at, c.id LIMIT 10001
          ) AS due
          LIMIT 10001) AS counted;
    -- Of a worker with a limit for this queue, only what it holds of this queue counts against that.
    SELECT sum(CASE WHEN w.most IS NULL THEN held.total ELSE held.own END) AS tasks, bool_or(w.most IS NOT NULL) AS limited,
           bool_and(held.total >= w.slots OR held.own >= coalesce(w.most, w.slots)) AS busy
    INTO holding
    FROM (SELECT o.id, o.queues, o.slots, (o.limits ->> t.queue)::integer AS most FROM "holdfast".worker o WHERE o.id = ANY (live.ids)) AS w
    CROSS JOIN LATERAL (
        SELECT count(*) AS total, count(*) FILTER (WHERE r.queue = t.queue) AS own
        FROM (SELECT c.queue FROM "holdfast".task c WHERE c.state = 'running' AND c.worker_id = w.id AND c.queue::text = ANY (w.queues)
              LIMIT 10001) AS r) AS held;
    RETURN format('It is due since %s (for %s) and %s in queue %s; %s with %s can claim it and %s %s now%s',
        "holdfast".the_time(t.run_at), "holdfast".how_long(moment - t.run_at),
        CASE before WHEN 0 THEN 'the next' ELSE 'has ' || "holdfast".how_many(before, 'due task', 10000) || ' before it' END, t.queue,
        "holdfast".how_many(live.claiming, 'live worker'), "holdfast".how_many(live.slots, 'slot')
            || CASE WHEN holding.limited THEN ' for this queue' ELSE '' END,
        CASE live.claiming WHEN 1 THEN 'holds' ELSE 'hold' END, "holdfast".how_many(holding.tasks::bigint, 'task', 10000),
        CASE WHEN holding.busy THEN ': all are busy' ELSE '' END);
END
$$;

COMMENT ON FUNCTION holdfast.explain_ready(t holdfast.task) IS 'Internal: why a ready task is not running.';

CREATE FUNCTION holdfast.explain_running(t holdfast.task) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    moment timestamptz := "holdfast".now();
    doer text;
    told text;
BEGIN
    SELECT format('worker %s (%s, process %s)', "holdfast".one_line(w.name, 100), "holdfast".one_line(w.host, 100), w.pid)
    INTO doer FROM "holdfast".worker w WHERE w.id = t.worker_id;
    doer := format('attempt %s at %s by %s, since %s (for %s)', t.attempt, t.kind || '.' || t.step, coalesce(doer, 'worker ' || t.worker_id),
                   "holdfast".the_time(t.claimed_at), "holdfast".how_long(moment - t.claimed_at));
    SELECT concat(' at ' || floor(100 * p.fraction) || ' %', ' (' || nullif("holdfast".one_line(p.note), '') || ')') INTO told
    FROM "holdfast".progress p WHERE p.task_id = t.id AND p.queue = t.queue AND p.attempt = t.attempt;
    doer := doer || coalesce(told, '');
    IF t.lease_expires_at <= moment THEN
        RETURN format('Its worker seems lost: %s, but the lease ran out at %s; any live worker of queue %s will %s', doer,
            "holdfast".the_time(t.lease_expires_at), t.queue,
            CASE WHEN t.cancel_at IS NULL THEN 'take it over' ELSE 'end it, because it was cancelled' END);
    ELSIF t.cancel_at IS NOT NULL THEN
        RETURN format('It is being cancelled since %s (%s), and its step has not ended yet: %s', "holdfast".the_time(t.cancel_at),
            coalesce("holdfast".one_line(t.cancel_by), 'nobody said why'), doer);
    END IF;
    RETURN format('It is running: %s; its lease lasts until %s unless renewed', doer, "holdfast".the_time(t.lease_expires_at));
END
$$;

COMMENT ON FUNCTION holdfast.explain_running(t holdfast.task) IS 'Internal: who is executing a task.';

CREATE FUNCTION holdfast.fire_schedule(name text, options jsonb DEFAULT '{}'::jsonb) RETURNS SETOF uuid
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    s "holdfast".schedule := "holdfast".lock_schedule(name);
    planned timestamptz := coalesce((options ->> 'plan_time')::timestamptz, "holdfast".now());
    its_scope text;
    t "holdfast".task;
    fired uuid;
BEGIN
    PERFORM "holdfast".check_options(options, ARRAY['plan_time', 'scope', 'by', 'why']);
    FOR its_scope IN
        SELECT options ->> 'scope' WHERE options ->> 'scope' IS NOT NULL
        UNION ALL
        SELECT c.scope FROM "holdfast".schedule_scope c WHERE c.schedule = s.name AND options ->> 'scope' IS NULL
        UNION ALL
        SELECT '' WHERE options ->> 'scope' IS NULL AND s.definition -> 'scopes' = 'null'
              AND NOT EXISTS (SELECT FROM "holdfast".schedule_scope c WHERE c.schedule = s.name)
    LOOP
        t := "holdfast".new_task(s.definition ->> 'step', s.definition -> 'args', (s.definition -> 'options') || jsonb_build_object('headers',
            coalesce(nullif(s.definition #> '{options,headers}', 'null'), '{}') || jsonb_strip_nulls(jsonb_build_object(
                'holdfast-schedule', name, 'holdfast-scope', nullif(its_scope, ''),
                'holdfast-plan-time', to_char(planned AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')))));
        INSERT INTO "holdfast".occurrence AS o (schedule, scope, plan_time, due_at, task_id, queue, open)
        VALUES (s.name, its_scope, planned, "holdfast".now(), t.id, t.queue, s.definition ->> 'overlap' <> 'allow')
        ON CONFLICT ON CONSTRAINT occurrence_pkey DO UPDATE
        SET due_at = excluded.due_at, task_id = excluded.task_id, queue = excluded.queue, open = excluded.open, skipped = NULL
        WHERE o.skipped IS NOT NULL;
        IF FOUND THEN
            fired := "holdfast".insert_task(t, (s.definition #>> '{options,unique_for}')::interval, 'skip');
            IF fired <> t.id THEN
                UPDATE "holdfast".occurrence o SET task_id = fired
                WHERE o.schedule = s.name AND o.scope = its_scope AND o.plan_time = planned;
            END IF;
        ELSE
            SELECT o.task_id INTO fired FROM "holdfast".occurrence o
            WHERE o.schedule = s.name AND o.scope = its_scope AND o.plan_time = planned;
            RAISE NOTICE 'holdfast: % has fired for % before', name, planned;
        END IF;
        RETURN NEXT fired;
    END LOOP;
    INSERT INTO "holdfast".change (action, by, why, new)
    VALUES ('fire', coalesce(options ->> 'by', session_user), options ->> 'why',
            jsonb_build_object('schedule', name, 'plan_time', planned, 'scope', options -> 'scope'));
END
$$;

COMMENT ON FUNCTION holdfast.fire_schedule(name text, options jsonb) IS 'Enqueues an occurrence now, for all scopes or one; answers the task ids. The same plan time never fires twice. Options: plan_time, scope, by, why.';

CREATE FUNCTION holdfast.forgotten_attempts(id uuid, ended integer) RETURNS integer
    LANGUAGE sql STABLE
    AS $$ SELECT coalesce(min(l.attempt) - 1, ended) FROM "holdfast".attempt l WHERE l.task_id = id $$;

COMMENT ON FUNCTION holdfast.forgotten_attempts(id uuid, ended integer) IS 'Internal: how many of the first attempts of a task are no longer in the log, of those that have ended and left their record there.';

CREATE FUNCTION holdfast.how_long(span interval) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT CASE WHEN s < 1 THEN 'less than a second'
                WHEN s < 60 THEN s || ' s'
                WHEN s < 3600 THEN s / 60 || ' min' || coalesce(' ' || nullif(s % 60, 0) || ' s', '')
                WHEN s < 86400 THEN s / 3600 || ' h' || coalesce(' ' || nullif(s % 3600 / 60, 0) || ' min', '')
                ELSE s / 86400 || ' d' || coalesce(' ' || nullif(s % 86400 / 3600, 0) || ' h', '') END
    FROM (SELECT floor(abs(extract(epoch FROM span)))::bigint) AS whole(s)
$$;

COMMENT ON FUNCTION holdfast.how_long(span interval) IS 'Internal: a span of time for people, such as 2 h 5 min.';

CREATE FUNCTION holdfast.how_many(n bigint, what text, most bigint DEFAULT NULL::bigint) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN n > most THEN 'more than ' || most ELSE n::text END || ' ' || what || CASE WHEN n = 1 THEN '' ELSE 's' END $$;

COMMENT ON FUNCTION holdfast.how_many(n bigint, what text, most bigint) IS 'Internal: a number of things for people; counting ended behind the most.';

CREATE FUNCTION holdfast.insert_free(ids uuid[], queues text[], kinds text[], steps text[], argss jsonb[], priorities smallint[], run_ats timestamp with time zone[], deadlines timestamp with time zone[], keys text[], headerss jsonb[]) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
    written bigint;
BEGIN
    IF EXISTS (SELECT FROM unnest(queues, keys) AS n(queue, key) JOIN "holdfast".task h ON h.queue = n.queue AND h.key = n.key)
       OR EXISTS (SELECT FROM unnest(queues, keys) AS n(queue, key) GROUP BY n.queue, n.key HAVING count(*) > 1) THEN
        RETURN false;
    END IF;
    INSERT INTO "holdfast".task (id, queue, kind, step, args, priority, run_at, deadline, key, headers)
    SELECT n.id, n.queue, n.kind, n.step, n.args, n.priority, n.run_at, n.deadline, n.key, n.headers
    FROM unnest(ids, queues, kinds, steps, argss, priorities, run_ats, deadlines, keys, headerss)
         AS n(id, queue, kind, step, args, priority, run_at, deadline, key, headers)
    ORDER BY n.queue COLLATE "C", n.key COLLATE "C"
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS written = ROW_COUNT;
    IF written < cardinality(ids) OR EXISTS (
        SELECT FROM unnest(queues, keys) AS n(queue, key) JOIN "holdfast".key k ON k.queue = n.queue AND k.key = n.key
        WHERE k.held_until > "holdfast".now()) THEN
        RAISE SQLSTATE 'HF001'; -- Takes back what was written.
    END IF;
    RETURN true;
EXCEPTION WHEN SQLSTATE 'HF001' THEN
    RETURN false;
END
$$;

COMMENT ON FUNCTION holdfast.insert_free(ids uuid[], queues text[], kinds text[], steps text[], argss jsonb[], priorities smallint[], run_ats timestamp with time zone[], deadlines timestamp with time zone[], keys text[], headerss jsonb[]) IS 'Internal: writes new tasks with keys if all keys differ and none is held; else it writes nothing and answers false.';

CREATE FUNCTION holdfast.insert_keyed(new_id uuid, new_queue text, new_kind text, new_step text, new_args jsonb, new_priority smallint, new_run_at timestamp with time zone, new_deadline timestamp with time zone, new_key text, new_headers jsonb, held_for interval, on_conflict text, OUT id uuid, OUT kind text, OUT enqueued text, OUT state text) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
    moment timestamptz := "holdfast".now();
    holder record;
    held boolean;
BEGIN
    FOR try IN 1 .. 20 LOOP
        IF on_conflict = 'replace' THEN
            UPDATE "holdfast".task u
            SET kind = new_kind, step = new_step, args = new_args, priority = new_priority, run_at = new_run_at,
                deadline = new_deadline, headers = new_headers, replaced_by = new_id
            WHERE u.queue = new_queue AND u.id = ANY (ARRAY(
                SELECT c.id FROM "holdfast".task c
                WHERE c.queue = new_queue AND c.key = new_key AND c.state = 'ready' AND c.attempt = 0
                FOR UPDATE SKIP LOCKED))
            RETURNING u.id, u.kind INTO id, kind;
            IF FOUND THEN
                IF held_for IS NOT NULL THEN
                    INSERT INTO "holdfast".key (queue, key, task_id, kind, held_until)
                    VALUES (new_queue, new_key, insert_keyed.id, new_kind, moment + held_for)
                    ON CONFLICT ON CONSTRAINT key_pkey DO UPDATE
                    SET task_id = excluded.task_id, kind = excluded.kind, held_until = excluded.held_until;
                END IF;
                enqueued := CASE WHEN id = new_id THEN 'created' ELSE 'replaced' END;
                RETURN;
            END IF;
        END IF;

        SELECT k.task_id, k.kind INTO id, kind FROM "holdfast".key k
        WHERE k.queue = new_queue AND k.key = new_key AND k.held_until > moment AND k.task_id <> new_id;
        IF FOUND AND NOT EXISTS (SELECT FROM "holdfast".task h WHERE h.queue = new_queue AND h.key = new_key) THEN
            enqueued := 'ended';
            RETURN;
        END IF;

        -- Any conflict: the id may be taken as well as the key.
        INSERT INTO "holdfast".task (id, queue, kind, step, args, priority, run_at, deadline, key, headers)
        VALUES (new_id, new_queue, new_kind, new_step, new_args, new_priority, new_run_at, new_deadline, new_key, new_headers)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            -- Looked at again: whoever we waited for may have ended meanwhile and still hold the key.
            IF held_for IS NULL THEN
                held := EXISTS (SELECT FROM "holdfast".key k
                                WHERE k.queue = new_queue AND k.key = new_key AND k.held_until > moment AND k.task_id <> new_id);
            ELSE
                INSERT INTO "holdfast".key AS k (queue, key, task_id, kind, held_until)
                VALUES (new_queue, new_key, new_id, new_kind, moment + held_for)
                ON CONFLICT ON CONSTRAINT key_pkey DO UPDATE
                SET task_id = excluded.task_id, kind = excluded.kind, held_until = excluded.held_until
                WHERE k.held_until <= moment OR k.task_id = new_id;
                held := NOT FOUND;
            END IF;
            IF NOT held THEN
                id := new_id;
                kind := new_kind;
                enqueued := 'created';
                RETURN;
            END IF;
            DELETE FROM "holdfast".task d WHERE d.queue = new_queue AND d.id = new_id;
            CONTINUE;
        END IF;

        SELECT h.id, h.kind, h.state, h.attempt, h.deadline, h.replaced_by INTO holder FROM "holdfast".task h
        WHERE h.queue = new_queue AND h.key = new_key;
        IF NOT FOUND THEN
            IF EXISTS (SELECT FROM "holdfast".task h WHERE h.id = new_id AND h.queue = new_queue) THEN
                enqueued := 'id taken';
                RETURN;
            END IF;
            CONTINUE; -- Whoever was in the way has just finished.
        ELSIF holder.state = 'ready' AND holder.attempt = 0 AND holder.deadline <= moment THEN
            -- It will never run, so it is no answer to anybody.
            PERFORM "holdfast".expire_holder(new_queue, new_key);
            CONTINUE;
        ELSIF on_conflict = 'replace' AND holder.state = 'ready' AND holder.attempt = 0 AND try < 20 THEN
            CONTINUE; -- Whoever was claiming it may have given up.
        END IF;
        id := holder.id;
        kind := holder.kind;
        state := holder.state;
        -- Asked again because the answer was lost: it got what we wanted it to have, and has begun since.
        enqueued := CASE WHEN id = new_id THEN 'created'
                         WHEN holder.replaced_by = new_id THEN 'replaced'
                         WHEN on_conflict <> 'replace' OR state = 'ready' AND holder.attempt = 0 THEN 'existing'
                         WHEN state IN ('running', 'parked') THEN state
                         ELSE 'started' END;
        RETURN;
    END LOOP;
    enqueued := 'contended';
END
$$;

COMMENT ON FUNCTION holdfast.insert_keyed(new_id uuid, new_queue text, new_kind text, new_step text, new_args jsonb, new_priority smallint, new_run_at timestamp with time zone, new_deadline timestamp with time zone, new_key text, new_headers jsonb, held_for interval, on_conflict text, OUT id uuid, OUT kind text, OUT enqueued text, OUT state text) IS 'Internal: writes a new task, once per key. Answers a task and what came of it: created, replaced; existing, running, started, parked: an unfinished task holds the key; ended: that task has ended, and the key still holds; id taken; contended: the key changed hands too often.';

CREATE FUNCTION holdfast.insert_task(t holdfast.task, held_for interval, on_conflict text) RETURNS uuid
    LANGUAGE plpgsql
    AS $$
DECLARE
    answer record;
BEGIN
    IF t.key IS NULL THEN
        INSERT INTO "holdfast".task (id, queue, kind, step, args, priority, run_at, deadline, headers)
        VALUES (t.id, t.queue, t.kind, t.step, t.args, t.priority, t.run_at, t.deadline, t.headers)
        ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            PERFORM "holdfast".refuse_id(t.id, 'unfinished');
        END IF;
        PERFORM "holdfast".wake(t.queue, t.run_at);
        RETURN t.id;
    END IF;
    SELECT * INTO answer FROM "holdfast".insert_keyed(t.id, t.queue, t.kind, t.step, t.args, t.priority, t.run_at, t.deadline, t.key,
                                                    t.headers, held_for, on_conflict);
    IF answer.enqueued IN ('created', 'replaced') THEN
        PERFORM "holdfast".wake(t.queue, t.run_at);
    ELSIF answer.enqueued = 'id taken' THEN
        PERFORM "holdfast".refuse_id(t.id, 'unfinished');
    ELSIF answer.enqueued = 'contended' THEN
        RAISE EXCEPTION 'holdfast: the key % changed hands 20 times in a row', quote_literal(t.key)
            USING ERRCODE = 'HF409', HINT = 'Try again.';
    ELSIF on_conflict = 'raise' AND answer.enqueued = 'ended' THEN
        RAISE EXCEPTION 'holdfast: task % (%) has ended, and unique_for still holds the key % in queue %',
            answer.id, answer.kind, quote_literal(t.key), t.queue
            USING ERRCODE = 'HF409', HINT = 'Wait until that time is over, or choose another key. See the table key.';
    ELSIF on_conflict = 'raise' THEN
        RAISE EXCEPTION 'holdfast: task % (%, %) already holds the key % in queue %',
            answer.id, answer.kind, answer.state, quote_literal(t.key), t.queue
            USING ERRCODE = 'HF409', HINT = 'Wait until it has ended, choose another key, or give on_conflict skip or replace.';
    ELSIF on_conflict = 'replace' THEN
        RAISE NOTICE 'holdfast: task % was not replaced: %', answer.id, CASE answer.enqueued
            WHEN 'started' THEN 'it has been started'
            WHEN 'existing' THEN 'somebody is just claiming or changing it'
            WHEN 'ended' THEN 'it has ended, and unique_for still holds its key'
            ELSE 'it is ' || answer.enqueued END;
    END IF;
    RETURN answer.id;
END
$$;

COMMENT ON FUNCTION holdfast.insert_task(t holdfast.task, held_for interval, on_conflict text) IS 'Internal: writes a new task, once per key, and wakes workers; answers its id, or that of the task that holds the key.';

CREATE TABLE holdfast.worker (
    id uuid NOT NULL,
    name text NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    queues text[] NOT NULL,
    limits jsonb DEFAULT '{}'::jsonb NOT NULL,
    steps text[] NOT NULL,
    only_steps text[] DEFAULT '{}'::text[] NOT NULL,
    kinds jsonb DEFAULT '{}'::jsonb NOT NULL,
    slots integer NOT NULL,
    lease interval DEFAULT '00:01:00'::interval NOT NULL,
    schedules text[] DEFAULT '{}'::text[] NOT NULL,
    idle boolean DEFAULT false NOT NULL,
    stuck integer DEFAULT 0 NOT NULL,
    loops jsonb DEFAULT '{}'::jsonb NOT NULL,
    late text[] DEFAULT '{}'::text[] NOT NULL,
    started_at timestamp with time zone DEFAULT holdfast.now() NOT NULL,
    seen_at timestamp with time zone DEFAULT holdfast.now() NOT NULL,
    stop_requested_at timestamp with time zone,
    stopping_at timestamp with time zone,
    stopped_at timestamp with time zone
)
WITH (fillfactor='50');

COMMENT ON TABLE holdfast.worker IS 'Worker processes: information for people, wake-ups and explanations, never the proof of a lease.';

COMMENT ON COLUMN holdfast.worker.id IS 'A fresh UUID at each start of a process.';

COMMENT ON COLUMN holdfast.worker.name IS 'A label for people; may repeat.';

COMMENT ON COLUMN holdfast.worker.host IS 'The machine it runs on.';

COMMENT ON COLUMN holdfast.worker.pid IS 'Its process id on that machine.';

COMMENT ON COLUMN holdfast.worker.version IS 'The version of Holdfast it runs.';

COMMENT ON COLUMN holdfast.worker.queues IS 'The queues it serves.';

COMMENT ON COLUMN holdfast.worker.limits IS 'How many steps of a queue it executes at once, for those that have a limit: {"mail": 5}.';

COMMENT ON COLUMN holdfast.worker.steps IS 'The steps it knows, as kind.Step; it claims nothing else.';

COMMENT ON COLUMN holdfast.worker.only_steps IS 'The kinds and steps of its App that it was told to keep to; empty: all.';

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

COMMENT ON COLUMN holdfast.worker.stop_requested_at IS 'When "holdfast".stop_workers() asked it to stop.';

COMMENT ON COLUMN holdfast.worker.stopping_at IS 'When it began to stop: it claims nothing any more and finishes what it has.';

COMMENT ON COLUMN holdfast.worker.stopped_at IS 'When it had stopped, or was taken for dead after five minutes of silence, or a longer lease.';

CREATE FUNCTION holdfast.is_live(w holdfast.worker) RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT w.stopped_at IS NULL AND w.seen_at > "holdfast".now() - w.lease $$;

COMMENT ON FUNCTION holdfast.is_live(w holdfast.worker) IS 'Whether a worker has reported within the length of its lease and not stopped: select * from "holdfast".worker w where "holdfast".is_live(w).';

CREATE FUNCTION holdfast.known_steps(kind text) RETURNS text[]
    LANGUAGE sql STABLE
    AS $$
    SELECT coalesce(array_agg(s.step ORDER BY s.step), '{}')
    FROM (SELECT jsonb_object_keys(k.graph) FROM "holdfast".kind k WHERE k.name = known_steps.kind OR known_steps.kind = ANY (k.was)
          UNION
          SELECT split_part(n.name, '.', 2) FROM "holdfast".worker w, unnest(w.steps) AS n(name)
          WHERE "holdfast".is_live(w) AND split_part(n.name, '.', 1) = known_steps.kind) AS s(step)
$$;

COMMENT ON FUNCTION holdfast.known_steps(kind text) IS 'Internal: the steps of a kind that were declared, or that a live worker knows.';

CREATE FUNCTION holdfast.lock_free(ids uuid[]) RETURNS SETOF holdfast.task
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$ SELECT * FROM "holdfast".task t WHERE t.id = ANY (ids) ORDER BY t.id FOR UPDATE SKIP LOCKED $$;

COMMENT ON FUNCTION holdfast.lock_free(ids uuid[]) IS 'Internal: locks those of these tasks that nobody else has locked, and answers them.';

CREATE TABLE holdfast.schedule (
    name holdfast.queue_name NOT NULL,
    definition jsonb NOT NULL,
    declared jsonb,
    declared_version integer DEFAULT 0 NOT NULL,
    version bigint DEFAULT 1 NOT NULL,
    watermark timestamp with time zone DEFAULT holdfast.now() NOT NULL,
    next_at timestamp with time zone DEFAULT holdfast.now(),
    planned_at timestamp with time zone,
    last_at timestamp with time zone,
    paused_at timestamp with time zone,
    paused_by text,
    error text,
    failures integer DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT holdfast.now() NOT NULL
);

COMMENT ON TABLE holdfast.schedule IS 'What recurs. The view schedules shows it in columns.';

COMMENT ON COLUMN holdfast.schedule.name IS 'The name of the schedule.';

COMMENT ON COLUMN holdfast.schedule.definition IS 'What holds: timing, step, args, options, scopes, catch_up, overlap and so on.';

COMMENT ON COLUMN holdfast.schedule.declared IS 'What the code declared last; where the definition differs, a person changed it and it stays so. Null if no code declares it.';

COMMENT ON COLUMN holdfast.schedule.declared_version IS 'The version= of that declaration; a lower one is passed over.';

COMMENT ON COLUMN holdfast.schedule.version IS 'Raised by every change of the definition, so that a worker notices one.';

COMMENT ON COLUMN holdfast.schedule.watermark IS 'Nothing planned up to here is ever enqueued: when it was made, changed or resumed.';

COMMENT ON COLUMN holdfast.schedule.next_at IS 'When a worker looks at it next: its next plan time, or sooner. Null: it has ended.';

COMMENT ON COLUMN holdfast.schedule.planned_at IS 'When a worker last planned it; scopes that appear later begin there.';

COMMENT ON COLUMN holdfast.schedule.last_at IS 'The plan time of its last occurrence.';

COMMENT ON COLUMN holdfast.schedule.paused_at IS 'Since when nothing of it is enqueued; null unless paused.';

COMMENT ON COLUMN holdfast.schedule.paused_by IS 'Who paused it, and why.';

COMMENT ON COLUMN holdfast.schedule.error IS 'Why it could not be planned the last time; null if it could.';

COMMENT ON COLUMN holdfast.schedule.failures IS 'How often in a row it could not be planned.';

COMMENT ON COLUMN holdfast.schedule.created_at IS 'When it was made.';

CREATE FUNCTION holdfast.lock_schedule(name text) RETURNS holdfast.schedule
    LANGUAGE plpgsql
    AS $$
DECLARE
    s "holdfast".schedule;
BEGIN
    SELECT * INTO s FROM "holdfast".schedule f WHERE f.name = lock_schedule.name FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'holdfast: there is no schedule %', quote_nullable(left(name, 200)) USING ERRCODE = 'HF454',
            HINT = 'select name from "holdfast".schedules lists them.';
    END IF;
    RETURN s;
END
$$;

COMMENT ON FUNCTION holdfast.lock_schedule(name text) IS 'Internal: the row of a schedule, locked, or a clear error.';

CREATE FUNCTION holdfast.lock_task(id uuid, verb text, states text[]) RETURNS holdfast.task
    LANGUAGE plpgsql
    AS $$
DECLARE
    found_task "holdfast".task;
    ended text;
BEGIN
    SELECT * INTO found_task FROM "holdfast".task t WHERE t.id = lock_task.id FOR UPDATE;
    IF NOT FOUND THEN
        SELECT a.state INTO ended FROM "holdfast".archive a WHERE a.id = lock_task.id LIMIT 1;
        IF ended IS NULL THEN
            RAISE EXCEPTION 'holdfast: there is no task %', id USING ERRCODE = 'HF404',
                HINT = 'Is this the right database, and the right schema?';
        END IF;
        RAISE EXCEPTION 'holdfast: cannot % task %: it is already %', verb, id, ended USING ERRCODE = 'HF409',
            HINT = format('Finished tasks are history; to enqueue the same anew: holdfast again %s, or select %I.again(%L).', id, 'holdfast', id);
    END IF;
    IF NOT found_task.state = ANY (states) THEN
        RAISE EXCEPTION 'holdfast: cannot % task %: it is %', verb, id, found_task.state USING ERRCODE = 'HF409',
            HINT = CASE found_task.state WHEN 'running' THEN 'Wait until the attempt ends, or cancel it.'
                                         ELSE 'This is possible only when it is ' || array_to_string(states, ' or ') || '.' END;
    END IF;
    RETURN found_task;
END
$$;

COMMENT ON FUNCTION holdfast.lock_task(id uuid, verb text, states text[]) IS 'Internal: the row of an unfinished task, locked, or a clear error.';

CREATE FUNCTION holdfast.longest_retention() RETURNS interval
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT greatest("holdfast".retention(), max(q.retention)) FROM "holdfast".queue q $$;

COMMENT ON FUNCTION holdfast.longest_retention() IS 'Internal: the longest retention of any queue: older days are dropped whole.';

CREATE FUNCTION holdfast.new_id() RETURNS uuid
    LANGUAGE sql PARALLEL SAFE
    AS $$
    SELECT (overlay(lpad(to_hex(floor(extract(epoch FROM pg_catalog.clock_timestamp()) * 4096000)::bigint), 15, '0')
                    PLACING '7' FROM 13 FOR 0) || right(gen_random_uuid()::text, 17))::uuid
$$;

COMMENT ON FUNCTION holdfast.new_id() IS 'A new task id: a UUID of version 7, ordered by time.';

CREATE FUNCTION holdfast.new_task(step text, args jsonb, options jsonb) RETURNS holdfast.task
    LANGUAGE plpgsql
    AS $_$
DECLARE
    task_kind text := split_part(step, '.', 1);
    task_step text := nullif(substr(step, length(split_part(step, '.', 1)) + 2), '');
    uniquely boolean := coalesce(options -> 'unique' = 'true', false);
    declared "holdfast".kind;
    t "holdfast".task;
BEGIN
    IF step IS NULL OR greatest(length(task_kind), length(task_step)) > 63 OR task_kind !~ '^[a-z][a-z0-9_-]*$'
       OR (position('.' IN step) > 0 AND coalesce(task_step, '') !~ '^[A-Za-z_][A-Za-z0-9_]*$') THEN
        RAISE EXCEPTION 'holdfast: % is not the name of a step', quote_nullable(left(step, 200))
            USING ERRCODE = '22023', HINT = 'Write kind.Step, such as greeter.ReadName, or the kind alone for a function.';
    END IF;
    PERFORM "holdfast".check_args(args, step);
    PERFORM "holdfast".check_options(options, ARRAY['id', 'queue', 'priority', 'delay', 'at', 'deadline', 'key', 'unique', 'unique_for', 'on_conflict', 'headers']);
    IF options ? 'delay' AND options ? 'at' THEN
        RAISE EXCEPTION 'holdfast: give delay or at, not both' USING ERRCODE = '22023';
    END IF;
    IF jsonb_typeof(options -> 'key') NOT IN ('string', 'null') OR length(options ->> 'key') NOT BETWEEN 1 AND 512 THEN
        RAISE EXCEPTION 'holdfast: key must be a string of 1 to 512 characters' USING ERRCODE = '22023';
    END IF;
    IF jsonb_typeof(options -> 'unique') NOT IN ('boolean', 'null') THEN
        RAISE EXCEPTION 'holdfast: unique must be true or false' USING ERRCODE = '22023';
    ELSIF uniquely AND options ->> 'key' IS NOT NULL THEN
        RAISE EXCEPTION 'holdfast: give key or unique, not both' USING ERRCODE = '22023',
            HINT = 'unique makes a key from the kind, the step and the args.';
    ELSIF options ->> 'unique_for' IS NOT NULL AND NOT uniquely AND options ->> 'key' IS NULL THEN
        RAISE EXCEPTION 'holdfast: unique_for needs a key' USING ERRCODE = '22023',
            HINT = 'Give a key, or unique: true for one made from the kind, the step and the args.';
    ELSIF (options ->> 'unique_for')::interval <= interval '0' THEN
        RAISE EXCEPTION 'holdfast: unique_for must be longer than nothing' USING ERRCODE = '22023';
    END IF;
    IF length(options ->> 'queue') > 63 OR options ->> 'queue' !~ '^[a-z0-9_][a-z0-9_.-]*$' THEN
        RAISE EXCEPTION 'holdfast: % is not the name of a queue', quote_literal(left(options ->> 'queue', 200))
            USING ERRCODE = '22023', HINT = 'Lower-case letters, digits, _ . and -, at most 63, not beginning with . or -.';
    END IF;
    IF options ->> 'on_conflict' NOT IN ('skip', 'raise', 'replace') THEN
        RAISE EXCEPTION 'holdfast: on_conflict must be skip, raise or replace' USING ERRCODE = '22023',
            HINT = 'skip: the id of the task that holds the key; raise: an error; replace: new args and time while it was never started.';
    END IF;
    IF options ->> 'on_conflict' IS NOT NULL AND options ->> 'key' IS NULL AND NOT uniquely THEN
        RAISE EXCEPTION 'holdfast: on_conflict needs a key' USING ERRCODE = '22023',
            HINT = 'Without a key there is nothing to be in conflict with.';
    END IF;
    IF jsonb_typeof(options -> 'headers') NOT IN ('object', 'null') OR octet_length((options -> 'headers')::text) > 65536
       OR jsonb_path_exists(options -> 'headers', 'strict $.* ? (@.type() != "string")', '{}', true) THEN
        RAISE EXCEPTION 'holdfast: headers must be a JSON object of strings, of 65536 bytes at most' USING ERRCODE = '22023';
    END IF;

    SELECT * INTO declared FROM "holdfast".kind WHERE name = task_kind;
    IF FOUND AND task_step IS NULL AND declared.first IS NULL THEN
        RAISE EXCEPTION 'holdfast: % has several steps: name the one to begin with', step
            USING ERRCODE = '22023', HINT = 'Write kind.Step, such as greeter.ReadName.';
    END IF;
    t.id := coalesce((options ->> 'id')::uuid, "holdfast".new_id());
    t.queue := coalesce(options ->> 'queue', declared.queue, 'default');
    t.kind := task_kind;
    t.step := coalesce(task_step, declared.first, 'main');
    t.args := args;
    t.priority := coalesce((options ->> 'priority')::smallint, declared.priority, 0);
    t.run_at := coalesce((options ->> 'at')::timestamptz, "holdfast".now() + (options ->> 'delay')::interval, "holdfast".now());
    t.deadline := CASE WHEN options ->> 'deadline' ~ '^[[:space:]]*[0-9]{4,}-' THEN (options ->> 'deadline')::timestamptz
                       ELSE "holdfast".now() + (options ->> 'deadline')::interval END;
    t.key := CASE WHEN uniquely THEN "holdfast".unique_key(t.kind, t.step, args) ELSE options ->> 'key' END;
    t.headers := nullif(options -> 'headers', 'null');
    -- As the table would, but before many are written at once: then nobody could tell which of them was wrong.
    IF t.priority NOT BETWEEN 0 AND 9 THEN
        RAISE EXCEPTION 'holdfast: priority must be 0 to 9, not %', t.priority USING ERRCODE = '22023';
    END IF;
    IF t.run_at NOT BETWEEN '1000-01-01 00:00+00' AND '9999-01-01 00:00+00' THEN
        RAISE EXCEPTION 'holdfast: no task can wait until %', t.run_at USING ERRCODE = '22023';
    END IF;
    IF t.deadline NOT BETWEEN '1000-01-01 00:00+00' AND '9999-01-01 00:00+00' THEN
        RAISE EXCEPTION 'holdfast: no deadline can be at %', t.deadline USING ERRCODE = '22023';
    ELSIF t.deadline <= t.run_at AND (options ->> 'delay' IS NOT NULL OR options ->> 'at' IS NOT NULL) THEN
        RAISE EXCEPTION 'holdfast: its deadline, %, comes before it is due, %: it could never start', t.deadline, t.run_at
            USING ERRCODE = '22023', HINT = 'Give a later deadline, or a shorter delay.';
    END IF;
    RETURN t;
END
$_$;

COMMENT ON FUNCTION holdfast.new_task(step text, args jsonb, options jsonb) IS 'Internal: the row that an enqueue asks for, checked, with the defaults of its kind, not yet written.';

CREATE FUNCTION holdfast.note_backfill(name text, options jsonb) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM "holdfast".check_options(options, ARRAY['since', 'until', 'enqueued', 'by', 'why']);
    INSERT INTO "holdfast".change (action, by, why, new)
    VALUES ('backfill', coalesce(options ->> 'by', session_user), options ->> 'why',
            jsonb_build_object('schedule', name) || (options - 'by' - 'why'));
END
$$;

COMMENT ON FUNCTION holdfast.note_backfill(name text, options jsonb) IS 'Internal: keeps who made up for the plan times of which range. A backfill itself is made by the caller, in the same transaction.';

CREATE FUNCTION holdfast.one_line(value text, most integer DEFAULT 200) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT CASE WHEN length(plain) > most THEN left(plain, most - 1) || '…' ELSE plain END
    FROM (SELECT btrim(regexp_replace(
        -- Control characters, and what turns or hides text on a terminal.
        left(value, 10 * most), E'[\\u0001-\\u0020\\u007F-\\u00A0\\u00AD\\u061C\\u180E\\u200B-\\u200F\\u2028-\\u202E\\u2060-\\u206F\\uFEFF]+', ' ', 'g'
    ))) AS made(plain)
$$;

COMMENT ON FUNCTION holdfast.one_line(value text, most integer) IS 'Internal: a text of users in one line, without control characters, shortened.';

CREATE FUNCTION holdfast.pausable(name text, options jsonb) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $_$
DECLARE
    what text := options ->> 'what';
    is_kind boolean := EXISTS (SELECT FROM "holdfast".kind k WHERE k.name = pausable.name);
    is_queue boolean;
BEGIN
    PERFORM "holdfast".check_options(options, ARRAY['what', 'by', 'why']);
    IF what NOT IN ('queue', 'kind') THEN
        RAISE EXCEPTION 'holdfast: what must be queue or kind' USING ERRCODE = '22023';
    ELSIF what = 'queue' THEN
        IF name IS NULL OR name !~ '^[a-z0-9_][a-z0-9_.-]{0,62}$' THEN
            RAISE EXCEPTION 'holdfast: % is not the name of a queue', quote_nullable(left(name, 200))
                USING ERRCODE = '22023', HINT = 'Lower-case letters, digits, _ . and -, at most 63, not beginning with . or -.';
        END IF;
        RETURN 'queue';
    ELSIF what = 'kind' THEN
        IF NOT is_kind THEN
            RAISE EXCEPTION 'holdfast: there is no kind %', quote_nullable(left(name, 200)) USING ERRCODE = 'HF404',
                HINT = 'A kind is known once a worker has declared it: select name from "holdfast".kind.';
        END IF;
        RETURN 'kind';
    END IF;
    is_queue := EXISTS (SELECT FROM "holdfast".queue q WHERE q.name = pausable.name)
        OR EXISTS (SELECT FROM "holdfast".kind k WHERE k.queue = pausable.name)
        OR EXISTS (SELECT FROM "holdfast".worker w WHERE "holdfast".is_live(w) AND pausable.name = ANY (w.queues))
        OR EXISTS (SELECT FROM "holdfast".task t WHERE t.queue = pausable.name AND t.state = 'ready')
        OR EXISTS (SELECT FROM "holdfast".task t WHERE t.queue = pausable.name AND t.state = 'running')
        OR EXISTS (SELECT FROM "holdfast".task t WHERE t.queue = pausable.name AND t.state = 'parked');
    IF is_kind AND is_queue THEN
        RAISE EXCEPTION 'holdfast: % is both a queue and a kind: say which', name USING ERRCODE = 'HF409',
            HINT = 'Give the option {"what": "queue"} or {"what": "kind"}.';
    ELSIF NOT is_kind AND NOT is_queue THEN
        RAISE EXCEPTION 'holdfast: there is neither a queue nor a kind %', quote_nullable(left(name, 200)) USING ERRCODE = 'HF404',
            HINT = 'A kind is known once a worker has declared it; a queue that is not used yet can be paused with {"what": "queue"}.';
    END IF;
    RETURN CASE WHEN is_kind THEN 'kind' ELSE 'queue' END;
END
$_$;

COMMENT ON FUNCTION holdfast.pausable(name text, options jsonb) IS 'Internal: whether a name means a queue or a kind, or a clear error.';

CREATE FUNCTION holdfast.pause(name text, options jsonb DEFAULT '{}'::jsonb) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    what text := "holdfast".pausable(name, options);
    who text := coalesce(options ->> 'by', session_user);
    reason text := concat_ws(': ', who, nullif(options ->> 'why', ''));
BEGIN
    IF what = 'queue' THEN
        INSERT INTO "holdfast".queue AS q (name, paused_at, paused_by) VALUES (pause.name, "holdfast".now(), reason)
        ON CONFLICT ON CONSTRAINT queue_pkey DO UPDATE SET paused_at = excluded.paused_at, paused_by = excluded.paused_by
        WHERE q.paused_at IS NULL;
    ELSE
        UPDATE "holdfast".kind k SET paused_at = "holdfast".now(), paused_by = reason WHERE k.name = pause.name AND k.paused_at IS NULL;
    END IF;
    IF FOUND THEN
        INSERT INTO "holdfast".change (action, by, why, new) VALUES ('pause', who, options ->> 'why', jsonb_build_object(what, name));
        PERFORM pg_notify("holdfast".channel(), 'pause');
    END IF;
    RETURN 'paused';
END
$$;

COMMENT ON FUNCTION holdfast.pause(name text, options jsonb) IS 'Pauses a queue or a kind: none of its tasks is claimed until "holdfast".resume(name); running steps finish. Options: what (queue or kind, if the name is both, or of a queue not used yet), by, why.';

CREATE FUNCTION holdfast.pause_schedule(name text, options jsonb DEFAULT '{}'::jsonb) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    s "holdfast".schedule := "holdfast".lock_schedule(name);
    who text := coalesce(options ->> 'by', session_user);
BEGIN
    PERFORM "holdfast".check_options(options, ARRAY['by', 'why']);
    IF s.paused_at IS NULL THEN
        UPDATE "holdfast".schedule u SET paused_at = "holdfast".now(), paused_by = concat_ws(': ', who, nullif(options ->> 'why', '')),
            version = u.version + 1
        WHERE u.name = s.name;
        INSERT INTO "holdfast".change (action, by, why, new) VALUES ('pause', who, options ->> 'why', jsonb_build_object('schedule', name));
    END IF;
    RETURN 'paused';
END
$$;

COMMENT ON FUNCTION holdfast.pause_schedule(name text, options jsonb) IS 'Pauses a schedule: nothing of it is enqueued until "holdfast".resume_schedule(name). Options: by, why.';

CREATE FUNCTION holdfast.read_retention(value jsonb, what text DEFAULT 'retention'::text) RETURNS interval
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    span interval;
    said text := value #>> '{}';
BEGIN
    IF said IS NULL OR said = 'default' THEN
        RETURN NULL;
    END IF;
    BEGIN
        span := said::interval;
    EXCEPTION WHEN data_exception THEN
        span := NULL;
    END;
    IF span IS NULL OR jsonb_typeof(value) <> 'string' THEN
        RAISE EXCEPTION 'holdfast: % must be a time span or "default", not %', what, left(value::text, 200)
            USING ERRCODE = '22023', HINT = format('Write for example {"%s": "14 days"}.', what);
    ELSIF span < interval '1 day' OR span > interval '100 years' THEN
        RAISE EXCEPTION 'holdfast: % of % is not possible: it is 1 day to 100 years', CASE what WHEN 'retention' THEN 'a retention' ELSE 'a retention (' || what || ')' END, said
            USING ERRCODE = '22023', HINT = 'History is kept in partitions of a day.';
    END IF;
    RETURN span;
END
$$;

COMMENT ON FUNCTION holdfast.read_retention(value jsonb, what text) IS 'Internal: a retention as people give it; null for "default".';

CREATE FUNCTION holdfast.refuse_id(id uuid, state text) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'holdfast: there is already a task with the id %: it is %', id, state
        USING ERRCODE = '23505', HINT = 'If it is the one you mean, it need not be enqueued again; else leave the id out.';
END
$$;

COMMENT ON FUNCTION holdfast.refuse_id(id uuid, state text) IS 'Internal: says that a given id is taken.';

CREATE FUNCTION holdfast.resume(name text, options jsonb DEFAULT '{}'::jsonb) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    what text := "holdfast".pausable(name, options);
    was record;
BEGIN
    IF what = 'queue' THEN
        SELECT q.paused_at, q.paused_by INTO was FROM "holdfast".queue q
        WHERE q.name = resume.name AND q.paused_at IS NOT NULL FOR UPDATE;
    ELSE
        SELECT k.paused_at, k.paused_by, k.queue INTO was FROM "holdfast".kind k
        WHERE k.name = resume.name AND k.paused_at IS NOT NULL FOR UPDATE;
    END IF;
    IF NOT FOUND THEN
        RETURN 'not paused';
    END IF;
    IF what = 'queue' THEN
        UPDATE "holdfast".queue q SET paused_at = NULL, paused_by = NULL WHERE q.name = resume.name;
        PERFORM pg_notify("holdfast".channel(), 'queue ' || name);
    ELSE
        UPDATE "holdfast".kind k SET paused_at = NULL, paused_by = NULL WHERE k.name = resume.name;
        -- Its tasks may be in any queue that somebody serves.
        PERFORM pg_notify("holdfast".channel(), 'queue ' || served.queue)
        FROM (SELECT was.queue::text AS queue
              UNION
              SELECT unnest(w.queues) FROM "holdfast".worker w WHERE "holdfast".is_live(w)) AS served;
    END IF;
    INSERT INTO "holdfast".change (action, by, why, old, new)
    VALUES ('resume', coalesce(options ->> 'by', session_user), options ->> 'why',
            jsonb_build_object('paused_at', was.paused_at, 'paused_by', was.paused_by), jsonb_build_object(what, name));
    PERFORM pg_notify("holdfast".channel(), 'pause');
    RETURN 'resumed';
END
$$;

COMMENT ON FUNCTION holdfast.resume(name text, options jsonb) IS 'Lets the tasks of a paused queue or kind be claimed again. Options: what (queue or kind, if the name is both), by, why.';

CREATE FUNCTION holdfast.resume_schedule(name text, options jsonb DEFAULT '{}'::jsonb) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    s "holdfast".schedule := "holdfast".lock_schedule(name);
BEGIN
    PERFORM "holdfast".check_options(options, ARRAY['by', 'why']);
    IF s.paused_at IS NULL THEN
        RETURN 'not paused';
    END IF;
    UPDATE "holdfast".schedule u
    SET paused_at = NULL, paused_by = NULL, version = u.version + 1, watermark = "holdfast".now(), next_at = "holdfast".now()
    WHERE u.name = s.name;
    INSERT INTO "holdfast".change (action, by, why, old, new)
    VALUES ('resume', coalesce(options ->> 'by', session_user), options ->> 'why',
            jsonb_build_object('paused_at', s.paused_at, 'paused_by', s.paused_by), jsonb_build_object('schedule', name));
    PERFORM pg_notify("holdfast".channel(), 'schedule');
    RETURN 'resumed';
END
$$;

COMMENT ON FUNCTION holdfast.resume_schedule(name text, options jsonb) IS 'Lets a paused schedule go on from now: what was planned meanwhile is not caught up, unless by a backfill. Options: by, why.';

CREATE FUNCTION holdfast.retention(queue text DEFAULT NULL::text) RETURNS interval
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $_$
    SELECT coalesce((SELECT q.retention FROM "holdfast".queue q WHERE q.name = $1),
                    (SELECT s.retention FROM "holdfast".setting s), interval '7 days')
$_$;

COMMENT ON FUNCTION holdfast.retention(queue text) IS 'How long finished tasks of a queue and their attempts are kept at least; without a name, those of queues that say nothing else.';

CREATE FUNCTION holdfast.retry(id uuid, options jsonb DEFAULT '{}'::jsonb) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    t "holdfast".task;
    due timestamptz := greatest((options ->> 'at')::timestamptz, "holdfast".now());
BEGIN
    PERFORM "holdfast".check_options(options, ARRAY['args', 'step', 'at', 'by', 'why', 'expected_attempt', 'strict']);
    t := "holdfast".lock_task(id, 'retry', ARRAY['parked', 'ready']);
    IF t.attempt <> (options ->> 'expected_attempt')::integer THEN
        RAISE EXCEPTION 'holdfast: task % was changed: it is at attempt %, not %', id, t.attempt, options ->> 'expected_attempt'
            USING ERRCODE = 'HF409', HINT = 'Somebody else may have retried it; look at it again.';
    END IF;
    IF t.attempt = 0 AND t.deadline <= "holdfast".now() THEN
        RAISE EXCEPTION 'holdfast: cannot retry task %: it is expired', id
            USING ERRCODE = 'HF409', HINT = 'It was not started before its deadline; enqueue a new one.';
    END IF;
    IF options ->> 'step' <> t.step THEN
        PERFORM "holdfast".check_known(t.kind, (options ->> 'step')::"holdfast".step_name, coalesce((options ->> 'strict')::boolean, false));
    END IF;
    IF options ? 'args' THEN
        PERFORM "holdfast".check_args(options -> 'args', coalesce(options ->> 'step', t.step));
    END IF;
    UPDATE "holdfast".task u
    SET state = 'ready', run_at = due, errors = 0, crashes = 0, error = NULL,
        args = coalesce(options -> 'args', u.args),
        -- Another step is another visit.
        moves = u.moves + (coalesce(options ->> 'step', u.step) <> u.step)::integer,
        step = coalesce(options ->> 'step', u.step)
    WHERE u.queue = t.queue AND u.id = t.id;
    INSERT INTO "holdfast".change (task_id, action, by, why, old, new)
    VALUES (id, 'retry', coalesce(options ->> 'by', session_user), options ->> 'why',
            jsonb_build_object('state', t.state, 'step', t.step, 'args', t.args, 'attempt', t.attempt, 'error', t.error - 'traceback'),
            jsonb_strip_nulls(jsonb_build_object('step', options -> 'step', 'args', options -> 'args',
                                                 'run_at', CASE WHEN due > "holdfast".now() THEN due END)));
    PERFORM pg_notify("holdfast".channel(), 'queue ' || t.queue);
    RETURN 'ready';
END
$$;

COMMENT ON FUNCTION holdfast.retry(id uuid, options jsonb) IS 'Resumes a parked task at its step with a fresh budget. Options: args and step (repair), at (not before then), by, why, expected_attempt (refuse if somebody was faster), strict (refuse a step that nobody knows, in place of a notice).';

CREATE FUNCTION holdfast.set_default(options jsonb) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    span interval := "holdfast".read_retention(options -> 'retention');
    counts interval := "holdfast".read_retention(options -> 'figures', 'figures');
    was interval;
BEGIN
    PERFORM "holdfast".check_options(options, ARRAY['retention', 'figures', 'by', 'why']);
    IF options ? 'figures' THEN
        SELECT s.figures INTO was FROM "holdfast".setting s;
        INSERT INTO "holdfast".setting (figures) VALUES (counts) ON CONFLICT (one) DO UPDATE SET figures = excluded.figures;
        INSERT INTO "holdfast".change (action, by, why, old, new)
        VALUES ('set', coalesce(options ->> 'by', session_user), options ->> 'why',
                jsonb_build_object('figures', was), jsonb_build_object('figures', counts));
    END IF;
    IF options ? 'retention' THEN
        PERFORM "holdfast".sweep_anew();
        SELECT s.retention INTO was FROM "holdfast".setting s;
        INSERT INTO "holdfast".setting (retention) VALUES (span) ON CONFLICT (one) DO UPDATE SET retention = excluded.retention;
        INSERT INTO "holdfast".change (action, by, why, old, new)
        VALUES ('set', coalesce(options ->> 'by', session_user), options ->> 'why',
                jsonb_build_object('retention', was), jsonb_build_object('retention', span));
    END IF;
    RETURN (SELECT jsonb_build_object('retention', s.retention, 'figures', s.figures) FROM "holdfast".setting s);
END
$$;

COMMENT ON FUNCTION holdfast.set_default(options jsonb) IS 'Changes what holds for all queues that say nothing else, and answers it. Options: retention (such as "14 days": how long finished tasks and their attempts are kept; "default": 7 days), figures (how long figures are kept; "default": 30 days), by, why.';

CREATE FUNCTION holdfast.set_queue(name text, options jsonb) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    span interval := "holdfast".read_retention(options -> 'retention');
    was interval;
BEGIN
    PERFORM "holdfast".check_options(options, ARRAY['retention', 'by', 'why']);
    PERFORM "holdfast".pausable(name, '{"what": "queue"}');
    IF options ? 'retention' THEN
        PERFORM "holdfast".sweep_anew();
        INSERT INTO "holdfast".queue (name) VALUES (set_queue.name) ON CONFLICT ON CONSTRAINT queue_pkey DO NOTHING;
        SELECT q.retention INTO was FROM "holdfast".queue q WHERE q.name = set_queue.name FOR UPDATE;
        UPDATE "holdfast".queue q SET retention = span WHERE q.name = set_queue.name;
        INSERT INTO "holdfast".change (action, by, why, old, new)
        VALUES ('set', coalesce(options ->> 'by', session_user), options ->> 'why',
                jsonb_build_object('retention', was), jsonb_build_object('queue', name, 'retention', span));
    END IF;
    RETURN (SELECT jsonb_build_object('retention', q.retention) FROM "holdfast".queue q WHERE q.name = set_queue.name);
END
$$;

COMMENT ON FUNCTION holdfast.set_queue(name text, options jsonb) IS 'Changes settings of a queue, and answers those it has. Options: retention (such as "2 days": how long its finished tasks and their attempts are kept; "default": as all others), by, why.';

CREATE FUNCTION holdfast.set_schedule(name text, definition jsonb, options jsonb DEFAULT '{}'::jsonb) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    defaults jsonb := '{"args": {}, "options": {}, "scopes": null, "catch_up": "latest", "catch_up_window": 86400, "catch_up_limit": 100,
                        "overlap": "allow", "start_delay": 0, "jitter": 0, "start": null, "end": null}';
    known text[] := ARRAY['timing', 'step', 'args', 'options', 'scopes', 'catch_up', 'catch_up_window', 'catch_up_limit', 'overlap',
                          'start_delay', 'jitter', 'start', 'end'];
    was jsonb;
    made jsonb;
BEGIN
    PERFORM "holdfast".check_options(options, ARRAY['by', 'why']);
    PERFORM "holdfast".check_options(definition, known);
    SELECT s.definition INTO was FROM "holdfast".schedule s WHERE s.name = set_schedule.name FOR UPDATE;
    made := coalesce(was, defaults) || definition;
    -- Functions of the code's own may stay as they are.
    PERFORM "holdfast".check_definition(name, made
        || CASE WHEN definition ? 'scopes' THEN '{}' ELSE '{"scopes": null}' END::jsonb
        || CASE WHEN made #> '{timing,function}' IS NOT NULL AND made -> 'timing' = was -> 'timing'
                THEN '{"timing": {"every": 1}}' ELSE '{}' END::jsonb);
    IF made = was THEN
        RETURN 'unchanged';
    END IF;
    INSERT INTO "holdfast".schedule AS s (name, definition) VALUES (set_schedule.name, made)
    ON CONFLICT ON CONSTRAINT schedule_pkey DO UPDATE
    SET definition = excluded.definition, version = s.version + 1, watermark = "holdfast".now(), next_at = "holdfast".now(),
        error = NULL, failures = 0;
    INSERT INTO "holdfast".change (action, by, why, old, new)
    VALUES ('schedule', coalesce(options ->> 'by', session_user), options ->> 'why', was, jsonb_build_object('schedule', name) || definition);
    PERFORM pg_notify("holdfast".channel(), 'schedule');
    RETURN CASE WHEN was IS NULL THEN 'created' ELSE 'changed' END;
END
$$;

COMMENT ON FUNCTION holdfast.set_schedule(name text, definition jsonb, options jsonb) IS 'Makes a schedule, or changes what is given of an existing one: select "holdfast".set_schedule(''nightly'', ''{"timing": {"cron": "0 3 * * *", "tz": "Europe/Berlin"}, "step": "report", "args": {"days": 1}}''). More: options (of enqueue), scopes (an array), catch_up (skip, latest, all), catch_up_window and start_delay and jitter (seconds), catch_up_limit, overlap (allow, skip, queue), start, end. Options here: by, why.';

CREATE FUNCTION holdfast.stop_workers(worker uuid DEFAULT NULL::uuid, options jsonb DEFAULT '{}'::jsonb) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    asked integer;
BEGIN
    PERFORM "holdfast".check_options(options, ARRAY['by', 'why']);
    UPDATE "holdfast".worker w SET stop_requested_at = coalesce(w.stop_requested_at, "holdfast".now())
    WHERE w.stopped_at IS NULL AND (stop_workers.worker IS NULL OR w.id = stop_workers.worker);
    GET DIAGNOSTICS asked = ROW_COUNT;
    INSERT INTO "holdfast".change (action, by, why, new)
    VALUES ('stop', coalesce(options ->> 'by', session_user), options ->> 'why', jsonb_build_object('worker', coalesce(worker::text, 'all')));
    PERFORM pg_notify("holdfast".channel(), 'stop');
    RETURN asked;
END
$$;

COMMENT ON FUNCTION holdfast.stop_workers(worker uuid, options jsonb) IS 'Asks one worker, or all, to stop as SIGTERM does; answers how many were asked. All have stopped when: select count(*) from "holdfast".worker where stopped_at is null is 0. Options: by, why.';

CREATE FUNCTION holdfast.summarize_log() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '50ms'
    AS $$
DECLARE
    index oid;
BEGIN
    FOR index IN
        SELECT x.indexrelid FROM pg_catalog.pg_class c
        JOIN pg_catalog.pg_index x ON x.indrelid = c.oid
        JOIN pg_catalog.pg_class i ON i.oid = x.indexrelid
        JOIN pg_catalog.pg_am m ON m.oid = i.relam AND m.amname = 'brin'
        WHERE c.relnamespace = to_regnamespace(quote_ident('holdfast')) AND c.relispartition
          AND c.relname IN (SELECT t.name || to_char("holdfast".now() AT TIME ZONE 'UTC' - n * interval '1 day', '"_p"YYYYMMDD')
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

CREATE FUNCTION holdfast.sweep_anew() RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('holdfast' || ' history', 0));
    UPDATE "holdfast".partition SET swept = NULL, sweeping = NULL, block = 0;
END
$$;

COMMENT ON FUNCTION holdfast.sweep_anew() IS 'Internal: lets maintenance look through all days again.';

CREATE FUNCTION holdfast.the_time(at timestamp with time zone) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT to_char(at, 'YYYY-MM-DD HH24:MI:SSOF') $$;

COMMENT ON FUNCTION holdfast.the_time(at timestamp with time zone) IS 'Internal: a time with its zone, to the second.';

CREATE FUNCTION holdfast.unique_key(kind text, step text, args jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT 'unique:' || kind || '.' || step || ':' || encode(sha256(convert_to(
        -- Strings are passed over; of numbers, the zeros at the end of a fraction are left out.
        regexp_replace(args::text, E'("(?:[^"\\\\]|\\\\.)*")|([.][0-9]*[1-9])0+(?![0-9])|[.]0+(?![0-9])', E'\\1\\2', 'g'), 'UTF8')), 'hex')
$$;

COMMENT ON FUNCTION holdfast.unique_key(kind text, step text, args jsonb) IS 'The key that unique gives to a task: unique:KIND.STEP: and the SHA-256 of its args. To look one up: select * from "holdfast".task where key = "holdfast".unique_key(''greeter'', ''ReadName'', ''{"filename": "name.txt"}'').';

CREATE FUNCTION holdfast.wake(queue text, run_at timestamp with time zone) RETURNS void
    LANGUAGE sql
    AS $$
    SELECT pg_catalog.pg_notify("holdfast".channel(), 'queue ' || queue) WHERE run_at <= "holdfast".now() + interval '1 minute'
$$;

COMMENT ON FUNCTION holdfast.wake(queue text, run_at timestamp with time zone) IS 'Internal: tells workers of a task that is due now or soon.';

CREATE TABLE holdfast.attempt (
    task_id uuid NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    step text NOT NULL COLLATE pg_catalog."C",
    args jsonb NOT NULL,
    moves integer NOT NULL,
    attempt integer NOT NULL,
    worker_id uuid,
    claimed_at timestamp with time zone,
    finished_at timestamp with time zone DEFAULT holdfast.now() NOT NULL,
    outcome text NOT NULL COLLATE pg_catalog."C",
    error jsonb,
    report jsonb,
    parked boolean DEFAULT false NOT NULL,
    run_at timestamp with time zone,
    CONSTRAINT attempt_outcome CHECK ((outcome = ANY (ARRAY['advanced'::text, 'retried'::text, 'failed'::text, 'snoozed'::text, 'lost'::text, 'released'::text])))
)
PARTITION BY RANGE (finished_at);

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

COMMENT ON COLUMN holdfast.attempt.parked IS 'Whether its end parked the task: every failed one, and a lost one if its worker was lost too often or it must not be rerun.';

COMMENT ON COLUMN holdfast.attempt.run_at IS 'When it was due.';

CREATE TABLE holdfast.progress (
    task_id uuid NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    attempt integer NOT NULL,
    fraction double precision,
    note text DEFAULT ''::text NOT NULL,
    report jsonb,
    updated_at timestamp with time zone DEFAULT holdfast.now() NOT NULL
)
WITH (fillfactor='50');

COMMENT ON TABLE holdfast.progress IS 'What running attempts have told of themselves, written about once a second; for others there is no row. It means nothing once the task is at another attempt.';

COMMENT ON COLUMN holdfast.progress.task_id IS 'The task.';

COMMENT ON COLUMN holdfast.progress.queue IS 'Its queue.';

COMMENT ON COLUMN holdfast.progress.attempt IS 'The number of the attempt that told it.';

COMMENT ON COLUMN holdfast.progress.fraction IS 'How far it has come, from 0 to 1; null if it told only figures.';

COMMENT ON COLUMN holdfast.progress.note IS 'What it is doing, in its own words.';

COMMENT ON COLUMN holdfast.progress.report IS 'Figures so far, such as {"rows": 42}; the last ones are kept with the attempt.';

COMMENT ON COLUMN holdfast.progress.updated_at IS 'When it was written.';

CREATE VIEW holdfast.attempts AS
 SELECT l.task_id,
    l.queue,
    l.kind,
    l.step,
    l.moves,
    l.attempt,
    l.worker_id,
    l.claimed_at,
    l.finished_at,
    l.outcome,
    l.error,
    l.args,
    l.report,
    NULL::double precision AS fraction,
    NULL::text AS note
   FROM holdfast.attempt l
UNION ALL
 SELECT a.id AS task_id,
    a.queue,
    a.kind,
    a.step,
    a.moves,
    a.attempt,
    a.worker_id,
    a.claimed_at,
    a.finished_at,
    a.outcome,
        CASE
            WHEN (a.outcome <> 'done'::text) THEN a.error
            ELSE NULL::jsonb
        END AS error,
    a.args,
    a.report,
    NULL::double precision AS fraction,
    NULL::text AS note
   FROM holdfast.archive a
  WHERE (a.outcome IS NOT NULL)
UNION ALL
 SELECT t.id AS task_id,
    t.queue,
    t.kind,
    t.step,
    t.moves,
    t.attempt,
    t.worker_id,
    t.claimed_at,
    NULL::timestamp with time zone AS finished_at,
    NULL::text AS outcome,
    NULL::jsonb AS error,
    t.args,
    p.report,
    p.fraction,
    p.note
   FROM (holdfast.task t
     LEFT JOIN holdfast.progress p ON (((p.task_id = t.id) AND (p.queue = (t.queue)::text) AND (p.attempt = t.attempt))))
  WHERE (t.state = 'running'::text);

COMMENT ON VIEW holdfast.attempts IS 'The log of all attempts; the running ones have no outcome yet, but how far they have come, if they tell.';

CREATE TABLE holdfast.change (
    id uuid DEFAULT holdfast.new_id() NOT NULL,
    task_id uuid,
    action text NOT NULL,
    by text NOT NULL,
    role text DEFAULT SESSION_USER NOT NULL,
    why text,
    old jsonb,
    new jsonb,
    at timestamp with time zone DEFAULT holdfast.now() NOT NULL
);

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

CREATE TABLE holdfast.figure_hour (
    hour timestamp with time zone CONSTRAINT figure_minute_not_null NOT NULL,
    queue text CONSTRAINT figure_queue_not_null NOT NULL COLLATE pg_catalog."C",
    kind text CONSTRAINT figure_kind_not_null NOT NULL COLLATE pg_catalog."C",
    step text CONSTRAINT figure_step_not_null NOT NULL COLLATE pg_catalog."C",
    done integer CONSTRAINT figure_done_not_null NOT NULL,
    advanced integer CONSTRAINT figure_advanced_not_null NOT NULL,
    snoozed integer CONSTRAINT figure_snoozed_not_null NOT NULL,
    retried integer CONSTRAINT figure_retried_not_null NOT NULL,
    failed integer CONSTRAINT figure_failed_not_null NOT NULL,
    lost integer CONSTRAINT figure_lost_not_null NOT NULL,
    cancelled integer CONSTRAINT figure_cancelled_not_null NOT NULL,
    released integer CONSTRAINT figure_released_not_null NOT NULL,
    wait integer[] CONSTRAINT figure_wait_not_null NOT NULL,
    run integer[] CONSTRAINT figure_run_not_null NOT NULL,
    wait_seconds double precision CONSTRAINT figure_wait_seconds_not_null NOT NULL,
    run_seconds double precision CONSTRAINT figure_run_seconds_not_null NOT NULL
);

COMMENT ON TABLE holdfast.figure_hour IS 'The figures by the hour, for longer spans of time; kept for 30 days unless "holdfast".set_default says otherwise.';

COMMENT ON COLUMN holdfast.figure_hour.hour IS 'The beginning of the hour, in UTC.';

COMMENT ON COLUMN holdfast.figure_hour.queue IS 'The queue of the tasks.';

COMMENT ON COLUMN holdfast.figure_hour.kind IS 'Their kind.';

COMMENT ON COLUMN holdfast.figure_hour.step IS 'The step that was executed.';

COMMENT ON COLUMN holdfast.figure_hour.done IS 'How many attempts ended so: their tasks were finished.';

COMMENT ON COLUMN holdfast.figure_hour.advanced IS 'How many attempts ended so: moved on to another step.';

COMMENT ON COLUMN holdfast.figure_hour.snoozed IS 'How many attempts ended so: asked to be called again.';

COMMENT ON COLUMN holdfast.figure_hour.retried IS 'How many attempts ended so: an error, tried again later.';

COMMENT ON COLUMN holdfast.figure_hour.failed IS 'How many attempts ended so: an error, parked.';

COMMENT ON COLUMN holdfast.figure_hour.lost IS 'How many attempts ended so: their worker vanished.';

COMMENT ON COLUMN holdfast.figure_hour.cancelled IS 'How many attempts ended so: their tasks were cancelled.';

COMMENT ON COLUMN holdfast.figure_hour.released IS 'How many attempts ended so: handed back unfinished.';

COMMENT ON COLUMN holdfast.figure_hour.wait IS 'How many of them, without lost and released ones, had waited how long, from due to claimed: as many as "holdfast".buckets() has bounds, and one more.';

COMMENT ON COLUMN holdfast.figure_hour.run IS 'How many took how long, from claimed to recorded, likewise.';

COMMENT ON COLUMN holdfast.figure_hour.wait_seconds IS 'How long they had waited, all together.';

COMMENT ON COLUMN holdfast.figure_hour.run_seconds IS 'How long they took, all together.';

CREATE TABLE holdfast.figure_place (
    one boolean DEFAULT true NOT NULL,
    settled timestamp with time zone NOT NULL,
    until timestamp with time zone NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    seen_open text[] DEFAULT '{}'::text[] NOT NULL,
    looked_at timestamp with time zone NOT NULL,
    CONSTRAINT figure_place_one CHECK (one)
);

COMMENT ON TABLE holdfast.figure_place IS 'How far figures have come: one row.';

COMMENT ON COLUMN holdfast.figure_place.one IS 'Always true: there is one row.';

COMMENT ON COLUMN holdfast.figure_place.settled IS 'Minutes before this one are counted for good; so are the hours before.';

COMMENT ON COLUMN holdfast.figure_place.until IS 'Minutes before this one are counted; those from settled on once more, when nobody can add to them.';

COMMENT ON COLUMN holdfast.figure_place.seen_at IS 'When it was noted which transactions were open. Once they have ended, the minutes before are complete.';

COMMENT ON COLUMN holdfast.figure_place.seen_open IS 'The virtual ids of those transactions.';

COMMENT ON COLUMN holdfast.figure_place.looked_at IS 'When a worker last did something about figures.';

CREATE TABLE holdfast.grantee (
    role text NOT NULL,
    part text NOT NULL,
    granted_at timestamp with time zone DEFAULT holdfast.now() NOT NULL,
    granted_by text DEFAULT SESSION_USER NOT NULL,
    CONSTRAINT grantee_part CHECK ((part = ANY (ARRAY['producer'::text, 'worker'::text, 'viewer'::text, 'operator'::text])))
);

COMMENT ON TABLE holdfast.grantee IS 'Which database roles were given which part, by holdfast roles grant: their rights are renewed by every migration.';

COMMENT ON COLUMN holdfast.grantee.role IS 'The name of the role.';

COMMENT ON COLUMN holdfast.grantee.part IS 'producer: may enqueue; worker: may claim and execute; viewer: may look at everything; operator: may look, retry, cancel, pause and so on.';

COMMENT ON COLUMN holdfast.grantee.granted_at IS 'When it was first given.';

COMMENT ON COLUMN holdfast.grantee.granted_by IS 'The role that gave it.';

CREATE VIEW holdfast.history AS
 SELECT (c.relname)::text AS name,
    (p.relname)::text AS parent,
    (((b.until AT TIME ZONE 'UTC'::text) - '1 day'::interval))::date AS day,
    b.until,
    i.inhdetachpending AS detaching,
    pg_total_relation_size((c.oid)::regclass) AS bytes,
    (((b.until AT TIME ZONE 'UTC'::text) + GREATEST(holdfast.longest_retention(), '2 days'::interval)) AT TIME ZONE 'UTC'::text) AS drop_after
   FROM ((((pg_inherits i
     JOIN pg_class p ON ((p.oid = i.inhparent)))
     JOIN pg_class c ON ((c.oid = i.inhrelid)))
     JOIN pg_namespace n ON ((n.oid = c.relnamespace)))
     CROSS JOIN LATERAL ( SELECT ("substring"(pg_get_expr(c.relpartbound, c.oid), 'TO [(]''([^'']+)''[)]'::text))::timestamp with time zone AS "substring") b(until))
  WHERE ((n.nspname = 'holdfast'::name) AND (p.relnamespace = n.oid) AND (c.relname ~ '^(archive|attempt)_p[0-9]{8}$'::text));

COMMENT ON VIEW holdfast.history IS 'The partitions of archive and attempt: a table per UTC day each, until when it has rows, its size with indexes, whether it is being detached, and when it is dropped at the earliest.';

CREATE TABLE holdfast.key (
    queue holdfast.queue_name NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C",
    task_id uuid NOT NULL,
    kind holdfast.kind_name NOT NULL,
    held_until timestamp with time zone NOT NULL
);

COMMENT ON TABLE holdfast.key IS 'Keys that hold for a while whatever becomes of their task (unique_for). An unfinished task holds its key without a row here.';

COMMENT ON COLUMN holdfast.key.queue IS 'The queue in which the key counts.';

COMMENT ON COLUMN holdfast.key.key IS 'The key.';

COMMENT ON COLUMN holdfast.key.task_id IS 'The task it was taken for; it may have ended, or be archived no more.';

COMMENT ON COLUMN holdfast.key.kind IS 'The kind of that task.';

COMMENT ON COLUMN holdfast.key.held_until IS 'Until then no other task gets this key. Later the row means nothing: it is taken over, or swept. To free a key earlier, delete its row.';

CREATE TABLE holdfast.kind (
    name holdfast.kind_name NOT NULL,
    queue holdfast.queue_name NOT NULL,
    priority smallint NOT NULL,
    first holdfast.step_name,
    graph jsonb NOT NULL,
    about jsonb DEFAULT '{}'::jsonb NOT NULL,
    was text[] DEFAULT '{}'::text[] NOT NULL,
    seen_at timestamp with time zone DEFAULT holdfast.now() NOT NULL,
    paused_at timestamp with time zone,
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

CREATE TABLE holdfast.migration (
    version integer NOT NULL,
    name text NOT NULL,
    applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    objects text[] NOT NULL
);

COMMENT ON TABLE holdfast.migration IS 'Which migrations were applied, in order.';

COMMENT ON COLUMN holdfast.migration.version IS 'Its number.';

COMMENT ON COLUMN holdfast.migration.name IS 'Its name.';

COMMENT ON COLUMN holdfast.migration.applied_at IS 'When it was applied.';

COMMENT ON COLUMN holdfast.migration.objects IS 'Every object as it was right after: what differs later is drift.';

CREATE TABLE holdfast.occurrence (
    schedule text NOT NULL COLLATE pg_catalog."C",
    scope text NOT NULL COLLATE pg_catalog."C",
    plan_time timestamp with time zone NOT NULL,
    due_at timestamp with time zone NOT NULL,
    task_id uuid,
    queue text COLLATE pg_catalog."C",
    skipped text,
    open boolean DEFAULT false NOT NULL,
    created_at timestamp with time zone DEFAULT holdfast.now() NOT NULL
);

COMMENT ON TABLE holdfast.occurrence IS 'Each plan time of each schedule and scope, once. The view occurrences shows what became of it.';

COMMENT ON COLUMN holdfast.occurrence.schedule IS 'The schedule.';

COMMENT ON COLUMN holdfast.occurrence.scope IS 'The scope; empty for a schedule without scopes.';

COMMENT ON COLUMN holdfast.occurrence.plan_time IS 'The instant it was planned for.';

COMMENT ON COLUMN holdfast.occurrence.due_at IS 'When its task was due: plan time, start delay and jitter.';

COMMENT ON COLUMN holdfast.occurrence.task_id IS 'Its task; null if it was skipped.';

COMMENT ON COLUMN holdfast.occurrence.queue IS 'The queue of that task.';

COMMENT ON COLUMN holdfast.occurrence.skipped IS 'Why it has no task.';

COMMENT ON COLUMN holdfast.occurrence.open IS 'Its task may be unfinished, and later occurrences must heed that. Cleared lazily.';

COMMENT ON COLUMN holdfast.occurrence.created_at IS 'When it was enqueued.';

CREATE VIEW holdfast.occurrences AS
 SELECT o.schedule,
    o.scope,
    o.plan_time,
    o.due_at,
    o.task_id,
        CASE
            WHEN (o.skipped IS NOT NULL) THEN 'skipped'::text
            ELSE COALESCE(t.state, a.state, 'gone'::text)
        END AS state,
    COALESCE(t.attempt, a.attempt) AS attempts,
    COALESCE(t.claimed_at, a.claimed_at) AS started_at,
    a.finished_at,
    (a.finished_at - a.claimed_at) AS duration,
    (COALESCE(t.claimed_at, a.claimed_at) - o.due_at) AS lateness,
    a.result,
    COALESCE(t.error, a.error) AS error,
    o.skipped,
    o.created_at
   FROM ((holdfast.occurrence o
     LEFT JOIN holdfast.task t ON (((t.id = o.task_id) AND ((t.queue)::text = o.queue))))
     LEFT JOIN holdfast.archive a ON ((a.id = o.task_id)));

COMMENT ON VIEW holdfast.occurrences IS 'Each plan time of each schedule and scope with its task: state (gone: older than finished tasks are kept), attempts, duration of the last attempt, result, lateness of its start.';

CREATE VIEW holdfast.parked AS
 SELECT id,
    queue,
    kind,
    step,
    attempt,
    COALESCE(( SELECT l.finished_at
           FROM holdfast.attempt l
          WHERE ((l.task_id = t.id) AND (l.attempt = t.attempt) AND (l.finished_at >= t.claimed_at) AND (l.finished_at <= holdfast.now()))
         LIMIT 1), claimed_at) AS parked_at,
    (error ->> 'type'::text) AS error_type,
    "left"(regexp_replace((error ->> 'message'::text), '[[:space:]]+'::text, ' '::text, 'g'::text), 60) AS error_message
   FROM holdfast.task t
  WHERE (state = 'parked'::text);

COMMENT ON VIEW holdfast.parked IS 'Tasks that wait for a person: repair the cause, then: select "holdfast".retry(id). parked_at is when the last attempt ended, as far as the log still knows. The args and the whole error are in "holdfast".tasks.';

CREATE VIEW holdfast.parked_steps AS
 WITH RECURSIVE found(queue, kind, step) AS (
        ( SELECT (t.queue)::text AS queue,
            (t.kind)::text AS kind,
            (t.step)::text AS step
           FROM holdfast.task t
          WHERE (t.state = 'parked'::text)
          ORDER BY t.queue, t.kind, t.step
         LIMIT 1)
        UNION ALL
         SELECT n.queue,
            n.kind,
            n.step
           FROM (found f
             CROSS JOIN LATERAL ( SELECT (t.queue)::text AS queue,
                    (t.kind)::text AS kind,
                    (t.step)::text AS step
                   FROM holdfast.task t
                  WHERE ((t.state = 'parked'::text) AND (ROW((t.queue)::text, (t.kind)::text, (t.step)::text) > ROW(f.queue, f.kind, f.step)))
                  ORDER BY t.queue, t.kind, t.step
                 LIMIT 1) n)
        )
 SELECT queue,
    kind,
    step
   FROM found;

COMMENT ON VIEW holdfast.parked_steps IS 'Where tasks are parked: each queue, kind and step once. Fast with any number of tasks: it jumps from one to the next in their index.';

CREATE TABLE holdfast.partition (
    name text NOT NULL,
    dropping_at timestamp with time zone,
    swept interval,
    sweeping interval,
    block bigint DEFAULT 0 NOT NULL
);

COMMENT ON TABLE holdfast.partition IS 'What maintenance is doing to old partitions: which it is dropping, and how far it has deleted from which.';

COMMENT ON COLUMN holdfast.partition.name IS 'The partition: archive_p or attempt_p, and the day.';

COMMENT ON COLUMN holdfast.partition.dropping_at IS 'When maintenance chose it to be dropped: once it is detached, it is dropped too. Null if it is not to be.';

COMMENT ON COLUMN holdfast.partition.swept IS 'Rows of queues with a retention up to this are deleted.';

COMMENT ON COLUMN holdfast.partition.sweeping IS 'Rows of queues with a retention up to this are being deleted.';

COMMENT ON COLUMN holdfast.partition.block IS 'They are deleted up to this block of the table.';

CREATE TABLE holdfast.queue (
    name holdfast.queue_name NOT NULL,
    paused_at timestamp with time zone,
    paused_by text,
    retention interval
);

COMMENT ON TABLE holdfast.queue IS 'Settings of queues. A queue needs no row here: it exists by being named.';

COMMENT ON COLUMN holdfast.queue.name IS 'The name of the queue.';

COMMENT ON COLUMN holdfast.queue.paused_at IS 'Since when none of its tasks is claimed; null unless paused.';

COMMENT ON COLUMN holdfast.queue.paused_by IS 'Who paused it, and why.';

COMMENT ON COLUMN holdfast.queue.retention IS 'How long its finished tasks and their attempts are kept; null: as for all. Changed by "holdfast".set_queue.';

CREATE TABLE holdfast.schedule_scope (
    schedule holdfast.queue_name NOT NULL,
    scope text NOT NULL COLLATE pg_catalog."C",
    watermark timestamp with time zone NOT NULL
);

COMMENT ON TABLE holdfast.schedule_scope IS 'For which scopes a schedule recurs at present, and how far each one is.';

COMMENT ON COLUMN holdfast.schedule_scope.schedule IS 'The schedule.';

COMMENT ON COLUMN holdfast.schedule_scope.scope IS 'The scope, such as the name of a customer; empty for a schedule without scopes.';

COMMENT ON COLUMN holdfast.schedule_scope.watermark IS 'Everything planned up to here has been dealt with.';

CREATE VIEW holdfast.schedules AS
 SELECT name,
    (definition -> 'timing'::text) AS timing,
    (definition ->> 'step'::text) AS step,
    (definition -> 'args'::text) AS args,
        CASE
            WHEN (paused_at IS NOT NULL) THEN 'paused'::text
            WHEN ((declared IS NOT NULL) AND (EXISTS ( SELECT
               FROM holdfast.worker w
              WHERE holdfast.is_live(w.*))) AND (NOT (EXISTS ( SELECT
               FROM holdfast.worker w
              WHERE (holdfast.is_live(w.*) AND ((s.name)::text = ANY (w.schedules))))))) THEN 'orphaned'::text
            WHEN (error IS NOT NULL) THEN 'failing'::text
            WHEN (next_at IS NULL) THEN 'ended'::text
            ELSE 'active'::text
        END AS condition,
    next_at,
    last_at,
    paused_at,
    paused_by,
    error,
    failures,
    (declared IS NOT NULL) AS in_code,
    ((declared IS NOT NULL) AND (declared <> definition)) AS changed_by_hand,
    ( SELECT count(*) AS count
           FROM holdfast.schedule_scope c
          WHERE (((c.schedule)::text = (s.name)::text) AND (c.scope <> ''::text))) AS scopes,
    definition,
    version,
    watermark,
    created_at
   FROM holdfast.schedule s;

COMMENT ON VIEW holdfast.schedules IS 'All schedules. condition: active, paused, failing (see error), ended (no more times), orphaned (declared in code that no live worker has).';

CREATE TABLE holdfast.setting (
    one boolean DEFAULT true NOT NULL,
    retention interval,
    figures interval,
    CONSTRAINT setting_one CHECK (one)
);

COMMENT ON TABLE holdfast.setting IS 'What holds for all queues that say nothing else: one row, or none. Changed by "holdfast".set_default.';

COMMENT ON COLUMN holdfast.setting.one IS 'Always true: there is one row.';

COMMENT ON COLUMN holdfast.setting.retention IS 'How long finished tasks and their attempts are kept; null: 7 days.';

COMMENT ON COLUMN holdfast.setting.figures IS 'How long figures are kept; null: 30 days.';

CREATE VIEW holdfast.tasks AS
 SELECT t.id,
    (t.queue)::text AS queue,
    (t.kind)::text AS kind,
    (t.step)::text AS step,
    t.state,
        CASE
            WHEN (t.state <> 'ready'::text) THEN t.state
            WHEN ((t.attempt = 0) AND (t.deadline <= holdfast.now())) THEN 'expired'::text
            WHEN ((t.run_at > holdfast.now()) AND (t.errors > 0)) THEN 'retrying'::text
            WHEN (t.run_at > holdfast.now()) THEN 'scheduled'::text
            WHEN (((t.queue)::text IN ( SELECT q.name
               FROM holdfast.queue q
              WHERE (q.paused_at IS NOT NULL))) OR ((t.kind)::text IN ( SELECT unnest((k.was || (k.name)::text)) AS unnest
               FROM holdfast.kind k
              WHERE (k.paused_at IS NOT NULL)))) THEN 'paused'::text
            WHEN (NOT (((t.queue)::text, (((t.kind)::text || '.'::text) || (t.step)::text)) IN ( SELECT q.name,
                s.name
               FROM ( SELECT DISTINCT o.queues,
                        o.steps
                       FROM holdfast.worker o
                      WHERE holdfast.is_live(o.*)) w,
                LATERAL unnest(w.queues) q(name),
                LATERAL unnest(w.steps) s(name)
              WHERE ((q.name IS NOT NULL) AND (s.name IS NOT NULL))))) THEN
            CASE
                WHEN ((NOT ((t.queue)::text IN ( SELECT q.name
                   FROM holdfast.worker o,
                    LATERAL unnest(o.queues) q(name)
                  WHERE (holdfast.is_live(o.*) AND (q.name IS NOT NULL))))) AND ((((t.kind)::text || '.'::text) || (t.step)::text) IN ( SELECT DISTINCT ((n.name || '.'::text) || s.name)
                   FROM holdfast.kind k,
                    LATERAL unnest((k.was || (k.name)::text)) n(name),
                    LATERAL jsonb_object_keys(
                        CASE
                            WHEN (jsonb_typeof(k.graph) = 'object'::text) THEN k.graph
                            ELSE '{}'::jsonb
                        END) s(name)))) THEN 'unserved'::text
                ELSE 'unroutable'::text
            END
            ELSE 'due'::text
        END AS phase,
    t.priority,
    t.run_at,
    t.moves,
    t.attempt,
    t.errors,
    t.crashes,
    t.worker_id,
    t.claimed_at,
    t.lease_expires_at,
    t.args,
    t.error,
    t.key,
    t.headers,
    t.created_at,
    NULL::timestamp with time zone AS finished_at,
    NULL::jsonb AS result,
    t.deadline
   FROM holdfast.task t
UNION ALL
 SELECT a.id,
    a.queue,
    a.kind,
    a.step,
    a.state,
    a.state AS phase,
    a.priority,
    a.run_at,
    a.moves,
    a.attempt,
    a.errors,
    a.crashes,
    a.worker_id,
    a.claimed_at,
    NULL::timestamp with time zone AS lease_expires_at,
    a.args,
    a.error,
    a.key,
    a.headers,
    a.created_at,
    a.finished_at,
    a.result,
    NULL::timestamp with time zone AS deadline
   FROM holdfast.archive a;

COMMENT ON VIEW holdfast.tasks IS 'All tasks, live and archived. phase says more than state: scheduled, retrying, due, paused (its queue or kind is), unserved (its step was declared, but no live worker serves its queue), unroutable (no live worker of its queue knows the step, or nobody has ever declared it), running, waiting, parked, done, cancelled, expired (also while it still waits to be archived), discarded.';

ALTER TABLE ONLY holdfast.change
    ADD CONSTRAINT change_pkey PRIMARY KEY (id);

ALTER TABLE ONLY holdfast.figure_hour
    ADD CONSTRAINT figure_hour_pkey PRIMARY KEY (hour, queue, kind, step);

ALTER TABLE ONLY holdfast.figure
    ADD CONSTRAINT figure_pkey PRIMARY KEY (minute, queue, kind, step);

ALTER TABLE ONLY holdfast.figure_place
    ADD CONSTRAINT figure_place_pkey PRIMARY KEY (one);

ALTER TABLE ONLY holdfast.grantee
    ADD CONSTRAINT grantee_pkey PRIMARY KEY (role, part);

ALTER TABLE ONLY holdfast.key
    ADD CONSTRAINT key_pkey PRIMARY KEY (queue, key);

ALTER TABLE ONLY holdfast.kind
    ADD CONSTRAINT kind_pkey PRIMARY KEY (name);

ALTER TABLE ONLY holdfast.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (version);

ALTER TABLE ONLY holdfast.occurrence
    ADD CONSTRAINT occurrence_pkey PRIMARY KEY (schedule, scope, plan_time);

ALTER TABLE ONLY holdfast.partition
    ADD CONSTRAINT partition_pkey PRIMARY KEY (name);

ALTER TABLE ONLY holdfast.progress
    ADD CONSTRAINT progress_pkey PRIMARY KEY (task_id, queue);

ALTER TABLE ONLY holdfast.queue
    ADD CONSTRAINT queue_pkey PRIMARY KEY (name);

ALTER TABLE ONLY holdfast.schedule
    ADD CONSTRAINT schedule_pkey PRIMARY KEY (name);

ALTER TABLE ONLY holdfast.schedule_scope
    ADD CONSTRAINT schedule_scope_pkey PRIMARY KEY (schedule, scope);

ALTER TABLE ONLY holdfast.setting
    ADD CONSTRAINT setting_pkey PRIMARY KEY (one);

ALTER TABLE ONLY holdfast.task
    ADD CONSTRAINT task_pkey PRIMARY KEY (id, queue) WITH (fillfactor='45');

ALTER TABLE ONLY holdfast.worker
    ADD CONSTRAINT worker_pkey PRIMARY KEY (id);

CREATE INDEX archive_finished_at ON ONLY holdfast.archive USING brin (finished_at) WITH (pages_per_range='32');

CREATE INDEX archive_id ON ONLY holdfast.archive USING btree (id);

CREATE INDEX attempt_finished_at ON ONLY holdfast.attempt USING brin (finished_at) WITH (pages_per_range='32');

CREATE INDEX attempt_parked ON ONLY holdfast.attempt USING btree (finished_at, task_id, attempt) WHERE parked;

CREATE INDEX attempt_task ON ONLY holdfast.attempt USING btree (task_id, attempt);

CREATE INDEX change_at ON holdfast.change USING btree (at);

CREATE INDEX change_task ON holdfast.change USING btree (task_id);

CREATE INDEX key_held_until ON holdfast.key USING btree (held_until);

CREATE INDEX occurrence_age ON holdfast.occurrence USING btree (created_at);

CREATE INDEX occurrence_open ON holdfast.occurrence USING btree (schedule, scope) WHERE open;

CREATE INDEX occurrence_task ON holdfast.occurrence USING btree (task_id);

CREATE INDEX schedule_next ON holdfast.schedule USING btree (next_at) WHERE (paused_at IS NULL);

CREATE INDEX task_deadline ON holdfast.task USING btree (queue, deadline) WHERE ((state = 'ready'::text) AND (attempt = 0) AND (deadline IS NOT NULL));

CREATE UNIQUE INDEX task_key ON holdfast.task USING btree (queue, key) WHERE (key IS NOT NULL);

CREATE INDEX task_parked ON holdfast.task USING btree (queue, kind, step, id) WHERE (state = 'parked'::text);

CREATE INDEX task_ready ON holdfast.task USING btree (queue, priority, run_at, id) WHERE (state = 'ready'::text);

CREATE INDEX task_running ON holdfast.task USING btree (queue, worker_id) WHERE (state = 'running'::text);

CREATE INDEX task_suspect ON holdfast.task USING btree (queue, run_at, id) WHERE ((state = 'ready'::text) AND (crashes > 0));

ALTER TABLE ONLY holdfast.schedule_scope
    ADD CONSTRAINT schedule_scope_schedule_fkey FOREIGN KEY (schedule) REFERENCES holdfast.schedule(name) ON DELETE CASCADE;
