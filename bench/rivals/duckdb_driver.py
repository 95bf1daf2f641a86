"""DuckDB in a process of its own, driven by the benchmarks: one JSON request a line in, one answer a line out.

Requests:
    {"load": FOLDER, "threads": N}     loads every Parquet file of the folder as a table; {"ms": ...}
    {"run": SQL, "answer": FILE|null}  runs a query and fetches its result as Arrow; {"ms": ..., "rows": ...};
                                       writes the result to FILE as an Arrow IPC file if one is given
An error answers {"error": TEXT}. Times are taken here, around execution and fetch, so that the pipe and the
JSON do not count.
"""

import json
import pathlib
import sys
import time

import duckdb
import pyarrow as pa

connection = duckdb.connect()


def load(request: dict) -> dict:
    connection.execute(f"SET threads = {int(request['threads'])}")
    start = time.perf_counter()
    for file in sorted(pathlib.Path(request["load"]).glob("*.parquet")):
        connection.execute(f"CREATE OR REPLACE TABLE {file.stem} AS FROM '{file}'")
    return {"ms": (time.perf_counter() - start) * 1e3, "version": duckdb.__version__}


def run(request: dict) -> dict:
    start = time.perf_counter()
    # The route that DuckDB recommends: `execute` would copy the rows once more.
    table = connection.sql(request["run"]).to_arrow_table()
    ms = (time.perf_counter() - start) * 1e3
    if request.get("answer"):
        with pa.OSFile(request["answer"], "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    return {"ms": ms, "rows": table.num_rows}


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = load(request) if "load" in request else run(request)
        except Exception as error:  # the benchmark decides what to do about it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


main()
