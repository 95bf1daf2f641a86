#!/usr/bin/env python3
"""Records DuckDB's answers to random queries over two small tables as answers.txt.

The tables are `tables.sql`, which both engines read. Queries have filters, groups, joins of every kind, subqueries,
windows, set operations and expressions over extremes. Each is written so that what it gives is determined: rows are
compared as a set, windows are ordered by a unique key, sums of floats are left out.

A query's block has its text, the types of its columns (or `error`), and its rows, tab-separated, NULL as \\N; an
empty line ends it.

Usage, in a virtual environment outside the tree (`cargo xtask rivals` makes one):
    pip install duckdb==2.0.0
    python testdata/queries/record_answers.py
"""

import datetime
import pathlib
import random

import duckdb

SEED, QUERIES = 20261124, 480

# Columns by kind, with constants of the kind.
KINDS = {
    "int": (["i", "s", "id"], ["0", "1", "-3", "7", "100"]),
    "big": (["n"], ["9223372036854775807", "-9223372036854775808", "0", "42"]),
    "dec": (["d"], [f"CAST({n} AS DECIMAL(12, 2))" for n in ["0.00", "1.25", "-7.50", "12345.67"]]),
    "float": (["f"], ["CAST(0.0 AS DOUBLE)", "CAST(1.5 AS DOUBLE)", "CAST('inf' AS DOUBLE)"]),
    "text": (["t"], ["''", "'a'", "'Zürich'", "'apple pie'", "'%'"]),
    "date": (["day"], ["DATE '2024-02-29'", "DATE '1969-12-31'", "DATE '2000-01-01'"]),
    "bool": (["b"], ["TRUE", "FALSE"]),
    "time": (["ts"], ["TIMESTAMP '2024-02-29 12:00:00'", "TIMESTAMP '1969-12-31 23:59:59.999999'"]),
}
PATTERNS = ["'a%'", "'%e'", "'_'", "'%pp%'", "'%'", "''", "'A%'", "'%ü%'"]
COMPARED = ["int", "big", "dec", "float", "text", "date", "time"]


