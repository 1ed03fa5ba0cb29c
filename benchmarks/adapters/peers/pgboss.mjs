// pg-boss: batches of 1,000 for one handler, fetched without a rest while they are full, notifications.
import { handled, main } from "./common.mjs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const find = createRequire(`${process.env.PEERS}/package.json`);
const { PgBoss } = await import(pathToFileURL(find.resolve("pg-boss")).href);

const MANY = 10000;
let boss;

const make = async (url) => {
  const made = new PgBoss({ connectionString: url, max: 16, useListenNotify: true, schedule: false });
  made.on("error", (error) => process.stderr.write(`${error}\n`));
  await made.start();
  return made;
};

await main({
  async setup(url) {
    const made = await make(url);
    await made.createQueue("noop", { notify: true });
    await made.stop({ graceful: false });
  },
  async open(url) {
    boss = await make(url);
  },
  enqueue: (n) => boss.send("noop", { n }),
  async enqueueMany(numbers, options) {
    const startAfter = options.delay ? new Date(Date.now() + options.delay * 1000) : undefined;
    for (let start = 0; start < numbers.length; start += MANY)
      await boss.insert("noop", numbers.slice(start, start + MANY).map((n) => ({ data: { n }, startAfter })));
  },
  async work(url, options, go) {
    const made = await make(url);
    await go();
    await made.work("noop", { batchSize: 1000, pollingIntervalSeconds: 0.5, burstWhenBatchFull: true }, async (jobs) => {
      for (const job of jobs) handled.began(job.data.n);
    });
  },
});
