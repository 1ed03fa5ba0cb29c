"""The driver, psycopg: with `_db.errors` and the pools of `_db` the only place that knows it.

A query is run in one of five ways, each for one kind of user:

- `session.Link`: a loop of a worker, on a connection of its own. `run` a query, `transact` several, `follow` a plan,
  or send a query ahead and read its answer later. A query by itself goes straight through libpq: see `direct`.
- `pipeline.PipelinedConnection`: the coalescer of enqueues, which has several transactions under way at once.
- `connection.run` and `run_sync`: pools, the command line and migrations, with the driver's cursors.
- The same with `adapted=True`: the connection of a transactional step, which user code may have set up otherwise.
- `parameters.Portable`, run by `_db.callers`: a connection that the caller gives with `conn=`, of any library.

All of them encode parameters with `parameters` and send only texts and ids.
"""
