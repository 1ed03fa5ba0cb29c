-- Takes schedules away; their tasks stay.
DROP VIEW holdfast.occurrences, holdfast.schedules;
DROP FUNCTION holdfast.note_backfill(text, jsonb);
DROP FUNCTION holdfast.fire_schedule(text, jsonb);
DROP FUNCTION holdfast.delete_schedule(text, jsonb);
DROP FUNCTION holdfast.resume_schedule(text, jsonb);
DROP FUNCTION holdfast.pause_schedule(text, jsonb);
DROP FUNCTION holdfast.set_schedule(text, jsonb, jsonb);
DROP FUNCTION holdfast.check_definition(text, jsonb);
DROP FUNCTION holdfast.lock_schedule(text);
DROP TABLE holdfast.occurrence, holdfast.schedule_scope, holdfast.schedule;
