"""Takes orders for locks in PostgreSQL and MariaDB that are written by hand on stdin; interop/README.md says which."""

import os
import platform
import subprocess
import sys
import time
import uuid
import zlib
from urllib.parse import urlsplit

import psycopg
import pymysql

from orders import Orders

# Between two tries.
PAUSE = 0.1


class Waiting:
    """Tries until it has the lock; what a try is, is the other classes'."""

    refused = False

    def acquire(self, wait_ms):
        """Whether we have it; a negative time is without limit."""
        end = time.monotonic() + wait_ms / 1000
        while not self.take():
            self.refused = True
            if 0 <= wait_ms and end <= time.monotonic():
                return False
            time.sleep(PAUSE)
        return True

    def queued(self):
        """There is no queue in which it could be seen that waits: who was refused does."""
        return int(self.refused)


class Tutorial(Waiting):
    """A row in a table."""

    def __init__(self, database, name, ttl_ms):
        self.database = database
        self.name = name
        self.seconds = ttl_ms // 1000

    def take(self):
        self.value = str(uuid.uuid4())
        end = "now() + %s * interval '1 second'" if self.database.is_postgres else "DATE_ADD(NOW(), INTERVAL %s SECOND)"
        insert = f"INSERT INTO distributed_lock (lock_key, lock_value, expire_time) VALUES (%s, %s, {end})"
        try:
            self.database.run("DELETE FROM distributed_lock WHERE expire_time < now()")
            self.database.run(insert, self.name, self.value, self.seconds)
        except (psycopg.errors.UniqueViolation, pymysql.err.IntegrityError):
            return False
        except pymysql.err.OperationalError as fault:
            if fault.args[0] != 1213:
                raise
            return False
        return True

    def release(self):
        delete = "DELETE FROM distributed_lock WHERE lock_key = %s AND lock_value = %s"
        for _ in range(10):
            try:
                if self.database.run(delete, self.name, self.value) != 1:
                    raise RuntimeError("the lock was not ours any more")
                return
            except pymysql.err.OperationalError as fault:
                # Rolled back in favour of another client.
                if fault.args[0] != 1213:
                    raise
        raise RuntimeError("the release was undone ten times")


class Database:
    def __init__(self, url):
        self.is_postgres = url.scheme == "postgres"
        if self.is_postgres:
            self.connection = psycopg.connect(url.geturl(), autocommit=True, options="-c TimeZone=America/New_York")
        else:
            self.connection = pymysql.connect(
                host=url.hostname, port=url.port, user=url.username, password=url.password,
                database=url.path.strip("/"), autocommit=True, init_command="SET time_zone = '-05:00'",
            )

    def run(self, sql, *parameters):
        with self.connection.cursor() as cursor:
            cursor.execute(sql, parameters or None)
            return cursor.rowcount


class Session(Waiting):
    """A session of the server's own command, which takes a lock that lives as long as it does."""

    def __init__(self, url, name):
        login = ["-h", url.hostname, "-p" if url.scheme == "postgres" else "-P", str(url.port)]
        if url.scheme == "postgres":
            key = f"{zlib.crc32(name.encode()) & 0x7FFFFFFF}, 0"
            self.take_sql = f"SELECT CASE WHEN pg_try_advisory_lock({key}) THEN 1 ELSE 0 END;"
            self.release_sql = f"SELECT CASE WHEN pg_advisory_unlock({key}) THEN 1 ELSE 0 END;"
            command = ["psql", "-X", "-A", "-t", "-q", url.geturl()]
        else:
            self.take_sql, self.release_sql = f"SELECT GET_LOCK('{name}', 0);", f"SELECT RELEASE_LOCK('{name}');"
            command = ["mariadb", "--no-defaults", "-N", "-B", "-n", "-u", url.username, f"-p{url.password}", *login]
        pipe = subprocess.PIPE
        self.command = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1)

    def ask(self, sql):
        self.command.stdin.write(sql + "\n")
        self.command.stdin.flush()
        return self.command.stdout.readline().strip() == "1"

    def take(self):
        return self.ask(self.take_sql)

    def release(self):
        if not self.ask(self.release_sql):
            raise RuntimeError("the lock was not ours any more")


def main():
    server, ttl_ms, log = sys.argv[1:]
    url = urlsplit(server)
    database = Database(url)
    sessions = {}

    def recipe(kind, parent, name):
        if kind == "tutorial":
            return Tutorial(database, name, int(ttl_ms))
        if kind == "session":
            if name not in sessions:
                sessions[name] = Session(url, name)
            return sessions[name]
        raise ValueError(f"no such recipe: {kind}")

    version = f"psycopg={psycopg.__version__} PyMySQL={pymysql.VERSION_STRING} Python={platform.python_version()}"
    Orders(recipe, version, log).serve()
    # Commands of the servers end with their input, and what is held lapses.
    os._exit(0)


if __name__ == "__main__":
    main()
