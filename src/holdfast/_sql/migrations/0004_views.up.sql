-- Views for people, and why a task is not running.
-- `holdfast.` stands for the schema's quoted name and :'schema' for its name as a literal.

CREATE VIEW holdfast.tasks AS
    -- The phase of a ready task is due if a live worker may claim it. Else it names the first condition of the claim rule
    -- (statements/claimable.sql) that the task does not meet.
    -- Both halves have the same types: only then does the planner walk their indexes side by side.
    SELECT t.id, t.queue::text, t.kind::text, t.step::text, t.state,
           CASE
               WHEN t.state <> 'ready' THEN t.state
               WHEN t.attempt = 0 AND t.deadline <= holdfast.now() THEN 'expired'
               WHEN t.run_at > holdfast.now() AND t.errors > 0 THEN 'retrying'
               WHEN t.run_at > holdfast.now() THEN 'scheduled'
               WHEN t.queue IN (SELECT q.name FROM holdfast.queue q WHERE q.paused_at IS NOT NULL)
                 OR t.kind::text IN (SELECT unnest(k.was || k.name::text) FROM holdfast.kind k WHERE k.paused_at IS NOT NULL) THEN 'paused'
               WHEN (t.queue::text, t.kind || '.' || t.step) NOT IN (
                   -- Few differ: of a fleet of alike workers, one is looked at.
                   SELECT q.name, s.name
                   FROM (SELECT DISTINCT o.queues, o.steps FROM holdfast.worker o WHERE holdfast.is_live(o)) AS w,
                        unnest(w.queues) AS q(name), unnest(w.steps) AS s(name)
                   WHERE q.name IS NOT NULL AND s.name IS NOT NULL
               ) THEN CASE
                   WHEN t.queue::text NOT IN (SELECT q.name FROM holdfast.worker o, unnest(o.queues) AS q(name) WHERE holdfast.is_live(o) AND q.name IS NOT NULL)
                    AND t.kind || '.' || t.step IN (
                       SELECT DISTINCT n.name || '.' || s.name FROM holdfast.kind k, unnest(k.was || k.name::text) AS n(name),
                              jsonb_object_keys(CASE WHEN jsonb_typeof(k.graph) = 'object' THEN k.graph ELSE '{}' END) AS s(name)
                   ) THEN 'unserved'
                   ELSE 'unroutable' END
               ELSE 'due'
           END AS phase,
           t.priority, t.run_at, t.moves, t.attempt, t.errors, t.crashes, t.worker_id, t.claimed_at, t.lease_expires_at,
           t.args, t.error, t.key, t.headers, t.created_at, NULL::timestamptz AS finished_at, NULL::jsonb AS result, t.deadline
    FROM holdfast.task t
    UNION ALL
    SELECT a.id, a.queue, a.kind, a.step, a.state, a.state, a.priority, a.run_at, a.moves, a.attempt, a.errors, a.crashes,
           a.worker_id, a.claimed_at, NULL, a.args, a.error, a.key, a.headers, a.created_at, a.finished_at, a.result, NULL
    FROM holdfast.archive a;
COMMENT ON VIEW holdfast.tasks IS
    'All tasks, live and archived. phase says more than state: scheduled, retrying, due, paused (its queue or kind is), unserved (its step was declared, but no live worker serves its queue), unroutable (no live worker of its queue knows the step, or nobody has ever declared it), running, waiting, parked, done, cancelled, expired (also while it still waits to be archived), discarded.';

CREATE VIEW holdfast.attempts AS
    SELECT l.task_id, l.queue, l.kind, l.step, l.moves, l.attempt, l.worker_id, l.claimed_at, l.finished_at, l.outcome,
           l.error, l.args, l.report, NULL::double precision AS fraction, NULL::text AS note
    FROM holdfast.attempt l
    UNION ALL
    SELECT a.id, a.queue, a.kind, a.step, a.moves, a.attempt, a.worker_id, a.claimed_at, a.finished_at, a.outcome,
           CASE WHEN a.outcome <> 'done' THEN a.error END, a.args, a.report, NULL, NULL
    FROM holdfast.archive a WHERE a.outcome IS NOT NULL
    UNION ALL
    SELECT t.id, t.queue, t.kind, t.step, t.moves, t.attempt, t.worker_id, t.claimed_at, NULL, NULL, NULL, t.args,
           p.report, p.fraction, p.note
    FROM holdfast.task t
    LEFT JOIN holdfast.progress p ON p.task_id = t.id AND p.queue = t.queue AND p.attempt = t.attempt
    WHERE t.state = 'running';
