"""asyncpg: everything in binary, types looked up by its own query, cursors, COPY."""

import asyncio
import datetime
import decimal
import io

import asyncpg
from checks import check


async def main():
    connection = await asyncpg.connect()

    async def asked(name, ask):
        try:
            said = await ask
        except Exception as error:
            check(name, lambda: (_ for _ in ()).throw(error))
        else:
            check(name, lambda: said)

    fetch = connection.fetch
    await asked("rows", fetch("select * from things order by id"))
    for name, value, column in [
        ("integer", 2, "id"), ("text", "pen", "name"), ("decimal", decimal.Decimal("-3.99"), "price"),
        ("double", 2.25, "f8"), ("date", datetime.date(2024, 2, 29), "day"), ("bytes", b"\x00\x01\xff", "bytes"),
        ("boolean", True, "flag"), ("timestamp", datetime.datetime(2038, 1, 19, 3, 14, 7), "at"),
    ]:
        await asked(f"parameter: {name}", fetch(f"select id from things where {column} = $1 order by id", value))
    await asked("integers in an array", fetch("select array[1, 2, null]::int[]"))
    await asked("texts in an array", fetch("select array['a', 'b,c']::text[]"))
    await asked("array_agg", fetch("select array_agg(who order by who) from visits"))
    await asked("an array as parameter", fetch("select id from things where id = any($1::int[]) order by id", [1, 4]))
    await asked("texts in an array as parameter", fetch("select id from things where name = any($1::text[])", ["pen"]))
    await asked("json", fetch("select '[1]'::json"))
    await asked("a record", fetch("select row(1, 'a')"))
    await asked("interval", fetch("select interval '1 month 2 days 03:04:05'"))
    await asked("the types of a statement", types(connection))
    await asked("a cursor", cursor(connection))
    await asked("executemany", connection.executemany("insert into notes values ($1, $2)", [(20, "x"), (21, None)]))
    await asked("executemany stored", fetch("select * from notes where line in (20, 21) order by line"))
    await asked("copy_records_to_table", connection.copy_records_to_table("notes", records=[(22, "y")]))
    await asked("copy_from_query", copied(connection))
    await asked("copy_records_to_table stored", fetch("select * from notes where line = 22"))
    await asked("get_type of a scalar", introspect(connection))
    await asked("a transaction", transaction(connection))
    await asked("reset", connection.reset())
    await connection.close()
    pool = await asyncpg.create_pool(min_size=2, max_size=4)
    await asked("a pool", asyncio.gather(*(pool.fetchval("select $1::int", n) for n in range(8))))
    await pool.close()


async def types(connection):
    statement = await connection.prepare("select id, name, price from things where day > $1 and id = any($2::int[])")
    names = [(attribute.name, attribute.type.name) for attribute in statement.get_attributes()]
    return [names, [parameter.name for parameter in statement.get_parameters()]]


async def cursor(connection):
    async with connection.transaction():
        return [row["id"] async for row in connection.cursor("select id from things order by id", prefetch=2)]


async def copied(connection):
    into = io.BytesIO()
    await connection.copy_from_query("select id, name from things order by id", output=into, format="csv")
    return into.getvalue()


async def introspect(connection):
    await connection.set_type_codec("numeric", encoder=str, decoder=float, schema="pg_catalog", format="text")
    said = await connection.fetch("select price from things where id = 1")
    await connection.reset_type_codec("numeric", schema="pg_catalog")
    return said


async def transaction(connection):
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        async with connection.transaction():
            return await connection.fetchval("select count(*) from things")


asyncio.run(main())
