"""Takes orders for redis-py's lock and for python-redis-lock on stdin; interop/README.md says which."""

import os
import platform
import sys

import redis
import redis_lock
from redis.lock import Lock

from orders import Orders


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


class Signalled:
    """python-redis-lock: it waits for a signal, or for as long as its own lock would live. Its time is in whole seconds."""

    def __init__(self, client, name, ttl_ms):
        self.client = client
        self.name = name
        self.expire = max(1, ttl_ms // 1000)
        self.lock = None

    def acquire(self, wait_ms):
        lock = redis_lock.Lock(self.client, self.name, expire=self.expire)
        timeout = None if wait_ms < 0 else max(1, round(wait_ms / 1000))
        acquired = lock.acquire(timeout=timeout)
        if acquired:
            self.lock = lock
        return acquired

    def release(self):
        lock, self.lock = self.lock, None
        lock.release()


def main():
    server, ttl_ms, log = sys.argv[1:]
    # Its own limit, 5 s, is less than python-redis-lock waits for a signal.
    client = redis.Redis.from_url(server, socket_timeout=None)
    client.ping()

    def recipe(kind, parent, name):
        if kind == "Lock":
            return Recipe(client, f"{parent}:{name}", timeout=int(ttl_ms) / 1000)
        if kind == "redis_lock":
            return Signalled(client, f"{parent}:{name}", int(ttl_ms))
        raise ValueError(f"no such recipe: {kind}")

    version = f"redis-py={redis.__version__} python-redis-lock={redis_lock.__version__} Python={platform.python_version()}"
    Orders(recipe, version, log).serve()
    # Threads may still wait for a lock, and what is held lapses.
    os._exit(0)


if __name__ == "__main__":
    main()
