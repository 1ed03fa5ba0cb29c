-- How the database is: what `holdfast.insights.database` asks and `holdfast doctor` judges. Each statement reads catalogs, statistics
-- or a bounded part of a table, so that its time does not grow with the number of tasks.

-- table_health --
-- Size, rows and last visits by vacuum of each table; those of history are summed over their partitions.
SELECT coalesce(p.relname, c.relname)::text, count(p.oid),
       sum(pg_catalog.pg_stat_get_live_tuples(c.oid))::bigint, sum(pg_catalog.pg_stat_get_dead_tuples(c.oid))::bigint,
       sum(pg_catalog.pg_table_size(c.oid))::bigint, sum(pg_catalog.pg_indexes_size(c.oid))::bigint,
       max(greatest(pg_catalog.pg_stat_get_last_vacuum_time(c.oid), pg_catalog.pg_stat_get_last_autovacuum_time(c.oid))),
       max(greatest(pg_catalog.pg_stat_get_last_analyze_time(c.oid), pg_catalog.pg_stat_get_last_autoanalyze_time(c.oid))),
       sum(o.vacuum_at)::bigint, bool_and(o.enabled)
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid
LEFT JOIN pg_catalog.pg_class p ON p.oid = i.inhparent
CROSS JOIN LATERAL (
    SELECT coalesce(max(v.option_value) FILTER (WHERE v.option_name = 'autovacuum_vacuum_threshold'),
                    current_setting('autovacuum_vacuum_threshold'))::float8
           + coalesce(max(v.option_value) FILTER (WHERE v.option_name = 'autovacuum_vacuum_scale_factor'),
                      current_setting('autovacuum_vacuum_scale_factor'))::float8 * greatest(c.reltuples, 0),
           coalesce(max(v.option_value) FILTER (WHERE v.option_name = 'autovacuum_enabled'), 'true')::boolean
    FROM pg_catalog.pg_options_to_table(c.reloptions) AS v) AS o(vacuum_at, enabled)
WHERE n.nspname = :'schema' AND c.relkind = 'r'
GROUP BY 1 ORDER BY sum(pg_catalog.pg_table_size(c.oid)) DESC, 1

-- index_health --
-- Size and use of each index; those of history are summed over their partitions.
SELECT coalesce(p.relname, c.relname)::text, coalesce(pt.relname, t.relname)::text, sum(pg_catalog.pg_relation_size(c.oid))::bigint,
       sum(pg_catalog.pg_stat_get_numscans(c.oid))::bigint, bool_and(x.indisvalid)
FROM pg_catalog.pg_index x
JOIN pg_catalog.pg_class c ON c.oid = x.indexrelid
JOIN pg_catalog.pg_class t ON t.oid = x.indrelid
JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
LEFT JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid
LEFT JOIN pg_catalog.pg_class p ON p.oid = i.inhparent
LEFT JOIN pg_catalog.pg_inherits ti ON ti.inhrelid = t.oid
LEFT JOIN pg_catalog.pg_class pt ON pt.oid = ti.inhparent
WHERE n.nspname = :'schema' AND c.relkind = 'i'
GROUP BY 1, 2 ORDER BY 3 DESC, 1

-- transactions --
-- Who keeps old rows from being removed in this database: open transactions, replication slots and prepared
-- transactions, the longest first. Since when and in which state others' sessions are is hidden from roles that may not see it.
SELECT s.what, s.pid, s.role, s.name, s.state, s.since, extract(epoch FROM clock_timestamp() - s.since)::float8, s.xids
FROM (
    SELECT 'session' AS what, a.pid, a.usename::text AS role, a.application_name AS name, a.state, a.xact_start AS since,
           greatest(age(a.backend_xmin), age(a.backend_xid)) AS xids
    FROM pg_catalog.pg_stat_activity a
    WHERE a.pid <> pg_backend_pid() AND a.usesysid IS NOT NULL AND (a.datname = current_database() OR a.datname IS NULL)
      AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL OR a.xact_start IS NOT NULL)
    UNION ALL
    SELECT 'slot', r.active_pid, NULL, r.slot_name::text, CASE WHEN r.active THEN 'active' ELSE 'inactive' END, NULL,
           greatest(age(r.xmin), age(r.catalog_xmin))
    FROM pg_catalog.pg_replication_slots r WHERE r.xmin IS NOT NULL OR r.catalog_xmin IS NOT NULL
    UNION ALL
    SELECT 'prepared', NULL, p.owner::text, p.gid, 'prepared', p.prepared, age(p.transaction)
    FROM pg_catalog.pg_prepared_xacts p WHERE p.database = current_database()
) AS s
ORDER BY s.since NULLS LAST, s.xids DESC NULLS LAST LIMIT :limit::integer

