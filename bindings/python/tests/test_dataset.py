"""Tests of pyarrow datasets and lazy Polars frames: each filter is compared with its evaluation by the library
itself."""

import datetime
import decimal
import math
import pickle
import random
import struct

import duckdb
import farpool
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

ROWS = 3000
NAN_WITH_A_SIGN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000000))[0]
FLOATS = [0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, NAN_WITH_A_SIGN, 1e300, 5e-324]
WORDS = ["apple", "Apple", "", "Ähre", "z", "it's"]


@pytest.fixture(scope="module")
def table():
    random.seed(11)
    some = lambda values: [None if random.random() < 0.15 else random.choice(values) for _ in range(ROWS)]  # noqa: E731
    days = [datetime.date(2020, 1, 1) + datetime.timedelta(days=n) for n in range(20)]
    moments = [datetime.datetime(2020, 1, 1, n) for n in range(20)]
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "i": pa.array(some(list(range(-5, 6))), pa.int64()),
            "h": pa.array(some(list(range(-5, 6))), pa.int16()),
            "u": pa.array(some([0, 1, 2, 2**63, 2**64 - 1]), pa.uint64()),
            "f": pa.array(some(FLOATS), pa.float64()),
            "g": pa.array(some([0.1, 0.5, -0.5, math.nan]), pa.float32()),
            "s": pa.array(some(WORDS), pa.string()),
            "b": pa.array(some([True, False]), pa.bool_()),
            "d": pa.array(some(days), pa.date32()),
            "t": pa.array(some(moments), pa.timestamp("us")),
            "z": pa.array(some(moments), pa.timestamp("us", "UTC")),
            "e": pa.array(some([decimal.Decimal(n).scaleb(-2) for n in range(-5, 6)]), pa.decimal128(10, 2)),
        }
    )


@pytest.fixture(scope="module")
def pool(table):
    with farpool.open(memory="256MiB") as opened:
        opened.load("t", table)
        yield opened


VALUES = {
    "i": [-5, 0, 3, 7],
    "h": [-5, 0, 3],
    "u": [0, 1, 2],
    "f": [value for value in FLOATS] + [0.25],
    "g": [0.1, 0.5, 0.0],
    "s": WORDS + ["b"],
    "d": [datetime.date(2020, 1, 5), datetime.date(1, 1, 1)],
    "t": [datetime.datetime(2020, 1, 1, 5), datetime.datetime(1, 1, 1), datetime.datetime(9999, 1, 1)],
    "e": [decimal.Decimal("0.01"), decimal.Decimal("-0.05")],
}


def condition(random, column, isin, depth=0):
    """Returns a random condition over columns that ``column`` creates."""
    choice = random.random()
    if depth < 3 and choice < 0.45:
        left, right = (condition(random, column, isin, depth + 1) for _ in range(2))
        return left & right if random.random() < 0.5 else left | right
    if depth < 3 and choice < 0.6:
        return ~condition(random, column, isin, depth + 1)
    if choice < 0.68:
        name = random.choice(list(VALUES) + ["b"])
        return column(name).is_null()
    if choice < 0.72:
        return column("b")
    name = random.choice(list(VALUES))
    if choice < 0.8:
        return isin(column(name), random.sample(VALUES[name], 2))
    value = random.choice(VALUES[name])
    operation = random.choice(["__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"])
    return getattr(column(name), operation)(value)


@pytest.mark.parametrize("seed", range(60))
def test_a_filter_of_arrow_means_what_it_means_to_arrow(pool, table, seed):
    chance = random.Random(seed)
    dataset = pool.dataset("t")
    for _ in range(5):
        wanted = condition(chance, ds.field, lambda column, values: column.isin(values))
        try:
            expected = table.filter(wanted)["id"].to_pylist()
        except pa.ArrowException:
            continue
        assert sorted(dataset.to_table(columns=["id"], filter=wanted)["id"].to_pylist()) == expected, str(wanted)


