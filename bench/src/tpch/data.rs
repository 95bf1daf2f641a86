//! TPC-H tables as Parquet files, created on the first run and kept in the cache outside the tree.

use crate::places;
use crate::rival::Rival;
use anyhow::{Context, Result};
use arrow::array::{RecordBatch, RecordBatchReader};
use farpool::model::limits::BATCH_ROWS;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use std::fs::File;
use std::path::{Path, PathBuf};
use tpchgen::generators as make;
use tpchgen_arrow as arrows;

/// The names of the TPC-H tables, smallest table first.
pub const TABLES: [&str; 8] =
    ["region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"];

type Reader = Box<dyn RecordBatchReader>;

/// Returns the folder with the tables at `scale`, and creates it if it does not exist.
pub fn folder(scale: f64) -> Result<PathBuf> {
    let folder = format!("data/tpch-sf{}", places::scale_name(scale));
    for table in TABLES {
        places::made(&folder, &format!("{table}.parquet"), |file| write(file, generator(table, scale)))?;
    }
    Ok(places::cache()?.join(folder))
}

/// Returns the batches of a table, with DataFusion's batch size.
pub fn read(folder: &Path, table: &str) -> Result<Vec<RecordBatch>> {
    let path = folder.join(format!("{table}.parquet"));
    let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)?.with_batch_size(BATCH_ROWS).build()?;
    Ok(reader.collect::<Result<Vec<_>, _>>()?)
}

/// Loads tables into a rival.
pub fn load_into(rival: &mut Rival, folder: &Path, tables: &[&str]) -> Result<()> {
    tables
        .iter()
        .try_for_each(|table| rival.load(table, &folder.join(format!("{table}.parquet"))).map(|_| ()))
}

/// Writes the rows of a reader to a Parquet file.
pub fn write(file: &Path, reader: impl RecordBatchReader) -> Result<()> {
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = ArrowWriter::try_new(File::create(file)?, reader.schema(), Some(properties))?;
    for batch in reader {
        writer.write(&batch?)?;
    }
    writer.close()?;
    Ok(())
}

fn generator(table: &str, scale: f64) -> Reader {
    match table {
        "region" => Box::new(arrows::RegionArrow::new(make::RegionGenerator::new(scale, 1, 1))),
        "nation" => Box::new(arrows::NationArrow::new(make::NationGenerator::new(scale, 1, 1))),
        "supplier" => Box::new(arrows::SupplierArrow::new(make::SupplierGenerator::new(scale, 1, 1))),
        "customer" => Box::new(arrows::CustomerArrow::new(make::CustomerGenerator::new(scale, 1, 1))),
        "part" => Box::new(arrows::PartArrow::new(make::PartGenerator::new(scale, 1, 1))),
        "partsupp" => Box::new(arrows::PartSuppArrow::new(make::PartSuppGenerator::new(scale, 1, 1))),
        "orders" => Box::new(arrows::OrderArrow::new(make::OrderGenerator::new(scale, 1, 1))),
        _ => Box::new(arrows::LineItemArrow::new(make::LineItemGenerator::new(scale, 1, 1))),
    }
}
