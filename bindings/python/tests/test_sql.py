"""Tests of statements and their results."""

import datetime
import decimal
import gc
import random
import struct
import sys
import uuid
import weakref

import farpool
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest


def rows(pool, query, params=None):
    return pool.sql(query, params).fetchall()


def test_a_result_has_all_its_forms(pool):
    result = pool.sql("select n, 'x' || n as s from generate_series(1, 3) g(n) order by n")
    expected = [(1, "x1"), (2, "x2"), (3, "x3")]
    assert result.columns == ["n", "s"]
    assert result.types == ["BIGINT", "VARCHAR"]
    assert result.schema.names == ["n", "s"]
    assert result.fetchall() == expected
    assert list(result) == expected
    assert result.arrow().to_pydict() == {"n": [1, 2, 3], "s": ["x1", "x2", "x3"]}
    assert result.polars().rows() == expected
    assert list(result.pandas().itertuples(index=False, name=None)) == expected
    assert pa.table(result).num_rows == 3
    assert result.reader().read_all().num_rows == 3
    assert len(result) == 3 and result
    assert result.fetchone() == (1, "x1")
    assert result.fetchmany(5) == expected[1:]
    assert result.fetchone() is None


def test_pyarrow_computes_on_texts_that_are_no_views(pool):
    import pyarrow.compute as pc

    pool.sql("create table t as select n, 'x' || n as s from generate_series(1, 9) g(n)")
    result = pool.sql("select s, [n::text] as l from t order by n")
    assert result.arrow(views=True).schema.field("s").type == pa.string_view()
    plain = result.arrow()
    assert plain.schema.field("s").type == pa.string()
    assert plain.filter(pc.equal(plain["s"], "x7"))["l"].to_pylist() == [["7"]]
    assert result.reader().read_all().equals(plain)
    assert result.reader(views=True).schema.field("s").type == pa.string_view()


def test_without_pyarrow_nothing_is_run_for_it(pool, monkeypatch):
    result = pool.sql("select n, 'x' as s from generate_series(1, 3) g(n)")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for ask in [result.arrow, result.reader, result.pandas]:
        with pytest.raises(ImportError, match="pip install pyarrow"):
            ask()
    assert result._run is None
    assert len(result.fetchall()) == 3


def test_texts_without_views_are_those_that_pyarrow_casts(pool):
    draw = random.Random(5)

    def text():
        lengths = [0, 1, 4, 5, 12, 13, 14, 100, 3000]
        return None if draw.random() < 0.1 else "".join(draw.choices("aé漢x", k=draw.choice(lengths)))

    rows = 30_000
    few = [text() for _ in range(50)]
    pool.load(
        "t",
        pa.table(
            {
                "id": range(rows),
                "mixed": [text() if n % 10 else "x" for n in range(rows)],
                "few": draw.choices(few, k=rows),
                "long": [f"a text of more than twelve letters {n}" for n in range(rows)],
                "short": [str(n) for n in range(rows)],
                "none": pa.nulls(rows, pa.string()),
                "bytes": [f"bytes {n} {'y' * (n % 20)}".encode() for n in range(rows)],
            }
        ),
    )
    flat = "mixed, few, long, short, none, bytes"
    nested = "[mixed, few] as l, named_struct('a', mixed, 'b', [bytes]) as s, map([id], [long]) as m"
    for columns in [flat, nested]:
        for rest in ["", "where id % 7 < 3", "where id % 1000 = 0", "order by few, id limit 9999", "limit 0"]:
            result = pool.sql(f"select {columns} from t {rest}")
            views, plain = result.arrow(views=True), result.arrow()
            assert "view" in str(views.schema) and "view" not in str(plain.schema)
            plain.validate(full=True)
            assert plain.equals(views.cast(plain.schema)), (columns, rest)
            assert result.reader().schema == plain.schema


