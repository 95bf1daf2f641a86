//! Tables as Parquet files, created on the first run and kept in the cache outside the tree.

use crate::places;
use crate::rival::Rival;
use anyhow::{Context, Result};
use arrow::array::{RecordBatch, RecordBatchIterator, RecordBatchReader};
use arrow::error::ArrowError;
use farpool::model::limits::BATCH_ROWS;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The rows of a table that is generated.
pub type Rows = Box<dyn RecordBatchReader>;

/// Rows of a batch, or other items of which a batch has some, such as orders of several rows.
const BATCH_ITEMS: usize = 16 << 10;

/// Returns a folder of the cache with tables at `scale`, and creates those that do not exist.
pub fn folder(
    name: &str,
    scale: f64,
    tables: &[&str],
    generator: impl Fn(&str, f64) -> Result<Rows>,
) -> Result<PathBuf> {
    let name = format!("{name}-sf{}", places::scale_name(scale));
    folder_named(&name, tables, |table| generator(table, scale))
}

/// Returns the folder of the cache with this name and these tables, and creates those that do not exist.
pub fn folder_named(
    name: &str,
    tables: &[&str],
    generator: impl Fn(&str) -> Result<Rows>,
) -> Result<PathBuf> {
    let folder = format!("data/{name}");
    for table in tables {
        places::made(&folder, &format!("{table}.parquet"), |file| write(file, generator(table)?))?;
    }
    Ok(places::cache()?.join(folder))
}

/// Generates some number of items (rows, or orders of several rows) batch by batch.
pub fn in_batches(
    items: u64,
    batch: impl Fn(Range<u64>) -> Result<RecordBatch, ArrowError> + 'static,
) -> Result<Rows> {
    let schema = batch(0..0)?.schema();
    let starts = (0..items).step_by(BATCH_ITEMS);
    let batches = starts.map(move |start| batch(start..items.min(start + BATCH_ITEMS as u64)));
    Ok(Box::new(RecordBatchIterator::new(batches, schema)))
}

/// Returns the batches of a table, with DataFusion's batch size.
pub fn read(folder: &Path, table: &str) -> Result<Vec<RecordBatch>> {
    Ok(reader(folder, table)?.collect::<Result<Vec<_>, _>>()?)
}

/// Returns a reader of the batches of a table.
pub fn reader(folder: &Path, table: &str) -> Result<ParquetRecordBatchReader> {
    let path = path(folder, table);
    let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    Ok(ParquetRecordBatchReaderBuilder::try_new(file)?.with_batch_size(BATCH_ROWS).build()?)
}

/// Returns the bytes of a table's file.
pub fn bytes(folder: &Path, table: &str) -> Result<u64> {
    Ok(path(folder, table).metadata()?.len())
}

/// Loads tables into a rival.
pub fn load_into(rival: &mut Rival, folder: &Path, tables: &[&str]) -> Result<()> {
    tables.iter().try_for_each(|table| rival.load(table, &path(folder, table)).map(|_| ()))
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

fn path(folder: &Path, table: &str) -> PathBuf {
    folder.join(format!("{table}.parquet"))
}