class Maker:
    """Makes queries over tables a and b."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick(self, of):
        return self.random.choice(of)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def column(self, kind: str, tables: list[str]) -> str:
        return f"{self.pick(tables)}.{self.pick(KINDS[kind][0])}"

    def constant(self, kind: str) -> str:
        return self.pick(KINDS[kind][1])

    def expr(self, kind: str, tables: list[str], depth: int = 2) -> str:
        """An expression of a kind that never overflows, but for those that `risky` makes."""
        if depth == 0 or self.chance(0.35):
            return self.column(kind, tables) if self.chance(0.85) else self.constant(kind)
        sub = lambda of=kind: self.expr(of, tables, depth - 1)
        forms = [
            lambda: f"coalesce({sub()}, {self.constant(kind)})",
            lambda: f"CASE WHEN {self.condition(tables, depth - 1)} THEN {sub()} ELSE {sub()} END",
            lambda: f"CASE WHEN {self.condition(tables, depth - 1)} THEN {sub()} END",
        ]
        if kind != "float":
            forms.append(lambda: f"nullif({sub()}, {self.constant(kind)})")
        if kind == "int":
            forms += [
                lambda: f"(CAST({sub()} AS BIGINT) + CAST({sub()} AS BIGINT))",
                lambda: f"(CAST({sub()} AS BIGINT) - CAST({sub()} AS BIGINT))",
                lambda: f"(CAST({self.column('int', tables)} AS BIGINT) * {self.pick(['2', '-3', '10'])})",
                lambda: f"(CAST({sub()} AS BIGINT) % {self.pick(['2', '7', '-5'])})",
                lambda: f"abs(CAST({sub()} AS BIGINT))",
                lambda: f"CAST(length({self.expr('text', tables, depth - 1)}) AS BIGINT)",
                lambda: f"CAST(extract({self.pick(['year', 'month', 'day'])} FROM {self.column('date', tables)}) AS BIGINT)",
            ]
        elif kind == "dec":
            forms += [lambda: f"({self.column('dec', tables)} {self.pick('+-')} {self.constant('dec')})"]
        elif kind == "float":
            forms += [
                lambda: f"({self.column('float', tables)} * CAST(2 AS DOUBLE))",
                lambda: f"({self.column('float', tables)} + CAST(0.25 AS DOUBLE))",
                lambda: f"CAST({self.column('int', tables)} AS DOUBLE)",
            ]
        elif kind == "text":
            forms += [
                lambda: f"upper({sub()})",
                lambda: f"lower({sub()})",
                lambda: f"({sub()} || {self.constant('text')})",
                lambda: f"substring({sub()}, {self.pick(['1', '2', '3'])}, {self.pick(['0', '1', '4'])})",
                lambda: f"trim({sub()})",
                lambda: f"replace({sub()}, 'a', 'bb')",
                lambda: f"CAST({self.column('int', tables)} AS VARCHAR)",
            ]
        elif kind == "bool":
            forms += [lambda: f"({self.condition(tables, depth - 1)})"]
        return self.pick(forms)()

    def condition(self, tables: list[str], depth: int = 2) -> str:
        if depth > 0 and self.chance(0.4):
            left, right = self.condition(tables, depth - 1), self.condition(tables, depth - 1)
            return f"({left}) {self.pick(['AND', 'OR'])} ({right})"
        kind = self.pick(COMPARED)
        left = self.expr(kind, tables, min(depth, 1))
        right = self.constant(kind) if self.chance(0.6) else self.column(kind, tables)
        # The engine tells 0.0 from -0.0 in lists and NULLIF (docs/sql.md).
        is_float = kind == "float"
        comparison = self.pick(["=", "<>", "<", "<=", ">", ">="])
        forms = [
            lambda: f"{left} {comparison} {right}",
            lambda: f"{left} {comparison} {right}",
            lambda: f"{self.column(kind, tables)} IS {self.pick(['', 'NOT '])}NULL",
            lambda: f"{left} IS {self.pick(['', 'NOT '])}DISTINCT FROM {right}",
            lambda: f"{left} BETWEEN {self.constant(kind)} AND {right}",
            lambda: f"{left} {self.pick(['', 'NOT '])}IN ({self.constant(kind)}, {self.constant(kind)}, {right})" if not is_float else f"{left} <> {right}",
            lambda: f"{self.column('text', tables)} {self.pick(['', 'NOT '])}{self.pick(['LIKE', 'ILIKE'])} {self.pick(PATTERNS)}",
            lambda: f"NOT ({left} {comparison} {right})",
            lambda: self.column("bool", tables),
            lambda: f"({self.column('bool', tables)}) IS {self.pick(['', 'NOT '])}{self.pick(['TRUE', 'FALSE'])}",
        ]
        return self.pick(forms)()

    def where(self, tables: list[str], share: float = 0.7) -> str:
        return f" WHERE {self.condition(tables)}" if self.chance(share) else ""

    def risky(self) -> str:
        """An expression that overflows for some rows and not for others."""
        n, s = "a.n", "a.s"
        return self.pick([
            f"{n} + CAST(1 AS BIGINT)", f"{n} - CAST(1 AS BIGINT)", f"{n} * CAST(2 AS BIGINT)", f"-{n}", f"abs({n})",
            f"{n} + {n}", f"{s} * {s}", f"{s} + {s}", f"{n} % CAST(10 AS BIGINT)", f"{n} - {n}",
        ])

    def aggregate(self, tables: list[str], unique: str) -> str:
        kind = self.pick(COMPARED)
        column = self.column(kind, tables)
        call = self.pick([
            lambda: "count(*)",
            lambda: f"count({column})",
            lambda: f"count(DISTINCT {column})",
            lambda: f"min({column})",
            lambda: f"max({column})",
            lambda: f"sum({self.expr('int', tables, 1)})",
            lambda: f"sum({self.column('dec', tables)})",
            lambda: f"avg({self.pick([self.column('dec', tables), self.column('int', tables)])})",
            lambda: f"bool_and({self.column('bool', tables)})",
            lambda: f"bool_or({self.column('bool', tables)})",
            lambda: f"sum(DISTINCT {tables[0]}.i)",
        ])()
        return f"{call} FILTER (WHERE {self.condition(tables, 1)})" if self.chance(0.25) else call

    def rows(self) -> str:
        shown = [self.expr(self.pick(list(KINDS)), ["a"]) for _ in range(self.random.randint(1, 4))]
        return f"SELECT a.id, {', '.join(shown)} FROM a{self.where(['a'])}"

    def overflow(self) -> str:
        return f"SELECT a.id, {self.risky()} FROM a WHERE {self.condition(['a'], 1)}"

    def limit(self) -> str:
        order = self.pick(["a.id", "a.i, a.id", "a.t DESC NULLS LAST, a.id", "a.d NULLS FIRST, a.id"])
        offset = self.pick(["", " OFFSET 3"])
        return f"SELECT a.id, a.t FROM a{self.where(['a'])} ORDER BY {order} LIMIT {self.random.randint(0, 9)}{offset}"

    def groups(self, relation: str | None = None, tables: list[str] | None = None) -> str:
        relation, tables = relation or "a", tables or ["a"]
        keys = [self.expr(self.pick(["int", "text", "date", "bool", "dec"]), tables, 1) for _ in range(self.random.randint(0, 2))]
        calls = [self.aggregate(tables, "a.id") for _ in range(self.random.randint(1, 3))]
        having = f" HAVING count(*) > {self.pick(['0', '1', '2'])}" if keys and self.chance(0.3) else ""
        group = f" GROUP BY {', '.join(str(i + 1) for i in range(len(keys)))}" if keys else ""
        return f"SELECT {', '.join(keys + calls)} FROM {relation}{self.where(tables)}{group}{having}"

    def relation(self) -> str:
        key = self.pick(["i", "t", "day", "d", "s", "b", "f"])
        kind = self.pick(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        on = f"a.{key} = b.{key}"
        if self.chance(0.3):
            on += f" AND a.{self.pick(['i', 's', 'n', 'id'])} {self.pick(['<', '>=', '<>'])} b.{self.pick(['i', 's', 'n', 'id'])}"
        return f"a {kind} b ON {on}"

    def join(self) -> str:
        if self.chance(0.5):
            return self.groups(self.relation(), ["a", "b"])
        shown = [self.expr(self.pick(list(KINDS)), ["a", "b"], 1) for _ in range(self.random.randint(1, 3))]
        condition = f" WHERE {self.condition(['a', 'b'])}" if self.chance(0.5) else ""
        return f"SELECT a.id, b.id, {', '.join(shown)} FROM {self.relation()}{condition}"

    def subquery(self) -> str:
        key = self.pick(["i", "t", "day", "s", "n"])
        inner = f" WHERE {self.condition(['b'], 1)}" if self.chance(0.6) else ""
        also = f" AND ({self.condition(['b'], 1)})" if self.chance(0.6) else ""
        form = self.pick([
            f"a.{key} IN (SELECT b.{key} FROM b{inner})",
            f"a.{key} NOT IN (SELECT b.{key} FROM b WHERE b.{key} IS NOT NULL{also})",
            f"EXISTS (SELECT 1 FROM b WHERE b.{key} = a.{key}{also})",
            f"NOT EXISTS (SELECT 1 FROM b WHERE b.{key} = a.{key}{also})",
            f"a.i >= (SELECT max(b.i) FROM b WHERE b.{key} = a.{key})",
            f"(SELECT count(*) FROM b WHERE b.{key} = a.{key}{also}) > 1",
            f"a.n < (SELECT max(b.n) FROM b{inner})",
        ])
        return f"SELECT a.id, a.{key} FROM a WHERE {form}"

    def window(self) -> str:
        call = self.pick([
            "row_number()", "rank()", "dense_rank()", "count(*)", "count(a.t)", "sum(a.i)", "sum(a.d)", "min(a.t)",
            "max(a.n)", "min(a.f)", "lag(a.i)", "lead(a.t, 2)", "first_value(a.day)", "last_value(a.s)",
            "count(a.f)",
        ])
        parts = self.pick(["", "PARTITION BY a.b ", "PARTITION BY a.t ", "PARTITION BY a.i, a.b ", "PARTITION BY a.f "])
        ranked = call in ["rank()", "dense_rank()"]
        order = self.pick(["a.i", "a.day", "a.f"]) if ranked else self.pick(["a.id", "a.i, a.id", "a.t DESC NULLS LAST, a.id"])
        frame = self.pick(["", " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING"])
        framed = frame if "(a" in call and not call.startswith(("lag", "lead")) else ""
        nulls = " NULLS LAST" if "DESC" not in order and "," not in order else ""
        return f"SELECT a.id, {call} OVER ({parts}ORDER BY {order}{nulls}{framed}) FROM a{self.where(['a'], 0.3)}"

    def sets(self) -> str:
        kind = self.pick(["int", "text", "date", "dec", "big", "float"])
        operation = self.pick(["UNION", "UNION ALL", "INTERSECT", "EXCEPT"])
        left = f"SELECT {self.expr(kind, ['a'], 1)} FROM a{self.where(['a'], 0.5)}"
        right = f"SELECT {self.expr(kind, ['b'], 1)} FROM b{self.where(['b'], 0.5)}"
        return f"{left} {operation} {right}"

    def query(self) -> str:
        forms = [self.rows] * 4 + [self.groups] * 4 + [self.join] * 5 + [self.subquery] * 3 + [self.window] * 4
        return self.pick(forms + [self.sets] * 3 + [self.limit] + [self.overflow] * 2)()


def cell(value: object) -> str:
    """As the test shows it."""
    if value is None:
        return "\\N"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value + 0.0)
    if isinstance(value, datetime.datetime):
        return str(value).rstrip("0") if value.microsecond else str(value)
    return str(value) or "(empty)"


def main() -> None:
    folder = pathlib.Path(__file__).resolve().parent
    connection = duckdb.connect()
    connection.execute((folder / "tables.sql").read_text())
    maker, blocks, errors = Maker(SEED), [], 0
    while len(blocks) < QUERIES:
        sql = maker.query()
        try:
            result = connection.execute(sql)
            types = [str(column[1]) for column in result.description]
            rows = sorted("\t".join(cell(value) for value in row) for row in result.fetchall())
        except (duckdb.OutOfRangeException, duckdb.ConversionException):
            types, rows, errors = ["error"], [], errors + 1
        if len(rows) <= 100:
            blocks.append("\n".join([sql, "\t".join(types), *rows]) + "\n")
    (folder / "answers.txt").write_text("\n".join(blocks))
    print(f"{len(blocks)} queries, {errors} of them errors")


main()