def test_texts_that_offsets_do_not_reach_come_in_several_arrays(pool):
    # All rows refer to one copy of the same text.
    view = struct.pack("<i4sii", 1 << 20, b"xxxx", 0, 0)
    buffers = [None, pa.py_buffer(view * 2100), pa.py_buffer(b"x" * (1 << 20))]
    texts = pa.table({"n": range(2100), "s": pa.Array.from_buffers(pa.string_view(), 2100, buffers)})
    assert texts.num_rows == 2100
    result = pool.sql("select * from texts")
    plain = result.arrow()
    assert plain["n"].to_pylist() == list(range(2100)) and plain["s"].num_chunks == 2
    assert plain["s"][2099].as_py() == "x" * (1 << 20)
    with pytest.raises(farpool.Error, match="2 GiB"):
        pool.sql("select array_agg(s) as l from texts").arrow()


def test_rows_are_taken_one_after_the_other_without_all_of_them(pool):
    result = pool.sql("select n from generate_series(1, 100000) g(n)")
    assert [result.fetchone(), result.fetchone()] == [(1,), (2,)]
    assert result.fetchmany(2) == [(3,), (4,)]
    assert len(result.fetchall()) == 100_000 - 4
    # Another output format runs the statement again.
    assert result.arrow().num_rows == 100_000


def test_the_stream_can_be_taken_again(pool):
    result = pool.sql("select n from generate_series(1, 20000) g(n)")
    assert pa.table(result).num_rows == 20_000
    assert pl.DataFrame(result).height == 20_000


def test_a_result_shows_its_first_rows(pool):
    result = pool.sql("select n, case when n > 1 then '<b>' end as t from generate_series(1, 3) g(n)")
    text = repr(result)
    assert "NULL" in text and "(3 rows)" in text
    page = result._repr_html_()
    assert "&lt;b&gt;" in page and "<b>" not in page and "(3 rows)" in page
    long = pool.sql("select n from generate_series(1, 100000) g(n)")
    assert "(the first 20 rows)" in repr(long)
    assert len(long.fetchall()) == 100_000
    assert repr(pool.sql("create table t as select 1 as n")) == "(done)"
    exact = pool.sql("select n from generate_series(1, 20) g(n)")
    assert "(20 rows)" in repr(exact)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        42,
        -(2**63),
        2**64 - 1,
        1.5,
        "Ö 'quoted' \"and\" $1 ?",
        "",
        b"\x00\xff",
        decimal.Decimal("-12.50"),
        decimal.Decimal("0.001"),
        decimal.Decimal("1E+2"),
        datetime.date(1, 1, 1),
        datetime.date(9999, 12, 31),
        datetime.time(23, 59, 59, 999999),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
        datetime.datetime(9999, 12, 31, 23, 59, 59),
        datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.timezone.utc),
        datetime.timedelta(days=3, seconds=4, microseconds=5),
        [1, 2, None],
        ["a", "b"],
    ],
)
def test_a_parameter_comes_back_as_it_was(pool, value):
    ((back,),) = rows(pool, "select $1", [value])
    assert back == value and type(back) is type(value)
    ((named,),) = rows(pool, "select $value", {"value": value})
    assert named == value


def test_an_integer_beyond_64_bits_is_a_decimal(pool):
    assert rows(pool, "select $1", [2**70]) == [(decimal.Decimal(2**70),)]


def test_values_of_other_libraries_are_parameters(pool):
    import numpy as np

    values = [np.int32(7), np.float64(0.5), np.str_("x"), np.bool_(True), pd.Timestamp("2024-01-02"), pd.NaT, pd.NA]
    expected = (7, 0.5, "x", True, datetime.datetime(2024, 1, 2), None, None)
    assert rows(pool, "select $1, $2, $3, $4, $5, $6, $7", values) == [expected]
    key = uuid.UUID("12345678-1234-5678-1234-567812345678")
    assert rows(pool, "select $1", [key]) == [(str(key),)]
    zone = datetime.timezone(datetime.timedelta(hours=2))
    ((instant,),) = rows(pool, "select $1", [datetime.datetime(2024, 1, 1, 12, tzinfo=zone)])
    assert instant == datetime.datetime(2024, 1, 1, 10, tzinfo=datetime.timezone.utc)


def test_parameters_are_those_of_the_call(pool):
    values = [1]
    result = pool.sql("select $1", values)
    values[0] = 2
    assert result.fetchall() == [(1,)]
    assert rows(pool, "select $1", iter([3])) == [(3,)]


