-- The other public verbs: retry, cancel, discard, again, stop, pause, resume, set_queue, set_default.
-- `holdfast.` stands for the schema's quoted name and :'schema' for its name as a literal.

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
            HINT = format('Finished tasks are history; to enqueue the same anew: holdfast again %s, or select %I.again(%L).', id, :'schema', id);
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

CREATE FUNCTION holdfast.known_steps(kind text) RETURNS text[]
LANGUAGE sql STABLE
AS $$
    SELECT coalesce(array_agg(s.step ORDER BY s.step), '{}')
    FROM (SELECT jsonb_object_keys(k.graph) FROM holdfast.kind k WHERE k.name = known_steps.kind OR known_steps.kind = ANY (k.was)
          UNION
          SELECT split_part(n.name, '.', 2) FROM holdfast.worker w, unnest(w.steps) AS n(name)
          WHERE holdfast.is_live(w) AND split_part(n.name, '.', 1) = known_steps.kind) AS s(step)
$$;
COMMENT ON FUNCTION holdfast.known_steps(text) IS 'Internal: the steps of a kind that were declared, or that a live worker knows.';

CREATE FUNCTION holdfast.check_known(kind text, step text, strict boolean) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    known text[] := holdfast.known_steps(kind);
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
COMMENT ON FUNCTION holdfast.check_known(text, text, boolean) IS 'Internal: tells, or if strict refuses, a step that nobody knows.';

-- To lock a row takes the right to change it: operators have it by this function only.
CREATE FUNCTION holdfast.lock_free(ids uuid[]) RETURNS SETOF holdfast.task
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT * FROM holdfast.task t WHERE t.id = ANY (ids) ORDER BY t.id FOR UPDATE SKIP LOCKED $$;
COMMENT ON FUNCTION holdfast.lock_free(uuid[]) IS 'Internal: locks those of these tasks that nobody else has locked, and answers them.';

CREATE FUNCTION holdfast.retry(id uuid, options jsonb DEFAULT '{}') RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    t holdfast.task;
    due timestamptz := greatest((options ->> 'at')::timestamptz, holdfast.now());
BEGIN
    PERFORM holdfast.check_options(options, ARRAY['args', 'step', 'at', 'by', 'why', 'expected_attempt', 'strict']);
    t := holdfast.lock_task(id, 'retry', ARRAY['parked', 'ready']);
    IF t.attempt <> (options ->> 'expected_attempt')::integer THEN
        RAISE EXCEPTION 'holdfast: task % was changed: it is at attempt %, not %', id, t.attempt, options ->> 'expected_attempt'
            USING ERRCODE = 'HF409', HINT = 'Somebody else may have retried it; look at it again.';
    END IF;
    IF t.attempt = 0 AND t.deadline <= holdfast.now() THEN
        RAISE EXCEPTION 'holdfast: cannot retry task %: it is expired', id
            USING ERRCODE = 'HF409', HINT = 'It was not started before its deadline; enqueue a new one.';
    END IF;
    IF options ->> 'step' <> t.step THEN
        PERFORM holdfast.check_known(t.kind, (options ->> 'step')::holdfast.step_name, coalesce((options ->> 'strict')::boolean, false));
    END IF;
    IF options ? 'args' THEN
        PERFORM holdfast.check_args(options -> 'args', coalesce(options ->> 'step', t.step));
    END IF;
    UPDATE holdfast.task u
    SET state = 'ready', run_at = due, errors = 0, crashes = 0, error = NULL,
        args = coalesce(options -> 'args', u.args),
        -- Another step is another visit.
        moves = u.moves + (coalesce(options ->> 'step', u.step) <> u.step)::integer,
        step = coalesce(options ->> 'step', u.step)
    WHERE u.queue = t.queue AND u.id = t.id;
    INSERT INTO holdfast.change (task_id, action, by, why, old, new)
    VALUES (id, 'retry', coalesce(options ->> 'by', session_user), options ->> 'why',
            jsonb_build_object('state', t.state, 'step', t.step, 'args', t.args, 'attempt', t.attempt, 'error', t.error - 'traceback'),
            jsonb_strip_nulls(jsonb_build_object('step', options -> 'step', 'args', options -> 'args',
                                                 'run_at', CASE WHEN due > holdfast.now() THEN due END)));
    PERFORM pg_notify(holdfast.channel(), 'queue ' || t.queue);
    RETURN 'ready';