COMMENT ON VIEW holdfast.attempts IS 'The log of all attempts; the running ones have no outcome yet, but how far they have come, if they tell.';

CREATE VIEW holdfast.parked AS
    SELECT t.id, t.queue, t.kind, t.step, t.attempt,
           -- Only the days since its last attempt began are looked into; the log may be gone before the task is.
           coalesce((SELECT l.finished_at FROM holdfast.attempt l
                     WHERE l.task_id = t.id AND l.attempt = t.attempt
                       AND l.finished_at >= t.claimed_at AND l.finished_at <= holdfast.now() LIMIT 1),
                    t.claimed_at) AS parked_at,
           t.error ->> 'type' AS error_type, left(regexp_replace(t.error ->> 'message', '[[:space:]]+', ' ', 'g'), 60) AS error_message
    FROM holdfast.task t WHERE t.state = 'parked';
COMMENT ON VIEW holdfast.parked IS 'Tasks that wait for a person: repair the cause, then: select holdfast.retry(id). parked_at is when the last attempt ended, as far as the log still knows. The args and the whole error are in holdfast.tasks.';

CREATE VIEW holdfast.parked_steps AS
    WITH RECURSIVE found(queue, kind, step) AS (
        (SELECT t.queue::text, t.kind::text, t.step::text FROM holdfast.task t WHERE t.state = 'parked'
         ORDER BY t.queue, t.kind, t.step LIMIT 1)
        UNION ALL
        SELECT n.queue, n.kind, n.step FROM found f CROSS JOIN LATERAL (
            SELECT t.queue::text, t.kind::text, t.step::text FROM holdfast.task t
            WHERE t.state = 'parked' AND (t.queue, t.kind, t.step) > (f.queue, f.kind, f.step)
            ORDER BY t.queue, t.kind, t.step LIMIT 1) AS n
    )
    SELECT queue, kind, step FROM found;
COMMENT ON VIEW holdfast.parked_steps IS 'Where tasks are parked: each queue, kind and step once. Fast with any number of tasks: it jumps from one to the next in their index.';

CREATE VIEW holdfast.history AS
    SELECT c.relname::text AS name, p.relname::text AS parent, (b.until AT TIME ZONE 'UTC' - interval '1 day')::date AS day,
           b.until, i.inhdetachpending AS detaching, pg_catalog.pg_total_relation_size(c.oid) AS bytes,
           -- Whatever the settings say, two days are kept: somebody's clock may be wrong.
           (b.until AT TIME ZONE 'UTC' + greatest(holdfast.longest_retention(), interval '2 days')) AT TIME ZONE 'UTC' AS drop_after
    FROM pg_catalog.pg_inherits i
    JOIN pg_catalog.pg_class p ON p.oid = i.inhparent
    JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    CROSS JOIN LATERAL (
        SELECT substring(pg_catalog.pg_get_expr(c.relpartbound, c.oid) FROM 'TO [(]''([^'']+)''[)]')::timestamptz
    ) AS b(until)
    WHERE n.nspname = :'schema' AND p.relnamespace = n.oid AND c.relname ~ '^(archive|attempt)_p[0-9]{8}$';
COMMENT ON VIEW holdfast.history IS
    'The partitions of archive and attempt: a table per UTC day each, until when it has rows, its size with indexes, whether it is being detached, and when it is dropped at the earliest.';

-- For workers that do not own the tables: DETACH CONCURRENTLY cannot be in a function. DROP stops everybody for as long as it
-- waits for its turn, so it does not wait long. It chooses by itself: nobody can name a table to it.
CREATE FUNCTION holdfast.drop_oldest_partition() RETURNS TABLE (day date, bytes bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $$
DECLARE
    old record;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(:'schema' || ' partitions', 0));
    SELECT o.name, o.day INTO old
    FROM (SELECT h.name, h.day FROM holdfast.history h WHERE h.drop_after <= holdfast.now() OR h.detaching
          UNION ALL
          SELECT p.name, to_date(right(p.name, 8), 'YYYYMMDD') FROM holdfast.partition p
          JOIN pg_catalog.pg_class c ON c.relname = p.name AND c.relnamespace = to_regnamespace(quote_ident(:'schema'))
          WHERE p.dropping_at IS NOT NULL AND NOT c.relispartition) AS o
    WHERE o.name ~ '^(archive|attempt)_p[0-9]{8}$'
    ORDER BY o.day, o.name COLLATE "C" LIMIT 1;
    IF FOUND THEN
        day := old.day;
        bytes := pg_total_relation_size(format('%I.%I', :'schema', old.name)::regclass);
        EXECUTE format('DROP TABLE %I.%I', :'schema', old.name);
        DELETE FROM holdfast.partition p WHERE p.name = old.name;
        RETURN NEXT;
    END IF;
