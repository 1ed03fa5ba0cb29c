-- What the migrations themselves need. The migrations are in the folder beside this file.

-- migration_table --
-- The schema and the list of its migrations; several statements, sent without parameters.
DO $$
BEGIN
    -- IF NOT EXISTS would ask for the right to create schemas even where an administrator has made this one.
    IF to_regnamespace(quote_ident(:'schema')) IS NULL THEN
        CREATE SCHEMA :"schema";
    END IF;
END
$$;
CREATE TABLE IF NOT EXISTS holdfast.migration (
    version    integer PRIMARY KEY,
    name       text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    objects    text[] NOT NULL
);
COMMENT ON TABLE holdfast.migration IS 'Which migrations were applied, in order.';
COMMENT ON COLUMN holdfast.migration.version IS 'Its number.';
COMMENT ON COLUMN holdfast.migration.name IS 'Its name.';
COMMENT ON COLUMN holdfast.migration.applied_at IS 'When it was applied.';
COMMENT ON COLUMN holdfast.migration.objects IS 'Every object as it was right after: what differs later is drift.';

-- schema_version --
-- The version that migrations have brought the schema to.
SELECT coalesce(max(version), 0) FROM holdfast.migration

-- has_migrations --
-- Whether the list of migrations is there at all.
SELECT to_regclass(:name::text) IS NOT NULL

-- record_migration --
-- A migration was applied, and this is what the schema looks like now.
INSERT INTO holdfast.migration (version, name, objects) VALUES (:version::integer, :name::text, :objects::text[])

-- forget_migration --
-- A migration was taken back.
DELETE FROM holdfast.migration WHERE version = :version::integer

-- expected_objects --
-- What the schema looked like after its last migration.
SELECT objects FROM holdfast.migration ORDER BY version DESC LIMIT 1

-- objects --
-- What the schema looks like: a line per column, constraint, index, trigger, function, view and domain. Partitions come
-- and go and are left out. The search path must be empty: the catalog leaves out the names of schemas that are on it.
SELECT line FROM (
    SELECT format('column %s.%s %s%s%s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
                  CASE WHEN a.attnotnull THEN ' not null' ELSE '' END,
                  coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '')) AS line
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    WHERE c.relnamespace = :namespace::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    UNION ALL
    SELECT format('constraint %s.%s %s', c.relname, k.conname, pg_get_constraintdef(k.oid))
    FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_class c ON c.oid = k.conrelid
    WHERE c.relnamespace = :namespace::regnamespace AND NOT c.relispartition AND k.contype IN ('c', 'p', 'u', 'f', 'x')
    UNION ALL
    SELECT 'index ' || pg_get_indexdef(i.indexrelid)
    FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indrelid
    WHERE c.relnamespace = :namespace::regnamespace AND NOT c.relispartition
    UNION ALL
    SELECT format('trigger %s.%s %s', c.relname, g.tgname, pg_get_triggerdef(g.oid))
    FROM pg_catalog.pg_trigger g JOIN pg_catalog.pg_class c ON c.oid = g.tgrelid
    WHERE c.relnamespace = :namespace::regnamespace AND NOT c.relispartition AND NOT g.tgisinternal
    UNION ALL
    SELECT format('function %s(%s) %s', p.proname, pg_get_function_identity_arguments(p.oid),
                  md5(concat_ws(' ', p.prosrc, p.provolatile, p.proparallel, p.prosecdef, p.proconfig)))
    FROM pg_catalog.pg_proc p WHERE p.pronamespace = :namespace::regnamespace
    UNION ALL
    SELECT format('view %s %s', c.relname, md5(pg_get_viewdef(c.oid)))
    FROM pg_catalog.pg_class c WHERE c.relnamespace = :namespace::regnamespace AND c.relkind = 'v'
    UNION ALL
    SELECT format('domain %s %s', t.typname, pg_get_constraintdef(k.oid))
    FROM pg_catalog.pg_type t JOIN pg_catalog.pg_constraint k ON k.contypid = t.oid
    WHERE t.typnamespace = :namespace::regnamespace
) AS lines ORDER BY line
