-- Schedules: what recurs, and each of its occurrences.
-- `holdfast.` stands for the schema's quoted name and :'schema' for its name as a literal.

CREATE TABLE holdfast.schedule (
    name             holdfast.queue_name PRIMARY KEY,
    definition       jsonb NOT NULL,
    declared         jsonb,
    declared_version integer NOT NULL DEFAULT 0,
    version          bigint NOT NULL DEFAULT 1,
    watermark        timestamptz NOT NULL DEFAULT holdfast.now(),
    next_at          timestamptz DEFAULT holdfast.now(),
    planned_at       timestamptz,
    last_at          timestamptz,
    paused_at        timestamptz,
    paused_by        text,
    error            text,
    failures         integer NOT NULL DEFAULT 0,
    created_at       timestamptz NOT NULL DEFAULT holdfast.now()
);
CREATE INDEX schedule_next ON holdfast.schedule (next_at) WHERE paused_at IS NULL;
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

CREATE TABLE holdfast.schedule_scope (
    schedule  holdfast.queue_name NOT NULL REFERENCES holdfast.schedule ON DELETE CASCADE,
    scope     text NOT NULL COLLATE "C",
    watermark timestamptz NOT NULL,
    PRIMARY KEY (schedule, scope)
);
COMMENT ON TABLE holdfast.schedule_scope IS 'For which scopes a schedule recurs at present, and how far each one is.';
COMMENT ON COLUMN holdfast.schedule_scope.schedule IS 'The schedule.';
COMMENT ON COLUMN holdfast.schedule_scope.scope IS 'The scope, such as the name of a customer; empty for a schedule without scopes.';
COMMENT ON COLUMN holdfast.schedule_scope.watermark IS 'Everything planned up to here has been dealt with.';

CREATE TABLE holdfast.occurrence (
    schedule   text NOT NULL COLLATE "C",
    scope      text NOT NULL COLLATE "C",
    plan_time  timestamptz NOT NULL,
    due_at     timestamptz NOT NULL,
    task_id    uuid,
    queue      text COLLATE "C",
    skipped    text,
    open       boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT holdfast.now(),
    PRIMARY KEY (schedule, scope, plan_time)
);
CREATE INDEX occurrence_open ON holdfast.occurrence (schedule, scope) WHERE open;
CREATE INDEX occurrence_age ON holdfast.occurrence (created_at);
CREATE INDEX occurrence_task ON holdfast.occurrence (task_id);
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

-- The verbs -------------------------------------------------------------------------------------------

CREATE FUNCTION holdfast.lock_schedule(name text) RETURNS holdfast.schedule
LANGUAGE plpgsql
AS $$
DECLARE
    s holdfast.schedule;
BEGIN
    SELECT * INTO s FROM holdfast.schedule f WHERE f.name = lock_schedule.name FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'holdfast: there is no schedule %', quote_nullable(left(name, 200)) USING ERRCODE = 'HF454',
            HINT = 'select name from holdfast.schedules lists them.';
    END IF;
    RETURN s;
END
$$;
COMMENT ON FUNCTION holdfast.lock_schedule(text) IS 'Internal: the row of a schedule, locked, or a clear error.';

-- The cron line itself is read by the first worker that sees it: what it cannot read is told in schedules.error.
CREATE FUNCTION holdfast.check_definition(name text, definition jsonb) RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $$
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
    PERFORM holdfast.check_args(definition -> 'args', definition ->> 'step');
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
$$;
COMMENT ON FUNCTION holdfast.check_definition(text, jsonb) IS 'Internal: refuses a definition that no worker could follow.';

CREATE FUNCTION holdfast.set_schedule(name text, definition jsonb, options jsonb DEFAULT '{}') RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    defaults jsonb := '{"args": {}, "options": {}, "scopes": null, "catch_up": "latest", "catch_up_window": 86400, "catch_up_limit": 100,
                        "overlap": "allow", "start_delay": 0, "jitter": 0, "start": null, "end": null}';
    known text[] := ARRAY['timing', 'step', 'args', 'options', 'scopes', 'catch_up', 'catch_up_window', 'catch_up_limit', 'overlap',
                          'start_delay', 'jitter', 'start', 'end'];
    was jsonb;
    made jsonb;
