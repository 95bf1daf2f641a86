"""Tests of DB-API 2.0, directly and through pandas and SQLAlchemy."""

import datetime
import decimal

import farpool
import pandas as pd
import pytest
import sqlalchemy as sa
from farpool import dbapi


@pytest.fixture
def connection():
    with dbapi.connect(memory="64MiB") as opened:
        opened.execute("create table t as select n, 'x' || n as s, (n * 1.5)::decimal(10, 2) as d from generate_series(1, 5) g(n)")
        yield opened


def test_the_module_is_as_dbapi_has_it():
    assert (dbapi.apilevel, dbapi.threadsafety, dbapi.paramstyle) == ("2.0", 2, "qmark")
    for name in ("Warning", "Error", "InterfaceError", "DatabaseError", "DataError", "OperationalError", "IntegrityError",
                 "InternalError", "ProgrammingError", "NotSupportedError"):
        assert getattr(dbapi, name) is getattr(dbapi.Connection, name)
        assert issubclass(getattr(dbapi, name), Exception)
    assert dbapi.Date(2024, 2, 29) == datetime.date(2024, 2, 29)
    assert dbapi.DateFromTicks(86400 * 365) in (datetime.date(1971, 1, 1), datetime.date(1970, 12, 31))
    assert dbapi.Binary(b"x") == b"x"
    assert dbapi.NUMBER == "DECIMAL(10,2)" and dbapi.NUMBER != "VARCHAR" and dbapi.STRING == "VARCHAR"


def test_a_cursor_gives_rows(connection):
    with connection.cursor() as cursor:
        assert cursor.description is None and cursor.rowcount == -1
        cursor.execute("select n, s, d from t where n > ? order by n", [1])
        assert [column[:2] for column in cursor.description] == [("n", "BIGINT"), ("s", "VARCHAR"), ("d", "DECIMAL(10,2)")]
        assert cursor.description[2][4:6] == (10, 2)
        assert cursor.description[0][1] == dbapi.NUMBER
        assert cursor.fetchone() == (2, "x2", decimal.Decimal("3.00"))
        assert [row[0] for row in cursor.fetchmany(2)] == [3, 4]
        assert [row[0] for row in cursor.fetchall()] == [5]
        assert cursor.fetchone() is None and cursor.fetchall() == []
        cursor.execute("select n from t where s = $s", {"s": "x3"})
        assert list(cursor) == [(3,)]
        cursor.arraysize = 4
        assert len(cursor.execute("select n from t").fetchmany()) == 4


def test_statements_that_change_something_count(connection):
    cursor = connection.cursor()
    cursor.execute("update t set s = ? where n <= ?", ["y", 2])
    assert (cursor.rowcount, cursor.description) == (2, None)
    with pytest.raises(dbapi.ProgrammingError, match="no rows to fetch"):
        cursor.fetchone()
    cursor.executemany("insert into t values (?, ?, ?)", [(6, "a", decimal.Decimal("1.25")), (7, None, None)])
    assert cursor.rowcount == 2
    connection.commit()
    connection.rollback()
    assert cursor.execute("select n, s, d from t where n > 5 order by n").fetchall() == [
        (6, "a", decimal.Decimal("1.25")), (7, None, None)
    ]
    assert cursor.execute("delete from t").rowcount == 7
    with pytest.raises(dbapi.ProgrammingError, match="without rows"):
        cursor.executemany("select ?", [[1]])


def test_what_is_closed_is_refused(connection):
    cursor = connection.cursor()
    cursor.close()
    with pytest.raises(dbapi.InterfaceError, match="cursor is closed"):
        cursor.execute("select 1")
    other = connection.cursor()
    connection.close()
    with pytest.raises(dbapi.InterfaceError, match="connection is closed"):
        connection.cursor()
    with pytest.raises(dbapi.InterfaceError):
        other.execute("select 1")


def test_a_pool_that_is_open_stays_open(pool):
    with dbapi.Connection(pool) as connection:
        assert connection.execute("select 1").fetchall() == [(1,)]
    assert pool.sql("select 2").fetchall() == [(2,)]


@pytest.mark.filterwarnings("ignore:pandas only supports SQLAlchemy")
def test_pandas_reads_by_a_connection(connection):
    frame = pd.read_sql("select n, s from t where n <= ? order by n", connection, params=[2])
    assert frame.to_dict("list") == {"n": [1, 2], "s": ["x1", "x2"]}
    parts = list(pd.read_sql("select n from t", connection, chunksize=2))
    assert [len(part) for part in parts] == [2, 2, 1]
    with pytest.raises(Exception, match="no column q"):
        pd.read_sql("select q from t", connection)


@pytest.fixture
def engine():
    made = sa.create_engine("farpool://?memory=64MiB")
    yield made
    made.dispose()


def test_pandas_writes_and_reads_by_sqlalchemy(engine):
    frame = pd.DataFrame(
        {
            "a": [1, 2, 3],
            "b": ["x", None, "z"],
            "c": [1.5, None, 2.5],
            "d": [pd.Timestamp("2020-01-01"), pd.Timestamp("2021-01-01 12:30:00.000001"), None],
            "f": [True, False, True],
        }
    )
    for method in (None, "multi"):
        assert frame.to_sql("t", engine, index=False, if_exists="replace", method=method) == 3
        back = pd.read_sql("select * from t order by a", engine)
        pd.testing.assert_frame_equal(back, frame, check_dtype=False)
    assert pd.read_sql_table("t", engine)["d"].dtype.kind == "M"
    assert pd.read_sql_query(sa.text("select a from t where a >= :x order by a"), engine, params={"x": 2})["a"].tolist() == [2, 3]


