"""ADBC: statements, parameters, ingestion, metadata, errors. The driver is Flight SQL's for a node, PostgreSQL's for
PostgreSQL; what only one of them has (codes, types of columns) is not printed."""

import datetime
import decimal
import os

import adbc_driver_flightsql.dbapi as flight
import adbc_driver_postgresql.dbapi as postgresql
import pyarrow
from checks import check

if "FLIGHT_PORT" in os.environ:
    connection = flight.connect(f"grpc://127.0.0.1:{os.environ['FLIGHT_PORT']}", autocommit=True)
else:
    connection = postgresql.connect(
        f"postgresql://{os.environ['PGUSER']}@127.0.0.1:{os.environ['PGPORT']}/{os.environ['PGDATABASE']}", autocommit=True)

def plain(value):
    """The value, in the form that both drivers have."""
    return str(value).rstrip("0").rstrip(".") if isinstance(value, decimal.Decimal) else value


def rows(sql, parameters=None):
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return [tuple(map(plain, row)) for row in cursor.fetchall()]


def named(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return [column[0] for column in cursor.description]


def changed(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.rowcount


def error(sql):
    with connection.cursor() as cursor:
        try:
            cursor.execute(sql)
            cursor.fetchall()
        except flight.Error:
            return "an error"
    return "no error"


check("rows", lambda: rows("select id, flag, small, big, f4, f8, name, bytes, day, at, moment from things order by id"))
check("names of columns", lambda: named("select * from things"))
check("aggregates", lambda: rows("select who, count(*), sum(minutes) from visits group by who order by who"))
check("a join", lambda: rows("select t.name, v.minutes from things t join visits v on v.thing = t.id order by t.name, v.minutes"))
check("no rows", lambda: rows("select id from things where id = 99"))
check("odd names", lambda: rows('select "Id", "select", "Größe" from "Odd Names"'))
PARAMETERS = [
    ("integer", 2, "id"), ("text", "pen", "name"), ("double", 2.25, "f8"), ("date", datetime.date(2024, 2, 29), "day"),
    ("bytes", b"\x00\x01\xff", "bytes"), ("boolean", True, "flag"), ("timestamp", datetime.datetime(2038, 1, 19, 3, 14, 7), "at"),
]
for name, value, column in PARAMETERS:
    check(f"parameter: {name}", lambda: rows(f"select id from things where {column} = $1 order by id", (value,)))
check("two parameters", lambda: rows("select id from things where id > $1 and name <> $2 order by id", (1, "ärmel")))
check("NULL as parameter", lambda: rows("select $1::int is null", (None,)))


def executed_many():
    with connection.cursor() as cursor:
        cursor.executemany("insert into notes values ($1, $2)", [(5, "five"), (6, "six"), (7, "seven")])
    return rows("select line, content from notes where line between 5 and 7 order by line")


def ingested(mode, table, first):
    table_of = pyarrow.table({"line": pyarrow.array([first, first + 1, None], pyarrow.int64()), "content": ["a", None, "ö"]})
    with connection.cursor() as cursor:
        count = cursor.adbc_ingest(table, table_of, mode=mode)
    return [count] + rows(f"select line, content from {table} order by line, content")


def streamed():
    def batches():
        for part in range(4):
            yield pyarrow.record_batch({"line": pyarrow.array(range(part * 1000, part * 1000 + 1000), pyarrow.int64())})
    reader = pyarrow.RecordBatchReader.from_batches(pyarrow.schema([("line", pyarrow.int64())]), batches())
    with connection.cursor() as cursor:
        cursor.adbc_ingest("many", reader, mode="create")
    return rows("select count(*), sum(line)::bigint from many")


check("executemany", executed_many)
check("adbc_ingest: create", lambda: ingested("create", "loaded", 1))
check("adbc_ingest: append", lambda: ingested("append", "loaded", 10))
check("adbc_ingest: replace", lambda: ingested("replace", "loaded", 20))
check("adbc_ingest: create_append", lambda: ingested("create_append", "loaded", 30))
check("adbc_ingest of a stream", streamed)
check("changed rows", lambda: [changed("insert into visits values (7, 'zoe', 1), (7, 'zoe', 2)"), changed("update visits set minutes = 3 where who = 'zoe'"),
                              changed("delete from visits where who = 'zoe'")])


def objects(**options):
    found = connection.adbc_get_objects(**options).read_all().to_pylist()
    return sorted(
        (schema["db_schema_name"], table["table_name"], tuple(column["column_name"] for column in table["table_columns"] or []))
        for catalog in found for schema in catalog["catalog_db_schemas"] or []
        if schema["db_schema_name"] in ("public", "staging") for table in schema["db_schema_tables"] or [])


check("objects: tables", lambda: objects(depth="tables"))
check("objects: columns", lambda: objects(depth="columns", table_name_filter="things"))
check("objects: a pattern", lambda: objects(depth="tables", table_name_filter="n%"))
check("the schema of a table", lambda: connection.adbc_get_table_schema("visits").names)
check("kinds of tables", lambda: [kind for kind in ("table", "view") if kind in [of.lower() for of in connection.adbc_get_table_types()]])
check("columns without running", lambda: connection.cursor().adbc_execute_schema("select id, name from things").names)
for sql in ["select nothing", "select * from nothing", "selec 1", "select 1 / 0", "select 'x'::int"]:
    check(f"an error: {sql}", lambda: error(sql))
check("after an error", lambda: rows("select 1 + 1"))
