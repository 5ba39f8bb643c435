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
        self.client = client
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

    def queued(self):
        """How many contend; one more once somebody has come who waits."""
        stat = self.client.exists(self.queue)
        return stat.numChildren if stat else 0


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
            "count": lambda *words: self.take(words, count),
            "look": lambda *words: self.take(words, look),
            "sit": lambda *words: self.take(words, sit),
            "children": self.children,
        }
        self.orders.update(Workloads(lambda *lock: Recipe(client, *lock), log).orders)

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

    def take(self, words, work):
        recipe, parent, name, turns, *rest = words
        lock = Recipe(self.client, recipe, parent, name)
        for _ in range(int(turns)):
            lock.acquire(-1)
            try:
                work(*rest)
            finally:
                lock.release()
        return "done"

    def children(self, path):
        try:
            return " ".join(["done", *self.client.get_children(path)])
        except NoNodeError:
            return "done"


def count(file):
    """Adds one to a number; loses counts, and says so, when two do it at once."""
    occupied = file + ".occupied"
    try:
        os.close(os.open(occupied, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        raise RuntimeError("two holders at once") from None
    number = number_in(file)
    # Whoever else believes to hold the lock gets its chance here.
    time.sleep(0.001)
    with open(file, "w") as counter:
        counter.write(str(number + 1))
    os.remove(occupied)


def look(file):
    """Reads the number, and says so when somebody counts meanwhile."""
    occupied = file + ".occupied"
    was_occupied, number = os.path.exists(occupied), number_in(file)
    time.sleep(0.001)
    if was_occupied or os.path.exists(occupied) or number_in(file) != number:
        raise RuntimeError("a writer among readers")


def sit(file, seats):
    """Takes one of so many seats, and leaves a byte; says so when there is no seat."""
    seat = free_seat(file, int(seats))
    with open(file, "a") as visits:
        visits.write("x")
    time.sleep(0.001)
    os.remove(seat)


def free_seat(file, seats):
    for number in range(seats):
        seat = f"{file}.seat-{number}"
        try:
            os.close(os.open(seat, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        return seat
    raise RuntimeError(f"more than {seats} holders at once")


def number_in(file):
    with open(file) as counter:
        return int(counter.read())


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
