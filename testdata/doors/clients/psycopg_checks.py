"""psycopg 3: types in both formats, parameters, cursors at the server, COPY, pipelines, arrays."""

import datetime
import decimal

import psycopg
from checks import check
from psycopg.rows import dict_row
from psycopg.types import TypeInfo

connection = psycopg.connect(autocommit=True)


def rows(sql, parameters=None, **options):
    return connection.execute(sql, parameters, **options).fetchall()


ORDERED = "select * from things order by id"
check("rows as text", lambda: rows(ORDERED))
check("rows in binary", lambda: rows(ORDERED, binary=True))
check("columns", lambda: [(c.name, c.type_display, c.precision, c.scale) for c in connection.execute(ORDERED).description])
PARAMETERS = [
    ("integer", 2, "id"), ("text", "pen", "name"), ("decimal", decimal.Decimal("-3.99"), "price"), ("double", 2.25, "f8"),
    ("date", datetime.date(2024, 2, 29), "day"), ("bytes", b"\x00\x01\xff", "bytes"), ("boolean", True, "flag"),
    ("timestamp", datetime.datetime(2038, 1, 19, 3, 14, 7), "at"),
    ("timestamptz", datetime.datetime(2038, 1, 19, 4, 14, 7, tzinfo=datetime.timezone(datetime.timedelta(hours=1))), "moment"),
]
for name, value, column in PARAMETERS:
    check(f"parameter: {name}", lambda: rows(f"select id from things where {column} = %s order by id", [value]))
    check(f"parameter in binary: {name}", lambda: rows(f"select id from things where {column} = %b order by id", [value]))
    check(f"parameter comes back: {name}", lambda: rows("select %s", [value]))
check("NULL as parameter", lambda: rows("select %s::int is null", [None]))
check("a list as parameter", lambda: rows("select id from things where id = any(%s) order by id", [[1, 4]]))
check("a list of texts as parameter", lambda: rows("select id from things where name = any(%s)", [["pen"]]))
check("an array comes back", lambda: rows("select array[1, 2, null]::int[], array['a', 'b,c']::text[]"))
check("array_agg", lambda: rows("select array_agg(who order by who) from visits"))
check("json comes back", lambda: rows("select '{\"a\": [1, 2]}'::json"))
check("interval comes back", lambda: rows("select interval '1 month 2 days 03:04:05'"))
check("uuid comes back", lambda: rows("select 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid"))
check("dict_row", lambda: connection.cursor(row_factory=dict_row).execute("select id, name from things where id = 1").fetchall())
check("TypeInfo", lambda: str(TypeInfo.fetch(connection, "numeric")))
check("executemany", lambda: connection.cursor().executemany("insert into notes values (%s, %s)", [(5, "five"), (6, None)]))
check("executemany stored", lambda: rows("select line, content from notes where line in (5, 6) order by line"))


def server_cursor():
    with connection.transaction(), connection.cursor("c") as cursor:
        cursor.itersize = 2
        return list(cursor.execute("select id from things order by id"))


def copied_out(form):
    with connection.cursor().copy(f"copy (select id, name, price from things order by id) to stdout {form}") as copy:
        return [bytes(part) for part in copy]


def copied_in():
    with connection.cursor().copy("copy notes from stdin") as copy:
        copy.write_row((7, "a\tb\\"))
        copy.write_row((8, None))
    return rows("select line, content from notes where line in (7, 8) order by line")


def copied_in_binary():
    with connection.cursor().copy("copy notes from stdin (format binary)") as copy:
        copy.set_types(["int8", "text"])
        copy.write_row((9, "ä"))
    return rows("select content from notes where line = 9")


def pipelined():
    with connection.pipeline():
        cursors = [connection.execute("select %s::int", [n]) for n in range(3)]
    return [cursor.fetchall() for cursor in cursors]


def transaction(isolation):
    with psycopg.connect() as other:
        other.isolation_level = isolation
        other.execute("insert into notes values (100, 'gone')")
        seen = other.execute("select count(*) from notes where line = 100").fetchall()
        other.rollback()
        return seen + rows("select count(*) from notes where line = 100")


check("a cursor at the server", server_cursor)
check("a stream", lambda: list(connection.cursor().stream("select id from things order by id")))
for form in ["", "(format csv, header)", "(format binary)"]:
    check(f"COPY TO {form}", lambda: copied_out(form))
check("COPY FROM", copied_in)
check("COPY FROM in binary", copied_in_binary)
check("a pipeline", pipelined)
check("a transaction that is rolled back", lambda: transaction(None))


def of_another_schema():
    with psycopg.connect() as other:
        other.execute("insert into staging.raw values (100, 'gone')")
        other.rollback()


check("a transaction of another schema", of_another_schema)
check("a serializable transaction", lambda: transaction(psycopg.IsolationLevel.SERIALIZABLE))


def error(sql):
    try:
        rows(sql)
    except psycopg.Error as error:
        return error.sqlstate
    return "no error"


ERRORS = [
    "select 1 / 0", "select nothing", "select * from nothing", "select nothing(1)", "selec 1", "select 'x'::int",
    "select 2147483647::int + 1::int", "select 1.0 / 0", "select '2024-02-30'::date", "insert into things values (1, 2)",
    "create table things (a int)", "drop table nothing", "select sqrt(-1)", "select ln(0)", "select 300::smallint * 300::smallint",
    "select (1, 2) = (1, 2, 3)", "select id from things group by name", "select sum(sum(id)) from things",
    "insert into things (id) values (null)", "select * from things where id = 'x'", "select 1 where 5", "select 'a' + 1",
    "select count(*) from things where name", "select '99999999999999999999'::bigint", "select * from things limit -1",
    "select substr('abc', 1, -1)", "select (select id from things)", "rollback to savepoint nothing", "select 1 union select 'x'",
    "select date '2024-01-01' - 'x'", "select now() at time zone 'Nowhere/City'", "select repeat('x', -1)", "select chr(0)",
]
for sql in ERRORS:
    check(f"SQLSTATE: {sql}", lambda: error(sql))
check("constants with a point", lambda: connection.execute("insert into things (id, f4, f8, price) values (70, 1.25, 0.5, 3.5)").rowcount)
check("constants with a point stored", lambda: rows("select f4, f8, price from things where id = 70"))
