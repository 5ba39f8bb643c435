"""Takes orders for kazoo's locks on stdin; interop/README.md says which."""

import os
import platform
import sys

import kazoo.version
from kazoo.client import KazooClient
from kazoo.exceptions import CancelledError, LockTimeout, NoNodeError
from kazoo.recipe.lock import Lock, ReadLock, Semaphore, WriteLock

from orders import Orders

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


def children(client, path):
    try:
        return " ".join(["done", *client.get_children(path)])
    except NoNodeError:
        return "done"


def main():
    servers, session_timeout_ms, log = sys.argv[1:]
    client = KazooClient(hosts=servers, timeout=int(session_timeout_ms) / 1000)
    client.start()
    version = f"kazoo={kazoo.version.__version__} Python={platform.python_version()}"
    driver = Orders(lambda *lock: Recipe(client, *lock), version, log)
    driver.orders["children"] = lambda path: children(client, path)
    driver.serve()
    client.stop()
    # Threads may still wait for a lock.
    os._exit(0)


if __name__ == "__main__":
    main()
