"""SQLAlchemy: what its inspector says of tables, columns and keys, and queries of its own making."""

import sys

from checks import check
from sqlalchemy import MetaData, Table, create_engine, func, inspect, select, text

DRIVER = sys.argv[1]
engine = create_engine(f"postgresql+{DRIVER}://")
inspector = inspect(engine)


def by_name(rows):
    return sorted(rows, key=lambda row: str(row.get("name")))


check("get_schema_names", lambda: sorted(inspector.get_schema_names()))
check("get_table_names", lambda: sorted(inspector.get_table_names()))
check("get_table_names of a schema", lambda: sorted(inspector.get_table_names(schema="staging")))
check("get_view_names", lambda: sorted(inspector.get_view_names()))
check("get_materialized_view_names", lambda: inspector.get_materialized_view_names())
check("get_temp_table_names", lambda: inspector.get_temp_table_names())
check("get_sequence_names", lambda: inspector.get_sequence_names())
check("has_table", lambda: [inspector.has_table("things"), inspector.has_table("nothing")])
check("has_schema", lambda: [inspector.has_schema("staging"), inspector.has_schema("nothing")])
for table in ["things", "Odd Names", "minutes"]:
    check(f"get_columns of {table}", lambda: inspector.get_columns(table))
check("get_columns of a schema", lambda: inspector.get_columns("raw", schema="staging"))
check("get_pk_constraint", lambda: inspector.get_pk_constraint("things"))
check("get_foreign_keys", lambda: inspector.get_foreign_keys("things"))
check("get_unique_constraints", lambda: inspector.get_unique_constraints("things"))
check("get_check_constraints", lambda: inspector.get_check_constraints("things"))
check("get_indexes", lambda: by_name(inspector.get_indexes("things")))
check("get_table_comment", lambda: inspector.get_table_comment("things"))
check("get_enums", lambda: inspector.get_enums())
check("get_domains", lambda: inspector.get_domains())
check("get_multi_columns", lambda: sorted(str(key) for key in inspector.get_multi_columns()))


def reflected():
    metadata = MetaData()
    metadata.reflect(engine)
    return sorted((name, [str(column.type) for column in table.columns]) for name, table in metadata.tables.items())


check("reflect", reflected)
with engine.connect() as connection:
    things = check("Table with autoload", lambda: Table("things", MetaData(), autoload_with=engine))
    check("text with parameters", lambda: connection.execute(text("select name from things where id < :n order by id"), {"n": 3}).all())
    connection.rollback()
    if things is not None:
        visits = Table("visits", MetaData(), autoload_with=engine)
        check("rows", lambda: connection.execute(select(things).order_by(things.c.id)).all())
        joined = select(things.c.name, func.sum(visits.c.minutes)).join(visits, visits.c.thing == things.c.id)
        joined = joined.group_by(things.c.name).order_by(things.c.name)
        check("join and group", lambda: connection.execute(joined).all())
        check("IN with a list", lambda: connection.execute(select(things.c.id).where(things.c.id.in_([1, 4])).order_by("id")).all())
        check("LIMIT and OFFSET", lambda: connection.execute(select(things.c.id).order_by(things.c.id).limit(2).offset(1)).all())
        check("a date as parameter", lambda: connection.execute(select(things.c.id).where(things.c.day > __import__("datetime").date(2024, 1, 1)).order_by("id")).all())