def test_sqlalchemy_reaches_the_table_of_the_schema(engine):
    frame = pd.DataFrame({"a": [1, 2, 3]})
    frame.to_sql("t", engine, index=False)
    other = frame * 10
    # A missing schema is an error, and the table of that name in `public` stays.
    for if_exists in ("fail", "replace", "append"):
        with pytest.raises(sa.exc.SQLAlchemyError, match="there is no schema"):
            other.to_sql("t", engine, schema="staging", index=False, if_exists=if_exists)
        assert pd.read_sql("select a from t order by a", engine)["a"].tolist() == [1, 2, 3]
    with engine.begin() as connection:
        connection.execute(sa.schema.CreateSchema("staging"))
    for if_exists, rows in (("fail", 3), ("append", 6), ("replace", 3)):
        other.to_sql("t", engine, schema="staging", index=False, if_exists=if_exists)
        assert len(pd.read_sql_table("t", engine, schema="staging")) == rows
    assert pd.read_sql("select a from t order by a", engine)["a"].tolist() == [1, 2, 3]
    inspector = sa.inspect(engine)
    assert inspector.get_schema_names() == ["public", "staging"] and inspector.has_schema("staging")
    assert inspector.get_table_names(schema="staging") == ["t"] and not inspector.has_table("u", schema="staging")
    table = sa.Table("t", sa.MetaData(schema="staging"), autoload_with=engine)
    with engine.begin() as connection:
        assert connection.execute(sa.select(sa.func.sum(table.c.a))).scalar() == 60
        table.drop(connection)
        connection.execute(sa.schema.DropSchema("staging"))
    assert sa.inspect(engine).get_schema_names() == ["public"]


def test_sqlalchemy_has_tables(engine):
    metadata = sa.MetaData()
    items = sa.Table(
        "items",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(50)),
        sa.Column("price", sa.Numeric(10, 2)),
        sa.Column("at", sa.DateTime),
        sa.Column("day", sa.Date),
    )
    with engine.begin() as connection:
        metadata.create_all(connection)
        some = [
            dict(id=1, name="a", price=decimal.Decimal("1.25"), at=datetime.datetime(2024, 1, 2, 3, 4, 5), day=datetime.date(2020, 1, 1)),
            dict(id=2, name="b", price=None, at=None, day=None),
        ]
        connection.execute(items.insert(), some)
        assert [dict(row._mapping) for row in connection.execute(sa.select(items).order_by(items.c.id))] == some
        sums = sa.select(items.c.name, sa.func.sum(items.c.price)).group_by(items.c.name).order_by(items.c.name)
        assert connection.execute(sums).all() == [("a", decimal.Decimal("1.25")), ("b", None)]
        assert connection.execute(sa.select(items.c.id).where(items.c.name.like("a%")).limit(1).offset(0)).all() == [(1,)]
        # An interval next to a date is not sent as a date.
        later = sa.select(items.c.day + datetime.timedelta(days=1, hours=2)).where(items.c.at - datetime.timedelta(days=2) < datetime.datetime(2024, 1, 2))
        assert connection.execute(later).all() == [(datetime.datetime(2020, 1, 2, 2),)]
        spans = sa.select(sa.literal(datetime.timedelta(days=3, seconds=4)), items.c.at - items.c.at).where(items.c.id == 1)
        assert connection.execute(spans).all() == [(datetime.timedelta(days=3, seconds=4), datetime.timedelta(0))]
        like = sa.select(items.c.id).where(items.c.name.contains("a", autoescape=True))
        assert connection.execute(like).all() == [(1,)]
        assert connection.execute(items.update().where(items.c.id == 2).values(name="q")).rowcount == 1
        assert connection.execute(items.delete().where(items.c.id == 1)).rowcount == 1
        assert connection.execute(sa.text("select count(*) from items where id > :n"), {"n": 0}).scalar() == 1
    inspector = sa.inspect(engine)
    assert inspector.get_table_names() == ["items"]
    assert [str(column["type"]) for column in inspector.get_columns("items")] == [
        "INTEGER", "VARCHAR", "NUMERIC(10, 2)", "TIMESTAMP", "DATE"
    ]
    reflected = sa.Table("items", sa.MetaData(), autoload_with=engine)
    assert reflected.columns.keys() == ["id", "name", "price", "at", "day"]
    with pytest.raises(sa.exc.NoSuchTableError):
        sa.Table("nosuch", sa.MetaData(), autoload_with=engine)
    metadata.drop_all(engine)
    assert sa.inspect(engine).get_table_names() == []


def test_sqlalchemy_uses_a_pool_that_is_open(pool, node):
    pool.sql("create table t as select 7 as n")
    engine = sa.create_engine("farpool://", connect_args={"pool": pool})
    with engine.connect() as connection:
        assert connection.execute(sa.text("select n from t")).scalar() == 7
    engine.dispose()
    there = sa.create_engine(node.url)
    with there.connect() as connection:
        assert connection.execute(sa.text("select 1 + 1")).scalar() == 2
    there.dispose()
    assert not pool.closed


def test_errors_are_those_of_the_package(connection):
    with pytest.raises(farpool.NotFoundError):
        connection.execute("select q from t")
    assert farpool.NotFoundError.__mro__.index(dbapi.ProgrammingError)
