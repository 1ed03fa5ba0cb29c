-- Enqueue from SQL: one task or many, in the caller's transaction.
-- `holdfast.` stands for the schema's quoted name and :'schema' for its name as a literal.

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
COMMENT ON FUNCTION holdfast.check_options(jsonb, text[]) IS 'Internal: refuses options that are no object, have a name that is not known, or say by and why with other things than strings.';

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

CREATE FUNCTION holdfast.new_task(step text, args jsonb, options jsonb) RETURNS holdfast.task
LANGUAGE plpgsql
AS $$
DECLARE
    task_kind text := split_part(step, '.', 1);
    task_step text := nullif(substr(step, length(split_part(step, '.', 1)) + 2), '');
    uniquely boolean := coalesce(options -> 'unique' = 'true', false);
    declared holdfast.kind;
    t holdfast.task;
BEGIN
    IF step IS NULL OR greatest(length(task_kind), length(task_step)) > 63 OR task_kind !~ '^[a-z][a-z0-9_-]*$'
       OR (position('.' IN step) > 0 AND coalesce(task_step, '') !~ '^[A-Za-z_][A-Za-z0-9_]*$') THEN
        RAISE EXCEPTION 'holdfast: % is not the name of a step', quote_nullable(left(step, 200))
            USING ERRCODE = '22023', HINT = 'Write kind.Step, such as greeter.ReadName, or the kind alone for a function.';
    END IF;
    PERFORM holdfast.check_args(args, step);
    PERFORM holdfast.check_options(options, ARRAY['id', 'queue', 'priority', 'delay', 'at', 'deadline', 'key', 'unique', 'unique_for', 'on_conflict', 'headers']);
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

    SELECT * INTO declared FROM holdfast.kind WHERE name = task_kind;
    IF FOUND AND task_step IS NULL AND declared.first IS NULL THEN
        RAISE EXCEPTION 'holdfast: % has several steps: name the one to begin with', step
            USING ERRCODE = '22023', HINT = 'Write kind.Step, such as greeter.ReadName.';
    END IF;
    t.id := coalesce((options ->> 'id')::uuid, holdfast.new_id());
    t.queue := coalesce(options ->> 'queue', declared.queue, 'default');
    t.kind := task_kind;
    t.step := coalesce(task_step, declared.first, 'main');
    t.args := args;
    t.priority := coalesce((options ->> 'priority')::smallint, declared.priority, 0);
    t.run_at := coalesce((options ->> 'at')::timestamptz, holdfast.now() + (options ->> 'delay')::interval, holdfast.now());
    t.deadline := CASE WHEN options ->> 'deadline' ~ '^[[:space:]]*[0-9]{4,}-' THEN (options ->> 'deadline')::timestamptz
                       ELSE holdfast.now() + (options ->> 'deadline')::interval END;
    t.key := CASE WHEN uniquely THEN holdfast.unique_key(t.kind, t.step, args) ELSE options ->> 'key' END;
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
$$;
COMMENT ON FUNCTION holdfast.new_task(text, jsonb, jsonb) IS 'Internal: the row that an enqueue asks for, checked, with the defaults of its kind, not yet written.';

