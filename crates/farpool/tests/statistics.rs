//! Tests of statistics in SQL: the results are the same with and without push-down, in-process and over TCP, whole and
//! in parts, and equal recorded results of DuckDB 2.0.0 and exact counts.

use crate::support::pools::{Pools, Way, load};
use arrow::array::{
    ArrayRef, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch, StringViewArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use farpool::model::Receipt;
use farpool::{ErrorKind, Session};
use std::sync::Arc;

const ROWS: i64 = 150_000;

fn schema() -> SchemaRef {
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    Arc::new(Schema::new(vec![
        field("r", DataType::Int64),
        field("x", DataType::Int64),
        field("y", DataType::Int32),
        field("f", DataType::Float64),
        field("d", DataType::Decimal128(15, 2)),
        field("s", DataType::Utf8View),
        field("k", DataType::Int64),
        field("c", DataType::Int64),
        field("none", DataType::Float64),
    ]))
}

fn batch(from: i64, rows: i64) -> RecordBatch {
    let rows = from..from + rows;
    let x = |r: i64| r * 7919 % 1000;
    let unless = |of: i64, r: i64, value: i64| (r % of != 0).then_some(value);
    let ints = |value: &dyn Fn(i64) -> Option<i64>| -> ArrayRef {
        Arc::new(rows.clone().map(value).collect::<Int64Array>())
    };
    let y = |r: i64| unless(13, r, r * 104_729 % 977 + x(r) / 4).map(|y| y as i32);
    let f = |r: i64| (3 * x(r) + r % 7) as f64 / 4.0 + 1e9;
    let d = Decimal128Array::from_iter(rows.clone().map(|r| unless(5, r, x(r) * x(r)).map(i128::from)));
    let s = |r: i64| (r % 17 != 0).then(|| format!("value {}", r * r % 5003));
    let columns: Vec<ArrayRef> = vec![
        ints(&Some),
        ints(&|r| unless(11, r, x(r) - 500)),
        Arc::new(rows.clone().map(y).collect::<Int32Array>()),
        Arc::new(rows.clone().map(f).map(Some).collect::<Float64Array>()),
        Arc::new(d.with_precision_and_scale(15, 2).expect("fits")),
        Arc::new(rows.clone().map(s).collect::<StringViewArray>()),
        ints(&|r| unless(101, r, r % 5)),
        ints(&|_| Some(42)),
        Arc::new(rows.clone().map(|_| None).collect::<Float64Array>()),
    ];
    RecordBatch::try_new(schema(), columns).expect("a batch")
}

const QUERIES: &[&str] = &[
    "select approx_distinct(s), approx_distinct(x), approx_distinct(f), approx_distinct(d), approx_distinct(none) from t",
    "select approx_count(s, 'value 4'), approx_count(x, 7), approx_count(s, 'absent'), approx_f2(s), approx_f2(k) from t",
    "select approx_top_k(k, 3), approx_top_k(c, 2) from t",
    "select corr(y, x), covar_pop(y, x), covar_samp(x, y), corr(f, x), corr(d, y), corr(c, x), corr(none, x) from t",
    "select stddev(x), stddev_pop(f), var(y), var_pop(d), var_samp(none), stddev_samp(c) from t",
    "select regr_slope(y, x), regr_intercept(y, x), regr_count(y, x), regr_r2(y, x), regr_avgx(y, x), regr_avgy(y, x), regr_sxx(y, x), regr_syy(y, x), regr_sxy(y, x) from t",
    "select corr_matrix(x, y, d, c), cosine_similarity(x, y) from t",
    "select spearman(x, y), kendall(x, y) from t where r < 5000",
    "select k, approx_distinct(s), corr(y, x), stddev(f), count(*), sum(x) from t group by k",
    "select k, c, approx_count(s, 'value 4') filter (where x > 0), approx_f2(y), max(s) from t group by k, c",
    "select x, approx_distinct(s), stddev(y) from t group by x",
    "select k, approx_distinct(s) n from t where x > 100 group by k order by n desc, k limit 3",
    "select k, approx_distinct(s) n, sum(x) from t group by k order by k limit 2",
    "select k, approx_distinct(s) > 100 from t group by k having corr(x, y) > 0.2",
    "select approx_distinct(s) filter (where k = 1), corr(x, y) filter (where k = 1), approx_distinct(s) from t",
    "select approx_distinct(x + y), corr(x * 2, y + 1), approx_count(s || '!', 'value 4!') from t where f > 1e9",
    "select approx_distinct(s), approx_top_k(s, 4), corr(x, y), stddev(x) from t where r < 0",
    "select corr(x, y), stddev(x), var_pop(x), regr_slope(y, x), covar_samp(x, y), covar_pop(x, y) from t where r = 1",
    "select sketch_distinct(sketch_merge(state)), sketch_summary(sketch_merge(state)) from (select k, sketch(s) state from t group by k)",
    "select sketch_count(sketch(s, 'frequency=4x12'), 'value 4'), sketch_f2(sketch(s, 'second_moment=6x13')) from t",
    "select sketch_join_size(sketch(k), sketch(x)), sketch_top_k(sketch(k), 2) from t",
    "select moments_corr(m, 1, 2), moments_mean(m, 3), moments_count(m, 1, 3), moments_stddev(m, 2), moments_corr_matrix(m) from (select moments_merge(p) m from (select k, moments(x, y, d) p from t group by k))",
    "select moments_regr_slope(m, 2, 1), moments_cosine_similarity(m, 1, 2), moments_covar_pop(m, 1, 1) from (select moments(x, y, f, 'listwise') m from t)",
    "select count(*) from t group by k having approx_distinct(s) > 100000",
    "select arrow_cast(sketch(x, 'distinct=8 frequency=3x8'), 'Binary'), arrow_cast(moments(x, y), 'Binary') from t",
    "select s, stddev(x) over (order by r rows between 2 preceding and current row) from t where r < 20",
    "select r, approx_distinct(s) over (order by r) from t where r < 50",
    "select t.k, approx_distinct(u.s), corr(t.x, u.y) from t join t u on t.r = u.r + 1 where t.r < 2000 group by t.k",
    "select approx_distinct(n) from (select s, count(*) n from t group by s)",
];

/// Returns the sorted rows of a result as texts.
async fn run(session: &Session, sql: &str) -> (Vec<String>, Receipt) {
    let query = session.sql(sql).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    let batches = query.collect().await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = Vec::new();
    for batch in &batches {
        let columns =
            batch.columns().iter().map(|c| ArrayFormatter::try_new(c.as_ref(), &options).expect("text"));
        let columns: Vec<_> = columns.collect();
        for row in 0..batch.num_rows() {
            let cells: Vec<String> = columns.iter().map(|c| c.value(row).to_string()).collect();
            rows.push(cells.join(" | "));
        }
    }
    rows.sort();
    (rows, query.receipt())
}

/// Returns whether two rows are the same except for the last digits of floats.
fn alike(one: &str, two: &str) -> bool {
    let parts = |row: &str| -> Vec<String> {
        row.split([' ', ',', '[', ']', '{', '}']).map(str::to_string).collect()
    };
    let (one, two) = (parts(one), parts(two));
    one.len() == two.len()
        && one.iter().zip(&two).all(|(one, two)| {
            one == two
                || match (one.parse::<f64>(), two.parse::<f64>()) {
                    (Ok(one), Ok(two)) => (one - two).abs() <= 1e-9 * one.abs().max(two.abs()).max(1e-3),
                    _ => false,
                }
        })
}

fn assert_alike(got: &[String], expected: &[String], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}: {got:?} for {expected:?}");
    for (got, expected) in got.iter().zip(expected) {
        assert!(alike(got, expected), "{what}:\n got {got}\n for {expected}");
    }
}

