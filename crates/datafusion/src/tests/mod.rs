//! Tests that every query gives the same result with push-down enabled and disabled, and that for each shape of query
//! the expected programs are pushed down.

mod aggregates;
mod agree;
mod batches;
mod bounded;
mod date_trunc;
mod dialect;
mod dynamic;
mod fake;
mod floats;
mod front;
mod functions;
mod interrupt;
mod joins;
mod merged;
mod others;
mod overflow;
mod parameters;
mod plans;
mod pushed;
mod subqueries;
mod upstream;
mod zones;

use crate::{Rates, Session, SessionOptions};
use arrow_array::builder::{
    BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder, Float64Builder, Int32Builder,
    Int64Builder, StringViewBuilder, TimestampMicrosecondBuilder, UInt16Builder,
};
use arrow_array::{ArrayRef, RecordBatch};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
pub(crate) use fake::Fake;
use std::sync::Arc;

/// Creates `count` rows of the test table `t`, beginning with row `from`: all types, NULLs, NaN, few and many distinct
/// values.
fn rows_of_t(from: i64, count: i64) -> RecordBatch {
    let mut id = Int64Builder::new();
    let mut k = Int32Builder::new();
    let mut u = UInt16Builder::new();
    let mut d = Decimal128Builder::new().with_precision_and_scale(15, 2).unwrap();
    let mut f = Float64Builder::new();
    let mut g = Float32Builder::new();
    let mut s = StringViewBuilder::new();
    let mut day = Date32Builder::new();
    let mut b = BooleanBuilder::new();
    let mut ts = TimestampMicrosecondBuilder::new();
    let words = ["apple", "Banana", "cherry", "", "äpfel", "a%b_c", "banana split"];
    for i in from..from + count {
        let mixed = i.wrapping_mul(2_654_435_761) % 1_000_003;
        let unless = |n: i64, v: i64| (mixed % n != 0).then_some(v);
        id.append_value(i);
        k.append_option(unless(7, mixed % 10).map(|v| v as i32 - 3));
        u.append_option(unless(11, mixed % 300).map(|v| v as u16));
        d.append_option(unless(13, mixed % 5000).map(|v| i128::from(v - 2000)));
        f.append_option(unless(5, mixed % 64).map(|v| if v == 9 { f64::NAN } else { v as f64 / 4.0 }));
        g.append_option(unless(6, mixed % 32).map(|v| v as f32 / 2.0));
        s.append_option(unless(9, mixed).map(|v| words[(v % 7) as usize]));
        day.append_option(unless(17, mixed % 2500).map(|v| 8000 + v as i32));
        b.append_option(unless(4, mixed % 3).map(|v| v == 0));
        ts.append_option(unless(19, mixed * 1_000_003));
    }
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(id.finish())),
        ("k", Arc::new(k.finish())),
        ("u", Arc::new(u.finish())),
        ("d", Arc::new(d.finish())),
        ("f", Arc::new(f.finish())),
        ("g", Arc::new(g.finish())),
        ("s", Arc::new(s.finish())),
        ("day", Arc::new(day.finish())),
        ("b", Arc::new(b.finish())),
        ("ts", Arc::new(ts.finish())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, c)| (name, c, name != "id")))
        .unwrap()
}

/// Creates the rows of the test table `dim`: one for each value of `t.k`, and one more.
fn rows_of_dim() -> RecordBatch {
    let mut k = Int32Builder::new();
    let mut name = StringViewBuilder::new();
    for i in -3..8 {
        k.append_value(i);
        name.append_value(format!("name {}", i % 4));
    }
    let columns: Vec<(&str, ArrayRef)> = vec![("k", Arc::new(k.finish())), ("name", Arc::new(name.finish()))];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// Adds the test tables `t` and `dim` to `fake`.
pub(crate) async fn filled(fake: Fake) -> Arc<Fake> {
    let t = (0..3).map(|i| rows_of_t(i * 700, 700)).collect();
    Arc::new(fake.with("t", t).await.with("dim", vec![rows_of_dim()]).await)
}

pub(crate) async fn session(pool: &Arc<Fake>, pushdown: bool) -> Session {
    session_at(pool, pushdown, Rates::default()).await
}

/// Opens a session whose planner assumes `rates` as the speeds of the pool and the engine.
async fn session_at(pool: &Arc<Fake>, pushdown: bool, rates: Rates) -> Session {
    let options = SessionOptions { pushdown, target_partitions: Some(3), rates, ..SessionOptions::default() };
    let session = Session::new(options);
    session.register_pool("farpool", Arc::clone(pool) as _).await.unwrap();
    session
}

/// Returns the rows of the result as sorted strings.
async fn rows(session: &Session, sql: &str) -> farpool_model::Result<Vec<String>> {
    let query = session.sql(sql).await?;
    let batches = query.collect().await?;
    let columns = query.schema().fields().len();
    assert!(batches.iter().all(|batch| batch.num_columns() == columns));
    Ok(shown(&batches))
}

fn shown(batches: &[RecordBatch]) -> Vec<String> {
    let mut rows = Vec::new();
    for batch in batches {
        let options = FormatOptions::default().with_null("NULL");
        let columns: Vec<_> =
            batch.columns().iter().map(|c| ArrayFormatter::try_new(c, &options).unwrap()).collect();
        for row in 0..batch.num_rows() {
            let cells: Vec<String> = columns.iter().map(|c| c.value(row).to_string()).collect();
            rows.push(cells.join("|"));
        }
    }
    rows
}
