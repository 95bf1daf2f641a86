"""Clients of other systems' protocols, each of which is measured with farpool and with PostgreSQL as its server:
`python doors_driver.py KIND`, with the requests of `driver.py` and

    {"do": "fetch", "server": URL, "statement": TEXT, "digest": BOOL}
                                                {"ms": ..., "rows": ..., "digest": ...}
    {"do": "small", "server": URL, "statement": TEXT, "clients": N, "seconds": S, "keys": K}
                                                {"count": ..., "seconds": ..., "p50_ms": ..., "p99_ms": ...}

A fetch takes the rows to the client's own form of them: tuples of Python, an Arrow table, values of Java, or for a COPY
the bytes. A digest is taken of them afterwards or between parts of them, and then the time does not count. In the small
statement, `{key}` is a number from 1 to K, and the only value of its row must be `value_of` this number.
"""

import pathlib
import random
import struct
import subprocess
import sys
import threading
import time

import numpy
import pyarrow as pa

from digest import digest
from driver import Engine, in_threads, milliseconds, serve

# Rows that a client with rows in parts takes at a time.
PART_ROWS = 10_000

# PostgreSQL's binary COPY: the first bytes, the bytes before the extension of the header, and the last bytes.
COPY_START = b"PGCOPY\n\xff\r\n\0"
COPY_FIXED_BYTES = len(COPY_START) + 8
COPY_END = b"\xff\xff"

# PostgreSQL's number of the type TEXT.
TEXT = 25


def value_of(key: int) -> int:
    """The value of the row with this key; the same as in `bench/src/doors/tables.rs`."""
    return key * 7919 % 100_003


class Client(Engine):
    """A client in this process."""

    # Form of a parameter.
    parameter = "%s"

    def connect(self, server: str):
        raise NotImplementedError

    def fetch(self, connection, statement: str, take) -> int:
        """Fetches all rows, calls `take` with each part of them if it is not None, and returns their number."""
        raise NotImplementedError

    def prepared(self, connection, statement: str):
        """Returns a function that runs a prepared statement with a key, and returns its value."""
        raise NotImplementedError

    def do_fetch(self, request: dict) -> dict:
        with self.connect(request["server"]) as connection:
            totals = []
            take = (lambda table: totals.append(digest(table))) if request["digest"] else None
            start = time.perf_counter()
            rows = self.fetch(connection, request["statement"], take)
            ms = milliseconds(start)
        total = sum(int(value, 16) for _, value in totals) % 2**64
        return {"ms": ms, "rows": rows, "digest": f"{total:016x}"}

    def do_small(self, request: dict) -> dict:
        statement = request["statement"].replace("{key}", self.parameter)
        connections = [self.connect(request["server"]) for _ in range(request["clients"])]
        functions = [self.prepared(connection, statement) for connection in connections]
        # Each client prepares its statement before the time begins.
        for function in functions:
            check(function, 1)
        latencies = [[] for _ in connections]
        barrier = threading.Barrier(len(connections))

        def client(number: int) -> None:
            keys = random.Random(number)
            function, own = functions[number], latencies[number]
            barrier.wait()
            end = time.perf_counter() + request["seconds"]
            start = time.perf_counter()
            while start < end:
                check(function, keys.randint(1, request["keys"]))
                now = time.perf_counter()
                own.append(now - start)
                start = now

        ms = in_threads(len(connections), client)
        for connection in connections:
            connection.close()
        all_ms = sorted(latency * 1e3 for own in latencies for latency in own)
        at = lambda part: all_ms[min(len(all_ms) - 1, int(part * len(all_ms)))]
        return {"count": len(all_ms), "seconds": ms / 1e3, "p50_ms": at(0.5), "p99_ms": at(0.99)}


def check(function, key: int) -> None:
    value = function(key)
    if value != value_of(key):
        raise RuntimeError(f"the value of {key} is {value}")


class Psycopg(Client):
    """Rows as tuples of Python values, sent in binary form and taken in parts."""

    def start(self, threads: int) -> None:
        import psycopg

        self.psycopg = psycopg
        self.version = psycopg.__version__

    def connect(self, server: str):
        return self.psycopg.connect(server, autocommit=True)

    def fetch(self, connection, statement: str, take) -> int:
        rows, part = 0, []
        cursor = connection.cursor(binary=True)
        for row in cursor.stream(statement, binary=True, size=PART_ROWS):
            rows += 1
            if take is not None:
                part.append(row)
                if len(part) == PART_ROWS:
                    take(as_table(part))
                    part = []
        if part:
            take(as_table(part))
        return rows

    def prepared(self, connection, statement: str):
        cursor = connection.cursor(binary=True)

        def run(key: int) -> int:
            return cursor.execute(statement, (key,), prepare=True).fetchone()[0]

        return run


def as_table(rows: list) -> pa.Table:
    columns = list(zip(*rows))
    return pa.table({str(number): pa.array(column) for number, column in enumerate(columns)})


