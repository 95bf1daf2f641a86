#!/usr/bin/env python3
"""Records DuckDB's answers to joins of two made-up tables as answers.tsv: a query and its one row on a line,
tab-separated, NULL as \\N.

Both tables are made of hashes of row numbers, here and in crates/farpool/tests/joins.rs by the same formulas:
keys of every kind, NULLs and duplicates on both sides. A query's row are counts and sums that change with
every row that is missing or wrongly there.

Usage, in a virtual environment outside the tree (`cargo xtask rivals` makes one):
    pip install duckdb==2.0.0 pyarrow
    python testdata/joins/record_answers.py
"""

import datetime
import decimal
import pathlib

import duckdb
import pyarrow as pa

FACT_ROWS, DIM_ROWS = 150_000, 4_000
KEYS = 20_011
MASK = (1 << 64) - 1

# What is compared: columns of fact (f) and dim (d), the last with a wider integer on one side.
CONDITIONS = {
    "dense": "f.k = d.k",
    "sparse": "f.s = d.s",
    "string": "f.t = d.t",
    "few strings": "f.c = d.c",
    "date": "f.day = d.day",
    "decimal": "f.n = d.n",
    "timestamp": "f.ts = d.ts",
    "float": "f.x = d.x",
    "binary": "f.b = d.b",
    "two integers": "f.k = d.k AND f.r = d.r",
    "string and integer": "f.t = d.t AND f.r = d.r",
    "three": "f.s = d.s AND f.c = d.c AND f.day = d.day",
    "with a float": "f.t = d.t AND f.x = d.x",
    "wider": "f.k = d.wide",
}

SUMS = "count(*), count(d.v), sum(f.id), sum(d.v), sum(f.id % 1009 * d.v)"
SOME = "(SELECT * FROM dim WHERE v < 300)"


def queries():
    """Every way to join under every condition."""
    for on in CONDITIONS.values():
        for kind in ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]:
            yield f"SELECT {SUMS} FROM fact f {kind} {SOME} d ON {on}"
        yield f"SELECT {SUMS} FROM {SOME} d LEFT JOIN fact f ON {on}"
        yield f"SELECT {SUMS} FROM fact f JOIN (SELECT * FROM dim WHERE v < 0) d ON {on}"
        for exists in ["EXISTS", "NOT EXISTS"]:
            yield f"SELECT count(*), sum(f.id) FROM fact f WHERE {exists} (SELECT 1 FROM {SOME} d WHERE {on})"
        # In parentheses, because DataFusion's parser takes what follows for a part of the right side.
        same = " AND ".join(f"({part.replace('=', 'IS NOT DISTINCT FROM')})" for part in on.split(" AND "))
        yield f"SELECT {SUMS} FROM fact f JOIN {SOME} d ON {same}"
    for key in ["k", "s", "t", "n"]:
        for some in ["v < 300", f"v < 300 AND {key} IS NOT NULL"]:
            for word in ["IN", "NOT IN"]:
                inner = f"SELECT {key} FROM dim WHERE {some}"
                yield f"SELECT count(*), sum(f.id) FROM fact f WHERE f.{key} {word} ({inner})"
        nulls = f"(SELECT * FROM dim WHERE {key} IS NULL AND v < 300)"
        for join in [f"JOIN {nulls} d ON f.{key} = d.{key}", f"RIGHT JOIN {nulls} d ON f.{key} = d.{key}"]:
            yield f"SELECT {SUMS} FROM fact f {join}"
        yield f"SELECT {SUMS} FROM fact f JOIN {nulls} d ON f.{key} IS NOT DISTINCT FROM d.{key}"
        yield (
            f"SELECT count(*), sum(number), sum(total) FROM (SELECT {key}, count(*) AS number, sum(id) AS total FROM fact"
            f" GROUP BY {key}) f JOIN {SOME} d ON f.{key} = d.{key}"
        )
        yield f"SELECT count(*), sum(f.id), sum(g.id) FROM fact f JOIN fact g ON f.{key} = g.{key} WHERE g.id < 700"


def mix(x: int) -> int:
    """SplitMix64."""
    z = (x + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def table(seed: int, rows: int, fact: bool) -> pa.Table:
    """The rows of one of the tables."""
    names = ["k", "s", "t", "c", "day", "n", "ts", "x", "b", "r"]
    columns = {name: [] for name in names}
    for row in range(rows):
        key = mix(seed + row) % KEYS
        r = mix(seed + row + (1 << 40)) % 7
        values = {
            "k": key,
            "s": key * 460_000_000_000_037 - (1 << 62),
            "t": f"key number {key}" + "!" * (key % 30),
            "c": f"colour {key % 97}",
            "day": datetime.date(1970, 1, 1) + datetime.timedelta(days=key),
            "n": decimal.Decimal(key * 1_000_003) / 100,
            "ts": datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=key * 86_400_007_001),
            "x": key / 4,
            "b": key.to_bytes(4, "little") * 3,
            "r": r,
        }
        for place, name in enumerate(names):
            null = mix(seed + row + (place + 2 << 40)) % 17 == 0
            columns[name].append(None if null else values[name])
    types = {
        "k": pa.int32(), "s": pa.int64(), "t": pa.string(), "c": pa.string(), "day": pa.date32(),
        "n": pa.decimal128(15, 2), "ts": pa.timestamp("us"), "x": pa.float64(), "b": pa.binary(), "r": pa.int32(),
    }
    arrays = {name: pa.array(columns[name], types[name]) for name in names}
    if fact:
        arrays["id"] = pa.array(range(rows), pa.int64())
    else:
        arrays["wide"] = pa.array(columns["k"], pa.int64())
        arrays["v"] = pa.array([mix(seed + row + (1 << 50)) % 1000 for row in range(rows)], pa.int64())
    return pa.table(arrays)


def main() -> None:
    connection = duckdb.connect()
    connection.register("fact_rows", table(0, FACT_ROWS, True))
    connection.register("dim_rows", table(1 << 30, DIM_ROWS, False))
    connection.execute("CREATE TABLE fact AS FROM fact_rows")
    connection.execute("CREATE TABLE dim AS FROM dim_rows")
    lines = []
    for sql in queries():
        (row,) = connection.execute(sql).fetchall()
        lines.append("\t".join([sql, *("\\N" if cell is None else str(cell) for cell in row)]))
    path = pathlib.Path(__file__).resolve().parent / "answers.tsv"
    path.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} queries")


main()
