-- Who may do what. The owner of the schema may do everything; other roles are given parts: producer, worker, viewer,
-- operator. Functions that change things for others act with the rights of the owner (SECURITY DEFINER), so those roles
-- need no rights on the tables. All other functions do what their caller may do, and whoever has a part may call them.

-- grants --
-- The rights of a part.
{{> rights_of :part}}

-- fragment rights_of(part) --
-- The rights of a part, as GRANT and REVOKE name them. What is not there is not named, so it fits every version of the
-- schema. Whoever makes a new table or function decides here: viewers see new tables, workers write them, nobody else does;
-- nobody may call a new function that acts with the rights of the owner. The search path must be empty.
SELECT g.rights FROM (
    SELECT 1 AS place, '' AS name, format('USAGE ON SCHEMA %I', :'schema') AS rights
    UNION ALL
    SELECT 2, p.proname, format('EXECUTE ON FUNCTION %I.%I(%s)', :'schema', p.proname, pg_get_function_identity_arguments(p.oid))
    FROM pg_catalog.pg_proc p
    WHERE p.pronamespace = quote_ident(:'schema')::regnamespace AND (NOT p.prosecdef OR p.proname = ANY (CASE {{part}}::text
        WHEN 'producer' THEN ARRAY['enqueue', 'enqueue_many', 'insert_keyed', 'insert_free']
        WHEN 'worker' THEN ARRAY['enqueue', 'enqueue_many', 'insert_keyed', 'insert_free', 'ensure_partition', 'ensure_partitions',
                                 'drop_oldest_partition', 'summarize_log', 'set_default', 'note_backfill']
        WHEN 'operator' THEN ARRAY['retry', 'cancel', 'discard', 'again', 'lock_free', 'stop_workers', 'pause', 'resume', 'set_queue', 'set_default',
                                   'set_schedule', 'pause_schedule', 'resume_schedule', 'delete_schedule', 'fire_schedule', 'note_backfill']
        ELSE '{}' END))
    UNION ALL
    SELECT 3, c.relname, format('%s ON %I.%I', t.rights, :'schema', c.relname)
    FROM pg_catalog.pg_class c
    CROSS JOIN LATERAL (SELECT CASE
        WHEN {{part}}::text = 'producer' THEN CASE c.relname
            -- Nothing of others but their ids, and nothing but new tasks. Those with keys are written by insert_keyed and insert_free.
            WHEN 'task' THEN 'SELECT (id), INSERT (id, queue, kind, step, args, priority, run_at, created_at, deadline, headers)'
            WHEN 'archive' THEN 'SELECT (id)'
            WHEN 'kind' THEN 'SELECT (name, queue, priority, first)'
            WHEN 'worker' THEN 'SELECT (queues, idle, seen_at, stopped_at)' END
        WHEN {{part}}::text = 'worker' AND c.relkind <> 'v' THEN CASE
            WHEN c.relname IN ('migration', 'grantee', 'queue', 'setting') THEN 'SELECT'
            -- To lock what it deletes, it needs UPDATE of some column.
            WHEN c.relname = 'change' THEN 'SELECT, UPDATE (at), DELETE'
            ELSE 'SELECT, INSERT, UPDATE, DELETE' END
        ELSE 'SELECT' END) AS t(rights)
    WHERE c.relnamespace = quote_ident(:'schema')::regnamespace AND c.relkind IN ('r', 'p', 'v') AND t.rights IS NOT NULL
      -- A partition is reached by its parent; one that somebody has detached is nobody's business.
      AND NOT c.relispartition AND c.relname !~ '^(archive|attempt)_p[0-9]{8}$'
) AS g ORDER BY g.place, g.name COLLATE "C", g.rights

-- renew_grants --
-- After a migration: what is new belongs to its owner only, and those who have a part are given what it now needs.
DO $$
DECLARE
    given record;
    rights text;
BEGIN
    EXECUTE format('REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA %I FROM PUBLIC', :'schema');
    IF to_regclass(format('%I.grantee', :'schema')) IS NULL THEN
        RETURN;
    END IF;
    FOR given IN SELECT r.rolname, g.part FROM holdfast.grantee g JOIN pg_catalog.pg_roles r ON r.rolname = g.role LOOP
        FOR rights IN {{> rights_of given.part}}
        LOOP
            EXECUTE format('GRANT %s TO %I', rights, given.rolname);
        END LOOP;
    END LOOP;
END
$$

-- standing_of --
-- About some roles and the schema: which of them exist, who owns the schema, whether the current role is or belongs to that
-- one, and who it is.
SELECT ARRAY(SELECT r.rolname::text FROM pg_catalog.pg_roles r WHERE r.rolname = ANY (:roles::text[])),
       pg_get_userbyid(c.relowner)::text,
       pg_has_role(c.relowner, 'USAGE') AND pg_has_role(n.nspowner, 'USAGE'), current_user::text
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = :'schema' AND c.relname = 'task'

-- give_part --
-- Remembers that roles have a part.
INSERT INTO holdfast.grantee (role, part) SELECT r, :part::text FROM unnest(:roles::text[]) AS r ON CONFLICT DO NOTHING

-- take_part --
-- Forgets that a role has a part.
DELETE FROM holdfast.grantee WHERE role = :role::text AND part = :part::text

-- parts_of --
-- The parts of a role.
SELECT part FROM holdfast.grantee WHERE role = :role::text ORDER BY part

-- grantees --
-- Who has which part, and whether there is still such a role.
SELECT g.role, g.part, g.granted_at, g.granted_by, EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = g.role)
FROM holdfast.grantee g ORDER BY g.role COLLATE "C", g.part
