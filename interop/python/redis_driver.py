"""Takes a benchmark's orders for redis-py's lock on stdin; interop/README.md says which."""

import os
import platform
import sys

import redis
from redis.lock import Lock

from workloads import Workloads


class Recipe(Lock):
    """redis-py's lock with its defaults, which asks again every 0.1 s, but for its time to live."""

    refused = False

    def acquire(self, wait_ms):
        """Whether we have it; a negative time is without limit."""
        return super().acquire(blocking_timeout=None if wait_ms < 0 else wait_ms / 1000)

    def do_acquire(self, token):
        acquired = super().do_acquire(token)
        self.refused = not acquired
        return acquired

    def queued(self):
        """There is no queue in which it could be seen that waits: who was refused does."""
        return int(self.refused)


def main():
    server, ttl_ms, log = sys.argv[1:]
    client = redis.Redis.from_url(server)
    client.ping()

    def recipe(kind, parent, name):
        if kind != "Lock":
            raise ValueError(f"no such recipe: {kind}")
        return Recipe(client, f"{parent}:{name}", timeout=int(ttl_ms) / 1000)

    orders = Workloads(recipe, log).orders
    orders["version"] = lambda: f"done redis-py={redis.__version__} Python={platform.python_version()}"
    print("ready", flush=True)
    for line in sys.stdin:
        verb, *words = line.split()
        try:
            answer = orders[verb](*words)
        except Exception as fault:  # noqa: BLE001: whatever it is, whoever asked must hear of it
            answer = f"failed {type(fault).__name__}: {fault}".replace("\n", " ")
        print(answer, flush=True)
    # Threads may still wait for a lock, and what is held lapses.
    os._exit(0)


if __name__ == "__main__":
    main()
