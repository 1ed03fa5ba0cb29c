-- Takes enqueue from SQL away.
DROP FUNCTION holdfast.enqueue_many(jsonb, jsonb);
DROP FUNCTION holdfast.enqueue(text, jsonb, jsonb);
DROP FUNCTION holdfast.wake(text, timestamptz);
DROP FUNCTION holdfast.check_given_id(uuid, text);
DROP FUNCTION holdfast.refuse_id(uuid, text);
DROP FUNCTION holdfast.insert_task(holdfast.task, interval, text);
DROP FUNCTION holdfast.expire_holder(text, text);
DROP FUNCTION holdfast.insert_free(uuid[], text[], text[], text[], jsonb[], smallint[], timestamptz[], timestamptz[], text[], jsonb[]);
DROP FUNCTION holdfast.insert_keyed(uuid, text, text, text, jsonb, smallint, timestamptz, timestamptz, text, jsonb, interval, text);
DROP FUNCTION holdfast.unique_key(text, text, jsonb);
DROP FUNCTION holdfast.new_task(text, jsonb, jsonb);
DROP FUNCTION holdfast.check_args(jsonb, text);
DROP FUNCTION holdfast.check_options(jsonb, text[]);