-- Two args that are equal as jsonb give the same key: 1 and 1.0 too, though their texts differ.
CREATE FUNCTION holdfast.unique_key(kind text, step text, args jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT 'unique:' || kind || '.' || step || ':' || encode(sha256(convert_to(
        -- Strings are passed over; of numbers, the zeros at the end of a fraction are left out.
        regexp_replace(args::text, E'("(?:[^"\\\\]|\\\\.)*")|([.][0-9]*[1-9])0+(?![0-9])|[.]0+(?![0-9])', E'\\1\\2', 'g'), 'UTF8')), 'hex')
$$;
COMMENT ON FUNCTION holdfast.unique_key(text, text, jsonb) IS 'The key that unique gives to a task: unique:KIND.STEP: and the SHA-256 of its args. To look one up: select * from holdfast.task where key = holdfast.unique_key(''greeter'', ''ReadName'', ''{"filename": "name.txt"}'').';

-- Several statements in turns, each with a snapshot of its own: one alone misses what commits while it waits for a key.
-- It raises nothing, so that a caller's transaction lives on whatever the answer. With the rights of the owner: whoever may
-- enqueue need not be allowed to change or archive anything else.
CREATE FUNCTION holdfast.insert_keyed(
    new_id uuid, new_queue text, new_kind text, new_step text, new_args jsonb, new_priority smallint, new_run_at timestamptz,
    new_deadline timestamptz, new_key text, new_headers jsonb, held_for interval, on_conflict text,
    OUT id uuid, OUT kind text, OUT enqueued text, OUT state text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
-- Its plans are kept from when the tables were small: they must fit large ones.
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    moment timestamptz := holdfast.now();
    holder record;
    held boolean;
BEGIN
    FOR try IN 1 .. 20 LOOP
        IF on_conflict = 'replace' THEN
            UPDATE holdfast.task u
            SET kind = new_kind, step = new_step, args = new_args, priority = new_priority, run_at = new_run_at,
                deadline = new_deadline, headers = new_headers, replaced_by = new_id
            WHERE u.queue = new_queue AND u.id = ANY (ARRAY(
                SELECT c.id FROM holdfast.task c
                WHERE c.queue = new_queue AND c.key = new_key AND c.state = 'ready' AND c.attempt = 0
                FOR UPDATE SKIP LOCKED))
            RETURNING u.id, u.kind INTO id, kind;
            IF FOUND THEN
                IF held_for IS NOT NULL THEN
                    INSERT INTO holdfast.key (queue, key, task_id, kind, held_until)
                    VALUES (new_queue, new_key, insert_keyed.id, new_kind, moment + held_for)
                    ON CONFLICT ON CONSTRAINT key_pkey DO UPDATE
                    SET task_id = excluded.task_id, kind = excluded.kind, held_until = excluded.held_until;
                END IF;
                enqueued := CASE WHEN id = new_id THEN 'created' ELSE 'replaced' END;
                RETURN;
            END IF;
        END IF;

        SELECT k.task_id, k.kind INTO id, kind FROM holdfast.key k
        WHERE k.queue = new_queue AND k.key = new_key AND k.held_until > moment AND k.task_id <> new_id;
        IF FOUND AND NOT EXISTS (SELECT FROM holdfast.task h WHERE h.queue = new_queue AND h.key = new_key) THEN
            enqueued := 'ended';
            RETURN;
        END IF;

        -- Any conflict: the id may be taken as well as the key.
        INSERT INTO holdfast.task (id, queue, kind, step, args, priority, run_at, deadline, key, headers)
        VALUES (new_id, new_queue, new_kind, new_step, new_args, new_priority, new_run_at, new_deadline, new_key, new_headers)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            -- Looked at again: whoever we waited for may have ended meanwhile and still hold the key.
            IF held_for IS NULL THEN
                held := EXISTS (SELECT FROM holdfast.key k
                                WHERE k.queue = new_queue AND k.key = new_key AND k.held_until > moment AND k.task_id <> new_id);
            ELSE
                INSERT INTO holdfast.key AS k (queue, key, task_id, kind, held_until)
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
            DELETE FROM holdfast.task d WHERE d.queue = new_queue AND d.id = new_id;
            CONTINUE;
        END IF;

        SELECT h.id, h.kind, h.state, h.attempt, h.deadline, h.replaced_by INTO holder FROM holdfast.task h
        WHERE h.queue = new_queue AND h.key = new_key;
        IF NOT FOUND THEN
            IF EXISTS (SELECT FROM holdfast.task h WHERE h.id = new_id AND h.queue = new_queue) THEN
                enqueued := 'id taken';
                RETURN;
            END IF;
            CONTINUE; -- Whoever was in the way has just finished.
        ELSIF holder.state = 'ready' AND holder.attempt = 0 AND holder.deadline <= moment THEN
            -- It will never run, so it is no answer to anybody.
            PERFORM holdfast.expire_holder(new_queue, new_key);
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
COMMENT ON FUNCTION holdfast.insert_keyed(uuid, text, text, text, jsonb, smallint, timestamptz, timestamptz, text, jsonb, interval, text) IS
    'Internal: writes a new task, once per key. Answers a task and what came of it: created, replaced; existing, running, started, parked: an unfinished task holds the key; ended: that task has ended, and the key still holds; id taken; contended: the key changed hands too often.';

-- For many at once, where nobody is in the way: one statement instead of several for each. Whatever else is the case, it
-- writes nothing, and the keys are taken one by one, in their order. Who was waited for may have ended and still hold a key:
-- so that is looked at last, in a statement of its own.
CREATE FUNCTION holdfast.insert_free(
    ids uuid[], queues text[], kinds text[], steps text[], argss jsonb[], priorities smallint[], run_ats timestamptz[],
    deadlines timestamptz[], keys text[], headerss jsonb[]) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    written bigint;
BEGIN
    IF EXISTS (SELECT FROM unnest(queues, keys) AS n(queue, key) JOIN holdfast.task h ON h.queue = n.queue AND h.key = n.key)
       OR EXISTS (SELECT FROM unnest(queues, keys) AS n(queue, key) GROUP BY n.queue, n.key HAVING count(*) > 1) THEN
        RETURN false;
    END IF;
    INSERT INTO holdfast.task (id, queue, kind, step, args, priority, run_at, deadline, key, headers)
    SELECT n.id, n.queue, n.kind, n.step, n.args, n.priority, n.run_at, n.deadline, n.key, n.headers
    FROM unnest(ids, queues, kinds, steps, argss, priorities, run_ats, deadlines, keys, headerss)
         AS n(id, queue, kind, step, args, priority, run_at, deadline, key, headers)
    ORDER BY n.queue COLLATE "C", n.key COLLATE "C"
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS written = ROW_COUNT;
    IF written < cardinality(ids) OR EXISTS (
        SELECT FROM unnest(queues, keys) AS n(queue, key) JOIN holdfast.key k ON k.queue = n.queue AND k.key = n.key
        WHERE k.held_until > holdfast.now()) THEN
        RAISE SQLSTATE 'HF001'; -- Takes back what was written.
    END IF;
    RETURN true;
EXCEPTION WHEN SQLSTATE 'HF001' THEN
    RETURN false;
END
$$;
COMMENT ON FUNCTION holdfast.insert_free(uuid[], text[], text[], text[], jsonb[], smallint[], timestamptz[], timestamptz[], text[], jsonb[]) IS
    'Internal: writes new tasks with keys if all keys differ and none is held; else it writes nothing and answers false.';

CREATE FUNCTION holdfast.expire_holder(task_queue text, task_key text) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    t holdfast.task;
BEGIN
    SELECT * INTO t FROM holdfast.task h
    WHERE h.queue = task_queue AND h.key = task_key AND h.state = 'ready' AND h.attempt = 0 AND h.deadline <= holdfast.now()
    FOR UPDATE;
    IF FOUND THEN
        PERFORM holdfast.archive_task(t, 'expired', format('it was not started before its deadline, %s', t.deadline));
    END IF;
END
$$;
COMMENT ON FUNCTION holdfast.expire_holder(text, text) IS 'Internal: archives the task that holds a key if its deadline has passed before it was started.';

CREATE FUNCTION holdfast.insert_task(t holdfast.task, held_for interval, on_conflict text) RETURNS uuid
LANGUAGE plpgsql
AS $$
DECLARE
    answer record;
BEGIN
    IF t.key IS NULL THEN
        INSERT INTO holdfast.task (id, queue, kind, step, args, priority, run_at, deadline, headers)
        VALUES (t.id, t.queue, t.kind, t.step, t.args, t.priority, t.run_at, t.deadline, t.headers)
        ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            PERFORM holdfast.refuse_id(t.id, 'unfinished');
        END IF;
        PERFORM holdfast.wake(t.queue, t.run_at);
        RETURN t.id;
    END IF;
    SELECT * INTO answer FROM holdfast.insert_keyed(t.id, t.queue, t.kind, t.step, t.args, t.priority, t.run_at, t.deadline, t.key,
                                                    t.headers, held_for, on_conflict);
    IF answer.enqueued IN ('created', 'replaced') THEN
        PERFORM holdfast.wake(t.queue, t.run_at);
    ELSIF answer.enqueued = 'id taken' THEN
        PERFORM holdfast.refuse_id(t.id, 'unfinished');
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
COMMENT ON FUNCTION holdfast.insert_task(holdfast.task, interval, text) IS 'Internal: writes a new task, once per key, and wakes workers; answers its id, or that of the task that holds the key.';

CREATE FUNCTION holdfast.refuse_id(id uuid, state text) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'holdfast: there is already a task with the id %: it is %', id, state
        USING ERRCODE = '23505', HINT = 'If it is the one you mean, it need not be enqueued again; else leave the id out.';
END
$$;
COMMENT ON FUNCTION holdfast.refuse_id(uuid, text) IS 'Internal: says that a given id is taken.';

-- After the insert, in a statement of its own: what was finished meanwhile must be seen.
CREATE FUNCTION holdfast.check_given_id(given uuid, task_queue text) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    found_state text;
BEGIN
    SELECT a.state INTO found_state FROM holdfast.archive a WHERE a.id = given LIMIT 1;
    IF NOT FOUND THEN
        SELECT 'in queue ' || o.queue INTO found_state FROM holdfast.task o WHERE o.id = given AND o.queue <> task_queue LIMIT 1;
    END IF;
    IF FOUND THEN
        PERFORM holdfast.refuse_id(given, found_state);
    END IF;
END
$$;
COMMENT ON FUNCTION holdfast.check_given_id(uuid, text) IS 'Internal: refuses an id that a finished task has, or one of another queue.';

-- A worker never sleeps for long, so it finds what is due later by itself.
CREATE FUNCTION holdfast.wake(queue text, run_at timestamptz) RETURNS void
LANGUAGE sql
AS $$
    SELECT pg_catalog.pg_notify(holdfast.channel(), 'queue ' || queue) WHERE run_at <= holdfast.now() + interval '1 minute'
$$;
COMMENT ON FUNCTION holdfast.wake(text, timestamptz) IS 'Internal: tells workers of a task that is due now or soon.';

CREATE FUNCTION holdfast.enqueue(step text, args jsonb DEFAULT '{}', options jsonb DEFAULT '{}') RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    t holdfast.task := holdfast.new_task(step, args, options);
    made uuid := holdfast.insert_task(t, (options ->> 'unique_for')::interval, coalesce(options ->> 'on_conflict', 'skip'));
BEGIN
    IF options ->> 'id' IS NOT NULL AND made = t.id THEN
        PERFORM holdfast.check_given_id(t.id, t.queue);
    END IF;
    RETURN made;
END
$$;
COMMENT ON FUNCTION holdfast.enqueue(text, jsonb, jsonb) IS
    'Enqueues a task: select holdfast.enqueue(''greeter.ReadName'', ''{"filename": "name.txt"}''). Options: id, queue, priority, delay, at, headers; deadline (not started by then, a length of time or a time, means never started); key, or unique (a key made from kind, step and args); unique_for (the key also holds for so long, even if the task has ended); on_conflict while the key is held: skip (answers the id of the task that holds it), raise, or replace (new args and time for that one if it was never started).';

CREATE FUNCTION holdfast.enqueue_many(entries jsonb, options jsonb DEFAULT '{}') RETURNS SETOF uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    defaults jsonb := coalesce(options, '{}');
    entry jsonb;
    tasks holdfast.task[];
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
    PERFORM holdfast.check_options(defaults, ARRAY['queue', 'priority', 'delay', 'at', 'deadline', 'key', 'unique', 'unique_for', 'on_conflict', 'headers']);
    FOR entry, n IN SELECT e.value, e.ordinality FROM jsonb_array_elements(entries) WITH ORDINALITY AS e LOOP
        IF jsonb_typeof(entry) <> 'object' OR jsonb_typeof(entry -> 'step') IS DISTINCT FROM 'string' THEN
            RAISE EXCEPTION 'holdfast: an entry must be a JSON object with the name of a step' USING ERRCODE = '22023',
                HINT = 'Such as {"step": "greeter.ReadName", "args": {"filename": "name.txt"}, "priority": 5}.';
        END IF;
        tasks[n] := holdfast.new_task(entry ->> 'step', coalesce(entry -> 'args', '{}'), defaults || (entry - 'step' - 'args'));
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
        PERFORM holdfast.refuse_id(ids[n], 'given twice');
    END IF;
    n := NULL;
    WITH made AS (
        INSERT INTO holdfast.task (id, queue, kind, step, args, priority, run_at, deadline, headers)
        SELECT t.id, t.queue, t.kind, t.step, t.args, t.priority, t.run_at, t.deadline, t.headers
        FROM unnest(tasks) WITH ORDINALITY AS t WHERE t.key IS NULL
        ORDER BY t.ordinality
        ON CONFLICT DO NOTHING
        RETURNING task.id
    )
    SELECT array_agg(m.id) INTO written FROM made m;
    PERFORM holdfast.wake(t.queue, min(t.run_at)) FROM unnest(tasks) AS t WHERE t.id IN (SELECT unnest(written)) GROUP BY t.queue;
    -- Keys in one order, so that two callers with the same ones never wait for each other.
    FOR n IN SELECT t.ordinality FROM unnest(tasks) WITH ORDINALITY AS t
             WHERE t.id NOT IN (SELECT unnest(written)) ORDER BY t.queue, t.key, t.ordinality LOOP
        ids[n] := holdfast.insert_task(tasks[n], spans[n], rules[n]);
    END LOOP;
    FOREACH n IN ARRAY coalesce(given, '{}') LOOP
        IF ids[n] = tasks[n].id THEN
            PERFORM holdfast.check_given_id(ids[n], tasks[n].queue);
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
COMMENT ON FUNCTION holdfast.enqueue_many(jsonb, jsonb) IS
    'Enqueues many tasks, all or none: select holdfast.enqueue_many(''[{"step": "greeter.ReadName", "args": {"filename": "name.txt"}}]''). An entry may have any option of enqueue; the options here are defaults for all. The ids come in the order of the entries; an error names the entry as entries[0], entries[1] and so on.';
