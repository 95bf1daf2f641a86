"""Tests of tables: loads of files and frames, descriptions, exports."""

import decimal
import warnings

import farpool
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


def test_files_are_loaded(pool, tmp_path):
    (tmp_path / "a.csv").write_text("city,zip,fare\nOslo,0150,12\nRome,00100,NA\n")
    pq.write_table(pa.table({"n": [1, 2, 3]}), tmp_path / "b-1.parquet")
    pq.write_table(pa.table({"n": [4]}), tmp_path / "b-2.parquet")
    table = pool.load("a", tmp_path / "a.csv", nullstr="NA", types={"zip": "text"})
    assert (table.name, table.rows, table.columns) == ("a", 2, ["city", "zip", "fare"])
    assert pool.sql("from a order by city").fetchall() == [("Oslo", "0150", 12), ("Rome", "00100", None)]
    assert pool.load("b", str(tmp_path / "b-*.parquet")).rows == 4
    assert pool.load("b", [tmp_path / "b-1.parquet"], mode="append").rows == 7
    assert pool.load("b", str(tmp_path / "b-2.parquet"), mode="replace").rows == 1
    assert pool.load("c", tmp_path / "a.csv", columns=["fare", "city"], nullstr="NA").columns == ["city", "fare"]
    assert [t.name for t in pool.tables()] == ["a", "b", "c"]
    assert pool.table("a")["columns"][2]["null_count"] == 1
    pool.drop("c")
    assert len(pool.tables()) == 2
    # A statement can also use a file name as a table.
    assert pool.sql(f"select sum(n) from '{tmp_path}/b-*.parquet'").fetchall() == [(10,)]


@pytest.mark.parametrize("kind", ["pandas", "polars", "lazy", "table", "batch", "reader", "result"])
def test_frames_are_loaded(pool, kind):
    data = {"n": [1, 2, None], "s": ["x", None, "z"], "f": [0.5, 1.5, 2.5]}
    arrow = pa.table(data)
    source = {
        "pandas": lambda: pd.DataFrame(data),
        "polars": lambda: pl.DataFrame(data),
        "lazy": lambda: pl.LazyFrame(data),
        "table": lambda: arrow,
        "batch": lambda: arrow.to_batches()[0],
        "reader": lambda: arrow.to_reader(),
        "result": lambda arrow=arrow: pool.sql("select * from arrow"),
    }[kind]()
    assert pool.load("t", source).rows == 3
    assert pool.sql("from t order by f").fetchall() == [(1, "x", 0.5), (2, None, 1.5), (None, "z", 2.5)]


def test_a_stream_from_python_is_loaded_as_it_comes(pool):
    schema = pa.schema([("n", pa.int64())])
    made = []

    def batches():
        for start in range(0, 100_000, 1000):
            made.append(start)
            yield pa.record_batch([pa.array(range(start, start + 1000))], schema=schema)

    reader = pa.RecordBatchReader.from_batches(schema, batches())
    assert pool.load("t", reader).rows == 100_000
    assert len(made) == 100
    assert pool.sql("select sum(n), count(distinct n) from t").fetchall() == [(4_999_950_000, 100_000)]


def test_a_stream_that_fails_leaves_no_table(pool):
    schema = pa.schema([("n", pa.int64())])

    def batches():
        yield pa.record_batch([pa.array([1])], schema=schema)
        raise RuntimeError("the well is dry")

    with pytest.raises(farpool.ProgrammingError, match="the well is dry"):
        pool.load("t", pa.RecordBatchReader.from_batches(schema, batches()))
    assert pool.tables() == []


