"""Tests of table profiles."""

import farpool
import polars as pl
import pytest


def test_a_profile_tells_what_a_table_holds(pool):
    pool.load("t", pl.DataFrame({"n": list(range(1000)), "<s>": ["a", "b", None, "a"] * 250}))
    profile = pool.profile("t")
    assert (profile["name"], profile["rows"]) == ("t", 1000)
    n, s = profile["columns"]
    assert (n["min"], n["max"], n["mean"], n["nulls"]) == (0, 999, 499.5, 0)
    assert abs(n["distinct"]["value"] - 1000) < 50
    assert s["nulls"] == 250 and s["top"][0] == {"value": "a", "count": 500, "low": 500, "high": 500}
    assert "t: 1,000 rows, n int64" in repr(profile)
    shown = profile._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and "<s>" not in profile.html and "&lt;s&gt;" in profile.html
    assert [column["name"] for column in pool.profile("t", columns=["<s>"])["columns"]] == ["<s>"]
    with pytest.raises(farpool.NotFoundError):
        pool.profile("nosuch")
    with pytest.raises(farpool.NotFoundError):
        pool.profile("t", columns=["nosuch"])