END
$$;
COMMENT ON FUNCTION holdfast.drop_oldest_partition() IS 'Internal: drops the oldest partition that the retention lets go, for a worker that does not own the tables; answers its day and size, or nothing.';

-- Why it is not running ------------------------------------------------------------------------------

CREATE FUNCTION holdfast.one_line(value text, most integer DEFAULT 200) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN length(plain) > most THEN left(plain, most - 1) || '…' ELSE plain END
    FROM (SELECT btrim(regexp_replace(
        -- Control characters, and what turns or hides text on a terminal.
        left(value, 10 * most), E'[\\u0001-\\u0020\\u007F-\\u00A0\\u00AD\\u061C\\u180E\\u200B-\\u200F\\u2028-\\u202E\\u2060-\\u206F\\uFEFF]+', ' ', 'g'
    ))) AS made(plain)
$$;
COMMENT ON FUNCTION holdfast.one_line(text, integer) IS 'Internal: a text of users in one line, without control characters, shortened.';

CREATE FUNCTION holdfast.the_time(at timestamptz) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT to_char(at, 'YYYY-MM-DD HH24:MI:SSOF') $$;
COMMENT ON FUNCTION holdfast.the_time(timestamptz) IS 'Internal: a time with its zone, to the second.';

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
COMMENT ON FUNCTION holdfast.how_long(interval) IS 'Internal: a span of time for people, such as 2 h 5 min.';

CREATE FUNCTION holdfast.how_many(n bigint, what text, most bigint DEFAULT NULL) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT CASE WHEN n > most THEN 'more than ' || most ELSE n::text END || ' ' || what || CASE WHEN n = 1 THEN '' ELSE 's' END $$;
COMMENT ON FUNCTION holdfast.how_many(bigint, text, bigint) IS 'Internal: a number of things for people; counting ended behind the most.';

CREATE FUNCTION holdfast.error_line(error jsonb) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
    SELECT coalesce(nullif(concat_ws(': ', holdfast.one_line(error ->> 'type', 100), holdfast.one_line(error ->> 'message')), ''),
                    'an error that says nothing')
$$;
COMMENT ON FUNCTION holdfast.error_line(jsonb) IS 'Internal: type and message of an error in one line.';

CREATE FUNCTION holdfast.explain_ready(t holdfast.task) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    moment timestamptz := holdfast.now();
    full_name text := t.kind || '.' || t.step;
    its_phase text := (SELECT v.phase FROM holdfast.tasks v WHERE v.id = t.id AND v.state = 'ready');
    parking text;
    live record;
    knew record;
    before bigint;
    holding record;
