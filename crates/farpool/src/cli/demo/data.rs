//! TPC-H tables, generated on a separate thread while they are loaded.

use crate::cli::progress::{Progress, Unit};
use crate::cli::stop::Outcome;
use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatchReader;
use farpool::{LoadMode, Pool, TableInfo, TableName};
use futures::StreamExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tpchgen::generators as make;
use tpchgen_arrow as arrows;

type Reader = Box<dyn RecordBatchReader<Item = Result<RecordBatch, ArrowError>> + Send>;

/// A table's name, its rows at scale 1, and its generator.
type Maker = (&'static str, f64, fn(f64) -> Reader);

const TABLES: [Maker; 8] = [
    ("region", 5.0, |s| Box::new(arrows::RegionArrow::new(make::RegionGenerator::new(s, 1, 1)))),
    ("nation", 25.0, |s| Box::new(arrows::NationArrow::new(make::NationGenerator::new(s, 1, 1)))),
    ("supplier", 1e4, |s| Box::new(arrows::SupplierArrow::new(make::SupplierGenerator::new(s, 1, 1)))),
    ("customer", 1.5e5, |s| Box::new(arrows::CustomerArrow::new(make::CustomerGenerator::new(s, 1, 1)))),
    ("part", 2e5, |s| Box::new(arrows::PartArrow::new(make::PartGenerator::new(s, 1, 1)))),
    ("partsupp", 8e5, |s| Box::new(arrows::PartSuppArrow::new(make::PartSuppGenerator::new(s, 1, 1)))),
    ("orders", 1.5e6, |s| Box::new(arrows::OrderArrow::new(make::OrderGenerator::new(s, 1, 1)))),
    ("lineitem", 6_001_215.0, |s| {
        Box::new(arrows::LineItemArrow::new(make::LineItemGenerator::new(s, 1, 1)))
    }),
];

/// Generates all tables at `scale` and loads them into `pool`, smallest first.
pub async fn load(pool: &dyn Pool, scale: f64) -> Outcome<Vec<TableInfo>> {
    let mut tables = Vec::new();
    for (name, rows_per_scale, maker) in TABLES {
        let fixed = matches!(name, "region" | "nation");
        let rows = if fixed { rows_per_scale } else { (rows_per_scale * scale).round() } as u64;
        tables.push(load_table(pool, name, rows, maker(scale)).await?);
    }
    Ok(tables)
}

async fn load_table(pool: &dyn Pool, name: &str, rows: u64, reader: Reader) -> Outcome<TableInfo> {
    let schema = reader.schema();
    let done = Arc::new(AtomicU64::new(0));
    let _bar = Progress::follow(format!("{name:<8}"), Unit::Rows, rows, done.clone(), None);
    let batches = farpool::stream_blocking(move || {
        reader.map(|batch| batch.map_err(|error| farpool::Error::internal(error.to_string())))
    });
    let counted = batches.inspect(move |batch| {
        let rows = batch.as_ref().map_or(0, RecordBatch::num_rows);
        done.fetch_add(farpool::model::cast::u64_from(rows), Ordering::Relaxed);
    });
    let table = TableName::new(name)?;
    Ok(pool.load(&table, LoadMode::Replace.into(), schema, Some(rows), Box::pin(counted)).await?)
}
