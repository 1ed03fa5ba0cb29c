// graphile-worker: local queue of 1,000, 24 at once, completions in batches without a delay, times by node.
import { handled, main } from "./common.mjs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const find = createRequire(`${process.env.PEERS}/package.json`);
const { run, makeWorkerUtils, WorkerPreset, Logger } = await import(pathToFileURL(find.resolve("graphile-worker")).href);

const MANY = 10000;
const quiet = new Logger(() => () => {});
let utils;

await main({
  async setup(url) {
    const made = await makeWorkerUtils({ connectionString: url, logger: quiet });
    await made.migrate();
    await made.addJob("noop", { n: 0 });
    await made.withPgClient((client) => client.query("DELETE FROM graphile_worker._private_jobs"));
    await made.release();
  },
  async open(url) {
    utils = await makeWorkerUtils({ connectionString: url, logger: quiet, maxPoolSize: 16 });
  },
  enqueue: (n) => utils.addJob("noop", { n }),
  async enqueueMany(numbers, options) {
    const runAt = options.delay ? new Date(Date.now() + options.delay * 1000) : undefined;
    for (let start = 0; start < numbers.length; start += MANY)
      await utils.addJobs(
        numbers.slice(start, start + MANY).map((n) => ({ identifier: "noop", payload: { n }, runAt })),
      );
  },
  async work(url, options, go) {
    await go();
    await run({
      preset: {
        extends: [WorkerPreset],
        worker: {
          connectionString: url,
          maxPoolSize: 24,
          concurrentJobs: 24,
          pollInterval: 1000,
          useNodeTime: true,
          localQueue: { size: 1000 },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0,
        },
      },
      logger: quiet,
      noHandleSignals: true,
      taskList: { noop: async (payload) => handled.began(payload.n) },
    });
  },
});
