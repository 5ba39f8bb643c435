"""Drives Python's filelock for the benchmark, with its defaults: orders on stdin, one line each, answers on stdout.

The orders are those of src/protocol.rs; numbers go to the log as 64-bit little-endian integers.
"""

import os
import sys
import threading
import time
from array import array

from filelock import FileLock

LOCK, LOG = sys.argv[1], sys.argv[2]
now = time.monotonic_ns

entrants = []
gate = threading.Event()
faults = []


def write_log(numbers):
    if sys.byteorder != "little":
        numbers.byteswap()
    with open(LOG, "wb") as log:
        numbers.tofile(log)


def guarded(work, *args):
    """A fault in a thread fails the order, not only the thread."""
    try:
        work(*args)
    except BaseException as fault:  # noqa: BLE001: whatever it is, the parent must hear of it
        faults.append(f"{type(fault).__name__}: {fault}")


def start(work, *args):
    thread = threading.Thread(target=guarded, args=(work, *args), daemon=True)
    thread.start()
    return thread


def finish(threads, parts):
    for thread in threads:
        thread.join()
    if faults:
        return "failed " + faults[0].replace("\n", " ")
    log = array("Q")
    for part in parts:
        log.extend(part)
    write_log(log)
    return "done"


def cycle(count):
    lock = FileLock(LOCK)
    took = array("Q", bytes(8 * count))
    for i in range(count):
        before = now()
        lock.acquire()
        lock.release()
        took[i] = now() - before
    write_log(took)
    return "done"


def enter(index, hold):
    held = threading.Event()
    part = array("Q")

    def once():
        lock = FileLock(LOCK)
        lock.acquire()
        acquired = now()
        if hold:
            held.set()
            gate.wait()
        releasing = now()
        lock.release()
        part.extend((index, acquired, releasing))

    if hold:
        gate.clear()
    entrants.append((start(once), part))
    if hold:
        held.wait()
    return "in"


def go():
    gate.set()
    threads, parts = zip(*entrants) if entrants else ((), ())
    entrants.clear()
    return finish(threads, parts)


def contend(waiters, first, begin, end):
    parts = [array("Q") for _ in range(waiters)]

    def again_and_again(who, part):
        lock = FileLock(LOCK)
        time.sleep(max(0, begin - now()) / 1e9)
        while True:
            lock.acquire()
            acquired = now()
            if acquired >= end:
                lock.release()
                return
            part.extend((who, acquired, now()))
            lock.release()

    threads = [start(again_and_again, first + i, part) for i, part in enumerate(parts)]
    return finish(threads, parts)


ORDERS = {"cycle": cycle, "enter": enter, "go": go, "contend": contend}

print("ready", flush=True)
for line in sys.stdin:
    verb, *numbers = line.split()
    try:
        answer = ORDERS[verb](*map(int, numbers))
    except Exception as fault:  # noqa: BLE001: as above
        answer = f"failed {type(fault).__name__}: {fault}".replace("\n", " ")
    print(answer, flush=True)
# The parent is gone, or done with us; threads may still wait for the lock.
os._exit(0)
