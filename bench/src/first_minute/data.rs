//! The files of the suite, created on the first run and kept in the cache outside the tree.

use super::definition::{FileDefinition, Format};
use crate::places;
use crate::tables::parquet;
use anyhow::Result;
use arrow::csv;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use tpchgen::generators::LineItemGenerator;
use tpchgen_arrow::LineItemArrow;

/// Returns the file, and creates it if it does not exist.
pub fn file(definition: &FileDefinition) -> Result<PathBuf> {
    let (scale, ending) = (places::scale_name(definition.scale), definition.format.ending());
    places::made("data/first-minute", &format!("lineitem-sf{scale}.{ending}"), |file| {
        let rows = LineItemArrow::new(LineItemGenerator::new(definition.scale, 1, 1));
        match definition.format {
            Format::Parquet => parquet::write(file, rows),
            Format::Csv => {
                let mut writer = csv::Writer::new(BufWriter::new(File::create(file)?));
                for batch in rows {
                    writer.write(&batch?)?;
                }
                Ok(())
            }
        }
    })
}
