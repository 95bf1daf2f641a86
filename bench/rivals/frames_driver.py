"""Measures results fetched as data frames: `python frames_driver.py farpool|duckdb`.

Requests and answers are lines of JSON, as in `driver.py`:

    {"do": "start", "threads": N}                          {"version": TEXT}
    {"do": "load", "table": NAME, "file": FILE}            {}
    {"do": "frame", "statement": TEXT, "to": KIND}         {"ms": ..., "rows": ..., "digest": ...}
    {"do": "loop", "statement": TEXT, "count": N}          {"ms": ..., "total": ...}

KIND is arrow, polars or pandas. A loop runs the statement, which has one parameter, with 0, 1, ... and adds up the
first value of each result. The process ends at the end of its input.
"""

import gc
import json
import sys
import time

import polars as pl
import pyarrow as pa

from digest import digest


class Farpool:
    def __init__(self):
        import farpool

        self.version = farpool.__version__
        self.farpool = farpool

    def start(self, threads: int) -> None:
        self.pool = self.farpool.open(memory="3GiB")

    def load(self, table: str, file: str) -> None:
        self.pool.load(table, file, progress=False)

    def frame(self, statement: str, kind: str):
        return getattr(self.pool.sql(statement), kind)()

    def first(self, statement: str, value: int):
        return self.pool.sql(statement, [value]).fetchone()[0]


class DuckDb:
    def __init__(self):
        import duckdb

        self.version = duckdb.__version__
        self.connection = duckdb.connect()

    def start(self, threads: int) -> None:
        self.connection.execute(f"SET threads = {threads}")

    def load(self, table: str, file: str) -> None:
        self.connection.execute(f"CREATE TABLE {table} AS FROM '{file}'")

    def frame(self, statement: str, kind: str):
        made = self.connection.sql(statement)
        return {"arrow": made.to_arrow_table, "polars": made.pl, "pandas": made.df}[kind]()

    def first(self, statement: str, value: int):
        return self.connection.execute(statement, [value]).fetchone()[0]


def answer(engine, request: dict) -> dict:
    if request["do"] == "start":
        engine.start(request["threads"])
        return {"version": engine.version}
    if request["do"] == "load":
        engine.load(request["table"], request["file"])
        return {}
    if request["do"] == "loop":
        start = time.perf_counter()
        total = sum(engine.first(request["statement"], value) for value in range(request["count"]))
        return {"ms": (time.perf_counter() - start) * 1e3, "total": total}
    gc.collect()
    start = time.perf_counter()
    frame = engine.frame(request["statement"], request["to"])
    ms = (time.perf_counter() - start) * 1e3
    rows, value = digest(whole(frame))
    return {"ms": ms, "rows": rows, "digest": value}


def whole(frame) -> pa.Table:
    """Converts the frame to Arrow. Floats have no digest but are multiples of 1/4 here, so they are converted to
    integers."""
    if isinstance(frame, pl.DataFrame):
        table = frame.to_arrow()
    elif isinstance(frame, pa.Table):
        table = frame
    else:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    for place, field in enumerate(table.schema):
        if pa.types.is_floating(field.type):
            quarters = [chunk.to_numpy(zero_copy_only=False) * 4 for chunk in table.column(place).chunks]
            quarters = pa.chunked_array([chunk.astype("int64") for chunk in quarters], pa.int64())
            table = table.set_column(place, field.name, quarters)
    return table


def main() -> None:
    # Standard output is for answers only, so the output of engines is redirected to standard error.
    answers, sys.stdout = sys.stdout, sys.stderr
    engine = {"farpool": Farpool, "duckdb": DuckDb}[sys.argv[1]]()
    for line in sys.stdin:
        try:
            result = answer(engine, json.loads(line))
        except Exception as error:  # the benchmark decides what to do about it
            result = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(result), file=answers, flush=True)


if __name__ == "__main__":
    main()