-- history_health --
-- For each table of history: how many partitions, from when to when, their size, how many days from today on are there
-- without a gap (61 at most), and which are still there although they should have been dropped.
SELECT h.parent, count(*), min(h.day), max(h.day), sum(h.bytes)::bigint,
       (SELECT coalesce(min(d.day) - t.day, 61) FROM generate_series(0, 60) AS g(n) CROSS JOIN LATERAL (SELECT t.day + g.n) AS d(day)
        WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                          WHERE n.nspname = :'schema' AND c.relname = h.parent || to_char(d.day, '"_p"YYYYMMDD') AND c.relispartition)),
       count(*) FILTER (WHERE h.drop_after <= holdfast.now()), min(h.drop_after) FILTER (WHERE h.drop_after <= holdfast.now()),
       count(*) FILTER (WHERE h.detaching)
FROM holdfast.history h CROSS JOIN (SELECT (holdfast.now() AT TIME ZONE 'UTC')::date) AS t(day)
GROUP BY h.parent, t.day ORDER BY h.parent

-- partitions --
-- The partitions of history, the newest first.
SELECT name, parent, day, bytes, detaching, drop_after FROM holdfast.history ORDER BY day DESC, name LIMIT :limit::integer

-- server_health --
-- The server, this database and this session: versions, connections, notifications, how old its oldest row may be, and
-- settings that matter. Reserved connections are not for everybody.
SELECT current_setting('server_version'), current_database()::text, current_user::text, pg_is_in_recovery(), pg_postmaster_start_time(),
       (SELECT count(*) FROM pg_catalog.pg_stat_activity a WHERE a.datid IS NOT NULL AND a.usesysid IS NOT NULL),
       current_setting('max_connections')::bigint,
       current_setting('superuser_reserved_connections')::bigint + coalesce(current_setting('reserved_connections', true)::bigint, 0),
       pg_notification_queue_usage(), age(d.datfrozenxid)::bigint, mxid_age(d.datminmxid)::bigint,
       pg_has_role('pg_read_all_stats', 'USAGE'),
       (SELECT jsonb_object_agg(s.name, s.setting) FROM pg_catalog.pg_settings s WHERE s.name = ANY (:settings::text[])),
       (SELECT coalesce(max(m.version), 0) FROM holdfast.migration m)
FROM pg_catalog.pg_database d WHERE d.datname = current_database()

-- due_steps --
-- At which steps the tasks stand that have been due for longest, and whether a live worker of their queue knows each step:
-- of each queue and priority, as many tasks as are asked for.
SELECT d.queue, d.kind, d.step, d.tasks, extract(epoch FROM holdfast.now() - d.oldest)::float8,
       EXISTS (SELECT FROM holdfast.worker w
               WHERE holdfast.is_live(w) AND d.queue = ANY (w.queues) AND d.kind || '.' || d.step = ANY (w.steps)),
       d.kind = ANY ({{> paused_kinds}})
FROM (SELECT q.name AS queue, t.kind, t.step, count(*) AS tasks, min(t.run_at) AS oldest
      FROM unnest(:queues::text[]) AS q(name)
      CROSS JOIN generate_series(0, 9) AS p(priority)
      CROSS JOIN LATERAL (
          SELECT l.kind::text, l.step::text, l.run_at FROM holdfast.task l
          WHERE l.queue = q.name AND l.state = 'ready' AND l.priority = p.priority AND l.run_at <= holdfast.now()
          ORDER BY l.run_at LIMIT :limit::integer) AS t
      GROUP BY q.name, t.kind, t.step) AS d
