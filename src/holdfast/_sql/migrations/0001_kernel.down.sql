-- Takes the kernel away, tasks and history included. The schema itself and the list of migrations stay.
DROP FUNCTION holdfast.summarize_log();
DROP FUNCTION holdfast.count_log(timestamptz, timestamptz);
DROP FUNCTION holdfast.buckets();
DROP FUNCTION holdfast.longest_retention();
DROP FUNCTION holdfast.retention(text);
DROP FUNCTION holdfast.is_live(holdfast.worker);
DROP FUNCTION holdfast.ensure_partitions(integer);
DROP FUNCTION holdfast.ensure_partition(date);
DROP TABLE holdfast.figure_place, holdfast.figure_hour, holdfast.figure, holdfast.partition, holdfast.grantee, holdfast.setting, holdfast.change, holdfast.queue, holdfast.kind, holdfast.worker, holdfast.progress, holdfast.attempt, holdfast.archive, holdfast.key, holdfast.task;
DROP DOMAIN holdfast.step_name, holdfast.kind_name, holdfast.queue_name;
DROP FUNCTION holdfast.new_id();
DROP FUNCTION holdfast.channel();
DROP FUNCTION holdfast.now();
