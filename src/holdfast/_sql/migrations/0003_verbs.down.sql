-- Takes the verbs of people away.
DROP FUNCTION holdfast.set_default(jsonb);
DROP FUNCTION holdfast.set_queue(text, jsonb);
DROP FUNCTION holdfast.sweep_anew();
DROP FUNCTION holdfast.read_retention(jsonb, text);
DROP FUNCTION holdfast.resume(text, jsonb);
DROP FUNCTION holdfast.pause(text, jsonb);
DROP FUNCTION holdfast.pausable(text, jsonb);
DROP FUNCTION holdfast.stop_workers(uuid, jsonb);
DROP FUNCTION holdfast.again(uuid, jsonb);
DROP FUNCTION holdfast.discard(uuid, jsonb);
DROP FUNCTION holdfast.cancel(uuid, jsonb);
DROP FUNCTION holdfast.retry(uuid, jsonb);
DROP FUNCTION holdfast.check_known(text, text, boolean);
DROP FUNCTION holdfast.known_steps(text);
DROP FUNCTION holdfast.archive_task(holdfast.task, text, text);
DROP FUNCTION holdfast.lock_free(uuid[]);
DROP FUNCTION holdfast.lock_task(uuid, text, text[]);
