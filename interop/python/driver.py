"""Takes orders for kazoo's locks on stdin; interop/README.md says which."""

import itertools
import os
import platform
import sys
import time

import kazoo.version
from kazoo.client import KazooClient
from kazoo.exceptions import CancelledError, LockTimeout, NoNodeError
from kazoo.recipe.lock import Lock, ReadLock, Semaphore, WriteLock

from workloads import Workloads

now = time.monotonic_ns
LOCKS = {"Lock": Lock, "ReadLock": ReadLock, "WriteLock": WriteLock}


class Recipe:
    """One of kazoo's locks by name: `Lock`, `Lock:-lock-` (with extra patterns, split by commas), `Semaphore:3`."""

    def __init__(self, client, recipe, parent, name):
        kind, _, parameter = recipe.partition(":")
        path = f"{parent}/{name}"
        self.queue = path
        if kind == "Semaphore":
            self.lock = Semaphore(client, path, max_leases=int(parameter))
        elif kind in LOCKS:
            patterns = parameter.split(",") if parameter else ()
            self.lock = LOCKS[kind](client, path, extra_lock_patterns=patterns)
        else:
            raise ValueError(f"no such recipe: {recipe}")

    def acquire(self, wait_ms):
        """Whether we have it; a negative time is without limit."""
        try:
            return self.lock.acquire(timeout=None if wait_ms < 0 else wait_ms / 1000)
        except (LockTimeout, CancelledError):
            return False

    def release(self):
        self.lock.release()


class Driver:
    def __init__(self, client, log):
        self.client = client
        self.held = {}
        self.handles = itertools.count(1)
        self.orders = {
            "version": self.version,
            "acquire": self.acquire,
            "release": self.release,
            "end": self.end,
            "count": self.count,
            "children": self.children,
        }
        self.orders.update(Workloads(client, lambda *lock: Recipe(client, *lock), log).orders)

    def answer(self, line):
        verb, *words = line.split()
        try:
            return self.orders[verb](*words)
        except Exception as fault:  # noqa: BLE001: whatever it is, whoever asked must hear of it
            return f"failed {type(fault).__name__}: {fault}".replace("\n", " ")

    def version(self):
        return f"done kazoo={kazoo.version.__version__} Python={platform.python_version()}"

    def acquire(self, recipe, parent, name, wait_ms):
        lock = Recipe(self.client, recipe, parent, name)
        acquired = lock.acquire(int(wait_ms))
        at = now()
        if not acquired:
            return "busy"
        handle = next(self.handles)
        self.held[handle] = lock
        return f"done handle={handle} at={at}"

    def release(self, handle):
        at = now()
        self.held.pop(int(handle)).release()
        return f"done at={at}"

    def end(self, handle):
        del self.held[int(handle)]
        return "done"

    def count(self, recipe, parent, name, turns, file):
        lock = Recipe(self.client, recipe, parent, name)
        for _ in range(int(turns)):
            lock.acquire(-1)
            try:
                add_one(file)
            except FileExistsError:
                return "failed two holders at once"
            finally:
                lock.release()
        return "done"

    def children(self, path):
        try:
            return " ".join(["done", *self.client.get_children(path)])
        except NoNodeError:
            return "done"


def add_one(file):
    """Loses counts, and says so, when two do it at once."""
    occupied = file + ".occupied"
    os.close(os.open(occupied, os.O_CREAT | os.O_EXCL))
    with open(file) as counter:
        number = int(counter.read())
    # Whoever else believes to hold the lock gets its chance here.
    time.sleep(0.001)
    with open(file, "w") as counter:
        counter.write(str(number + 1))
    os.remove(occupied)


def main():
    servers, session_timeout_ms, log = sys.argv[1:]
    client = KazooClient(hosts=servers, timeout=int(session_timeout_ms) / 1000)
    client.start()
    driver = Driver(client, log)
    print("ready", flush=True)
    for line in sys.stdin:
        print(driver.answer(line), flush=True)
    client.stop()
    # Threads may still wait for a lock.
    os._exit(0)


if __name__ == "__main__":
    main()
