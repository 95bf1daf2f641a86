"""Writes the files of this folder: types as DuckDB, pyarrow and Polars write them. What is expected of them stands in
crates/files/src/recorded.rs. Needs duckdb, pyarrow and polars; run in this folder."""
import datetime, decimal
import duckdb, polars, pyarrow, pyarrow.parquet

times = [datetime.datetime(1, 1, 1), datetime.datetime(1677, 9, 21), None, datetime.datetime(2024, 2, 29, 12, 0, 0, 5), datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)]
column = pyarrow.array(times, pyarrow.timestamp("us"))
lists = pyarrow.array([[times[0]], [], None, [None], [times[4]]], pyarrow.list_(pyarrow.timestamp("us")))
table = pyarrow.table({"t": column, "l": lists, "z": column.cast(pyarrow.timestamp("us", "UTC"))})
pyarrow.parquet.write_table(table, "int96.parquet", use_deprecated_int96_timestamps=True, store_schema=False)
pyarrow.parquet.write_table(table, "int96-schema.parquet", use_deprecated_int96_timestamps=True)
duckdb.sql("""copy (from (values (interval '14 months 2 days 3 hours', ['1 month'::interval]), (null, []), (interval '1 millisecond', null)) t(i, l)) to 'interval.parquet'""")
duckdb.sql("copy (select 1 k, 'infinity'::timestamp t, '-infinity'::timestamp m, 'infinity'::timestamptz z, 'infinity'::date d, ['infinity'::timestamp] l) to 'infinite.parquet'")
frame = polars.DataFrame({
    "i": polars.Series([1, -5, None, 10**38 - 1], dtype=polars.Int128),
    "u": polars.Series([1, 5, None, 10**37], dtype=polars.UInt128),
    "k": [1, 2, 3, 4],
    "d": [datetime.timedelta(days=1)] * 4,
})
frame.write_parquet("int128.parquet")
frame.write_ipc("int128.arrow")
frame.select(polars.lit(10**38, dtype=polars.Int128).alias("i"), polars.lit(1).alias("k")).write_parquet("int128-large.parquet")
frame.select(polars.concat_list("i").alias("l")).write_parquet("int128-list.parquet")
days = pyarrow.array([19782 * 86_400_000, -86_400_000, None], pyarrow.date64())
pyarrow.parquet.write_table(pyarrow.table({"d": days, "n": pyarrow.nulls(3)}), "date64.parquet")
with pyarrow.ipc.new_file("date64.arrow", pyarrow.schema({"d": pyarrow.date64(), "n": pyarrow.null()})) as file:
    file.write_table(pyarrow.table({"d": days, "n": pyarrow.nulls(3)}))