ORDER BY d.oldest, d.queue, d.kind, d.step

-- expired_leases --
-- Running tasks whose lease ended longer ago than that: for each queue how many, and since when the first.
SELECT e.queue, count(*), extract(epoch FROM holdfast.now() - min(e.lease_expires_at))::float8,
       EXISTS (SELECT FROM holdfast.worker w WHERE holdfast.is_live(w) AND e.queue = ANY (w.queues))
FROM (SELECT t.queue::text, t.lease_expires_at FROM holdfast.task t
      WHERE t.state = 'running' AND t.lease_expires_at < holdfast.now() - :grace::interval
      LIMIT :limit::integer) AS e
GROUP BY e.queue ORDER BY 3 DESC

-- parked_lately --
-- How many tasks were parked in the last hour, and in the 23 hours before.
SELECT count(*) FILTER (WHERE p.finished_at > holdfast.now() - interval '1 hour'),
       count(*) FILTER (WHERE p.finished_at <= holdfast.now() - interval '1 hour')
FROM (SELECT a.finished_at FROM holdfast.attempt a
      WHERE a.parked AND a.finished_at > holdfast.now() - interval '1 day' AND a.finished_at <= holdfast.now()
      ORDER BY a.finished_at DESC LIMIT :limit::integer) AS p

-- late_schedules --
-- Schedules that have an error, or should have been planned longer ago than that; whether a live worker would plan them.
SELECT s.name::text, extract(epoch FROM holdfast.now() - s.next_at)::float8, s.error, s.failures,
       EXISTS (SELECT FROM holdfast.worker w WHERE holdfast.is_live(w) AND (s.declared IS NULL OR s.name::text = ANY (w.schedules)))
FROM holdfast.schedule s
WHERE s.paused_at IS NULL AND (s.error IS NOT NULL OR s.next_at < holdfast.now() - :grace::interval)
ORDER BY s.next_at LIMIT :limit::integer

-- scheduled_zones --
-- The time zones of schedules.
SELECT DISTINCT s.definition -> 'timing' ->> 'tz' FROM holdfast.schedule s
WHERE s.definition -> 'timing' ->> 'tz' IS NOT NULL ORDER BY 1 LIMIT :limit::integer

-- zone_offsets --
-- How far a zone is from UTC at some instants, in seconds, as the database knows it.
SELECT extract(epoch FROM (i.at AT TIME ZONE :zone::text) - (i.at AT TIME ZONE 'UTC'))::bigint
FROM unnest(:instants::timestamptz[]) WITH ORDINALITY AS i(at, place) ORDER BY i.place

-- lacking_rights --
-- Those of some rights, as the statement `grants` names them, that a role does not have.
SELECT r.rights FROM unnest(:rights::text[]) WITH ORDINALITY AS r(rights, place)
CROSS JOIN LATERAL (SELECT split_part(r.rights, ' ON ', 1), split_part(r.rights, ' ON ', 2)) AS s(verbs, object)
WHERE NOT CASE
    WHEN s.object LIKE 'SCHEMA %' THEN
        has_schema_privilege(:role::text, (SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname = :'schema'), 'USAGE')
    WHEN s.object LIKE 'FUNCTION %' THEN coalesce((
        SELECT has_function_privilege(:role::text, f.oid, 'EXECUTE') FROM pg_catalog.pg_proc f
        JOIN pg_catalog.pg_namespace n ON n.oid = f.pronamespace
        WHERE n.nspname = :'schema' AND s.object = format('FUNCTION %I.%I(%s)', n.nspname, f.proname, pg_get_function_identity_arguments(f.oid))), true)
    ELSE (
        SELECT bool_and(CASE WHEN m.found[2] IS NULL THEN has_table_privilege(:role::text, s.object, m.found[1])
                             ELSE (SELECT bool_and(has_column_privilege(:role::text, s.object, trim(col.name), m.found[1]))
                                   FROM unnest(string_to_array(m.found[2], ',')) AS col(name)) END)
        FROM regexp_matches(s.verbs, '([A-Z]+)(?: [(]([^)]*)[)])?', 'g') AS m(found)) END
ORDER BY r.place
