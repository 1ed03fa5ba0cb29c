-- New tasks, and who is told of them. How statements are written: `lifecycle.sql`.

-- enqueue --
-- One new task without a key; an id that exists already is left as it is.
INSERT INTO holdfast.task (id, queue, kind, step, args, priority, run_at, deadline, headers)
VALUES (:id::uuid, :queue::text, :kind::text, :step::text, :args::jsonb, :priority::smallint,
        coalesce(:at::timestamptz, holdfast.now() + :delay::interval),
        coalesce(:expires_at::timestamptz, holdfast.now() + :expires_in::interval), :headers::jsonb)
ON CONFLICT DO NOTHING
RETURNING id

-- enqueue_bare --
-- One new task as most are: due at once, without key, deadline and headers. An id that exists already is an error.
INSERT INTO holdfast.task (id, queue, kind, step, args, priority)
VALUES (:id::uuid, :queue::text, :kind::text, :step::text, :args::jsonb, :priority::smallint)

-- enqueue_alike --
-- New tasks without keys that differ in nothing but id and args. All or none: an id that exists already is an error.
INSERT INTO holdfast.task (id, queue, kind, step, args, priority, run_at, deadline, headers)
SELECT n.id, :queue::text, :kind::text, :step::text, n.args, :priority::smallint,
       coalesce(:at::timestamptz, holdfast.now() + :delay::interval),
       coalesce(:expires_at::timestamptz, holdfast.now() + :expires_in::interval), :headers::jsonb
FROM unnest(:ids::uuid[], :args::jsonb[]) AS n(id, args)
RETURNING id

-- enqueue_many --
-- Many new tasks of one queue, without keys; the ids that were new come back.
INSERT INTO holdfast.task (id, queue, kind, step, args, priority, run_at, deadline, headers)
SELECT n.id, :queue::text, n.kind, n.step, n.args, n.priority, coalesce(n.at, holdfast.now() + n.delay),
       coalesce(n.expires_at, holdfast.now() + n.expires_in), n.headers
FROM unnest(:ids::uuid[], :kinds::text[], :steps::text[], :args::jsonb[], :priorities::smallint[],
            :ats::timestamptz[], :delays::interval[], :expire_ats::timestamptz[], :expire_ins::interval[], :headers::jsonb[])
     AS n(id, kind, step, args, priority, at, delay, expires_at, expires_in, headers)
ORDER BY n.id
ON CONFLICT DO NOTHING
RETURNING id

-- copy_tasks --
-- Many new tasks without keys, of any queues. A COPY takes no expressions: their times count from clock, read just before.
COPY holdfast.task (id, queue, kind, step, priority, run_at, created_at, deadline, args, headers) FROM STDIN WITH (ENCODING 'UTF8')

-- copy_bare_tasks --
-- Many new tasks as most are: due at once, without keys, deadlines and headers. What is left out, the table knows.
COPY holdfast.task (id, queue, kind, step, priority, args) FROM STDIN WITH (ENCODING 'UTF8')

-- clock --
-- What time it is: microseconds since 1970, as a text that every driver reads alike.
SELECT (extract(epoch FROM holdfast.now()) * 1000000)::bigint::text

-- commits_early --
-- Whether commits of this connection do not wait for the disk, unless told to.
SELECT pg_catalog.current_setting('synchronous_commit') = 'off'

-- set_durable --
-- For this transaction only: whether its commit waits for the disk, null for as it comes. One that waits already waits for
-- what it did before. And what a connection of ours has for good, a transaction through a pooler has for itself.
SELECT pg_catalog.set_config('synchronous_commit', CASE
    WHEN NOT :durable::boolean THEN 'off'
    WHEN :durable::boolean AND pg_catalog.current_setting('synchronous_commit') = 'off' THEN 'on'
    ELSE pg_catalog.current_setting('synchronous_commit') END, true),
       pg_catalog.set_config('jit', 'off', true), pg_catalog.set_config('array_nulls', 'on', true)

-- declared --
-- Where tasks of a kind go unless the enqueue says otherwise, for producers without the code.
SELECT queue, priority, first FROM holdfast.kind WHERE name = :kind::text

-- archived --
-- Whether one of these tasks has already ended: read when an enqueue is sent again, whose answer was lost.
SELECT EXISTS (SELECT FROM holdfast.archive WHERE id = ANY (:ids::uuid[]))

