-- Takes the kernel away, tasks and history included. The schema itself and the list of migrations stay.
DROP VIEW holdfast.parked, holdfast.attempts, holdfast.tasks;
DROP FUNCTION holdfast.stop_workers(uuid);
DROP FUNCTION holdfast.discard(uuid, jsonb);
DROP FUNCTION holdfast.cancel(uuid, jsonb);
DROP FUNCTION holdfast.retry(uuid, jsonb);
DROP FUNCTION holdfast.archive_task(holdfast.task, text, text);
DROP FUNCTION holdfast.lock_task(uuid, text, text[]);
DROP FUNCTION holdfast.enqueue(text, jsonb, jsonb);
DROP FUNCTION holdfast.check_args(jsonb, text);
DROP FUNCTION holdfast.check_options(jsonb, text[]);
DROP FUNCTION holdfast.ensure_partitions(integer);
DROP FUNCTION holdfast.ensure_partition(date);
DROP TABLE holdfast.change, holdfast.kind, holdfast.worker, holdfast.attempt, holdfast.archive, holdfast.task;
DROP DOMAIN holdfast.step_name, holdfast.kind_name, holdfast.queue_name;
DROP FUNCTION holdfast.new_id();
DROP FUNCTION holdfast.channel();
DROP FUNCTION holdfast.now();
