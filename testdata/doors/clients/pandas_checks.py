"""pandas over SQLAlchemy and psycopg: reading with types and in parts, writing."""

import pandas
from checks import check
from sqlalchemy import create_engine, text

engine = create_engine("postgresql+psycopg://")


def shown(frame):
    return [str(frame.dtypes.to_dict()), *map(tuple, frame.astype(str).values.tolist())]


check("read_sql", lambda: shown(pandas.read_sql("select id, price, name, day, moment from things order by id", engine)))
check("read_sql with parameters", lambda: shown(pandas.read_sql(text("select id from things where id > :n order by id"), engine, params={"n": 2})))
check("read_sql_table", lambda: shown(pandas.read_sql_table("visits", engine).sort_values(["thing", "who"])))
check("read_sql in parts", lambda: [len(part) for part in pandas.read_sql("select * from things", engine, chunksize=3)])
frame = pandas.DataFrame({"a": [1, 2], "b": ["x", None], "c": [0.5, 1.5], "d": pandas.to_datetime(["2024-01-01", "2024-02-29"])})
check("to_sql", lambda: frame.to_sql("frames", engine, index=False))
check("to_sql stored", lambda: shown(pandas.read_sql("select * from frames order by a", engine)))
check("to_sql appends", lambda: frame.to_sql("frames", engine, index=False, if_exists="append", method="multi"))
check("to_sql replaces", lambda: frame.to_sql("frames", engine, index=False, if_exists="replace"))
check("to_sql replaced", lambda: shown(pandas.read_sql("select count(*) as n from frames", engine)))
