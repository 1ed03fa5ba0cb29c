// What the adapters for node share: the same verbs and lines of JSON as common.py, which explains them.
import { createInterface } from "node:readline";

const now = () => Number(process.hrtime.bigint()) / 1e9;
const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));
const say = (what) => process.stdout.write(JSON.stringify(what) + "\n");

export const handled = {
  count: 0,
  starts: [],
  keeps: false,
  began(n) {
    this.count += 1;
    if (this.keeps) this.starts.push([n, now()]);
  },
};

function tell() {
  let told = 0;
  setInterval(() => {
    if (handled.count === told) return;
    told = handled.count;
    say({ count: told, at: now(), starts: handled.starts });
    handled.starts = [];
  }, 20);
}

async function single(adapter, { callers, seconds }) {
  await adapter.enqueue(0);
  const began = now();
  const call = async () => {
    let done = 0;
    while (now() < began + seconds) await adapter.enqueue(done++);
    return done;
  };
  const counts = await Promise.all(Array.from({ length: callers }, call));
  say({ count: counts.reduce((a, b) => a + b, 0), seconds: now() - began });
}

const range = (from, to) => Array.from({ length: to - from }, (_, i) => from + i);

async function bulk(adapter, options) {
  const began = now();
  await adapter.enqueueMany(range(0, options.tasks), options);
  say({ count: options.tasks, seconds: now() - began });
}

async function send(adapter, { samples, gap }) {
  const commits = [];
  for (let n = 0; n < samples; n++) {
    await adapter.enqueue(n);
    commits.push([n, now()]);
    await sleep(gap * (0.5 + ((n * 0.618034) % 1)));
  }
  say({ commits });
}

async function load(adapter, { rate, seconds }) {
  const commits = [];
  const began = now();
  let sent = 0;
  while (now() < began + seconds) {
    const due = Math.min(Math.floor((now() - began) * rate), Math.floor(seconds * rate));
    if (due > sent) {
      await adapter.enqueueMany(range(sent, due), {});
      const committed = now();
      for (; sent < due; sent++) commits.push([sent, committed]);
    }
    await sleep(0.01);
  }
  say({ commits, seconds: now() - began });
}

export async function main(adapter) {
  const [verb, url, given] = process.argv.slice(2);
  const options = JSON.parse(given);
  if (verb === "setup") {
    await adapter.setup(url);
    say({ ok: true });
    process.exit(0);
  }
  if (verb === "work") {
    handled.keeps = Boolean(options.starts);
    await adapter.work(url, options, async () => {
      say({ ready: true });
      await new Promise((resolve) => createInterface({ input: process.stdin }).once("line", resolve));
      tell();
    });
    return;
  }
  await adapter.open(url);
  await { single, bulk, send, load }[verb](adapter, options);
  await new Promise((written) => process.stdout.write("", written)); // or a long answer is cut off
  process.exit(0);
}