@pytest.mark.parametrize("seed", range(60))
def test_a_filter_of_polars_means_what_it_means_to_polars(pool, table, seed):
    chance = random.Random(seed)
    frame, lazy = pl.DataFrame(table), pool.scan("t")
    for _ in range(5):
        wanted = condition(chance, pl.col, lambda column, values: column.is_in(values))
        try:
            expected = frame.filter(wanted)["id"].to_list()
        except pl.exceptions.PolarsError:
            continue
        assert sorted(lazy.filter(wanted).select("id").collect()["id"].to_list()) == expected, str(wanted)


def test_filters_that_can_run_at_the_pool_do(pool, monkeypatch):
    asked = []
    monkeypatch.setattr(farpool.Pool, "sql", lambda self, *given, own=farpool.Pool.sql: asked.append(given) or own(self, *given))
    pool.dataset("t").to_table(columns=["id"], filter=(ds.field("i") > 3) & (ds.field("s") == "z"))
    pool.scan("t").filter(pl.col("i") > 3, pl.col("s") == "z").select("id").collect()
    scans = [given for given in asked if "WHERE" in given[0]]
    assert len(scans) == 2
    for sql, values in scans:
        assert '"i" > ?' in sql and '"s" = ?' in sql and sorted(map(str, values)) == ["3", "z"]
        assert sql.startswith('SELECT "id", "i", "s" FROM')


def test_duckdb_reads_a_dataset(pool, table):
    dataset, rows = pool.dataset("t"), table
    queries = [
        "select count(*), sum(i), count(s) from {}",
        "select id from {} where i > 2 and s <> 'z' order by id",
        "select id from {} where i in (1, 2, 3) or b order by id",
        "select id from {} where d between date '2020-01-03' and date '2020-01-06' order by id",
        "select id from {} where t > timestamp '2020-01-01 05:00' and z < timestamptz '2020-01-01 09:00+00' order by id",
        "select id from {} where e > 0.01 and s is not null order by id",
        "select id from {} where not (i = 3) order by id",
        "select s, count(*) from {} where u = 2 group by s order by s",
    ]
    for query in queries:
        assert duckdb.sql(query.format("dataset")).fetchall() == duckdb.sql(query.format("rows")).fetchall(), query
    del rows


def test_a_dataset_does_what_datasets_do(pool, table):
    dataset = pool.dataset("t")
    assert dataset.schema.field("s").type == pa.string()
    assert dataset.count_rows() == ROWS
    assert dataset.count_rows(filter=ds.field("i") > 3) == table.filter(pc.field("i") > 3).num_rows
    assert dataset.head(7).num_rows == 7
    assert dataset.to_table(columns=[]).num_rows == ROWS
    made = dataset.to_table(columns={"x": ds.field("i") + 1}, filter=ds.field("h") == 5)
    assert made.num_rows == table.filter(pc.field("h") == 5).num_rows and made.column_names == ["x"]
    narrow = dataset.filter(ds.field("i") > 0).filter(ds.field("i") < 3)
    assert set(narrow.to_table(columns=["i"])["i"].to_pylist()) == {1, 2}
    joined = dataset.join(ds.dataset(pa.table({"i": [1], "y": [2]})), "i", join_type="inner").to_table()
    assert joined.num_rows == table.filter(pc.field("i") == 1).num_rows
    assert pl.scan_pyarrow_dataset(dataset).filter(pl.col("i") > 3).select(pl.len()).collect().item() == dataset.count_rows(
        filter=ds.field("i") > 3
    )
    for refused in (lambda: list(dataset.get_fragments()), lambda: pickle.dumps(dataset)):
        with pytest.raises(farpool.NotSupportedError):
            refused()
    with pytest.raises(farpool.NotFoundError):
        pool.dataset("nosuch")


def test_a_lazy_frame_takes_what_it_needs(pool, table):
    lazy = pool.scan("t")
    assert lazy.collect_schema()["s"] == pl.String
    assert lazy.select(pl.len()).collect().item() == ROWS
    assert lazy.head(5).collect().height == 5
    assert lazy.filter(pl.col("i") > 3).head(5).collect().height == 5
    assert lazy.select("id", "s").collect()["id"].sort().to_list() == list(range(ROWS))
    assert lazy.group_by("i").len().collect().height == 12
    with pytest.raises(farpool.NotFoundError):
        pool.scan("nosuch")
    del table
