#!/usr/bin/env python3
"""Records DuckDB's answers to random statements of a few forms as forms.txt, over the tables of tables.sql.

Forms: INTERSECT ALL and EXCEPT ALL, also nested; windows with names that build on others, and frames with EXCLUDE; lead, lag, first_value,
last_value and nth_value with IGNORE NULLS, over gaps and under LIMIT; TRY_CAST in conditions; casts behind conditions
that guard them; numbers beside decimals; intervals, their order, products and parts; times in any year.
The form of the file is that of answers.txt. Each statement's rows are determined by it.

Usage, in a virtual environment outside the tree:
    pip install duckdb==2.0.1
    python testdata/queries/record_forms.py
"""

import datetime
import pathlib
import random

import duckdb

SEED = 20261128
COLUMNS = {"int": ["i", "s", "id"], "big": ["n"], "text": ["t"], "date": ["day"], "bool": ["b"], "dec": ["d"]}


class Forms:
    def __init__(self):
        self.random = random.Random(SEED)

    def pick(self, of):
        return self.random.choice(of)

    def side(self, kinds):
        """A SELECT of columns of these kinds, with duplicates and NULLs."""
        columns = ", ".join(self.pick(COLUMNS[kind]) for kind in kinds)
        where = self.pick(["", f" WHERE id % {self.pick([2, 3, 5])} <> 0", " WHERE i IS NOT NULL", f" WHERE s > {self.pick([-3, 0, 100])}"])
        return f"SELECT {columns} FROM {self.pick('ab')}{where}"

    def set_operation(self):
        kinds = [self.pick(list(COLUMNS)) for _ in range(self.pick([1, 1, 2]))]
        sql = self.side(kinds)
        for _ in range(self.pick([1, 1, 2])):
            op = self.pick(["INTERSECT ALL", "EXCEPT ALL", "INTERSECT ALL", "EXCEPT ALL", "UNION ALL", "EXCEPT", "INTERSECT"])
            sql = f"({sql}) {op} ({self.side(kinds)})"
        return sql

    def window(self):
        partition = self.pick(["i", "b", "s % 3", "t"])
        base = f"w AS (PARTITION BY {partition})"
        frame = self.pick(["", " ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING", " ROWS UNBOUNDED PRECEDING", " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"])
        if frame:
            frame += self.pick(["", "", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES", " EXCLUDE NO OTHERS"])
        call = self.pick(["sum(i)", "count(*)", "max(s)", "min(day)", "first_value(t)", "row_number()", "count(b)"])
        order = self.pick(["id", "id DESC"])
        return self.pick([
            f"SELECT id, {call} OVER (w ORDER BY {order}{frame}) FROM a WINDOW {base}",
            f"SELECT id, {call} OVER v FROM b WINDOW {base}, v AS (w ORDER BY {order}{frame})",
            f"SELECT id, {call} OVER (v{frame}) FROM a WINDOW {base}, v AS (w ORDER BY {order})",
        ])

    def exclusion(self):
        """Frames of equal rows: what is computed does not depend on their order."""
        call = self.pick(["sum(i)", "count(*)", "max(s)", "min(day)", "count(DISTINCT b)", "count(*) FILTER (WHERE i > 2)"])
        order = self.pick(["b", "i % 3", "t", "s % 5"])
        frame = self.pick(["RANGE UNBOUNDED PRECEDING", "GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING", "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING", "RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"])
        out = self.pick(["CURRENT ROW", "GROUP", "TIES"])
        partition = self.pick(["", "", "PARTITION BY b "])
        return f"SELECT id, {call} OVER ({partition}ORDER BY {order} {frame} EXCLUDE {out}) FROM {self.pick('ab')}"

    def nulls_ignored(self):
        column = self.pick(["i", "s", "d", "t", "day", "ts"])
        offset = self.pick([1, 1, 2, 3])
        call = self.pick([f"lead({column}, {offset}", f"lag({column}, {offset}", f"first_value({column}", f"last_value({column}", f"nth_value({column}, {offset}"])
        frame = "" if call.startswith("l") and not call.startswith("last") else self.pick(["", " ROWS BETWEEN 3 PRECEDING AND 2 FOLLOWING", " ROWS BETWEEN 1 FOLLOWING AND 4 FOLLOWING", " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"])
        partition = self.pick(["", "", "PARTITION BY b ", "PARTITION BY i "])
        sql = f"SELECT id, {call} IGNORE NULLS) OVER ({partition}ORDER BY id{frame}) FROM {self.pick('ab')}"
        return sql + self.pick(["", " ORDER BY id LIMIT 9", " ORDER BY id LIMIT 5 OFFSET 3"])

    def try_cast(self):
        cast = f"TRY_CAST({self.pick(['n', 'd', 't', 's'])} AS {self.pick(['INTEGER', 'SMALLINT', 'TINYINT', 'BIGINT'])})"
        compared = self.pick([f"{cast} > {self.pick([0, 1, 100])}", f"{cast} IN (0, 1, 42)", f"{cast} IS NULL", f"{cast} BETWEEN -5 AND 50", f"{cast} <> 7"])
        return self.pick([f"SELECT id FROM a WHERE {compared}", f"SELECT id, {compared} FROM a", f"SELECT id FROM b WHERE NOT ({compared})"])

    def guarded(self):
        """A part that fails on rows that another part rules out."""
        guard, risky = self.pick([
            ("t ~ '^[0-9]+$'", "CAST(t AS INTEGER) = 0"),
            ("n > -100 AND n < 100", "CAST(n AS INTEGER) > 0"),
            ("n BETWEEN -100 AND 100", "CAST(n AS TINYINT) + 1 > 1"),
            ("i <> 0", "100 % i = 0"),
            ("n < 1000", "n + 9223372036854774807 > 0"),
            ("length(t) = 1", "CAST(CASE WHEN length(t) = 1 THEN '1' ELSE t END AS INTEGER) = 1"),
        ])
        parts = [guard, risky] + ([f"id > {self.pick([0, 5])}"] if self.random.random() < 0.4 else [])
        self.random.shuffle(parts)
        return f"SELECT id FROM {self.pick('ab')} WHERE {' AND '.join(parts)}"

    def exact(self):
        number = self.pick(["1.25", "-7.50", "12345.67", "0.00", "-9999999999.99", "0.01", "123456789012345678.12"])
        return self.pick([
            f"SELECT id FROM a WHERE d {self.pick(['=', '<', '>=', '<>'])} {number}",
            f"SELECT id, d + {self.pick(['0.1', '1.005', '-0.07'])} FROM a",
            f"SELECT id, d * {self.pick(['0.5', '1.1', '-2.25'])} FROM a",
            f"SELECT id FROM b WHERE d IN ({number}, 1.25, -0.01)",
            f"SELECT id FROM b WHERE d BETWEEN {number} AND {number} + 0.5",
            f"SELECT CAST({number} AS DECIMAL(38, 10))",
            f"SELECT id, coalesce(d, {self.pick(['1.50', '0.25'])}) FROM a",
        ])

    def interval(self):
        def one():
            return "INTERVAL '" + self.pick(["1 month", "30 days", "29 days", "720 hours", "1 day", "24 hours", "25 hours", "1 year", "12 months", "360 days", "0 days", "-1 day", "1 day 04:05:06", "90 minutes"]) + "'"
        date = self.pick(["DATE '2024-01-31'", "DATE '1999-12-31'", "TIMESTAMP '2024-02-29 12:00:00'", "TIMESTAMP '9990-01-01 00:00:00'", "TIMESTAMP '0900-05-01 01:02:03'"])
        values = ", ".join(f"({n}, {one()})" for n in range(1, 7))
        return self.pick([
            f"SELECT {one()} {self.pick(['=', '<', '<=', '>', '<>'])} {one()}",
            f"SELECT count(*) FROM (SELECT DISTINCT x FROM (VALUES {values}) v(n, x)) u",
            f"SELECT count(*), min(n) FROM (VALUES {values}) v(n, x) GROUP BY x",
            f"SELECT count(*) FROM (VALUES {values}) v(n, x) WHERE x BETWEEN {one()} AND {one()}",
            f"SELECT p.n, q.n FROM (VALUES {values}) p(n, x), (VALUES {values}) q(n, x) WHERE p.x = q.x",
            f"SELECT n, rank() OVER (ORDER BY x) FROM (VALUES {values}) v(n, x)",
            f"SELECT {date} {self.pick('+-')} {one()} = TIMESTAMP '2024-01-31 05:00:00', CAST({date} + {one()} AS TIMESTAMP)",
            f"SELECT CAST(extract({self.pick(['day', 'hour', 'minute'])} FROM TIMESTAMP '2024-03-05 01:02:03' - {self.pick(['TIMESTAMP ' + repr('2024-03-01 05:00:00'), 'TIMESTAMP ' + repr('2024-03-09 00:30:00')])}) AS BIGINT)",
            f"SELECT TIMESTAMP '2024-01-01 00:00:00' + {one()} * {self.pick(['2', '0.5', '-1'])}",
            f"SELECT TIMESTAMP '2024-01-01 00:00:00' + {one()} / {self.pick(['2', '4', '3'])}",
        ])

    def time(self):
        far = self.pick(["9999-12-31", "0001-01-01", "2262-04-12 00:00:00", "1677-01-01", "2024-02-29 12:00", "1970-01-01 00:00:00"])
        return self.pick([
            f"SELECT id FROM a WHERE ts {self.pick(['<', '>=', '=', '<>'])} '{far}'",
            f"SELECT id FROM a WHERE ts BETWEEN '{far}' AND '9999-12-31'",
            f"SELECT CAST('{far}' AS TIMESTAMP)",
            f"SELECT id FROM b WHERE ts IN ('{far}', '1970-01-01 00:00')",
        ])

    def error(self):
        return self.pick([
            "SELECT id FROM a WHERE day > 20240101",
            "SELECT id FROM a WHERE day = i",
            "SELECT id FROM a WHERE day IN (1, 2)",
            "SELECT id FROM a WHERE day BETWEEN 1 AND 2",
            "SELECT day FROM a UNION ALL SELECT i FROM a",
            "SELECT coalesce(day, i) FROM a",
            "SELECT CASE WHEN b THEN day ELSE i END FROM a",
            "SELECT a.id FROM a JOIN b ON a.day = b.i",
            "SELECT id FROM a WHERE ts > i",
            "SELECT id FROM a WHERE day IN (SELECT i FROM b)",
            "SELECT CAST(day AS INTEGER) FROM a",
            "SELECT CAST(i AS DATE) FROM a",
        ])


def cell(value):
    """As the test shows it."""
    if value is None:
        return "\\N"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value + 0.0)
    if isinstance(value, datetime.datetime):
        text = f"{value.year:04}" + value.strftime("-%m-%d %H:%M:%S")
        return text + (f".{value.microsecond:06}".rstrip("0") if value.microsecond else "")
    return str(value) or "(empty)"


def written(connection, sql):
    """Returns the block of a statement; None if it has too many rows."""
    try:
        result = connection.execute(sql)
        types = [str(column[1]) for column in result.description]
        rows = sorted("\t".join(cell(value) for value in row) for row in result.fetchall())
    except (duckdb.OutOfRangeException, duckdb.ConversionException, duckdb.BinderException, duckdb.NotImplementedException):
        types, rows = ["error"], []
    return "\n".join([sql, "\t".join(types), *rows]) if len(rows) <= 120 else None


def main():
    here = pathlib.Path(__file__).parent
    connection = duckdb.connect()
    for statement in (here / "tables.sql").read_text().split(";"):
        if statement.strip():
            connection.sql(statement)
    forms = Forms()
    counts = [(forms.set_operation, 45), (forms.window, 45), (forms.nulls_ignored, 60), (forms.try_cast, 30), (forms.guarded, 25),
              (forms.exact, 40), (forms.interval, 60), (forms.time, 25), (forms.error, 30), (forms.exclusion, 60)]
    seen, blocks = set(), []
    for make, count in counts:
        for _ in range(count):
            sql = make()
            if sql in seen:
                continue
            seen.add(sql)
            blocks.append(written(connection, sql))
    (here / "forms.txt").write_text("\n\n".join(block for block in blocks if block) + "\n")


if __name__ == "__main__":
    main()
