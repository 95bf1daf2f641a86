"""Opens or fills a DuckDB database file, in a new process for each request: `python restart.py REQUEST`.

The request is a JSON object, {"do": ...} with:

    version                                      only imports DuckDB and pyarrow
    one, many, append; file                      writes the rows of an Arrow IPC stream on standard input to the file.
                                                 one: into the table t; many: each batch into a table of its own, t0,
                                                 t1, ...; append: each batch into t by a statement of its own, after
                                                 which the process exits without a clean shutdown
    query; file, sql, memory, threads, answer    opens the file, runs the statement, and writes its rows to an Arrow
                                                 file

Prints the time after the import until the request is done or its rows are fetched, in milliseconds, and DuckDB's
version.
"""

import json
import os
import sys
import time

import duckdb

# Prevents automatic checkpoints, so that appended rows stay in the log, as in farpool's log.
LONG_LOG = {"checkpoint_threshold": "1TB"}


def main() -> None:
    request = json.loads(sys.argv[1])
    start = time.perf_counter()
    {"version": version, "one": one, "many": many, "append": append, "query": query}[request["do"]](request, start)


def version(_request: dict, start: float) -> None:
    import pyarrow  # noqa: F401  puts the files of pyarrow into the page cache

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
    # Rows are fetched within the measured time; pyarrow, which converts these few rows to Arrow, is imported later.
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