END
$$;
COMMENT ON FUNCTION holdfast.retry(uuid, jsonb) IS
    'Resumes a parked task at its step with a fresh budget. Options: args and step (repair), at (not before then), by, why, expected_attempt (refuse if somebody was faster), strict (refuse a step that nobody knows, in place of a notice).';

CREATE FUNCTION holdfast.cancel(id uuid, options jsonb DEFAULT '{}') RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
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
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
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

CREATE FUNCTION holdfast.again(id uuid, options jsonb DEFAULT '{}') RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    a holdfast.archive;
    new uuid := holdfast.new_id();
BEGIN
    PERFORM holdfast.check_options(options, ARRAY['by', 'why']);
    SELECT * INTO a FROM holdfast.archive f WHERE f.id = again.id LIMIT 1;
    IF NOT FOUND THEN
        PERFORM holdfast.lock_task(id, 'again', ARRAY['ready', 'running', 'waiting', 'parked']);
        RAISE EXCEPTION 'holdfast: cannot enqueue task % again: it has not ended', id USING ERRCODE = 'HF409',
            HINT = 'To resume a parked task is to retry it.';
    END IF;
    -- A key that was to be held for longer is now held by the new one.
    UPDATE holdfast.key k SET task_id = new WHERE k.queue = a.queue AND k.key = a.key AND k.task_id = a.id;
    PERFORM holdfast.enqueue(a.kind || '.' || a.step, a.args, jsonb_strip_nulls(jsonb_build_object(
        'id', new, 'queue', a.queue, 'priority', a.priority, 'key', a.key, 'on_conflict', CASE WHEN a.key IS NOT NULL THEN 'raise' END,
        'headers', coalesce(a.headers, '{}') || jsonb_build_object('holdfast-again', a.id))));
    INSERT INTO holdfast.change (task_id, action, by, why, old, new)
    VALUES (id, 'again', coalesce(options ->> 'by', session_user), options ->> 'why',
            jsonb_build_object('state', a.state, 'step', a.step), jsonb_build_object('id', new));
    RETURN new;
END
$$;
COMMENT ON FUNCTION holdfast.again(uuid, jsonb) IS
    'Enqueues a task that has ended anew, at the step where it ended and with the same args, and answers the new id. Its header holdfast-again names the old one, whose changes name the new one. Options: by, why.';

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
    PERFORM pg_notify(holdfast.channel(), 'ended ' || t.id);
END
$$;
COMMENT ON FUNCTION holdfast.archive_task(holdfast.task, text, text) IS 'Internal: moves a task that is not running, and is locked by the caller, to the archive.';

CREATE FUNCTION holdfast.stop_workers(worker uuid DEFAULT NULL, options jsonb DEFAULT '{}') RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    asked integer;
BEGIN
    PERFORM holdfast.check_options(options, ARRAY['by', 'why']);
    UPDATE holdfast.worker w SET stop_requested_at = coalesce(w.stop_requested_at, holdfast.now())
    WHERE w.stopped_at IS NULL AND (stop_workers.worker IS NULL OR w.id = stop_workers.worker);
    GET DIAGNOSTICS asked = ROW_COUNT;
    INSERT INTO holdfast.change (action, by, why, new)
    VALUES ('stop', coalesce(options ->> 'by', session_user), options ->> 'why', jsonb_build_object('worker', coalesce(worker::text, 'all')));
    PERFORM pg_notify(holdfast.channel(), 'stop');
    RETURN asked;
END
$$;
COMMENT ON FUNCTION holdfast.stop_workers(uuid, jsonb) IS
    'Asks one worker, or all, to stop as SIGTERM does; answers how many were asked. All have stopped when: select count(*) from holdfast.worker where stopped_at is null is 0. Options: by, why.';

CREATE FUNCTION holdfast.pausable(name text, options jsonb) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    what text := options ->> 'what';
    is_kind boolean := EXISTS (SELECT FROM holdfast.kind k WHERE k.name = pausable.name);
    is_queue boolean;