BEGIN
    PERFORM holdfast.check_options(options, ARRAY['by', 'why']);
    PERFORM holdfast.check_options(definition, known);
    SELECT s.definition INTO was FROM holdfast.schedule s WHERE s.name = set_schedule.name FOR UPDATE;
    made := coalesce(was, defaults) || definition;
    -- Functions of the code's own may stay as they are.
    PERFORM holdfast.check_definition(name, made
        || CASE WHEN definition ? 'scopes' THEN '{}' ELSE '{"scopes": null}' END::jsonb
        || CASE WHEN made #> '{timing,function}' IS NOT NULL AND made -> 'timing' = was -> 'timing'
                THEN '{"timing": {"every": 1}}' ELSE '{}' END::jsonb);
    IF made = was THEN
        RETURN 'unchanged';
    END IF;
    INSERT INTO holdfast.schedule AS s (name, definition) VALUES (set_schedule.name, made)
    ON CONFLICT ON CONSTRAINT schedule_pkey DO UPDATE
    SET definition = excluded.definition, version = s.version + 1, watermark = holdfast.now(), next_at = holdfast.now(),
        error = NULL, failures = 0;
    INSERT INTO holdfast.change (action, by, why, old, new)
    VALUES ('schedule', coalesce(options ->> 'by', session_user), options ->> 'why', was, jsonb_build_object('schedule', name) || definition);
    PERFORM pg_notify(holdfast.channel(), 'schedule');
    RETURN CASE WHEN was IS NULL THEN 'created' ELSE 'changed' END;
END
$$;
COMMENT ON FUNCTION holdfast.set_schedule(text, jsonb, jsonb) IS
    'Makes a schedule, or changes what is given of an existing one: select holdfast.set_schedule(''nightly'', ''{"timing": {"cron": "0 3 * * *", "tz": "Europe/Berlin"}, "step": "report", "args": {"days": 1}}''). More: options (of enqueue), scopes (an array), catch_up (skip, latest, all), catch_up_window and start_delay and jitter (seconds), catch_up_limit, overlap (allow, skip, queue), start, end. Options here: by, why.';

CREATE FUNCTION holdfast.pause_schedule(name text, options jsonb DEFAULT '{}') RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    s holdfast.schedule := holdfast.lock_schedule(name);
    who text := coalesce(options ->> 'by', session_user);
BEGIN
    PERFORM holdfast.check_options(options, ARRAY['by', 'why']);
    IF s.paused_at IS NULL THEN
        UPDATE holdfast.schedule u SET paused_at = holdfast.now(), paused_by = concat_ws(': ', who, nullif(options ->> 'why', '')),
            version = u.version + 1
        WHERE u.name = s.name;
        INSERT INTO holdfast.change (action, by, why, new) VALUES ('pause', who, options ->> 'why', jsonb_build_object('schedule', name));
    END IF;
    RETURN 'paused';
END
$$;
COMMENT ON FUNCTION holdfast.pause_schedule(text, jsonb) IS
    'Pauses a schedule: nothing of it is enqueued until holdfast.resume_schedule(name). Options: by, why.';

CREATE FUNCTION holdfast.resume_schedule(name text, options jsonb DEFAULT '{}') RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    s holdfast.schedule := holdfast.lock_schedule(name);
BEGIN
    PERFORM holdfast.check_options(options, ARRAY['by', 'why']);
    IF s.paused_at IS NULL THEN
        RETURN 'not paused';
    END IF;
    UPDATE holdfast.schedule u
    SET paused_at = NULL, paused_by = NULL, version = u.version + 1, watermark = holdfast.now(), next_at = holdfast.now()
    WHERE u.name = s.name;
    INSERT INTO holdfast.change (action, by, why, old, new)
    VALUES ('resume', coalesce(options ->> 'by', session_user), options ->> 'why',
            jsonb_build_object('paused_at', s.paused_at, 'paused_by', s.paused_by), jsonb_build_object('schedule', name));
    PERFORM pg_notify(holdfast.channel(), 'schedule');
    RETURN 'resumed';
