-- Workers: what they say of themselves, and what they must know of the server before they begin.

-- register --
-- A worker announces itself, and again if it knows more by now.
INSERT INTO holdfast.worker (id, name, host, pid, version, queues, limits, steps, only_steps, kinds, slots, lease, schedules)
VALUES (:worker::uuid, :name::text, :host::text, :pid::integer, :version::text, :queues::text[], :limits::jsonb, :steps::text[],
        :only::text[], :kinds::jsonb, :slots::integer, :lease::interval, :schedules::text[])
ON CONFLICT (id) DO UPDATE
SET seen_at = holdfast.now(), steps = excluded.steps, kinds = excluded.kinds, schedules = excluded.schedules

-- seen --
-- A worker is alive; answers whether it was asked to stop.
UPDATE holdfast.worker SET seen_at = holdfast.now(), stuck = :stuck::integer, stopped_at = NULL,
    loops = coalesce(:loops::jsonb, loops), late = coalesce(:late::text[], late)
WHERE id = :worker::uuid RETURNING stop_requested_at IS NOT NULL

-- idle --
-- A worker may be about to sleep, or is busy again.
UPDATE holdfast.worker SET idle = :idle::boolean WHERE id = :worker::uuid

-- stopping --
-- The first act of a stop: from now on a lost lease of this worker is not a crash.
UPDATE holdfast.worker SET stopping_at = holdfast.now(), idle = false WHERE id = :worker::uuid

-- stopped --
-- The last act of a stop.
UPDATE holdfast.worker SET stopped_at = holdfast.now(), idle = false WHERE id = :worker::uuid

-- bury --
-- Workers that were silent for long are taken for dead, so that nobody waits for them to stop; a beat revives one.
UPDATE holdfast.worker SET stopped_at = holdfast.now(), idle = false
WHERE stopped_at IS NULL AND seen_at < holdfast.now() - greatest(interval '5 minutes', lease)

-- declare_kind --
-- A worker tells what it knows about a kind.
INSERT INTO holdfast.kind AS k (name, queue, priority, first, graph, about, was)
VALUES (:name::text, :queue::text, :priority::smallint, :first::text, :graph::jsonb, :about::jsonb, :was::text[])
ON CONFLICT (name) DO UPDATE
SET queue = excluded.queue, priority = excluded.priority, first = excluded.first, graph = excluded.graph,
    about = excluded.about, was = excluded.was, seen_at = holdfast.now()
WHERE (k.queue, k.priority, k.first, k.graph, k.about, k.was)
      IS DISTINCT FROM (excluded.queue, excluded.priority, excluded.first, excluded.graph, excluded.about, excluded.was)

-- ensure_partitions --
-- Partitions for the coming days.
SELECT holdfast.ensure_partitions()

-- server --
-- Which server this is: a new one must not meet the identity and attempts given out by an old one.
SELECT extract(epoch FROM pg_catalog.pg_postmaster_start_time())::text || ' ' || pg_catalog.pg_is_in_recovery()::text

-- place --
-- Which database of which server this is: two URLs that answer the same are one.
SELECT extract(epoch FROM pg_catalog.pg_postmaster_start_time())::text || ' ' || pg_catalog.current_database()

-- same_server --
-- Divides by zero if this is another server: so nothing that follows in the transaction is executed there. And what a
-- connection of ours has for good, a transaction through a pooler has for itself.
SELECT 1 / (extract(epoch FROM pg_catalog.pg_postmaster_start_time())::text || ' ' || pg_catalog.pg_is_in_recovery()::text
            = :server::text)::integer,
       pg_catalog.set_config('jit', 'off', true), pg_catalog.set_config('array_nulls', 'on', true)

-- encoding --
-- How this database stores texts.
SELECT pg_catalog.current_setting('server_encoding')

-- isolation --
-- What this connection's transactions default to: claims need READ COMMITTED.
SELECT pg_catalog.current_setting('default_transaction_isolation'), pg_catalog.current_setting('transaction_read_only')
