#!/usr/bin/env python3
"""Records DuckDB's answers to random queries with subqueries, and with joins by USING and NATURAL, as answers.txt.

The tables are `tables.sql`: small, with NULLs and duplicates, one of them empty. Subqueries stand in SELECT, WHERE
FROM (LATERAL), ON, ORDER BY, GROUP BY, aggregates and windows; they are correlated with the query around them, or the one around that, by equality, inequality,
or not at all, and have aggregates, GROUP BY, HAVING, windows, DISTINCT, LIMIT and OFFSET, set operations and joins.
Order is by unique keys wherever rows are cut. The format is that of `queries/answers.txt`; `error` where DuckDB
says that a subquery has several rows.

PostgreSQL 15 gives the same answers where it has the form (no QUALIFY), but for the place of the keys of USING in `*`:
there they come first, in DuckDB where the left table has them, which is taken. Comparisons of rows, `(a, b) IN (…)`, are
not generated: of their NULLs DuckDB says that they are equal, and farpool follows PostgreSQL and the standard.

Usage, in a virtual environment outside the tree:
    pip install duckdb==2.0.1
    python testdata/subqueries/record_answers.py
"""

import pathlib
import random

import duckdb

SEED, QUERIES = 20261128, 700
COLUMNS = {"t": ["a", "b"], "u": ["a", "c"], "w": ["a", "b"], "e": ["a", "b"]}


