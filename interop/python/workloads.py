"""What a benchmark measures, with all times taken in here."""

import os
import sys
import threading
import time
from array import array

now = time.monotonic_ns

# Waiters that are there before the memory of others is looked at.
WARM_WAITERS = 32


class Thread:
    """A thread whose fault is not lost."""

    def __init__(self, work, *args):
        self.part = array("Q")
        self.fault = None
        self.thread = threading.Thread(target=self._run, args=(work, *args), daemon=True)
        self.thread.start()

    def _run(self, work, *args):
        try:
            self.part = work(*args)
        except BaseException as fault:  # noqa: BLE001: the order must fail with it
            self.fault = fault

    def result(self):
        self.thread.join()
        if self.fault:
            raise self.fault
        return self.part


class Workloads:
    def __init__(self, recipe, log):
        self.recipe = recipe
        self.log = log
        self.lock = None
        self.gate = threading.Event()
        self.entrants = []
        self.held = []
        self.orders = {
            "use": self.use,
            "cycle": lambda count: self.cycle(int(count)),
            "enter": lambda index, hold: self.enter(int(index), hold != "0"),
            "go": self.go,
            "contend": lambda *numbers: self.contend(lambda who: self.recipe(*self.lock), *map(int, numbers)),
            "spread": lambda *numbers: self.contend(self.named, *map(int, numbers)),
            "share": lambda readers, start, end: self.contend(self.sharing, 1 + int(readers), 0, int(start), int(end)),
            "permits": self.permits,
            "hold": lambda count, tasks: self.hold(int(count), int(tasks)),
            "wait": lambda count: self.wait(int(count)),
        }

    def use(self, recipe, parent, name):
        self.lock = (recipe, parent, name)
        return "done"

    def named(self, number):
        recipe, parent, name = self.lock
        return self.recipe(recipe, parent, f"{name}-{number}")

    def cycle(self, count):
        lock = self.recipe(*self.lock)
        took = array("Q", bytes(8 * count))
        for i in range(count):
            before = now()
            lock.acquire(-1)
            lock.release()
            took[i] = now() - before
        self.write_log([took])
        return "done"

    def enter(self, index, hold):
        lock = self.recipe(*self.lock)
        held = threading.Event()
        if hold:
            self.gate.clear()

        def once():
            lock.acquire(-1)
            acquired = now()
            if hold:
                held.set()
                self.gate.wait()
            releasing = now()
            lock.release()
            return array("Q", (index, acquired, releasing))

        before = lock.queued()
        entrant = Thread(once)
        self.entrants.append(entrant)
        while not held.is_set() if hold else lock.queued() <= before:
            if not entrant.thread.is_alive():
                # With the fault that kept it from waiting.
                entrant.result()
                break
            time.sleep(0)
        return "in"

    def go(self):
        self.gate.set()
        entrants, self.entrants = self.entrants, []
        self.write_log([thread.result() for thread in entrants])
        return "done"

    def contend(self, lock, count, first, start, end):
        locks = [lock(who) for who in range(first, first + count)]
        threads = [Thread(sections, lock, first + i, start, end) for i, lock in enumerate(locks)]
        self.write_log([thread.result() for thread in threads])
        return "done"

    def sharing(self, number):
        """One who writes, and all others read."""
        _, parent, name = self.lock
        return self.recipe("ReadLock" if number else "WriteLock", parent, name)

    def permits(self, capacity, count, start, end):
        _, parent, name = self.lock
        return self.contend(
            lambda _: self.recipe(f"Semaphore:{capacity}", parent, name), int(count), 0, int(start), int(end)
        )

    def hold(self, count, tasks):
        def take(first):
            for number in range(first, count, tasks):
                lock = self.named(number)
                lock.acquire(-1)
                self.held.append(lock)
            return array("Q")

        before = memory()
        start = now()
        for thread in [Thread(take, first) for first in range(tasks)]:
            thread.result()
        took = now() - start
        return f"done before={before} after={memory()} took={took}"

    def wait(self, count):
        lock = self.recipe(*self.lock)
        lock.acquire(-1)
        self.held.append(lock)
        for index in range(WARM_WAITERS):
            self.enter(index, False)
        before = memory()
        for index in range(count):
            self.enter(index, False)
        return f"done before={before} after={memory()}"

    def write_log(self, parts):
        numbers = array("Q")
        for part in parts:
            numbers.extend(part)
        if sys.byteorder != "little":
            numbers.byteswap()
        with open(self.log, "wb") as log:
            numbers.tofile(log)


def sections(lock, who, start, end):
    part = array("Q")
    time.sleep(max(0, start - now()) / 1e9)
    while True:
        lock.acquire(-1)
        acquired = now()
        if acquired >= end:
            lock.release()
            return part
        part.extend((who, acquired, now()))
        lock.release()


def memory():
    """Resident bytes."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
