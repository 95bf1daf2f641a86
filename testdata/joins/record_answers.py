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
import random

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


KEYS_OF_ALL = ["k", "s", "t", "day", "n", "ts", "b"]


def relation(rng: random.Random, small: bool) -> tuple[str, str]:
    """A table or some of its rows, and its column of numbers."""
    if rng.random() < 0.5:
        some = rng.choice(["id % 37 = 5", "id < 9000", "r = 3", "id % 11 < 4 AND r <> 2"])
        return (f"(SELECT * FROM fact WHERE {some})" if small or rng.random() < 0.6 else "fact"), "id"
    some = rng.choice(["v < 300", "v >= 500", "r < 4", "v < 0"])
    return rng.choice(["dim", f"(SELECT * FROM dim WHERE {some})", f"(SELECT * FROM dim WHERE {some})"]), "v"


def equal(rng: random.Random, left: str, right: str) -> str:
    """A condition on two relations, with at least one equal key."""
    parts = [f"{left}.{key} = {right}.{key}" for key in rng.sample(KEYS_OF_ALL, rng.choice([1, 1, 1, 2]))]
    if rng.random() < 0.2:
        parts.append(f"{left}.r = {right}.r")
    elif rng.random() < 0.3:
        parts.append(f"{left}.r {rng.choice(['<', '<>', '>='])} {right}.r")
    return " AND ".join(parts)


def chains():
    """Joins of up to four relations in a row, with subqueries, conditions on both sides, groups and limits."""
    rng = random.Random(46)
    for _ in range(160):
        relations = [("a", *relation(rng, False))]
        text = f"{relations[0][1]} a"
        for alias in "bcd"[: rng.choice([1, 2, 2, 3])]:
            other, number = relation(rng, True)
            on = equal(rng, rng.choice(relations)[0], alias)
            text += f" {rng.choice(['JOIN', 'JOIN', 'JOIN', 'LEFT JOIN', 'RIGHT JOIN'])} {other} {alias} ON {on}"
            relations.append((alias, other, number))
        conditions = []
        if rng.random() < 0.5:
            alias, other = rng.choice(relations)[0], relation(rng, False)[0]
            word = rng.choice(["EXISTS", "NOT EXISTS"])
            conditions.append(f"{word} (SELECT 1 FROM {other} e WHERE {equal(rng, alias, 'e')})")
        if rng.random() < 0.3:
            alias, other, key = rng.choice(relations)[0], relation(rng, False)[0], rng.choice(KEYS_OF_ALL)
            known = rng.choice(["", f" WHERE {key} IS NOT NULL"])
            conditions.append(f"{alias}.{key} {rng.choice(['IN', 'NOT IN'])} (SELECT {key} FROM {other} g{known})")
        if rng.random() < 0.3:
            (left, _, one), (right, _, other) = rng.choice(relations), rng.choice(relations)
            conditions.append(f"{left}.{one} % 7 <= {right}.{other} % 11")
        if rng.random() < 0.2:
            alias, _, number = rng.choice(relations)
            conditions.append(f"{alias}.{number} % 100 > (SELECT avg(v) / 20 FROM dim h WHERE h.r = {alias}.r)")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        sums = ", ".join(f"count({alias}.{n}), sum({alias}.{n})" for alias, _, n in relations)
        if rng.random() < 0.6:
            yield f"SELECT count(*), {sums} FROM {text}{where}"
            continue
        key = f"{rng.choice(relations)[0]}.{rng.choice(['k', 'c', 'r', 'day'])}"
        alias, _, number = rng.choice(relations)
        groups = f"SELECT {key} AS g, count(*) AS m, sum({alias}.{number}) AS s FROM {text}{where} GROUP BY {key}"
        first = rng.choice(["", " ORDER BY m DESC, s DESC NULLS LAST, g NULLS LAST LIMIT 20"])
        yield f"SELECT count(*), sum(m), sum(s), count(g) FROM ({groups}{first}) x"


