//! Provides tables as the Parquet files that LiquidCache reads.

use anyhow::{Context, Result};
use datafusion::arrow::array::RecordBatchReader;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::ipc::reader::FileReader;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::WriterProperties;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Returns the Parquet file itself, if LiquidCache supports its types; otherwise, and for an Arrow file, a converted
/// one next to it, which is created if it does not exist or is older.
pub fn parquet(file: &Path) -> Result<PathBuf> {
    let opened = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    let is_parquet = file.extension().is_some_and(|extension| extension == "parquet");
    if is_parquet && !has_views(ParquetRecordBatchReaderBuilder::try_new(opened.try_clone()?)?.schema()) {
        return Ok(file.to_path_buf());
    }
    let made = file.with_extension("strings.parquet");
    if !newer(&made, file) {
        let failed = || format!("cannot make Parquet of {}", file.display());
        let reader = if is_parquet { without_views(opened) } else { arrow(opened) };
        write(reader.with_context(failed)?, &made).with_context(failed)?;
    }
    Ok(made)
}

/// Returns whether the schema has string views, which LiquidCache handles badly: it sends views with all the memory
/// that they refer to, which soon exceeds the limit of its client.
fn has_views(schema: &SchemaRef) -> bool {
    schema.fields().iter().any(|field| *field.data_type() == DataType::Utf8View)
}

fn newer(left: &Path, right: &Path) -> bool {
    let modified = |file: &Path| file.metadata().and_then(|metadata| metadata.modified()).ok();
    modified(left).zip(modified(right)).is_some_and(|(left, right)| left >= right)
}

type Reader = Box<dyn RecordBatchReader>;

fn arrow(file: File) -> Result<Reader> {
    Ok(Box::new(FileReader::try_new(file, None)?))
}

/// Reads a file with Parquet's own types instead of the Arrow types that it was written from.
fn without_views(file: File) -> Result<Reader> {
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    Ok(Box::new(ParquetRecordBatchReaderBuilder::try_new_with_options(file, options)?.build()?))
}

/// Writes to another file and renames it when it is complete, so that an interrupted run leaves no incomplete
/// file.
fn write(reader: Reader, parquet: &Path) -> Result<()> {
    let partial = parquet.with_extension("partial");
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = ArrowWriter::try_new(File::create(&partial)?, reader.schema(), Some(properties))?;
    for batch in reader {
        writer.write(&batch?)?;
    }
    writer.close()?;
    Ok(std::fs::rename(&partial, parquet)?)
}