BEGIN
    IF its_phase = 'expired' THEN
        RETURN format('It is expired: it was not started before its deadline, %s; any live worker of queue %s will archive it',
            holdfast.the_time(t.deadline), t.queue);
    ELSIF its_phase = 'retrying' THEN
        SELECT coalesce((substring(t.headers ->> 'holdfast-retry' FROM '^[0-9]{1,9}')::integer + 1)::text, k.about -> t.step ->> 'errors')
        INTO parking FROM holdfast.kind k WHERE k.name = t.kind OR t.kind = ANY (k.was) LIMIT 1;
        RETURN format('It waits for its next attempt at %s (in %s) after %s at this step%s, the last of them %s', holdfast.the_time(t.run_at),
            holdfast.how_long(t.run_at - moment), holdfast.how_many(t.errors, 'error'), coalesce(', of ' || parking || ' that park it', ''),
            holdfast.error_line(t.error));
    ELSIF its_phase = 'scheduled' THEN
        RETURN format('It is not due until %s (in %s)', holdfast.the_time(t.run_at), holdfast.how_long(t.run_at - moment));
    ELSIF its_phase = 'paused' THEN
        RETURN 'It is due, but '
            || (SELECT string_agg(format('%s %s is paused since %s by %s; to resume it: holdfast resume %s, or select %I.resume(%L, %L)',
                           p.what, p.name, holdfast.the_time(p.paused_at), coalesce(holdfast.one_line(p.paused_by), 'somebody'), p.name,
                           :'schema', p.name, jsonb_build_object('what', p.what)), '; and ' ORDER BY p.what DESC)
                FROM (SELECT 'queue' AS what, q.name::text, q.paused_at, q.paused_by FROM holdfast.queue q WHERE q.name = t.queue
                      UNION ALL
                      SELECT 'kind', k.name, k.paused_at, k.paused_by FROM holdfast.kind k WHERE k.name = t.kind OR t.kind = ANY (k.was)) AS p
                WHERE p.paused_at IS NOT NULL);
    END IF;

    SELECT count(*) AS workers, count(*) FILTER (WHERE w.serves) AS serving, count(*) FILTER (WHERE w.serves AND w.knows) AS able,
           count(*) FILTER (WHERE w.serves AND w.knows AND w.claims) AS claiming,
           coalesce(sum(w.slots) FILTER (WHERE w.serves AND w.knows AND w.claims), 0) AS slots,
           array_agg(w.id) FILTER (WHERE w.serves AND w.knows AND w.claims) AS ids
    INTO live
    FROM (SELECT o.id, least(o.slots, (o.limits ->> t.queue)::integer) AS slots, t.queue::text = ANY (o.queues) AS serves, full_name = ANY (o.steps) AS knows,
                 o.stopping_at IS NULL AND o.stop_requested_at IS NULL AS claims
          FROM holdfast.worker o WHERE holdfast.is_live(o)) AS w;
    IF live.workers = 0 THEN
        RETURN format('It is due, but no worker is alive: start one that serves queue %s and knows the step %s', t.queue, full_name);
    ELSIF live.serving = 0 THEN
        RETURN format('It is due, but no live worker serves queue %s; served are: %s', t.queue, holdfast.one_line(
            (SELECT string_agg(DISTINCT s.queue, ', ') FROM holdfast.worker w, unnest(w.queues) AS s(queue) WHERE holdfast.is_live(w))));
    ELSIF live.able = 0 THEN
        SELECT holdfast.one_line(w.name, 100) AS name, holdfast.one_line(w.version, 100) AS version, w.seen_at, holdfast.is_live(w) AS live,
               holdfast.one_line(array_to_string(w.queues, ', ')) AS queues
        INTO knew FROM holdfast.worker w WHERE full_name = ANY (w.steps) ORDER BY holdfast.is_live(w) DESC, w.seen_at DESC LIMIT 1;
        RETURN format('It is due and %s queue %s, but none knows the step %s: %s',
            CASE live.serving WHEN 1 THEN '1 live worker serves' ELSE live.serving || ' live workers serve' END, t.queue, full_name,
            CASE WHEN knew.live THEN format('worker %s does, and serves %s', knew.name, knew.queues)
                 WHEN knew.seen_at IS NOT NULL THEN format('the last that did was worker %s of version %s, seen until %s; it may have been renamed or removed',
                                                           knew.name, knew.version, holdfast.the_time(knew.seen_at))
                 ELSE 'see whether the name is right and the code deployed' END);
    ELSIF live.claiming = 0 THEN
        RETURN format('It is due, but all live workers that serve queue %s and know the step %s are stopping', t.queue, full_name);
    END IF;

    IF t.crashes > 0 THEN
        SELECT count(*) INTO before
        FROM (SELECT FROM holdfast.task c
              WHERE c.queue = t.queue AND c.state = 'ready' AND c.crashes > 0 AND (c.run_at, c.id) < (t.run_at, t.id)
              ORDER BY c.run_at, c.id LIMIT 10001) AS counted;
        RETURN format('It is due since %s (for %s) and a suspect, because its worker was lost %s at this step: a worker tries one suspect'
                      ' at a time, and it %s in queue %s',
            holdfast.the_time(t.run_at), holdfast.how_long(moment - t.run_at), holdfast.how_many(t.crashes, 'time'),
            CASE before WHEN 0 THEN 'is the next' ELSE 'has ' || holdfast.how_many(before, 'other', 10000) || ' before it' END, t.queue);
    END IF;
    SELECT count(*) INTO before
    FROM (SELECT FROM generate_series(t.priority, 9) AS p(priority)
          CROSS JOIN LATERAL (
              SELECT FROM holdfast.task c
              WHERE c.queue = t.queue AND c.state = 'ready' AND c.priority = p.priority AND c.run_at <= moment
                AND (p.priority > t.priority OR (c.run_at, c.id) < (t.run_at, t.id))
              ORDER BY c.run_at, c.id LIMIT 10001
          ) AS due
          LIMIT 10001) AS counted;
    -- Of a worker with a limit for this queue, only what it holds of this queue counts against that.
    SELECT sum(CASE WHEN w.most IS NULL THEN held.total ELSE held.own END) AS tasks, bool_or(w.most IS NOT NULL) AS limited,
           bool_and(held.total >= w.slots OR held.own >= coalesce(w.most, w.slots)) AS busy
    INTO holding
    FROM (SELECT o.id, o.queues, o.slots, (o.limits ->> t.queue)::integer AS most FROM holdfast.worker o WHERE o.id = ANY (live.ids)) AS w
    CROSS JOIN LATERAL (
        SELECT count(*) AS total, count(*) FILTER (WHERE r.queue = t.queue) AS own
        FROM (SELECT c.queue FROM holdfast.task c WHERE c.state = 'running' AND c.worker_id = w.id AND c.queue::text = ANY (w.queues)
              LIMIT 10001) AS r) AS held;
    RETURN format('It is due since %s (for %s) and %s in queue %s; %s with %s can claim it and %s %s now%s',
        holdfast.the_time(t.run_at), holdfast.how_long(moment - t.run_at),
        CASE before WHEN 0 THEN 'the next' ELSE 'has ' || holdfast.how_many(before, 'due task', 10000) || ' before it' END, t.queue,
        holdfast.how_many(live.claiming, 'live worker'), holdfast.how_many(live.slots, 'slot')
            || CASE WHEN holding.limited THEN ' for this queue' ELSE '' END,
        CASE live.claiming WHEN 1 THEN 'holds' ELSE 'hold' END, holdfast.how_many(holding.tasks::bigint, 'task', 10000),
        CASE WHEN holding.busy THEN ': all are busy' ELSE '' END);
