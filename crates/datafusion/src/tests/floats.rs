//! Tests that 0.0 and -0.0 are one value, as keys of groups and windows, and in aggregates of distinct values.

use super::{Fake, rows, session};
use arrow_array::{ArrayRef, Float32Array, Float64Array, Int64Array, RecordBatch, StringArray};
use std::sync::Arc;

const FLOATS: [f64; 6] = [0.0, -0.0, f64::NAN, f64::NAN, 1.5, -1.5];

fn table() -> RecordBatch {
    let columns: [(&str, ArrayRef); 4] = [
        ("i", Arc::new(Int64Array::from_iter_values(1..=FLOATS.len() as i64))),
        ("f", Arc::new(Float64Array::from_iter_values(FLOATS))),
        ("h", Arc::new(Float32Array::from_iter_values(FLOATS.map(|f| f as f32)))),
        ("s", Arc::new(StringArray::from_iter_values(FLOATS.map(|_| "a")))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// Queries, with `{}` for either column of floats, and DuckDB's results.
const CASES: &[(&str, &[&str])] = &[
    ("count(distinct {}) from z", &["4"]),
    ("count({}), count(distinct {}) from z", &["6|4"]),
    ("s, count(distinct {}), sum(i) from z group by s", &["a|4|21"]),
    ("s, count(distinct {}) filter (where i < 3) from z group by s", &["a|1"]),
    ("avg(distinct {}) from z where i in (1, 2, 5)", &["0.75"]),
    ("array_length(array_agg(distinct {})) from z", &["4"]),
    ("i, count(*) over (partition by {}) from z order by i", &["1|2", "2|2", "3|2", "4|2", "5|1", "6|1"]),
    ("i, rank() over (order by {}) from z order by i", &["1|2", "2|2", "3|5", "4|5", "5|4", "6|1"]),
    ("i, sum(i) over (order by {}) from z order by i", &["1|9", "2|9", "3|21", "4|21", "5|14", "6|6"]),
    ("count(distinct {}) over (partition by s) from z limit 1", &["4"]),
    ("count(*) from (select {} from z group by {}) q", &["4"]),
    ("count(*) from (select distinct {}, s from z) q", &["4"]),
    ("count(*) from (select {}, s from z group by rollup ({}, s)) q", &["9"]),
    ("count(*) from (select {} from z union select {} from z) q", &["4"]),
    ("count(*) from z a join z b on a.{} = b.{} where a.i <= 2", &["4"]),
    ("count(*) from z a join z b on a.{} = b.{} and a.s = b.s where a.i <= 2", &["4"]),
    ("count(*) from z where {} in (select {} from z where i = 1)", &["2"]),
    ("i from z where {} in (0.0) order by i", &["1", "2"]),
    ("i from z where {} = -0.0 order by i", &["1", "2"]),
    ("i from z where {} <= -0.0 order by i", &["1", "2", "6"]),
    ("i from z where {} in (-0.0, 7, 8, 9, 1.5) order by i", &["1", "2", "5"]),
    ("i from z where {} not in (0.0, 7, 8, 9, 1.5) order by i", &["3", "4", "6"]),
    ("i from z where {} + 0 in (0.0, 1.5) order by i", &["1", "2", "5"]),
    ("i from z where -{} in (0.0, i) order by i", &["1", "2"]),
    ("{} in (0.0, 7, 8, 9) as zero, count(*) from z group by 1 order by 1", &["false|4", "true|2"]),
    ("i from z where nullif({}, 0.0) is null order by i", &["1", "2"]),
    ("i from z where nullif({}, -0.0) is null order by i", &["1", "2"]),
    ("i from z where nullif(-{}, 0) is null order by i", &["1", "2"]),
    ("nullif({}, 1.5) from z where i in (5, 6) order by i", &["NULL", "-1.5"]),
    (
        "i, case {} when 0.0 then 'zero' when 1.5 then 'more' else '-' end from z order by i",
        &["1|zero", "2|zero", "3|-", "4|-", "5|more", "6|-"],
    ),
    ("sum(case {} when -0.0 then 1 end) from z", &["2"]),
    ("count(*) from z where {} is distinct from 0.0", &["4"]),
    (
        "a.i, b.i from z a join z b on a.{} + 0 = b.{} * 1 where a.i < 3 order by 1, 2",
        &["1|1", "1|2", "2|1", "2|2"],
    ),
    (
        "nullif(-0.0, 0.0), -0.0 in (0.0), -0.0 in (1, 0.0, 2, 3, 4, 5), case -0.0 when 0.0 then 1 else 2 end, {} = 0 from z limit 1",
        &["NULL|true|true|1|true"],
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zeros_are_one_value() {
    for (name, pushdown) in [("pushed", true), ("not pushed", false)] {
        let pool = Arc::new(Fake::default().with("z", vec![table()]).await);
        let session = session(&pool, pushdown).await;
        for (sql, expected) in CASES {
            for column in ["f", "h"] {
                let sql = format!("select {}", sql.replace("{}", column));
                let found = rows(&session, &sql).await;
                let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
                assert_eq!(found.as_ref(), Ok(&expected), "{name}: {sql}");
            }
        }
    }
}
