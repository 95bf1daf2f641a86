//! Tables as the Parquet files that LiquidCache reads.

use anyhow::{Context, Result};
use datafusion::arrow::ipc::reader::FileReader;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::WriterProperties;
use std::fs::File;
use std::path::{Path, PathBuf};

/// A Parquet file as it is; for an Arrow file the Parquet file beside it, made if it is not there or older.
pub fn parquet(file: &Path) -> Result<PathBuf> {
    let parquet = file.with_extension("parquet");
    if parquet != file && !newer(&parquet, file) {
        convert(file, &parquet).with_context(|| format!("cannot make Parquet of {}", file.display()))?;
    }
    Ok(parquet)
}

fn newer(left: &Path, right: &Path) -> bool {
    let modified = |file: &Path| file.metadata().and_then(|metadata| metadata.modified()).ok();
    modified(left).zip(modified(right)).is_some_and(|(left, right)| left >= right)
}

/// Plain pages: they are decoded once, when the cache fills. The file is renamed when it is complete, so that
/// a run that is stopped leaves no half of one.
fn convert(arrow: &Path, parquet: &Path) -> Result<()> {
    let partial = parquet.with_extension("partial");
    let reader = FileReader::try_new(File::open(arrow)?, None)?;
    let properties = WriterProperties::builder().set_dictionary_enabled(false).build();
    let mut writer = ArrowWriter::try_new(File::create(&partial)?, reader.schema(), Some(properties))?;
    for batch in reader {
        writer.write(&batch?)?;
    }
    writer.close()?;
    Ok(std::fs::rename(&partial, parquet)?)
}