class Maker:
    """Makes queries."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0

    def pick(self, of):
        return self.random.choice(of)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def table(self) -> tuple[str, str]:
        """A table and an alias."""
        self.count += 1
        return self.random.choices(list(COLUMNS), [5, 5, 4, 1])[0], f"q{self.count}"

    def column(self, scope) -> str:
        table, alias = scope
        return f"{alias}.{self.pick(COLUMNS[table])}"

    def value(self, scopes) -> str:
        """An integer of the innermost scope, sometimes with an outer one."""
        own = self.column(scopes[-1])
        if len(scopes) > 1 and self.chance(0.15):
            return f"{own} + {self.column(self.pick(scopes[:-1]))}"
        return self.pick([own, own, own, f"coalesce({own}, 2)", f"nullif({own}, 2)", f"{own} + 1"])

    def compared(self, scopes) -> str:
        """A condition that compares with an outer row."""
        own, outer = self.column(scopes[-1]), self.column(self.pick(scopes[:-1]))
        op = self.pick(["=", "=", "=", "=", "<", ">=", "<>", "IS NOT DISTINCT FROM"])
        outer = self.pick([outer, outer, f"{outer} - 1", f"coalesce({outer}, 1)"])
        return f"{own} {op} {outer}"

    def where(self, scopes, depth: int) -> str:
        parts = []
        if len(scopes) > 1 and self.chance(0.85):
            parts.append(self.compared(scopes))
        if len(scopes) > 1 and self.chance(0.2):
            parts.append(self.compared(scopes))
        if self.chance(0.3):
            parts.append(f"{self.column(scopes[-1])} {self.pick(['>', '<=', '<>'])} {self.pick(['0', '2', '3'])}")
        if depth > 0 and self.chance(0.5):
            parts.append(self.predicate(scopes, depth - 1))
        return " WHERE " + f" {self.pick(['AND', 'AND', 'AND', 'OR'])} ".join(parts) if parts else ""

    def source(self, scopes, depth: int):
        """FROM and WHERE of a subquery, and its scope."""
        scope = self.table()
        inner = [*scopes, scope]
        table, alias = scope
        joined = ""
        if self.chance(0.2):
            other, name = self.table()
            on = f"{name}.a = {alias}.a"
            if scopes and self.chance(0.4):
                on += f" AND {self.compared([*scopes, (other, name)])}"
            joined = f" {self.pick(['JOIN', 'LEFT JOIN'])} {other} {name} ON {on}"
        return f"FROM {table} {alias}{joined}{self.where(inner, depth)}", inner

    def rows(self, scopes, depth: int) -> str:
        """A subquery of one column named v."""
        form = self.pick(["plain"] * 4 + ["aggregate", "grouped", "having", "window", "distinct", "limit", "union",
                                          "derived", "qualify", "offset"])
        source, inner = self.source(scopes, depth)
        value = self.value(inner)
        alias = inner[-1][1]
        aggregate = self.pick([f"count({value})", "count(*)", f"max({value})", f"min({value})", f"sum({value})"])
        if form == "plain":
            return f"SELECT {value} AS v {source}"
        if form == "aggregate":
            return f"SELECT {aggregate} AS v {source}"
        if form == "grouped":
            return f"SELECT {aggregate} AS v {source} GROUP BY {self.column(inner[-1])}"
        if form == "having":
            return f"SELECT {aggregate} AS v {source} HAVING count(*) {self.pick(['> 1', '< 2', '= 0'])}"
        if form == "window":
            over = self.pick(["row_number() OVER (ORDER BY {}.id)", "count(*) OVER ()", "sum({}.a) OVER (ORDER BY {}.id)"])
            return f"SELECT {over.replace('{}', alias)} AS v {source}"
        if form == "distinct":
            return f"SELECT DISTINCT {value} AS v {source}"
        if " JOIN " in source:  # rows have no unique key
            return f"SELECT {aggregate} AS v {source}"
        if form == "limit":
            return f"SELECT {value} AS v {source} ORDER BY {alias}.id{self.pick(['', ' DESC'])} LIMIT {self.pick('0123')}"
        if form == "offset":
            return f"SELECT {value} AS v {source} ORDER BY {alias}.id LIMIT {self.pick('123')} OFFSET {self.pick('12')}"
        if form == "union":
            other, _ = self.source(scopes, 0)
            op = self.pick(["UNION ALL", "UNION", "EXCEPT", "INTERSECT"])
            name = other.split()[2]
            return f"SELECT {value} AS v {source} {op} SELECT {name}.a {other}"
        if form == "derived":
            return f"SELECT max(d.v) AS v FROM (SELECT {value} AS v, row_number() OVER (ORDER BY {alias}.id) AS n {source}) d WHERE d.n <= 2"
        return f"SELECT {value} AS v {source} QUALIFY row_number() OVER (ORDER BY {alias}.id) = {self.pick('12')}"

    def single(self, scopes, depth: int) -> str:
        """A subquery of one row, mostly."""
        source, inner = self.source(scopes, depth)
        value, alias = self.value(inner), inner[-1][1]
        if " JOIN " in source or self.chance(0.6):
            aggregate = self.pick([f"count({value})", "count(*)", f"max({value})", f"sum({value})", f"coalesce(min({value}), -1)",
                                   f"count(*) + coalesce(sum({value}), 0)", f"count(DISTINCT {value})"])
            having = self.pick(["", "", "", " HAVING count(*) > 1"])
            return f"(SELECT {aggregate} {source}{having})"
        if self.chance(0.75):
            return f"(SELECT {value} {source} ORDER BY {alias}.id{self.pick(['', ' DESC'])} LIMIT 1{self.pick(['', ' OFFSET 1'])})"
        return f"(SELECT {value} {source})"

    def predicate(self, scopes, depth: int) -> str:
        rows = self.rows(scopes, depth)
        left = self.pick([self.value(scopes[-1:]), self.value(scopes[-1:]), "1", "CAST(NULL AS INTEGER)"])
        return self.pick([
            f"EXISTS ({rows})",
            f"NOT EXISTS ({rows})",
            f"{left} IN ({rows})",
            f"{left} NOT IN ({rows})",
            f"{left} NOT IN ({rows})",
            f"{left} {self.pick(['=', '<', '>='])} {self.single(scopes, depth)}",
            f"{left} {self.pick(['>', '<=', '<>', '='])} {self.pick(['ANY', 'ALL'])} ({rows})",
            f"({left} IN ({rows})) IS NOT TRUE",
        ])

    def subqueries(self) -> str:
        table, alias = scope = self.table()
        depth = self.pick([0, 0, 1])
        shape = self.pick(["where", "where", "where", "select", "select", "scalar", "lateral", "left lateral", "group"])
        if shape == "where":
            return f"SELECT {alias}.id FROM {table} {alias} WHERE {self.predicate([scope], depth)}"
        if shape == "select":
            return f"SELECT {alias}.id, {self.predicate([scope], depth)} AS p FROM {table} {alias}"
        if shape == "scalar":
            return f"SELECT {alias}.id, {self.single([scope], depth)} AS v, {self.single([scope], 0)} AS x FROM {table} {alias}"
        if shape == "group":
            return (f"SELECT {alias}.a, count(*) AS n FROM {table} {alias} GROUP BY {alias}.a "
                    f"HAVING {alias}.a IS NULL OR {self.predicate([(table, alias)], 0).replace(alias + '.b', alias + '.a').replace(alias + '.c', alias + '.a')}")
        join = ", LATERAL" if shape == "lateral" else " LEFT JOIN LATERAL"
        on = "" if shape == "lateral" else self.pick([" ON true", f" ON l.v > {self.column(scope)}"])
        return f"SELECT {alias}.id, l.v FROM {table} {alias}{join} ({self.rows([scope], depth)}) l{on}"

    def more(self) -> str:
        """Forms beside those: subqueries in ON, ORDER BY, GROUP BY and aggregates, several LATERAL, WITH, three levels."""
        table, alias = scope = self.table()
        other, name = second = self.table()
        depth = self.pick([0, 0, 1])
        shape = self.pick(["on", "outer on", "order", "key", "argument", "two laterals", "nested lateral", "with", "deep",
                           "window", "case", "lateral using", "values"])
        both = f"FROM {table} {alias} JOIN {other} {name} ON {alias}.a = {name}.a"
        if shape == "on":
            return f"SELECT {alias}.id, {name}.id AS j {both} AND {self.predicate([scope], depth)}"
        if shape == "outer on":
            side = self.pick([scope, second])
            kind = self.pick(["LEFT", "RIGHT", "FULL"]) if depth == 0 else "LEFT"
            return (f"SELECT {alias}.id, {name}.id AS j FROM {table} {alias} {kind} JOIN {other} {name} "
                    f"ON {alias}.a = {name}.a AND {self.predicate([side], depth)}")
        if shape == "order":
            return f"SELECT {alias}.id FROM {table} {alias} ORDER BY {self.single([scope], depth)} NULLS FIRST, {alias}.id LIMIT 3"
        if shape == "key":
            return f"SELECT {self.single([scope], depth)} AS k, count(*) AS n FROM {table} {alias} GROUP BY 1"
        if shape == "argument":
            return f"SELECT sum({self.single([scope], depth)}) AS s, count(*) FILTER (WHERE {self.predicate([scope], 0)}) AS n FROM {table} {alias}"
        if shape == "two laterals":
            inner = self.rows([scope], depth)
            return (f"SELECT {alias}.id, l.v, m.v AS w FROM {table} {alias}, LATERAL ({inner}) l, "
                    f"LATERAL (SELECT count(*) AS v FROM {other} {name} WHERE {name}.a >= l.v OR {name}.a = {alias}.a) m")
        if shape == "nested lateral":
            return (f"SELECT {alias}.id, {self.aggregate_of(scope, second)} AS n FROM {table} {alias}")
        if shape == "with":
            return (f"WITH c AS ({self.rows([], 0)}) SELECT {alias}.id, (SELECT count(*) FROM c WHERE c.v >= {alias}.a) AS n "
                    f"FROM {table} {alias} WHERE {alias}.a {self.pick(['IN', 'NOT IN'])} (SELECT c.v FROM c WHERE c.v IS NOT NULL)")
        if shape == "deep":
            third, last = self.table()
            return (f"SELECT {alias}.id FROM {table} {alias} WHERE {self.pick(['', 'NOT '])}EXISTS (SELECT 1 FROM {other} {name} WHERE "
                    f"{name}.a {self.pick(['=', '<', '>='])} {alias}.a AND {self.pick(['', 'NOT '])}EXISTS (SELECT 1 FROM {third} {last} WHERE "
                    f"{last}.a = {name}.a AND {last}.{COLUMNS[third][1]} {self.pick(['=', '<', '<>'])} {alias}.{COLUMNS[table][1]}))")
        if shape == "window":
            return f"SELECT {alias}.id, sum({self.single([scope], 0)}) OVER (ORDER BY {alias}.id) AS s FROM {table} {alias}"
        if shape == "case":
            return (f"SELECT {alias}.id, CASE WHEN {self.predicate([scope], depth)} THEN {self.single([scope], 0)} "
                    f"ELSE {alias}.a END AS v FROM {table} {alias}")
        if shape == "lateral using":
            return (f"SELECT a, count(*) AS n FROM t FULL JOIN u USING (a), LATERAL (SELECT {name}.a AS v FROM {other} {name} "
                    f"WHERE {name}.a {self.pick(['=', '<='])} u.c) l GROUP BY a")
        return (f"SELECT {alias}.id FROM {table} {alias} WHERE {self.column(scope)} {self.pick(['IN', 'NOT IN'])} "
                f"(SELECT x FROM (VALUES (1), ({self.column(scope)} - 1), ({self.pick(['NULL', '4'])})) y(x))")

    def keys(self, first: str, other: str) -> str:
        """Names of keys in several places."""
        join = f"{first} {self.pick(['JOIN', 'LEFT JOIN', 'RIGHT JOIN', 'FULL JOIN'])} {other} USING (a)"
        return self.pick([
            f"SELECT {other}.*, a FROM {join}",
            f"SELECT x.* FROM (SELECT {other}.* FROM {join}) x",
            f"SELECT q.a, q.n FROM (SELECT a, count({other}.a) AS n FROM {join} GROUP BY a) q WHERE q.a > 1",
            f"SELECT a, {first}.id FROM {join} WHERE EXISTS (SELECT 1 FROM e RIGHT JOIN w k ON true WHERE k.a = {other}.a)",
            f"SELECT a, {first}.id FROM {join} WHERE a NOT IN (SELECT k.b FROM w k WHERE k.a = {first}.a)",
            f"SELECT a, row_number() OVER (PARTITION BY a ORDER BY {first}.id, {other}.id) AS r FROM {join}",
            f"SELECT {first}.a, {other}.a AS y, k.id AS j FROM {join} JOIN w k ON k.a = {first}.a",
            f"SELECT a, {first}.a AS x FROM {join} GROUP BY a, {first}.a",
            f"SELECT max(a) AS m FROM {join} WHERE {first}.a IS NULL OR {other}.a > 1",
            f"SELECT a FROM {first} WHERE EXISTS (SELECT 1 FROM {other} JOIN w USING (a) WHERE a = {first}.a)",
            f"SELECT a FROM {first} WHERE a IN (SELECT a FROM {other} FULL JOIN w USING (a) WHERE w.a > 1)",
            f"SELECT a, {other}.a AS y FROM {join} ORDER BY a NULLS FIRST, {other}.a NULLS FIRST, {first}.id, {other}.id LIMIT 5",
            f"SELECT * FROM {join} UNION ALL SELECT * FROM {join} WHERE {other}.a = 2",
        ])

    def aggregate_of(self, scope, inner) -> str:
        """A value of an inner query that has a LATERAL of its own."""
        table, name = inner
        other, last = self.table()
        return (f"(SELECT sum(l.v) FROM {table} {name}, LATERAL (SELECT {last}.a AS v FROM {other} {last} WHERE "
                f"{last}.a {self.pick(['=', '<='])} {name}.a AND {last}.id <> {scope[1]}.id ORDER BY {last}.id LIMIT 2) l "
                f"WHERE {name}.{COLUMNS[table][1]} {self.pick(['=', '<', 'IS DISTINCT FROM'])} {scope[1]}.a)")

    def query(self) -> str:
        return self.random.choices([self.using, self.subqueries, self.more], [2, 5, 3])[0]()

    def using(self) -> str:
        kinds = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]
        first, *others = [self.pick(["t", "u", "w"])] + self.random.sample(["t", "u", "w"], self.pick([1, 1, 2]))
        others = [table for table in others if table != first] or [self.pick([n for n in "tuw" if n != first])]
        if self.chance(0.2):
            return self.keys(first, others[0])
        text, natural = first, self.chance(0.25) and len(others) == 1
        for table in others:
            kind = self.pick(kinds)
            text += f" NATURAL {kind} {table}" if natural else f" {kind} {table} USING (a)"
        if natural:
            shape = self.pick(["SELECT * FROM {}", "SELECT a, count(*) AS n FROM {} GROUP BY a"])
        else:
            shape = self.pick(["SELECT a FROM {}", "SELECT a, count(*) AS n FROM {} GROUP BY a", "SELECT * FROM {}",
                               "SELECT a, {f}.a AS x, {o}.a AS y FROM {}", "SELECT a, {f}.id, {o}.id FROM {} WHERE a >= 2",
                               "SELECT {f}.* FROM {}", "SELECT a FROM {} WHERE {o}.a IS NULL ORDER BY a",
                               "SELECT a, {f}.id FROM {} WHERE a IN (SELECT w2.a FROM w w2)",
                               "SELECT a, (SELECT count(*) FROM e q WHERE q.a = {f}.a) AS n FROM {}"])
        return shape.replace("{f}", first).replace("{o}", others[-1]).replace("{}", text)


def cell(value) -> str:
    if value is None:
        return "\\N"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def main() -> None:
    folder = pathlib.Path(__file__).parent
    connection = duckdb.connect()
    connection.execute((folder / "tables.sql").read_text())
    maker, blocks, seen = Maker(SEED), [], set()
    while len(blocks) < QUERIES:
        text = maker.query()
        if text in seen:
            continue
        seen.add(text)
        try:
            result = connection.execute(text)
            types, rows = [str(column[1]) for column in result.description], result.fetchall()
        except duckdb.Error as error:
            if "More than one row" not in str(error) or "CASE" in text or "CAST(NULL" in text:
                continue  # a form that DuckDB lacks, or a value that need not be evaluated
            types, rows = ["error"], []
        blocks.append("\n".join([text, "\t".join(types), *sorted("\t".join(map(cell, row)) for row in rows)]))
    (folder / "answers.txt").write_text("\n\n".join(blocks) + "\n")


if __name__ == "__main__":
    main()
