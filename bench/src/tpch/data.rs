//! TPC-H tables as Parquet files, created on the first run and kept in the cache outside the tree.

use crate::places;
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

/// The tables, smallest first.
pub const TABLES: [&str; 8] =
    ["region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"];

type Reader = Box<dyn RecordBatchReader>;

/// Returns the folder with the tables at `scale`, and creates it if it does not exist.
pub fn folder(scale: f64) -> Result<PathBuf> {
    let folder = places::cache()?.join("data").join(format!("tpch-sf{}", places::scale_name(scale)));
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for table in TABLES {
        let file = folder.join(format!("{table}.parquet"));
        if !file.exists() {
            eprintln!("making {}", file.display());
            write(&file, generator(table, scale))
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(folder)
}

/// Returns the batches of a table, with DataFusion's batch size.
pub fn read(folder: &Path, table: &str) -> Result<Vec<RecordBatch>> {
    let path = folder.join(format!("{table}.parquet"));
    let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)?.with_batch_size(BATCH_ROWS).build()?;
    Ok(reader.collect::<Result<Vec<_>, _>>()?)
}

/// Writes to a file next to the target and renames it, so that an interrupted run leaves no incomplete file.
fn write(file: &Path, reader: Reader) -> Result<()> {
    let partial = file.with_extension("partial");
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = ArrowWriter::try_new(File::create(&partial)?, reader.schema(), Some(properties))?;
    for batch in reader {
        writer.write(&batch?)?;
    }
    writer.close()?;
    std::fs::rename(&partial, file)?;
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
