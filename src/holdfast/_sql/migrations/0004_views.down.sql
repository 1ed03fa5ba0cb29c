-- Takes the views and the explanations away.
DROP FUNCTION holdfast.explain(uuid);
DROP FUNCTION holdfast.forgotten_attempts(uuid, integer);
DROP FUNCTION holdfast.explain_ended(holdfast.archive);
DROP FUNCTION holdfast.explain_parked(holdfast.task);
DROP FUNCTION holdfast.explain_running(holdfast.task);
DROP FUNCTION holdfast.explain_ready(holdfast.task);
DROP FUNCTION holdfast.error_line(jsonb);
DROP FUNCTION holdfast.how_many(bigint, text, bigint);
DROP FUNCTION holdfast.how_long(interval);
DROP FUNCTION holdfast.the_time(timestamptz);
DROP FUNCTION holdfast.one_line(text, integer);
DROP FUNCTION holdfast.drop_oldest_partition();
DROP VIEW holdfast.history, holdfast.parked_steps, holdfast.parked, holdfast.attempts, holdfast.tasks;