BEGIN
    PERFORM holdfast.check_options(options, ARRAY['what', 'by', 'why']);
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
                HINT = 'A kind is known once a worker has declared it: select name from holdfast.kind.';
        END IF;
        RETURN 'kind';
    END IF;
    is_queue := EXISTS (SELECT FROM holdfast.queue q WHERE q.name = pausable.name)
        OR EXISTS (SELECT FROM holdfast.kind k WHERE k.queue = pausable.name)
        OR EXISTS (SELECT FROM holdfast.worker w WHERE holdfast.is_live(w) AND pausable.name = ANY (w.queues))
        OR EXISTS (SELECT FROM holdfast.task t WHERE t.queue = pausable.name AND t.state = 'ready')
        OR EXISTS (SELECT FROM holdfast.task t WHERE t.queue = pausable.name AND t.state = 'running')
        OR EXISTS (SELECT FROM holdfast.task t WHERE t.queue = pausable.name AND t.state = 'parked');
    IF is_kind AND is_queue THEN
        RAISE EXCEPTION 'holdfast: % is both a queue and a kind: say which', name USING ERRCODE = 'HF409',
            HINT = 'Give the option {"what": "queue"} or {"what": "kind"}.';
    ELSIF NOT is_kind AND NOT is_queue THEN
        RAISE EXCEPTION 'holdfast: there is neither a queue nor a kind %', quote_nullable(left(name, 200)) USING ERRCODE = 'HF404',
            HINT = 'A kind is known once a worker has declared it; a queue that is not used yet can be paused with {"what": "queue"}.';
    END IF;
    RETURN CASE WHEN is_kind THEN 'kind' ELSE 'queue' END;
END
$$;
COMMENT ON FUNCTION holdfast.pausable(text, jsonb) IS 'Internal: whether a name means a queue or a kind, or a clear error.';

CREATE FUNCTION holdfast.pause(name text, options jsonb DEFAULT '{}') RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    what text := holdfast.pausable(name, options);
    who text := coalesce(options ->> 'by', session_user);
    reason text := concat_ws(': ', who, nullif(options ->> 'why', ''));
BEGIN
    IF what = 'queue' THEN
        INSERT INTO holdfast.queue AS q (name, paused_at, paused_by) VALUES (pause.name, holdfast.now(), reason)
        ON CONFLICT ON CONSTRAINT queue_pkey DO UPDATE SET paused_at = excluded.paused_at, paused_by = excluded.paused_by
        WHERE q.paused_at IS NULL;
    ELSE
        UPDATE holdfast.kind k SET paused_at = holdfast.now(), paused_by = reason WHERE k.name = pause.name AND k.paused_at IS NULL;
    END IF;
    IF FOUND THEN
        INSERT INTO holdfast.change (action, by, why, new) VALUES ('pause', who, options ->> 'why', jsonb_build_object(what, name));
        PERFORM pg_notify(holdfast.channel(), 'pause');
    END IF;
    RETURN 'paused';
END
$$;
COMMENT ON FUNCTION holdfast.pause(text, jsonb) IS
    'Pauses a queue or a kind: none of its tasks is claimed until holdfast.resume(name); running steps finish. Options: what (queue or kind, if the name is both, or of a queue not used yet), by, why.';

CREATE FUNCTION holdfast.resume(name text, options jsonb DEFAULT '{}') RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    what text := holdfast.pausable(name, options);
    was record;
BEGIN
    IF what = 'queue' THEN
        SELECT q.paused_at, q.paused_by INTO was FROM holdfast.queue q
        WHERE q.name = resume.name AND q.paused_at IS NOT NULL FOR UPDATE;
    ELSE
        SELECT k.paused_at, k.paused_by, k.queue INTO was FROM holdfast.kind k
        WHERE k.name = resume.name AND k.paused_at IS NOT NULL FOR UPDATE;
    END IF;
    IF NOT FOUND THEN
        RETURN 'not paused';
    END IF;
    IF what = 'queue' THEN
        UPDATE holdfast.queue q SET paused_at = NULL, paused_by = NULL WHERE q.name = resume.name;
        PERFORM pg_notify(holdfast.channel(), 'queue ' || name);
    ELSE
        UPDATE holdfast.kind k SET paused_at = NULL, paused_by = NULL WHERE k.name = resume.name;
        -- Its tasks may be in any queue that somebody serves.
        PERFORM pg_notify(holdfast.channel(), 'queue ' || served.queue)
        FROM (SELECT was.queue::text AS queue
              UNION
              SELECT unnest(w.queues) FROM holdfast.worker w WHERE holdfast.is_live(w)) AS served;
    END IF;
    INSERT INTO holdfast.change (action, by, why, old, new)
    VALUES ('resume', coalesce(options ->> 'by', session_user), options ->> 'why',
            jsonb_build_object('paused_at', was.paused_at, 'paused_by', was.paused_by), jsonb_build_object(what, name));
    PERFORM pg_notify(holdfast.channel(), 'pause');
    RETURN 'resumed';
