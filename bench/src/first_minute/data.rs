//! The files of the suite, made on the first run and kept in the cache outside the tree; and dropping them
//! from the system's page cache.

use super::definition::{FileDefinition, Format};
use crate::places;
use anyhow::{Context, Result, bail};
use arrow::array::RecordBatchReader;
use arrow::csv;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;
use tpchgen::generators::LineItemGenerator;
use tpchgen_arrow::LineItemArrow;

/// Returns the file, and makes it if it does not exist.
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

/// Writes to a file beside the target and renames it, so that an interrupted run leaves no incomplete file.
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

/// Drops the pages of a file from the system's cache (`posix_fadvise`, by means of `dd`), after writing them
/// back.
///
/// # Errors
/// Where `dd` does not support this: the run then continues with a warm cache, and says so.
pub fn forget(file: &Path) -> Result<()> {
    let of_file = |name: &str| -> Result<()> {
        let mut argument = std::ffi::OsString::from(format!("{name}="));
        argument.push(file);
        let flags = if name == "if" { "iflag=nocache" } else { "oflag=nocache" };
        let mut command = Command::new("dd");
        command.arg(argument).args([flags, "count=0", "status=none"]);
        if name == "of" {
            command.args(["conv=notrunc,fdatasync"]);
        }
        match command.status().context("cannot start dd")?.success() {
            true => Ok(()),
            false => bail!("dd has no flag nocache"),
        }
    };
    of_file("of")?;
    of_file("if")
}
