"""Differential tests: the same queries over the same rows by farpool and DuckDB."""

import math
import random
from decimal import Decimal

import duckdb
import farpool
import pyarrow as pa
import pytest

ROWS = 20_000

QUERIES = [
    "select count(*), sum(i), min(i), max(i), avg(i) from t",
    "select k, count(*), sum(i), avg(f), min(s), max(s) from t group by k order by k nulls first",
    "select s, sum(d) from t where f between -10 and 10 group by s order by s nulls first",
    "select count(distinct s), count(distinct k), count(s) from t",
    "select i, s from t where s like 'a%' and i > 0 order by i, s limit 50",
    "select i from t where k in (1, 3, 5) and s is null order by i limit 20",
    "select date_trunc('month', w) as m, count(*) from t group by m order by m nulls first",
    "select extract(year from w) as y, sum(d) from t group by y order by y nulls first",
    "select u.name, count(*), sum(t.i) from t join u on t.k = u.k group by u.name order by u.name",
    "select u.name, count(t.i) from u left join t on t.k = u.k and t.i > 90000 group by u.name order by u.name",
    "select i from t where not exists (select 1 from u where u.k = t.k) order by i limit 10",
    "select k, i, row_number() over (partition by k order by i) as r from t where i < 300 order by k nulls first, i",
    "select upper(s), length(s), substr(s, 2, 2) from t where s is not null order by 1, 2, 3 limit 30",
    "select case when f > 0 then 'up' when f < 0 then 'down' else 'none' end as c, count(*) from t group by c order by c",
    "select sum(i) filter (where b), count(*) filter (where not b) from t",
    "with big as (select * from t where i > 50000) select k, max(d) from big group by k having count(*) > 10 order by k nulls first",
    "select distinct k, b from t order by k nulls first, b nulls first",
    "(select k from t where i < 100) union all (select k from u) order by k nulls first",
    "select k from u except select k from t where k < 5 order by k",
    "select round(f, 2), abs(i), i % 7, i / 3.0 from t order by i limit 25",
    "select coalesce(s, 'none') as c, nullif(k, 3) as n from t order by i limit 25",
    "select min(w), max(w), min(d), max(d) from t where k is not null",
]


@pytest.fixture(scope="module")
def both():
    random.seed(7)
    some = lambda value, part=0.1: None if random.random() < part else value  # noqa: E731
    words = ["apple", "avocado", "banana", "Ähre", "x", ""]
    table = pa.table(
        {
            "i": pa.array(random.sample(range(-10_000, 200_000), ROWS), pa.int64()),
            "k": pa.array([some(random.randrange(8)) for _ in range(ROWS)], pa.int32()),
            "f": pa.array([some(random.randrange(-4000, 4000) / 64) for _ in range(ROWS)], pa.float64()),
            "s": pa.array([some(random.choice(words)) for _ in range(ROWS)], pa.string()),
            "d": pa.array([some(Decimal(random.randrange(-10**6, 10**6)).scaleb(-2)) for _ in range(ROWS)], pa.decimal128(12, 2)),
            "w": pa.array([some(random.randrange(10_000, 20_000)) for _ in range(ROWS)], pa.int32()).cast(pa.date32()),
            "b": pa.array([some(random.random() < 0.5) for _ in range(ROWS)], pa.bool_()),
        }
    )
    names = pa.table({"k": pa.array([0, 1, 2, 3, 9], pa.int32()), "name": ["zero", "one", "two", "three", "nine"]})
    duck = duckdb.connect()
    duck.register("t", table)
    duck.register("u", names)
    with farpool.open(memory="256MiB") as pool:
        pool.load("t", table)
        pool.load("u", names)
        yield pool, duck, {"t": table, "u": names}
    duck.close()


def same(ours, theirs):
    if isinstance(ours, float) or isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-12)
    # A date plus months is a timestamp in one engine and a date in the other.
    if type(ours) is not type(theirs) and hasattr(ours, "isoformat") and hasattr(theirs, "isoformat"):
        return ours.isoformat()[:10] == theirs.isoformat()[:10]
    return ours == theirs


def compare(ours, theirs):
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs):
        assert len(mine) == len(other) and all(map(same, mine, other)), (mine, other)


@pytest.mark.parametrize("query", QUERIES)
def test_a_table_of_the_pool_answers_as_duckdb(both, query):
    pool, duck, _ = both
    compare(pool.sql(query).fetchall(), duck.sql(query).fetchall())


@pytest.mark.parametrize("query", QUERIES)
def test_a_frame_of_the_caller_answers_as_duckdb(both, query):
    _, duck, tables = both
    t, u = tables["t"], tables["u"]
    with farpool.open(memory="64MiB") as empty:
        compare(empty.sql(query).fetchall(), duck.sql(query).fetchall())
    del t, u


def test_all_forms_have_the_same_rows(both):
    pool, _, tables = both
    result = pool.sql("from t order by i")
    expected = tables["t"].sort_by("i").to_pylist()
    names = tables["t"].column_names
    assert [dict(zip(names, row)) for row in result.fetchall()] == expected
    assert result.arrow().to_pylist() == expected
    assert result.polars().to_dicts() == expected
    pandas = result.pandas(types_mapper={}.get, date_as_object=True)
    assert len(pandas) == ROWS and pandas["i"].tolist() == [row["i"] for row in expected]