def grouped():
    """Joins in groups whose aggregates are of one side, so that this side may be grouped before it is joined."""
    rng = random.Random(5)
    for _ in range(200):
        one, other = rng.choice([("fact", "dim"), ("fact", "dim"), ("fact", "(SELECT * FROM fact WHERE id < 2000)")])
        if rng.random() < 0.2:
            one = "(SELECT a.* FROM fact a JOIN dim b ON a.k = b.k AND b.v < 500)"
        number = "v" if other == "dim" else "id"
        on = " AND ".join(f"f.{key} = d.{key}" for key in rng.sample(KEYS_OF_ALL, rng.choice([1, 1, 1, 2])))
        on = rng.choice([on, on, on, on, "f.k + 1 = d.k", "f.x = d.x", f"{on} AND f.r = d.r", f"{on} AND f.r < d.r"])
        sides = [f"{one} f", f"{other} d"]
        rng.shuffle(sides)
        kind = rng.choice(["JOIN", "JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        keys = ["d.r", "d.c", f"d.{number} % 10", "f.r", "f.c", "f.k % 50", "f.x < 900", "d.r + f.r", "f.r IS NULL"]
        keys = rng.sample(keys, rng.choice([0, 1, 1, 1, 2]))
        sums = ["sum(f.id)", "count(*)", "count(f.r)", "sum(f.r)", "sum(f.n)", "sum(f.x)", "sum(f.id * 2 - f.r)"]
        sums += ["count(DISTINCT f.r)", "sum(CASE WHEN f.r > 3 THEN f.id END)", "sum(f.k) FILTER (WHERE f.r = 2)"]
        sums += ["sum(CASE WHEN f.r IS NULL THEN 1 ELSE 0 END)", "count(CASE WHEN f.k IS NULL THEN 1 END)"]
        sums += ["min(coalesce(f.r, -1))", "max(f.k + f.r)", "count(f.r > 3)"]
        sums += ["min(f.k)", "max(f.r)", f"max(d.{number})", f"sum(d.{number})", "count(d.k)", "avg(f.r)", "min(f.n)"]
        sums = rng.sample(sums, rng.choice([0, 1, 2, 3]) if keys else rng.choice([1, 2, 3]))
        listed = ", ".join(f"{value} AS {name}" for name, value in zip("ghijkl", keys + sums))
        groups = f" GROUP BY {', '.join(keys)}" if keys else ""
        having = rng.choice(["", "", f" HAVING count(*) > {rng.choice([1, 10, 300])}"]) if groups else ""
        text = f"SELECT {listed} FROM {sides[0]} {kind} {sides[1]} ON {on}{groups}{having}"
        if keys and sums and rng.random() < 0.2:
            text += f" ORDER BY {len(keys) + 1} DESC NULLS LAST, {', '.join(map(str, range(1, len(keys) + 1)))} LIMIT 7"
        of_keys = [f"count({name})" for name in "ghijkl"[: len(keys)]]
        of_sums = [f"sum(CAST({name} AS DECIMAL(38, 3)))" for name in "ghijkl"[len(keys) : len(keys) + len(sums)]]
        yield f"SELECT {', '.join(['count(*)', *of_keys, *of_sums])} FROM ({text}) x"


def grouped_on_both_sides():
    """Joins with groups, so that rows of the other side may be grouped before the join, and not again behind it."""
    rng = random.Random(11)
    for _ in range(40):
        keys = rng.sample(KEYS_OF_ALL, rng.choice([1, 1, 2]))
        listed = ", ".join(keys)
        more = rng.choice(["", ", r"])
        groups = f"(SELECT {listed}{more}, count(*) AS m, max(v) AS v FROM dim GROUP BY {listed}{more})"
        on = " AND ".join(f"f.{key} = g.{key}" for key in keys) + rng.choice(["", "", " AND f.r < g.m + 2"])
        sides = rng.choice([f"fact f {{}} {groups} g", f"{groups} g {{}} fact f"])
        kind = rng.choice(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN"])
        upper = [rng.choice([f"f.{key}", f"g.{key}", f"f.{key}"]) for key in keys]
        upper += rng.choice([[], ["f.r"], ["g.m"], ["f.r", "g.m"]])
        upper = upper[rng.choice([0, 0, 0, 1]) :] or upper
        sums = rng.sample(["sum(f.id)", "count(*)", "count(f.r)", "min(f.n)", "max(g.v)", "sum(f.r)", "min(g.m)"], 3)
        columns = ", ".join(f"{value} AS {name}" for name, value in zip("hijklmnop", upper + sums))
        text = f"SELECT {columns} FROM {sides.format(kind)} ON {on} GROUP BY {', '.join(upper)}"
        of_keys = [f"count({name})" for name in "hijklmnop"[: len(upper)]]
        of_sums = [f"sum(CAST({name} AS DECIMAL(38, 3)))" for name in "hijklmnop"[len(upper) : len(upper) + 3]]
        yield f"SELECT {', '.join(['count(*)', *of_keys, *of_sums])} FROM ({text}) x"


def filtered_groups():
    """Groups of one table and of joins, of which HAVING drops some."""
    rng = random.Random(12)
    sources = ["fact f", "dim f", "fact f JOIN dim d ON f.k = d.k", "fact f LEFT JOIN dim d ON f.s = d.s AND d.v < 500"]
    sources.append("fact f JOIN (SELECT k, max(v) AS v, count(*) AS m FROM dim GROUP BY k HAVING count(*) > 1) d ON f.k = d.k")
    for _ in range(120):
        source = rng.choice(sources)
        number = "v" if source == "dim f" else "id"
        keys = ["f.r", "f.c", "f.k", "f.t", "f.day", "f.n", "f.k % 50", "f.r IS NULL", "f.k + f.r", "f.x", "f.b"]
        keys += ["d.v"] if " d " in source else []
        keys += ["d.m", "d.v % 3"] if "d.m" in source else []
        keys = rng.sample(keys, rng.choice([0, 1, 1, 1, 2]))
        calls = ["count(*)", "count(f.r)", f"sum(f.{number})", "min(f.k)", "max(f.r)", "sum(f.n)", "avg(f.r)", "min(f.day)"]
        calls += ["count(DISTINCT f.r)", "sum(f.k) FILTER (WHERE f.r = 2)", f"max(f.{number} % 1009)", "max(f.t)", "sum(f.x)"]
        calls += ["max(d.v)", "sum(d.v)"] if " d " in source else []
        sums = rng.sample(calls, rng.choice([0, 1, 2, 3]) if keys else rng.choice([1, 2, 3]))

        def condition(depth: int) -> str:
            call = rng.choice(sums or calls) if rng.random() < 0.7 else rng.choice(calls)
            if depth and rng.random() < 0.4:
                return f"({condition(depth - 1)} {rng.choice(['AND', 'OR'])} {condition(depth - 1)})"
            if depth and rng.random() < 0.2:
                return f"NOT ({condition(depth - 1)})"
            texts = {"min(f.day)": "DATE '1984-02-03'", "max(f.t)": "'key number 5'"}
            if call in texts:
                return f"{call} {rng.choice(['>', '<=', '<>'])} {texts[call]}"
            if keys and rng.random() < 0.2:
                return f"{rng.choice(keys)} IS {rng.choice(['', 'NOT '])}NULL"
            if rng.random() < 0.2:
                return f"{call} % 2 = 0" if "count" in call else f"{call} IS {rng.choice(['', 'NOT '])}NULL"
            other = rng.choice(["1", "2", "7", "30", "300", "1000", "100000", "count(*) * 3", "count(f.k)"])
            return f"{call} {rng.choice(['>', '<', '>=', '<=', '<>', '='])} {other}"

        listed = ", ".join(f"{value} AS {name}" for name, value in zip("ghijkl", keys + sums))
        groups = f" GROUP BY {', '.join(keys)}" if keys else ""
        text = f"SELECT {listed} FROM {source}{rng.choice(['', '', ' WHERE f.r > 1'])}{groups} HAVING {condition(2)}"
        if keys and sums and rng.random() < 0.3:
            text += f" ORDER BY {len(keys) + 1} DESC NULLS LAST, {', '.join(map(str, range(1, len(keys) + 1)))} LIMIT 7"
        of_keys = [f"count({name})" for name in "ghijkl"[: len(keys)]]
        names = zip("ghijkl"[len(keys) :], sums)
        of_sums = [
            f"count({name})" if call in ["min(f.day)", "max(f.t)"] else f"sum(CAST({name} AS DECIMAL(38, 3)))"
            for name, call in names
        ]
        yield f"SELECT {', '.join(['count(*)', *of_keys, *of_sums])} FROM ({text}) x"


def filtered_groups_of_the_engine():
    """Groups that HAVING drops some of, joined with what no pool computes."""
    for key in ["k", "s", "t", "day", "n"]:
        ranked = f"(SELECT {key}, v, rank() OVER (ORDER BY v) AS z FROM dim WHERE v < 300) d"
        for listed in [f"{key}, count(*) AS c", f"count(*) AS c, {key}", f"min(id) AS m, {key} AS other, {key}, count(*) AS c"]:
            groups = f"(SELECT {listed} FROM fact GROUP BY {key} HAVING count(*) > 8) g"
            yield f"SELECT count(*), sum(c), sum(v), sum(z) FROM {groups} JOIN {ranked} ON g.{key} = d.{key}"
            yield f"SELECT count(*), sum(c), sum(v), sum(z) FROM {ranked} LEFT JOIN {groups} ON g.{key} = d.{key}"


def given():
    """Joins with rows that stand in the statement."""
    rng = random.Random(10)

    def key(kind: str, number: int) -> str:
        return {
            "k": f"CAST({number} AS INTEGER)",
            "s": f"CAST({number * 460_000_000_000_037 - (1 << 62)} AS BIGINT)",
            "t": f"'key number {number}{'!' * (number % 30)}'",
            "c": f"'colour {number % 97}'",
            "day": f"DATE '{datetime.date(1970, 1, 1) + datetime.timedelta(days=number)}'",
            "n": f"CAST({decimal.Decimal(number * 1_000_003) / 100} AS DECIMAL(15, 2))",
        }[kind]

    for _ in range(60):
        kinds = rng.sample(["k", "s", "t", "c", "day", "n"], rng.choice([1, 1, 2]))
        rows = []
        for _ in range(rng.choice([1, 3, 8, 40])):
            number = rng.choice([rng.randrange(KEYS), rng.randrange(200)])
            keys = [key(kind, number) if rng.random() < 0.95 else "NULL" for kind in kinds]
            rows.append([*keys, f"'w{rng.randrange(4)}'", str(rng.randrange(9))])
        rows.append([*(key(kind, 1) for kind in kinds), "'w0'", "NULL"])
        rows = ", ".join(f"({', '.join(row)})" for row in rows)
        values = f"(VALUES {rows}) g({''.join(f'{kind}_, ' for kind in kinds)}w, z)"
        on = " AND ".join(f"f.{kind} = g.{kind}_" for kind in kinds)
        on += rng.choice(["", "", " AND f.r > g.z", " AND g.z < 5"])
        kind = rng.choice(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "IN", "NOT IN", "EXISTS", "NOT EXISTS"])
        table, number = rng.choice([("fact", "id"), ("fact", "id"), ("dim", "v")])
        if kind in ["IN", "NOT IN"]:
            yield f"SELECT count(*), sum(f.{number}) FROM {table} f WHERE {kinds[0]} {kind} (SELECT {kinds[0]}_ FROM {values})"
        elif kind in ["EXISTS", "NOT EXISTS"]:
            yield f"SELECT count(*), sum(f.{number}) FROM {table} f WHERE {kind} (SELECT 1 FROM {values} WHERE {on})"
        elif rng.random() < 0.5:
            text = f"{table} f {kind} {values} ON {on}"
            if rng.random() < 0.5:
                text = f"{values} {kind} {table} f ON {on}"
            yield f"SELECT count(*), count(w), sum(z), sum(f.{number}), max(w) FROM {text}"
        else:
            groups = f"SELECT w, count(*) AS m, sum(f.{number} + z) AS s FROM {table} f {kind} {values} ON {on} GROUP BY w"
            yield f"SELECT count(*), sum(m), sum(s), min(w) FROM ({groups}) x"
            groups = groups.replace("w, count(*) AS m", "count(*) AS m, w || '!' AS u, w")
            yield f"SELECT count(*), sum(m), sum(s), min(w), max(u) FROM ({groups} HAVING count(*) <> 3) x"


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
    for sql in [*queries(), *chains(), *grouped(), *grouped_on_both_sides(), *filtered_groups(), *filtered_groups_of_the_engine(), *given()]:
        (row,) = connection.execute(sql).fetchall()
        lines.append("\t".join([sql, *("\\N" if cell is None else str(cell) for cell in row)]))
    path = pathlib.Path(__file__).resolve().parent / "answers.tsv"
    path.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} queries")


main()
