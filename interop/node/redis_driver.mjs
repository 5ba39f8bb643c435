// Takes orders for the locks of npm's redlock and redis-semaphore on stdin; interop/README.md says which.

import { closeSync, openSync, readFileSync, unlinkSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

// The packages are where they were installed, and not next to this file.
const home = process.env.FENCELOCK_NODE_HOME;
const require = createRequire(`${home}/`);
const Redis = require("ioredis");
const { default: Redlock, ExecutionError } = require("redlock");
const { Mutex, RedlockMutex, TimeoutError } = require("redis-semaphore");

const [servers, ttl, log] = process.argv.slice(2);
const ttlMs = Number(ttl);
const connect = (options) => servers.split(",").map((server) => {
  // A server that is killed is tried again and again, which is part of the play.
  return new Redis(server, options).on("error", () => {});
});
const clients = connect({});
const client = clients[0];
const now = () => process.hrtime.bigint();
const FOREVER_MS = 24 * 60 * 60 * 1000;
const RETRY_MS = 200;

const redlocks = new Redlock(clients, { retryDelay: RETRY_MS, retryJitter: RETRY_MS / 2 });

/** redlock with its defaults, but for how often it tries; on all servers. */
async function redlock(key, waitMs) {
  const retryCount = waitMs < 0 ? -1 : Math.ceil(waitMs / RETRY_MS);
  try {
    const lock = await redlocks.acquire([key], ttlMs, { retryCount });
    // Left to itself, it tries as often to release what it has lost.
    return () => redlocks.release(lock, { retryCount: 0 });
  } catch (fault) {
    if (fault instanceof ExecutionError) return null;
    throw fault;
  }
}

/** redis-semaphore's mutex with its defaults, which asks every 10 ms; the key is `mutex:` and the name. */
const mutex = (key, waitMs) => semaphore(Mutex, client, key, waitMs);

/** The same on all servers. It waits for the answers of all, however long the clients let it. */
const redlockMutex = (key, waitMs) => semaphore(RedlockMutex, (inTime ??= connect({ commandTimeout: 500 })), key, waitMs);
let inTime;

async function semaphore(Lock, where, key, waitMs) {
  const acquireTimeout = waitMs < 0 ? FOREVER_MS : waitMs;
  // By default the library ends the process when its lock is lost.
  const lock = new Lock(where, key, { lockTimeout: ttlMs, acquireTimeout, onLockLost: () => {} });
  try {
    await lock.acquire();
    return () => lock.release();
  } catch (fault) {
    if (fault instanceof TimeoutError) return null;
    throw fault;
  }
}

const recipes = { redlock, mutex, RedlockMutex: redlockMutex };

function take(recipe, parent, name, waitMs) {
  const acquire = recipes[recipe];
  if (!acquire) throw new Error(`no such recipe: ${recipe}`);
  return acquire(`${parent}:${name}`, waitMs);
}

/** Adds one to a number; loses counts, and says so, when two do it at once. */
async function addOne(file) {
  const occupied = `${file}.occupied`;
  try {
    closeSync(openSync(occupied, "wx"));
  } catch (fault) {
    throw fault.code === "EEXIST" ? new Error("two holders at once") : fault;
  }
  const number = Number(readFileSync(file, "utf8"));
  // Another client that believes to hold the lock gets its chance here.
  await sleep(1);
  writeFileSync(file, String(number + 1));
  unlinkSync(occupied);
}

let used;

const held = new Map();
let handles = 0;

const orders = {
  version() {
    const version = (name) => JSON.parse(readFileSync(`${home}/node_modules/${name}/package.json`)).version;
    const named = (name) => `${name}=${version(name).replace(/^v/, "")}`;
    return `done ${["redlock", "redis-semaphore", "ioredis"].map(named).join(" ")} Node=${process.versions.node}`;
  },
  async acquire(recipe, parent, name, waitMs) {
    const release = await take(recipe, parent, name, Number(waitMs));
    const at = now();
    if (!release) return "busy";
    held.set(++handles, release);
    return `done handle=${handles} at=${at}`;
  },
  async release(handle) {
    const release = held.get(Number(handle));
    held.delete(Number(handle));
    const at = now();
    await release();
    return `done at=${at}`;
  },
  end(handle) {
    held.delete(Number(handle));
    return "done";
  },
  async count(recipe, parent, name, turns, file) {
    for (let turn = 0; turn < Number(turns); turn++) {
      const release = await take(recipe, parent, name, -1);
      try {
        await addOne(file);
      } finally {
        await release();
      }
    }
    return "done";
  },
  use(recipe, parent, name) {
    used = [recipe, parent, name];
    return "done";
  },
  async cycle(count) {
    const took = new BigUint64Array(Number(count));
    for (let turn = 0; turn < took.length; turn++) {
      const before = now();
      const release = await take(...used, -1);
      await release();
      took[turn] = now() - before;
    }
    writeFileSync(log, took);
    return "done";
  },
};

async function answer([verb, ...words]) {
  try {
    if (!orders[verb]) throw new Error(`no such order: ${verb}`);
    return await orders[verb](...words);
  } catch (fault) {
    return `failed ${fault}`.replaceAll("\n", " ");
  }
}

await Promise.all(clients.map((each) => each.ping()));
console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  console.log(await answer(line.split(" ")));
}
process.exit(0);