-- enqueue_keyed --
-- New tasks with keys, each once per key: what came of each, in the order given. The keys are taken in one order, so that
-- two callers with the same ones never wait for each other.
SELECT a.id, a.kind, a.enqueued, a.state
FROM (SELECT n.id, n.queue COLLATE "C" AS queue, n.kind, n.step, n.args, n.priority,
             coalesce(n.at, holdfast.now() + n.delay) AS run_at, coalesce(n.expires_at, holdfast.now() + n.expires_in) AS deadline,
             CASE WHEN n.uniquely THEN holdfast.unique_key(n.kind, n.step, n.args) ELSE n.given END COLLATE "C" AS key,
             n.headers, n.held_for, n.on_conflict, n.place
      FROM unnest(:ids::uuid[], :queues::text[], :kinds::text[], :steps::text[], :args::jsonb[], :priorities::smallint[],
                  :ats::timestamptz[], :delays::interval[], :expire_ats::timestamptz[], :expire_ins::interval[],
                  :keys::text[], :uniques::boolean[], :holds::interval[], :rules::text[], :headers::jsonb[])
           WITH ORDINALITY AS n(id, queue, kind, step, args, priority, at, delay, expires_at, expires_in,
                                given, uniquely, held_for, on_conflict, headers, place)
      ORDER BY queue, key, place) AS t
CROSS JOIN LATERAL holdfast.insert_keyed(t.id, t.queue, t.kind, t.step, t.args, t.priority, t.run_at, t.deadline, t.key,
                                         t.headers, t.held_for, t.on_conflict) AS a
ORDER BY t.place

-- enqueue_free --
-- New tasks with keys, all at once, if all keys differ and nobody holds any of them; else none of them, and false.
SELECT holdfast.insert_free(array_agg(n.id), array_agg(n.queue), array_agg(n.kind), array_agg(n.step), array_agg(n.args),
    array_agg(n.priority), array_agg(coalesce(n.at, holdfast.now() + n.delay)),
    array_agg(coalesce(n.expires_at, holdfast.now() + n.expires_in)),
    array_agg(CASE WHEN n.uniquely THEN holdfast.unique_key(n.kind, n.step, n.args) ELSE n.given END), array_agg(n.headers))
FROM unnest(:ids::uuid[], :queues::text[], :kinds::text[], :steps::text[], :args::jsonb[], :priorities::smallint[],
            :ats::timestamptz[], :delays::interval[], :expire_ats::timestamptz[], :expire_ins::interval[],
            :keys::text[], :uniques::boolean[], :headers::jsonb[])
     AS n(id, queue, kind, step, args, priority, at, delay, expires_at, expires_in, given, uniquely, headers)

-- sweep_keys --
-- Takes away keys that hold no longer; answers how many.
WITH swept AS (
    DELETE FROM holdfast.key k WHERE k.ctid = ANY (ARRAY(
        SELECT o.ctid FROM holdfast.key o WHERE o.held_until <= holdfast.now()
        ORDER BY o.held_until LIMIT :limit::integer FOR UPDATE SKIP LOCKED))
    RETURNING k.queue
)
SELECT count(*) FROM swept

-- notify --
-- In the caller's transaction: wakes whoever listens, once it commits, and says which database this is.
SELECT pg_catalog.current_database()::text, pg_catalog.pg_notify(holdfast.channel(), 'queue ' || :queue::text)

-- notify_if_idle --
-- After a commit of our own: wakes a worker only if one may be asleep.
SELECT pg_catalog.pg_notify(holdfast.channel(), 'queue ' || :queue::text)
WHERE EXISTS (
    SELECT FROM holdfast.worker w
    WHERE w.idle AND w.stopped_at IS NULL AND w.seen_at > holdfast.now() - interval '5 minutes' AND :queue::text = ANY (w.queues))

-- notify_along --
-- With an enqueue that is one of few: wakes a worker that may be asleep, at the commit. One such enqueue at a time: until its commit is on disk
-- nobody else on this server can notify; so never where commits wait for a standby, which may be away. Nothing comes back if nobody was told:
-- then somebody must be after the commit. A task that is alone is named, so that a resting worker need not look for it.
SELECT pg_catalog.pg_notify(holdfast.channel(), concat_ws(' ', 'queue', :queue::text, :id::text))
WHERE EXISTS (
    SELECT FROM holdfast.worker w
    WHERE w.idle AND w.stopped_at IS NULL AND w.seen_at > holdfast.now() - interval '5 minutes' AND :queue::text = ANY (w.queues))
  AND pg_catalog.current_setting('synchronous_standby_names') = ''
  AND pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended(holdfast.channel() || ' along', 0))

-- say --
-- Tells everybody who listens: what a caller waits for, what has ended, that something was parked.
SELECT pg_catalog.pg_notify(holdfast.channel(), s.said) FROM unnest(:said::text[]) AS s(said)