async fn loaded(group_bytes: usize) -> Pools {
    let pools = Pools::start_within(1 << 30, group_bytes).await;
    let batches = (0..10).map(|part| batch(part * ROWS / 10, ROWS / 10)).collect();
    load(&*pools.embedded, "t", schema(), batches).await;
    pools
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_do_not_depend_on_where_they_are_computed() {
    let pools = loaded(4 << 30).await;
    let here = pools.session(Way::Embedded, false).await;
    let mut expected = Vec::new();
    for sql in QUERIES {
        expected.push(run(&here, sql).await.0);
    }
    let mut pushed = 0;
    for (way, pools) in [
        (Way::Embedded, &pools),
        (Way::Remote, &pools),
        (Way::Plain, &pools),
        (Way::Remote, &loaded(16 << 20).await),
        (Way::Embedded, &loaded(64 << 10).await),
    ] {
        let session = pools.session(way, true).await;
        for (sql, expected) in QUERIES.iter().zip(&expected) {
            let (got, receipt) = run(&session, sql).await;
            assert_alike(&got, expected, &format!("{way:?}: {sql}"));
            pushed += usize::from(receipt.operators.iter().any(|o| o.detail.contains("sketch(")));
        }
    }
    assert!(pushed > 30, "{pushed} sketches were made at the pool");
}

async fn one(sql: &str) -> String {
    let pools = loaded(4 << 30).await;
    run(&pools.session(Way::Remote, true).await, sql).await.0.join("\n")
}

/// Returns the values of a result of one row.
async fn numbers(sql: &str) -> Vec<f64> {
    one(sql)
        .await
        .split(" | ")
        .map(|cell| cell.parse().unwrap_or_else(|_| panic!("{cell} of {sql}")))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moments_are_those_of_duckdb() {
    let sql = "select corr(y, x), covar_pop(y, x), covar_samp(y, x), stddev_samp(x), stddev_pop(x), var_samp(x), \
               var_pop(f), regr_slope(y, x), regr_intercept(y, x), regr_count(y, x), regr_r2(y, x), \
               regr_avgx(y, x), regr_avgy(y, x), regr_sxx(y, x), regr_syy(y, x), regr_sxy(y, x), corr(f, x), \
               cosine_similarity(x, y) from t";
    let duckdb = [
        0.24793296659927228,
        20836.21528504005,
        20836.380819990514,
        288.67375147353334,
        288.67269299623115,
        83332.53478980329,
        46875.21230677534,
        0.2500351356192463,
        612.6011145863014,
        125873.0,
        0.06147075592671586,
        -0.5305268008230518,
        612.468464245708,
        10489393500.95069,
        10668022095.068771,
        2622716926.573846,
        0.9999973333350876,
        0.10477694670747448,
    ];
    for (i, (got, expected)) in numbers(sql).await.into_iter().zip(duckdb).enumerate() {
        assert!((got - expected).abs() <= 1e-9 * expected.abs(), "column {i}: {got} for {expected}");
    }
    assert_eq!(
        one("select corr(c, x), corr(none, x), stddev(none), regr_count(none, x) from t").await,
        "NaN | NULL | NULL | 0"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sketches_are_close_to_exact_counts() {
    let sql = "select approx_distinct(s), approx_distinct(x), approx_distinct(r), approx_f2(s), \
               approx_count(s, 'value 4'), approx_count(k, 3) from t";
    let exact = [2502.0, 1000.0, 150_000.0, 7_967_400.0, 56.0, 29703.0];
    let got = numbers(sql).await;
    for (i, (got, exact)) in got.into_iter().zip(exact).enumerate() {
        assert!((got - exact).abs() <= 0.1 * exact, "column {i}: {got} for {exact}");
    }
    assert_eq!(one("select approx_top_k(c, 3) from t").await, "[{value: 42, count: 150000}]");
    let bounds = "select d.low <= 2502 and d.high >= 2502 and d.confidence > 0.9 \
                  from (select sketch_distinct(sketch(s)) d from t)";
    assert_eq!(one(bounds).await, "true");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_asks_for_the_same_column_shares_a_state() {
    let pools = loaded(4 << 30).await;
    let session = pools.session(Way::Embedded, true).await;
    let aggregates = async |sql: &str| {
        let (_, receipt) = run(&session, sql).await;
        let found = receipt.operators.iter().find(|o| o.operator.folds_rows());
        let detail = &found.unwrap_or_else(|| panic!("{sql} is not pushed")).detail;
        // In the text, the method by which the aggregates are computed follows in brackets; it is left out.
        detail.split(" [").next().unwrap_or_default().to_string()
    };
    assert_eq!(
        aggregates(
            "select approx_distinct(s), approx_count(s, 'a'), approx_top_k(s, 3), approx_f2(s) from t"
        )
        .await,
        "sketch(s, 'distinct=14 frequency=6x13 second_moment=6x13 top=64')"
    );
    assert_eq!(
        aggregates("select corr(x, y), regr_slope(y, x), covar_pop(x, y), stddev(x) from t").await,
        "moments(x, y, 'listwise'), moments(x, 'listwise')"
    );
    assert_eq!(
        aggregates("select sketch(s, 'distinct=14'), approx_f2(s), approx_distinct(s) from t").await,
        "sketch(s, 'distinct=14'), sketch(s, 'second_moment=6x13')"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_is_said() {
    let pools = loaded(4 << 30).await;
    for (sql, says) in [
        ("select approx_top_k(s, 0) from t", "1 to 1024 values"),
        ("select approx_top_k(s, k) from t", "is not a constant"),
        ("select approx_count(s, s) from t", "is not a constant"),
        ("select sketch(s, 'distinct=99') from t", "from 4 to 18"),
        ("select sketch(s, 'precision=9') from t", "no parameter of a sketch"),
        ("select corr(s, make_array(1)) from t", "corr does not take VARCHAR"),
        ("select approx_distinct() from t", "approx_distinct"),
        ("select corr(x) from t", "corr does not take BIGINT"),
        ("select moments_corr(moments(x, y), 1, 3) from t", "no column 3"),
        ("select moments_corr(moments(x, y), 0, 1) from t", "count from 1"),
        ("select sketch_distinct(moments(x, y)) from t", "damaged"),
        ("select sketch_distinct(arrow_cast('abc', 'Binary')) from t", "damaged"),
        ("select sketch_f2(sketch(x, 'distinct=9')) from t", "no Fast-AGMS"),
        (
            "select sketch_merge(p) from (select sketch(x) p from t union all select sketch(s) from t)",
            "cannot be merged",
        ),
    ] {
        for pushdown in [true, false] {
            let session = pools.session(Way::Remote, pushdown).await;
            let answer = match session.sql(sql).await {
                Ok(query) => query.collect().await.map(|_| ()),
                Err(error) => Err(error),
            };
            let error = answer.err().unwrap_or_else(|| panic!("{sql} has an answer"));
            assert!(error.message.contains(says), "{sql}: {error}");
            assert!(matches!(error.kind, ErrorKind::Invalid | ErrorKind::Corrupt), "{sql}: {error:?}");
        }
    }
}