def test_types_of_pandas_are_taken(pool):
    frame = pd.DataFrame(
        {
            "category": pd.Categorical(["a", "b", "a"]),
            "nullable": pd.array([1, None, 3], dtype="Int64"),
            "text": pd.array(["x", "y", None], dtype="string"),
            "time": pd.date_range("2024-01-01", periods=3, freq="h"),
            "zoned": pd.date_range("2024-01-01", periods=3, freq="h", tz="Europe/Berlin"),
            "flag": [True, False, True],
        },
        index=pd.Index([10, 20, 30], name="id"),
    )
    pool.load("t", frame)
    assert pool.sql("select sum(nullable), count(text), count(distinct category), sum(id) from t").fetchall() == [
        (4, 2, 2, 60)
    ]
    assert pool.sql("select count(*) from t where zoned > timestamptz '2024-01-01 00:00:00+00'").fetchall() == [(1,)]
    back = pool.sql("select zoned from t order by zoned").arrow().column(0)
    assert back.cast(pa.timestamp("us", "UTC")).to_pylist() == [t.to_pydatetime() for t in frame["zoned"]]


def test_nested_columns_are_left_out_with_a_warning_or_become_text(pool):
    table = pa.table({"n": [1], "l": [[1, 2]], "s": [{"a": 1}]})
    with pytest.warns(farpool.Warning, match='left out.*nested="json"'):
        assert pool.load("t", table).columns == ["n"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pool.load("u", table, nested="json")
    assert pool.sql("select l, s from u").fetchall() == [("[1,2]", '{"a":1}')]


@pytest.mark.parametrize(
    ("source", "options", "error"),
    [
        ("nosuch.parquet", {}, farpool.NotFoundError),
        (42, {}, farpool.InterfaceError),
        (pd.DataFrame, {}, farpool.InterfaceError),
        (pl.DataFrame({"n": [1]}), {"nullstr": "NA"}, farpool.ProgrammingError),
        (pl.DataFrame({"n": [1]}), {"mode": "upsert"}, farpool.ProgrammingError),
        (pl.DataFrame({"n": [1]}), {"columns": ["m"]}, farpool.NotFoundError),
        (pl.DataFrame({"n": [1]}), {"nested": "xml"}, farpool.InterfaceError),
        (pl.DataFrame({"n": [1]}), {"encrypt": "rot13"}, farpool.ProgrammingError),
        ("x.csv", {"nosuch": 1}, farpool.ProgrammingError),
        ("x.csv", {"delim": object()}, TypeError),
    ],
)
def test_loads_that_make_no_sense_are_refused(pool, source, options, error):
    with pytest.raises(error):
        pool.load("t", source, **options)
    assert pool.tables() == []


def test_encrypted_tables_answer(pool):
    table = pool.load("secret", pl.DataFrame({"n": [1, 2]}), encrypt="strict")
    assert table["encryption"] == "strict"
    assert pool.sql("select sum(n) from secret").fetchall() == [(3,)]


def test_tables_are_exported(pool, tmp_path):
    pool.load("t", pl.DataFrame({"n": [1, 2], "s": ["x", "it's"]}))
    assert pool.export("t", tmp_path / "t.parquet") == 2
    assert pq.read_table(tmp_path / "t.parquet").to_pydict() == {"n": [1, 2], "s": ["x", "it's"]}
    assert pool.export("select s from t where n = 2", tmp_path / "it's.csv", delimiter=";") == 1
    assert (tmp_path / "it's.csv").read_text() == "s\nit's\n"
    with pytest.raises(farpool.Error):
        pool.export("nosuch", tmp_path / "x.csv")
    assert not (tmp_path / "x.csv").exists()


def test_a_data_directory_keeps_tables(tmp_path):
    with farpool.open(memory="64MiB", data_dir=tmp_path / "data") as pool:
        pool.load("t", pl.DataFrame({"n": list(range(1000))}))
        pool.sql("create view v as select sum(n) as s from t")
        with pytest.raises(farpool.BusyError):
            farpool.open(memory="64MiB", data_dir=tmp_path / "data")
        rows = pool.sql("select n from t")
        first = rows.fetchone()
    with farpool.open(memory="64MiB", data_dir=tmp_path / "data") as pool:
        assert pool.sql("from v").fetchall() == [(499_500,)]
        assert pool.views() == ["v"]
    assert first is not None and rows.columns == ["n"]


def test_memory_that_is_too_small_is_told():
    with farpool.open(memory="4MiB") as pool:
        with pytest.raises(farpool.LimitError):
            pool.sql("create table t as select n, random() as r from generate_series(1, 3000000) g(n)")
        assert pool.tables() == []


def test_progress_is_shown_where_somebody_looks(pool, capsys, monkeypatch):
    import farpool._progress as progress

    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    with progress.Progress("loading t", True) as bar:
        bar(1 << 20, 4 << 20, 1000)
    shown = capsys.readouterr().err
    assert "loading t: 1,000 rows, 25% of 4 MiB" in shown and shown.endswith("\r")
    pool.load("t", pl.DataFrame({"n": [1]}))
    assert capsys.readouterr().err == ""


def test_columns_without_a_type_are_text_without_values():
    nothing = pl.DataFrame({"k": [1], "n": [None], "l": [[None]]})
    arrow = pa.table({"k": [1], "n": pa.nulls(1)})
    with farpool.open(memory="64MiB") as p:
        assert p.sql("select k, n, l from nothing").fetchall() == [(1, None, [None])]
        assert p.sql("select typeof(n) from arrow").fetchall() == [("VARCHAR",)]
        assert p.load("arrow_rows", arrow).rows == 1
        assert p.sql("select n from arrow_rows").fetchall() == [(None,)]
        assert p.load("polars_rows", nothing.drop("l")).rows == 1
        assert p.sql("select n from polars_rows").fetchall() == [(None,)]


def test_objects_and_wide_integers_of_polars_are_what_they_are_or_an_error():
    objects = pl.DataFrame({"o": [object()]})
    wide = pl.DataFrame({"i": [2**100]}, schema={"i": pl.Int128})
    too_wide = pl.DataFrame({"i": [10**38]}, schema={"i": pl.Int128})
    with farpool.open(memory="64MiB") as p:
        with pytest.raises(farpool.Error, match="'o' of the data frame has Python objects"):
            p.sql("select o from objects").fetchall()
        with pytest.raises(farpool.Error, match="'o' of the data frame has Python objects"):
            p.load("objects", objects)
        assert p.sql("select i from wide").fetchall() == [(decimal.Decimal(2**100),)]
        assert p.load("wide_rows", wide).rows == 1
        with pytest.raises(farpool.Error, match="no column of Arrow"):
            p.sql("select i from too_wide").fetchall()
        with pytest.raises(farpool.Error, match="no column of Arrow"):
            p.load("mixed", pd.DataFrame({"o": [object()]}))


def test_errors_about_frames_are_not_about_files():
    delta = pd.DataFrame({"d": pd.to_timedelta(["1 days"]), "k": [1]})
    empty, none = pd.DataFrame(), pl.DataFrame()
    far = pa.table({"t": pa.array([2**63 - 1]).cast(pa.timestamp("us"))})
    with farpool.open(memory="64MiB") as p:
        for frame, columns in ((delta[["d"]], None), (delta, ["d"])):
            with pytest.raises(farpool.Error) as raised:
                p.load("t", frame, columns=columns)
            assert '"d"' in str(raised.value) and "FILE" not in str(raised.value), raised.value
            assert "farpool load" not in str(raised.value)
        for frame in (empty, none, pa.table({})):
            with pytest.raises(farpool.Error, match="the data frame has no columns"):
                p.load("t", frame)
        with pytest.raises(farpool.Error, match="the data frame empty has no columns"):
            p.sql("select * from empty").fetchall()
        with pytest.raises(farpool.Error, match="outside of the calendar"):
            p.load("t", far)
        # A name in a statement may refer to a variable of the calling frame.
        with pytest.raises(farpool.Error, match="outside of the calendar"):
            p.sql("select t from far").fetchall()