END
$$;
COMMENT ON FUNCTION holdfast.explain_ready(holdfast.task) IS 'Internal: why a ready task is not running.';

CREATE FUNCTION holdfast.explain_running(t holdfast.task) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    moment timestamptz := holdfast.now();
    doer text;
    told text;
BEGIN
    SELECT format('worker %s (%s, process %s)', holdfast.one_line(w.name, 100), holdfast.one_line(w.host, 100), w.pid)
    INTO doer FROM holdfast.worker w WHERE w.id = t.worker_id;
    doer := format('attempt %s at %s by %s, since %s (for %s)', t.attempt, t.kind || '.' || t.step, coalesce(doer, 'worker ' || t.worker_id),
                   holdfast.the_time(t.claimed_at), holdfast.how_long(moment - t.claimed_at));
    SELECT concat(' at ' || floor(100 * p.fraction) || ' %', ' (' || nullif(holdfast.one_line(p.note), '') || ')') INTO told
    FROM holdfast.progress p WHERE p.task_id = t.id AND p.queue = t.queue AND p.attempt = t.attempt;
    doer := doer || coalesce(told, '');
    IF t.lease_expires_at <= moment THEN
        RETURN format('Its worker seems lost: %s, but the lease ran out at %s; any live worker of queue %s will %s', doer,
            holdfast.the_time(t.lease_expires_at), t.queue,
            CASE WHEN t.cancel_at IS NULL THEN 'take it over' ELSE 'end it, because it was cancelled' END);
    ELSIF t.cancel_at IS NOT NULL THEN
        RETURN format('It is being cancelled since %s (%s), and its step has not ended yet: %s', holdfast.the_time(t.cancel_at),
            coalesce(holdfast.one_line(t.cancel_by), 'nobody said why'), doer);
    END IF;
    RETURN format('It is running: %s; its lease lasts until %s unless renewed', doer, holdfast.the_time(t.lease_expires_at));
END
$$;
COMMENT ON FUNCTION holdfast.explain_running(holdfast.task) IS 'Internal: who is executing a task.';