END
$$;
COMMENT ON FUNCTION holdfast.resume_schedule(text, jsonb) IS
    'Lets a paused schedule go on from now: what was planned meanwhile is not caught up, unless by a backfill. Options: by, why.';

CREATE FUNCTION holdfast.delete_schedule(name text, options jsonb DEFAULT '{}') RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    s holdfast.schedule;
BEGIN
    PERFORM holdfast.check_options(options, ARRAY['by', 'why']);
    SELECT * INTO s FROM holdfast.schedule f WHERE f.name = delete_schedule.name FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'not there';
    END IF;
    IF s.declared IS NOT NULL
       AND EXISTS (SELECT FROM holdfast.worker w WHERE holdfast.is_live(w) AND delete_schedule.name = ANY (w.schedules)) THEN
        RAISE EXCEPTION 'holdfast: schedule % is declared in the code of a live worker and would come back', name USING ERRCODE = 'HF459',
            HINT = 'Remove it there, or pause it.';
    END IF;
    DELETE FROM holdfast.schedule d WHERE d.name = s.name;
    INSERT INTO holdfast.change (action, by, why, old, new)
    VALUES ('delete', coalesce(options ->> 'by', session_user), options ->> 'why', s.definition, jsonb_build_object('schedule', name));
    RETURN 'deleted';
END
$$;
COMMENT ON FUNCTION holdfast.delete_schedule(text, jsonb) IS
    'Deletes a schedule; its occurrences and tasks stay. Answers deleted, or not there. One that a live worker''s code declares is refused: pause it. Options: by, why.';

CREATE FUNCTION holdfast.fire_schedule(name text, options jsonb DEFAULT '{}') RETURNS SETOF uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    s holdfast.schedule := holdfast.lock_schedule(name);
    planned timestamptz := coalesce((options ->> 'plan_time')::timestamptz, holdfast.now());
    its_scope text;
    t holdfast.task;
    fired uuid;