END
$$;
COMMENT ON FUNCTION holdfast.resume(text, jsonb) IS
    'Lets the tasks of a paused queue or kind be claimed again. Options: what (queue or kind, if the name is both), by, why.';

-- Settings -------------------------------------------------------------------------------------------

CREATE FUNCTION holdfast.read_retention(value jsonb, what text DEFAULT 'retention') RETURNS interval
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
COMMENT ON FUNCTION holdfast.read_retention(jsonb, text) IS 'Internal: a retention as people give it; null for "default".';

-- What was deleted under the old settings tells nothing about the new ones. Whoever sweeps holds this lock.
CREATE FUNCTION holdfast.sweep_anew() RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(:'schema' || ' history', 0));
    UPDATE holdfast.partition SET swept = NULL, sweeping = NULL, block = 0;
END
$$;
COMMENT ON FUNCTION holdfast.sweep_anew() IS 'Internal: lets maintenance look through all days again.';

CREATE FUNCTION holdfast.set_queue(name text, options jsonb) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    span interval := holdfast.read_retention(options -> 'retention');
    was interval;
BEGIN
    PERFORM holdfast.check_options(options, ARRAY['retention', 'by', 'why']);
    PERFORM holdfast.pausable(name, '{"what": "queue"}');
    IF options ? 'retention' THEN
        PERFORM holdfast.sweep_anew();
        INSERT INTO holdfast.queue (name) VALUES (set_queue.name) ON CONFLICT ON CONSTRAINT queue_pkey DO NOTHING;
        SELECT q.retention INTO was FROM holdfast.queue q WHERE q.name = set_queue.name FOR UPDATE;
        UPDATE holdfast.queue q SET retention = span WHERE q.name = set_queue.name;
        INSERT INTO holdfast.change (action, by, why, old, new)
        VALUES ('set', coalesce(options ->> 'by', session_user), options ->> 'why',
                jsonb_build_object('retention', was), jsonb_build_object('queue', name, 'retention', span));
    END IF;
    RETURN (SELECT jsonb_build_object('retention', q.retention) FROM holdfast.queue q WHERE q.name = set_queue.name);
END
$$;
COMMENT ON FUNCTION holdfast.set_queue(text, jsonb) IS
    'Changes settings of a queue, and answers those it has. Options: retention (such as "2 days": how long its finished tasks and their attempts are kept; "default": as all others), by, why.';

CREATE FUNCTION holdfast.set_default(options jsonb) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    span interval := holdfast.read_retention(options -> 'retention');
    counts interval := holdfast.read_retention(options -> 'figures', 'figures');
    was interval;
BEGIN
    PERFORM holdfast.check_options(options, ARRAY['retention', 'figures', 'by', 'why']);
    IF options ? 'figures' THEN
        SELECT s.figures INTO was FROM holdfast.setting s;
        INSERT INTO holdfast.setting (figures) VALUES (counts) ON CONFLICT (one) DO UPDATE SET figures = excluded.figures;
        INSERT INTO holdfast.change (action, by, why, old, new)
        VALUES ('set', coalesce(options ->> 'by', session_user), options ->> 'why',
                jsonb_build_object('figures', was), jsonb_build_object('figures', counts));
    END IF;
    IF options ? 'retention' THEN
        PERFORM holdfast.sweep_anew();
        SELECT s.retention INTO was FROM holdfast.setting s;
        INSERT INTO holdfast.setting (retention) VALUES (span) ON CONFLICT (one) DO UPDATE SET retention = excluded.retention;
        INSERT INTO holdfast.change (action, by, why, old, new)
        VALUES ('set', coalesce(options ->> 'by', session_user), options ->> 'why',
                jsonb_build_object('retention', was), jsonb_build_object('retention', span));
    END IF;
    RETURN (SELECT jsonb_build_object('retention', s.retention, 'figures', s.figures) FROM holdfast.setting s);
END
$$;
COMMENT ON FUNCTION holdfast.set_default(jsonb) IS
    'Changes what holds for all queues that say nothing else, and answers it. Options: retention (such as "14 days": how long finished tasks and their attempts are kept; "default": 7 days), figures (how long figures are kept; "default": 30 days), by, why.';
