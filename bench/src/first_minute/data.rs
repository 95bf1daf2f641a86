//! The files of the suite, created on the first run and kept in the cache outside the tree.

use super::definition::{FileDefinition, Format};
use crate::places;
use anyhow::{Context, Result};
use arrow::array::RecordBatchReader;
use arrow::csv;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use tpchgen::generators::LineItemGenerator;
use tpchgen_arrow::LineItemArrow;

/// Returns the file, and creates it if it does not exist.
pub fn file(definition: &FileDefinition) -> Result<PathBuf> {
    let folder = places::cache()?.join("data/first-minute");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let (scale, ending) = (places::scale_name(definition.scale), definition.format.ending());
    let file = folder.join(format!("lineitem-sf{scale}.{ending}"));
    if !file.exists() {
        eprintln!("making {}", file.display());
        write(&file, definition).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(file)
}

/// Writes to a file next to the target and renames it, so that an interrupted run leaves no incomplete file.
fn write(file: &Path, definition: &FileDefinition) -> Result<()> {
    let partial = file.with_extension("partial");
    let rows = LineItemArrow::new(LineItemGenerator::new(definition.scale, 1, 1));
    let output = BufWriter::new(File::create(&partial)?);
    match definition.format {
        Format::Parquet => {
            let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
            let mut writer = ArrowWriter::try_new(output, rows.schema(), Some(properties))?;
            for batch in rows {
                writer.write(&batch?)?;
            }
            writer.close()?;
        }
        Format::Csv => {
            let mut writer = csv::Writer::new(output);
            for batch in rows {
                writer.write(&batch?)?;
            }
        }
    }
    std::fs::rename(&partial, file)?;
    Ok(())
}
