"""The orders that every driver takes besides those of a benchmark; interop/README.md says which."""

import itertools
import os
import sys
import time

from workloads import Workloads

now = time.monotonic_ns


class Orders:
    """Takes orders for the locks that `recipe` makes of a recipe, a parent and a name."""

    def __init__(self, recipe, version, log):
        self.recipe = recipe
        self.held = {}
        self.handles = itertools.count(1)
        self.orders = {
            "version": lambda: f"done {version}",
            "acquire": self.acquire,
            "release": self.release,
            "end": self.end,
            "count": lambda *words: self.take(words, count),
            "look": lambda *words: self.take(words, look),
            "sit": lambda *words: self.take(words, sit),
        }
        self.orders.update(Workloads(recipe, log).orders)

    def serve(self):
        """Until stdin ends."""
        print("ready", flush=True)
        for line in sys.stdin:
            print(self.answer(line), flush=True)

    def answer(self, line):
        verb, *words = line.split()
        try:
            return self.orders[verb](*words)
        except Exception as fault:  # noqa: BLE001: whatever it is, the harness must hear of it
            return f"failed {type(fault).__name__}: {fault}".replace("\n", " ")

    def acquire(self, recipe, parent, name, wait_ms):
        lock = self.recipe(recipe, parent, name)
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
        lock = self.recipe(recipe, parent, name)
        for _ in range(int(turns)):
            lock.acquire(-1)
            try:
                work(*rest)
            finally:
                lock.release()
        return "done"


def count(file):
    """Adds one to a number; loses counts, and says so, when two do it at once."""
    occupied = file + ".occupied"
    try:
        os.close(os.open(occupied, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        raise RuntimeError("two holders at once") from None
    number = number_in(file)
    # Another client that believes to hold the lock gets its chance here.
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