BEGIN
    PERFORM holdfast.check_options(options, ARRAY['plan_time', 'scope', 'by', 'why']);
    FOR its_scope IN
        SELECT options ->> 'scope' WHERE options ->> 'scope' IS NOT NULL
        UNION ALL
        SELECT c.scope FROM holdfast.schedule_scope c WHERE c.schedule = s.name AND options ->> 'scope' IS NULL
        UNION ALL
        SELECT '' WHERE options ->> 'scope' IS NULL AND s.definition -> 'scopes' = 'null'
              AND NOT EXISTS (SELECT FROM holdfast.schedule_scope c WHERE c.schedule = s.name)
    LOOP
        t := holdfast.new_task(s.definition ->> 'step', s.definition -> 'args', (s.definition -> 'options') || jsonb_build_object('headers',
            coalesce(nullif(s.definition #> '{options,headers}', 'null'), '{}') || jsonb_strip_nulls(jsonb_build_object(
                'holdfast-schedule', name, 'holdfast-scope', nullif(its_scope, ''),
                'holdfast-plan-time', to_char(planned AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')))));
        INSERT INTO holdfast.occurrence AS o (schedule, scope, plan_time, due_at, task_id, queue, open)
        VALUES (s.name, its_scope, planned, holdfast.now(), t.id, t.queue, s.definition ->> 'overlap' <> 'allow')
        ON CONFLICT ON CONSTRAINT occurrence_pkey DO UPDATE
        SET due_at = excluded.due_at, task_id = excluded.task_id, queue = excluded.queue, open = excluded.open, skipped = NULL
        WHERE o.skipped IS NOT NULL;
        IF FOUND THEN
            fired := holdfast.insert_task(t, (s.definition #>> '{options,unique_for}')::interval, 'skip');
            IF fired <> t.id THEN
                UPDATE holdfast.occurrence o SET task_id = fired
                WHERE o.schedule = s.name AND o.scope = its_scope AND o.plan_time = planned;
            END IF;
        ELSE
            SELECT o.task_id INTO fired FROM holdfast.occurrence o
            WHERE o.schedule = s.name AND o.scope = its_scope AND o.plan_time = planned;
            RAISE NOTICE 'holdfast: % has fired for % before', name, planned;
        END IF;
        RETURN NEXT fired;
    END LOOP;
    INSERT INTO holdfast.change (action, by, why, new)
    VALUES ('fire', coalesce(options ->> 'by', session_user), options ->> 'why',
            jsonb_build_object('schedule', name, 'plan_time', planned, 'scope', options -> 'scope'));
END
$$;
COMMENT ON FUNCTION holdfast.fire_schedule(text, jsonb) IS
    'Enqueues an occurrence now, for all scopes or one; answers the task ids. The same plan time never fires twice. Options: plan_time, scope, by, why.';

CREATE FUNCTION holdfast.note_backfill(name text, options jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM holdfast.check_options(options, ARRAY['since', 'until', 'enqueued', 'by', 'why']);
    INSERT INTO holdfast.change (action, by, why, new)
    VALUES ('backfill', coalesce(options ->> 'by', session_user), options ->> 'why',
            jsonb_build_object('schedule', name) || (options - 'by' - 'why'));
END
$$;
COMMENT ON FUNCTION holdfast.note_backfill(text, jsonb) IS
    'Internal: keeps who made up for the plan times of which range. A backfill itself is made by the caller, in the same transaction.';

-- Views for people ------------------------------------------------------------------------------------

CREATE VIEW holdfast.schedules AS
    SELECT s.name, s.definition -> 'timing' AS timing, s.definition ->> 'step' AS step, s.definition -> 'args' AS args,
           CASE WHEN s.paused_at IS NOT NULL THEN 'paused'
                WHEN s.declared IS NOT NULL AND EXISTS (SELECT FROM holdfast.worker w WHERE holdfast.is_live(w))
                 AND NOT EXISTS (SELECT FROM holdfast.worker w WHERE holdfast.is_live(w) AND s.name::text = ANY (w.schedules))
                    THEN 'orphaned'
                WHEN s.error IS NOT NULL THEN 'failing'
                WHEN s.next_at IS NULL THEN 'ended'
                ELSE 'active' END AS condition,
           s.next_at, s.last_at, s.paused_at, s.paused_by, s.error, s.failures,
           s.declared IS NOT NULL AS in_code, s.declared IS NOT NULL AND s.declared <> s.definition AS changed_by_hand,
           (SELECT count(*) FROM holdfast.schedule_scope c WHERE c.schedule = s.name AND c.scope <> '') AS scopes,
           s.definition, s.version, s.watermark, s.created_at
    FROM holdfast.schedule s;
COMMENT ON VIEW holdfast.schedules IS 'All schedules. condition: active, paused, failing (see error), ended (no more times), orphaned (declared in code that no live worker has).';

CREATE VIEW holdfast.occurrences AS
    SELECT o.schedule, o.scope, o.plan_time, o.due_at, o.task_id,
           CASE WHEN o.skipped IS NOT NULL THEN 'skipped' ELSE coalesce(t.state, a.state, 'gone') END AS state,
           coalesce(t.attempt, a.attempt) AS attempts,
           coalesce(t.claimed_at, a.claimed_at) AS started_at, a.finished_at,
           a.finished_at - a.claimed_at AS duration,
           coalesce(t.claimed_at, a.claimed_at) - o.due_at AS lateness,
           a.result, coalesce(t.error, a.error) AS error, o.skipped, o.created_at
    FROM holdfast.occurrence o
    LEFT JOIN holdfast.task t ON t.id = o.task_id AND t.queue = o.queue
    LEFT JOIN holdfast.archive a ON a.id = o.task_id;
COMMENT ON VIEW holdfast.occurrences IS 'Each plan time of each schedule and scope with its task: state (gone: older than finished tasks are kept), attempts, duration of the last attempt, result, lateness of its start.';
