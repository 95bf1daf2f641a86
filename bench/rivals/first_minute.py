"""Runs one statement over a file in a new process: `python first_minute.py REQUEST`.

The request is a JSON object: engine, sql, file, out (the file that the statement writes) and answer (otherwise, the
Arrow file to write the rows to). Prints the times of the import and of the statement, in milliseconds.
"""

import json
import sys
import time


def main() -> None:
    request = json.loads(sys.argv[1])
    start = time.perf_counter()
    run = {"duckdb": duckdb, "polars": polars}[request["engine"]]()
    imported = time.perf_counter()
    version, table = run(request)
    done = time.perf_counter()
    if request["answer"]:
        import pyarrow as pa

        table = table()
        with pa.OSFile(request["answer"], "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    times = {"import_ms": (imported - start) * 1e3, "run_ms": (done - imported) * 1e3, "version": version}
    print(json.dumps(times))


def duckdb():
    import duckdb

    def run(request: dict):
        file, out = f"'{request['file']}'", str(request["out"])
        result = duckdb.connect().execute(request["sql"].replace("{file}", file).replace("{out}", out))
        if request["out"]:
            return duckdb.__version__, None
        # Rows are fetched within the measured time; pyarrow, which converts these few rows to Arrow, is imported later.
        rows, names = result.fetchall(), [(column[0], str(column[1])) for column in result.description]
        return duckdb.__version__, lambda: as_arrow(rows, names)

    return run


def as_arrow(rows: list, names: list):
    import pyarrow as pa

    columns = list(zip(*rows)) or [[] for _ in names]
    return pa.table([pa.array(column) for column in columns], [name for name, _ in names])


def polars():
    import polars

    def run(request: dict):
        if not request["file"]:
            frame = polars.SQLContext().execute(request["sql"]).collect()
            return polars.__version__, frame.to_arrow
        is_csv = request["file"].endswith(".csv")
        table = polars.scan_csv(request["file"]) if is_csv else polars.scan_parquet(request["file"])
        if request["out"]:
            table.sink_csv(request["out"]) if request["out"].endswith("csv") else table.sink_ndjson(request["out"])
            return polars.__version__, None
        context = polars.SQLContext(data=table)
        frame = context.execute(request["sql"].replace("{file}", "data")).collect(engine="streaming")
        return polars.__version__, frame.to_arrow

    return run


if __name__ == "__main__":
    main()
