"""A DuckDB database file, in a process for each request: `python restart.py REQUEST`.

The request is a JSON object, {"do": ...} with:

    version                                      only imports
    one, many, append; file                      rows from standard input, an Arrow IPC stream, to the file: into the table t;
                                                 each batch into a table of its own, t0, t1, ...; each batch appended to t by
                                                 a statement of its own, and the process ends as if it was killed
    query; file, sql, memory, threads, answer    opens the file, runs the statement, and writes its rows to an Arrow file

When it is done, or the rows are there, it prints what that took behind the import, in milliseconds, and DuckDB's version.
"""

import json
import os
import sys
import time

import duckdb

# No checkpoint of its own: what was appended stays in the log, as in farpool's.
LONG_LOG = {"checkpoint_threshold": "1TB"}


def main() -> None:
    request = json.loads(sys.argv[1])
    start = time.perf_counter()
    {"version": version, "one": one, "many": many, "append": append, "query": query}[request["do"]](request, start)


def version(_request: dict, start: float) -> None:
    import pyarrow  # noqa: F401  has it in the system's cache

    say(start)


def one(request: dict, start: float) -> None:
    connection = duckdb.connect(request["file"])
    rows = stream()
    connection.execute("CREATE TABLE t AS FROM rows")
    connection.close()
    say(start)


def many(request: dict, start: float) -> None:
    connection = duckdb.connect(request["file"])
    connection.execute("BEGIN")
    for number, batch in enumerate(stream()):
        rows = as_table(batch)
        connection.execute(f"CREATE TABLE t{number} AS FROM rows")
    connection.execute("COMMIT")
    connection.close()
    say(start)


def append(request: dict, start: float) -> None:
    connection = duckdb.connect(request["file"], config=LONG_LOG)
    for batch in stream():
        rows = as_table(batch)
        connection.execute("INSERT INTO t FROM rows")
    say(start)
    os._exit(0)


def query(request: dict, start: float) -> None:
    limits = {"memory_limit": request["memory"], "threads": request["threads"]}
    connection = duckdb.connect(request["file"], config=LONG_LOG | limits)
    result = connection.execute(request["sql"])
    # Rows leave the engine within the time; pyarrow, which makes Arrow of the few, is imported later.
    rows, names = result.fetchall(), [column[0] for column in result.description]
    say(start)

    import pyarrow as pa

    columns = list(zip(*rows)) or [[] for _ in names]
    table = pa.table([pa.array(column) for column in columns], names)
    with pa.OSFile(request["answer"], "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    sys.stdout.flush()
    os._exit(0)


def stream():
    import pyarrow as pa

    return pa.ipc.open_stream(sys.stdin.buffer)


def as_table(batch):
    import pyarrow as pa

    return pa.Table.from_batches([batch])


def say(start: float) -> None:
    own = (time.perf_counter() - start) * 1e3
    print(json.dumps({"own_ms": own, "version": duckdb.__version__}), flush=True)


if __name__ == "__main__":
    main()