def test_parameters_stand_where_values_stand(pool):
    pool.sql("create table t as select n, 'x' || n as s from generate_series(1, 10) g(n)")
    assert rows(pool, "select n from t where n > ? order by n limit ?", [3, 2]) == [(4,), (5,)]
    assert rows(pool, "select n from t where s in (?, ?) order by n", ["x2", "x7"]) == [(2,), (7,)]
    assert rows(pool, "select '?', ? -- ? \n, \"n\" from t where n = ?", ["!", 1]) == [("?", "!", 1)]
    assert rows(pool, "select sum(n * $1) from t where n <= $2", [2, 3]) == [(12,)]
    pool.sql("insert into t select $1, $2", [11, "new"])
    pool.sql("update t set s = $s where n = $n", {"s": "changed", "n": 11})
    assert rows(pool, "select s from t where n = 11") == [("changed",)]
    pool.sql("delete from t where n = $1", [11])
    assert rows(pool, "select count(*) from t") == [(10,)]
    # Text in a parameter is a value and never parsed as SQL.
    assert rows(pool, "select count(*) from t where s = $1", ["x1' or '1'='1"]) == [(0,)]


@pytest.mark.parametrize(
    ("query", "params", "message"),
    [
        ("select $1", [], r"\$1 has no value"),
        ("select $1, $2", [1], r"\$2 has no value"),
        ("select $a", {"b": 1}, r"\$a has no value"),
        ("select 1", [1], r"a value for \$1, and no such parameter"),
        ("select $1 + ?", [1], "two kinds"),
        ("select $1", [object()], "type object has no type in SQL"),
        ("select $1", "text", "a list, a tuple or a dictionary"),
        ("select $1", [[1, "x"]], "differ in their types"),
        ("select $1", [decimal.Decimal("NaN")], "has no type in SQL"),
        ("select 1; select $1", [1], "share no parameters"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(pool, query, params, message):
    with pytest.raises(farpool.ProgrammingError, match=message) as caught:
        pool.sql(query, params).fetchall()
    assert caught.value.advice


def test_data_frames_of_the_caller_are_tables(pool):
    frame = pd.DataFrame({"a": [1, 2, 3], "b": ["x", None, "z"], "when": pd.to_datetime(["2024-01-01"] * 3)})
    lazy = pl.LazyFrame({"a": [1, 2], "c": [0.5, 1.5]})
    Numbers = pa.table({"a": pa.array([1, 3], pa.int8())})
    assert pool.sql("select sum(a), count(b), max(\"when\") from frame").fetchall() == [(6, 2, datetime.datetime(2024, 1, 1))]
    assert pool.sql("select b, c from frame join lazy using (a) order by a").fetchall() == [("x", 0.5), (None, 1.5)]
    assert pool.sql("select count(*) from frame f where exists (select 1 from Numbers t where t.a = f.a)").fetchall() == [(2,)]
    pool.sql("create table kept as select * from frame")
    del frame
    assert pool.sql("select sum(a) from kept").fetchall() == [(6,)]
    other = pl.DataFrame({"a": [4]})
    result = pool.sql("select a from other")
    del other
    assert result.fetchall() == [(4,)]
    assert pool.sql("with cte as (select a from Numbers) select sum(a) from cte").fetchall() == [(4,)]


def test_a_stream_of_the_caller_is_read_once_and_asked_often(pool):
    table = pa.table({"n": list(range(30_000)), "s": ["x"] * 30_000})
    reader = table.to_reader(max_chunksize=1000)
    result = pool.sql("select * from reader where n % 2 = 0")
    assert "(the first 20 rows)" in repr(result)
    assert result.fetchone() is not None
    assert len(result.fetchall()) == 14_999 and result.arrow().num_rows == 15_000
    # The stream has been consumed.
    assert pool.sql("select count(*) from reader").fetchall() == [(0,)]


def test_tables_of_the_pool_come_before_variables(pool):
    pool.sql("create table t as select 1 as n")
    t = pl.DataFrame({"n": [2]})
    assert pool.sql("from t").fetchall() == [(1,)]
    del t


def test_a_batch_gives_results_in_order(pool):
    pool.sql("create table t as select n, n % 7 as k from generate_series(1, 20000) g(n)")
    queries = [f"select sum(n) from t where k = {k}" for k in range(7)]
    together = [result.fetchall() for result in pool.batch(queries)]
    assert together == [rows(pool, query) for query in queries]
    with pytest.raises(farpool.NotFoundError):
        pool.batch(["select 1", "from nosuch"])


def test_several_statements_give_the_last_result(pool):
    assert rows(pool, "create table t as select 1 as n; insert into t values (2); select sum(n) from t;") == [(3,)]
    with pytest.raises(farpool.ProgrammingError, match="no SQL statement"):
        pool.sql(" ; ")
    with pytest.raises(farpool.NotFoundError, match="line 3"):
        pool.sql("select 1;\n\nselect * from nosuch")


def test_explain_and_receipt_tell_what_ran(pool):
    pool.sql("create table t as select n from generate_series(1, 1000) g(n)")
    result = pool.sql("select count(*) from t where n > 500")
    assert "filter     exact" in result.explain()
    assert result.receipt["rows_scanned"] == 1000
    assert result.fetchall() == [(500,)]


def test_errors_say_what_to_do(pool):
    pool.sql("create table trips as select 1 as fare")
    with pytest.raises(farpool.NotFoundError, match="there is no table trip") as caught:
        pool.sql("from trip")
    assert "trips" in caught.value.advice and caught.value.advice in str(caught.value)
    assert isinstance(caught.value, farpool.ProgrammingError) and isinstance(caught.value, farpool.Error)
    with pytest.raises(farpool.ExistsError):
        pool.sql("create table trips as select 1 as n")
    with pytest.raises(farpool.ProgrammingError, match="line 1, column"):
        pool.sql("select * form trips")
    with pytest.raises(farpool.UnavailableError):
        farpool.connect("farpool://127.0.0.1:1")
    with pytest.raises(ConnectionError):
        farpool.connect("farpool://127.0.0.1:1")
    with pytest.raises(farpool.ProgrammingError, match="is no time"):
        farpool.open(timeout=-1)
    with pytest.raises(farpool.ProgrammingError):
        farpool.open(memory="much")


def test_errors_can_be_pickled():
    import pickle

    error = pickle.loads(pickle.dumps(farpool.NotFoundError("there is no x", "write y")))
    assert (type(error), error.message, error.advice) == (farpool.NotFoundError, "there is no x", "write y")


def test_a_statement_has_its_time():
    with farpool.open(memory="64MiB", timeout=0.2) as pool:
        with pytest.raises(TimeoutError) as caught:
            pool.sql("select count(*) from generate_series(1, 100000) a, generate_series(1, 1000000) b").fetchall()
        assert isinstance(caught.value, farpool.TimeOutError)
        assert rows(pool, "select 1") == [(1,)]


def test_a_closed_pool_says_so(pool):
    result, other, third = pool.sql("select 1 as n"), pool.sql("select 2 as n"), pool.sql("select 3 as n")
    assert result.fetchall() == [(1,)] and third.fetchone() == (3,)
    pool.close()
    pool.close()
    assert pool.closed
    with pytest.raises(farpool.ProgrammingError, match="is closed"):
        pool.sql("select 1")
    assert result.fetchall() == [(1,)] and other.columns == ["n"]
    for use in (other.fetchall, other.explain, third.fetchone, lambda: result.receipt):
        with pytest.raises(farpool.ProgrammingError, match="is closed"):
            use()


def test_rows_outlive_their_pool(pool):
    pool.sql("create table t as select n, 'text ' || n as s from generate_series(1, 50000) g(n)")
    table = pool.sql("from t order by n").arrow()
    pool.close()
    del pool
    gc.collect()
    assert table.num_rows == 50_000
    assert table.column("s")[49_999].as_py() == "text 50000"
    table.validate(full=True)


def test_results_do_not_keep_one_another(pool):
    result = pool.sql("select 1")
    gone = weakref.ref(result)
    del result
    gc.collect()
    assert gone() is None