class PsycopgCopy(Psycopg):
    """The bytes of a binary COPY, as they come."""

    def fetch(self, connection, statement: str, take) -> int:
        parts = []
        cursor = connection.cursor()
        with cursor.copy(f"COPY ({statement}) TO STDOUT (FORMAT binary)") as copy:
            for data in copy:
                if take is not None:
                    parts.append(bytes(data))
        rows = cursor.rowcount
        if rows < 0:
            raise RuntimeError("COPY did not tell the number of rows")
        if take is not None:
            described = cursor.execute(f"SELECT * FROM ({statement}) AS copied LIMIT 0").description
            take(copied(b"".join(parts), [column.type_code for column in described], rows))
        return rows


def copied(data: bytes, types: list[int], rows: int) -> pa.Table:
    """Returns the table of a binary COPY in which each column has values of one width."""
    if not data.startswith(COPY_START):
        raise RuntimeError("a binary COPY begins otherwise")
    at = COPY_FIXED_BYTES + struct.unpack_from(">i", data, COPY_FIXED_BYTES - 4)[0]
    (count,) = struct.unpack_from(">h", data, at)
    fields, place = [("count", ">i2")], at + 2
    for column in range(count):
        (width,) = struct.unpack_from(">i", data, place)
        value = f"S{width}" if types[column] == TEXT else f">i{width}"
        fields += [(f"width{column}", ">i4"), (f"value{column}", value)]
        place += 4 + width
    table = numpy.frombuffer(data, dtype=numpy.dtype(fields), count=rows, offset=at)
    lengths = [name for name, _ in fields if not name.startswith("value")]
    if data[at + table.nbytes :] != COPY_END or any((table[name] != table[name][0]).any() for name in lengths):
        raise RuntimeError("the rows of the COPY have several widths, for which there is no digest")
    values = [table[f"value{column}"] for column in range(count)]
    # Arrow takes numbers in the machine's own order of bytes.
    arrays = [pa.array(of.astype(of.dtype.newbyteorder("="))) for of in values]
    return pa.table({str(number): array for number, array in enumerate(arrays)})


class Adbc(Client):
    """An Arrow table."""

    parameter = "$1"

    def connect(self, server: str):
        return self.driver.connect(server, autocommit=True)

    def fetch(self, connection, statement: str, take) -> int:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            table = cursor.fetch_arrow_table()
        if take is not None:
            take(table)
        return table.num_rows

    def prepared(self, connection, statement: str):
        cursor = connection.cursor()
        cursor.adbc_prepare(statement)

        def run(key: int) -> int:
            cursor.execute(statement, (key,))
            return cursor.fetchone()[0]

        return run


class AdbcPostgres(Adbc):
    def start(self, threads: int) -> None:
        import adbc_driver_postgresql
        import adbc_driver_postgresql.dbapi as driver

        self.driver = driver
        self.version = adbc_driver_postgresql.__version__


class AdbcFlight(Adbc):
    def start(self, threads: int) -> None:
        import adbc_driver_flightsql
        import adbc_driver_flightsql.dbapi as driver

        self.driver = driver
        self.version = adbc_driver_flightsql.__version__


class Jdbc(Engine):
    """Values of Java, in a process of its own: see `jdbc/Doors.java` for its protocol."""

    def start(self, threads: int) -> None:
        folder = pathlib.Path(__file__).parent / "jdbc"
        jars = pathlib.Path(sys.prefix) / "jars"
        # Arrow's memory needs the internals of buffers.
        options = ["--add-opens=java.base/java.nio=ALL-UNNAMED", "-Xmx4g", "-cp", f"{jars}/*"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        self.process = subprocess.Popen(["java", *options, str(folder / "Doors.java")], **pipes)
        (self.version,) = self.request("version", self.kind)

    def request(self, *fields) -> list:
        line = "\t".join(" ".join(str(field).split()) for field in fields)
        print(line, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline().rstrip("\n").split("\t")
        if answer[0] != "ok":
            raise RuntimeError(answer[1] if len(answer) > 1 else "the Java process has ended: is Java 17 installed?")
        return answer[1:]

    def do_fetch(self, request: dict) -> dict:
        url = self.url(request["server"])
        ms, rows, value = self.request("fetch", url, int(request["digest"]), request["statement"])
        return {"ms": float(ms), "rows": int(rows), "digest": value}

    def do_small(self, request: dict) -> dict:
        statement = request["statement"].replace("{key}", "?")
        numbers = [request[name] for name in ("clients", "seconds", "keys")]
        count, seconds, p50_ms, p99_ms = self.request("small", self.url(request["server"]), *numbers, statement)
        return {"count": int(count), "seconds": float(seconds), "p50_ms": float(p50_ms), "p99_ms": float(p99_ms)}


class JdbcPostgres(Jdbc):
    kind = "postgresql"

    def url(self, server: str) -> str:
        user, rest = server.removeprefix("postgresql://").split("@")
        return f"jdbc:postgresql://{rest}?user={user}"


class JdbcFlight(Jdbc):
    kind = "arrow-flight-sql"

    def url(self, server: str) -> str:
        return f"jdbc:arrow-flight-sql://{server.removeprefix('grpc://')}?useEncryption=false"


KINDS = {
    "psycopg": Psycopg,
    "psycopg-copy": PsycopgCopy,
    "adbc-postgresql": AdbcPostgres,
    "adbc-flightsql": AdbcFlight,
    "jdbc-postgresql": JdbcPostgres,
    "jdbc-flightsql": JdbcFlight,
}

if __name__ == "__main__":
    serve(KINDS[sys.argv[1]]())