CREATE FUNCTION holdfast.explain_parked(t holdfast.task) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT format('It is parked%s at %s: %s; repair the cause, then resume it (holdfast retry %s, or select %I.retry(%L)),'
                  ' or give it up (holdfast discard %s, or select %I.discard(%L))%s',
        ' since ' || holdfast.the_time(p.parked_at), t.kind || '.' || t.step, holdfast.error_line(t.error),
        t.id, :'schema', t.id, t.id, :'schema', t.id,
        '; until then it holds the key ' || holdfast.one_line(t.key) || ', and no other task of queue ' || t.queue || ' gets that')
    FROM holdfast.parked p WHERE p.id = t.id
$$;
COMMENT ON FUNCTION holdfast.explain_parked(holdfast.task) IS 'Internal: why a task is parked, and what to do about it.';

CREATE FUNCTION holdfast.explain_ended(a holdfast.archive) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT format('It was %s at %s', a.state, holdfast.the_time(a.finished_at)) || CASE a.state
        WHEN 'done' THEN ', after ' || holdfast.how_many(a.attempt, 'attempt')
        WHEN 'discarded' THEN coalesce(
            (SELECT format(' by %s%s', holdfast.one_line(c.by, 100), coalesce(' (' || holdfast.one_line(c.why) || ')', ''))
             FROM holdfast.change c WHERE c.task_id = a.id AND c.action = 'discard' ORDER BY c.id DESC LIMIT 1), '')
            || ', while it was parked at ' || a.kind || '.' || a.step || ': ' || holdfast.error_line(a.error)
        ELSE coalesce(': ' || holdfast.one_line(a.error ->> 'message'), '') END
        || coalesce((SELECT format('; its key %s is held until %s all the same', holdfast.one_line(k.key), holdfast.the_time(k.held_until))
                     FROM holdfast.key k WHERE k.queue = a.queue AND k.key = a.key AND k.task_id = a.id AND k.held_until > holdfast.now()), '')
$$;
COMMENT ON FUNCTION holdfast.explain_ended(holdfast.archive) IS 'Internal: how a task ended.';

CREATE FUNCTION holdfast.forgotten_attempts(id uuid, ended integer) RETURNS integer
LANGUAGE sql STABLE
AS $$ SELECT coalesce(min(l.attempt) - 1, ended) FROM holdfast.attempt l WHERE l.task_id = id $$;
COMMENT ON FUNCTION holdfast.forgotten_attempts(uuid, integer) IS 'Internal: how many of the first attempts of a task are no longer in the log, of those that have ended and left their record there.';

CREATE FUNCTION holdfast.explain(id uuid) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    t holdfast.task;
    a holdfast.archive;
    forgotten integer;
BEGIN
    SELECT * INTO t FROM holdfast.task l WHERE l.id = explain.id;
    IF FOUND THEN
        forgotten := holdfast.forgotten_attempts(id, t.attempt - (t.state = 'running')::integer);
        RETURN CASE t.state WHEN 'ready' THEN holdfast.explain_ready(t)
                                 || CASE WHEN t.attempt = 0 AND t.deadline > holdfast.now()
                                         THEN '; it will expire at ' || holdfast.the_time(t.deadline) || ' unless it is started before'
                                         ELSE '' END
                            WHEN 'running' THEN holdfast.explain_running(t)
                            WHEN 'parked' THEN holdfast.explain_parked(t)
                            ELSE 'It waits for an event or for other tasks' END || '.'
            || CASE WHEN forgotten > 0 THEN format(' Its first %s no longer in the log: history is kept for %s.',
                                                   CASE forgotten WHEN 1 THEN 'attempt is' ELSE forgotten || ' attempts are' END,
                                                   holdfast.how_long(holdfast.retention(t.queue)))
                    ELSE '' END;
    END IF;
    SELECT * INTO a FROM holdfast.archive e WHERE e.id = explain.id LIMIT 1;
    IF FOUND THEN
        RETURN holdfast.explain_ended(a) || '.';
    END IF;
    RETURN format('There is no task %s: it is in another database or schema than %s.%s, was never committed, or ended longer ago than finished tasks are kept (%s at most).',
        coalesce(id::text, 'without an id'), current_database(), :'schema', holdfast.how_long(holdfast.longest_retention()));
END
$$;
COMMENT ON FUNCTION holdfast.explain(uuid) IS
    'Says in one sentence why a task is not running, or how it stands, with the command to use: select holdfast.explain(id).';
