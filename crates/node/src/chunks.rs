//! Serves column chunks of a table (the values of one column in one row group) to clients that cache chunks:
//! descriptions of chunks, and their values.

use crate::Caller;
use crate::rights::Verb;
use bytes::Bytes;
use farpool_columns::{Chunk, Table};
use farpool_model::{Error, Program, Result, cast, limits};
use farpool_pipeline::{BoundProgram, Run, check_chunks};
use farpool_wire::{ChunkOutline, Outlines};
use std::sync::Arc;

impl Caller {
    /// Creates a run (an execution that workers step) that returns whole column chunks: those of `columns` in the row
    /// groups with the indexes `row_groups`, of the table version that `program` is bound to.
    ///
    /// # Errors
    /// `Invalid` for columns or row groups that the table does not have, and for a table whose chunks clients may not
    /// cache; `Cancelled` if the caller was cancelled.
    pub fn start_fetching(
        &self,
        program: &BoundProgram,
        columns: &[usize],
        row_groups: Vec<usize>,
    ) -> Result<Arc<Run>> {
        self.check(Verb::Execute)?;
        let (prepared, table) = (program.prepared(), program.table());
        check_columns(table, columns)?;
        let rows = Program::scan(prepared.effective.table.clone(), &table.schema, columns);
        let rows = BoundProgram::prepare(&rows, table.clone(), prepared.version, program.budget())?;
        // Scans are shared by `rows`, which has no filter, and not by `program`, whose filter does not apply to whole
        // chunks.
        Ok(self.in_company(Run::start_fetching(&rows, row_groups)?, &rows))
    }

    /// Describes column chunks of the table version that `program` is bound to: those of `columns`, for as many row
    /// groups from index `first` on as fit a message. Small chunks are included whole. Returns no chunks if the table
    /// has the id `known`, because the client then has the descriptions already.
    ///
    /// # Errors
    /// Errors of [`Caller::start_fetching`].
    pub(crate) fn outlines(
        &self,
        program: &BoundProgram,
        columns: &[usize],
        first: usize,
        known: u64,
    ) -> Result<Outlines> {
        self.check(Verb::Execute)?;
        let table = program.table();
        check_columns(table, columns)?;
        check_chunks(table)?;
        let row_groups = cast::u32_checked(table.row_groups.len());
        let mut outlines = Outlines { table: table.number(), row_groups, ..Outlines::default() };
        if outlines.table == known {
            return Ok(outlines);
        }
        let mut bytes = 0;
        for group in table.row_groups.from(first) {
            if bytes >= limits::OUTLINES_BYTES {
                break;
            }
            outlines.rows.push(cast::u32_checked(group.rows));
            for column in columns {
                let outline = outline(&group.chunks[*column])?;
                bytes += outline.head.len() + outline.data.as_ref().map_or(0, Bytes::len);
                outlines.chunks.push(outline);
            }
        }
        Ok(outlines)
    }
}

fn check_columns(table: &Table, columns: &[usize]) -> Result<()> {
    let there = table.schema.fields().len();
    match columns.iter().find(|column| **column >= there) {
        Some(column) => Err(Error::invalid(format!("column {column} of a table that has {there}"))),
        None => Ok(()),
    }
}

fn outline(chunk: &Chunk) -> Result<ChunkOutline> {
    let number = chunk.number();
    if let Some(outline) = chunk.to_outline()? {
        return Ok(ChunkOutline { number, head: outline.into(), data: None });
    }
    let image = chunk.to_image()?;
    let mut data = Vec::with_capacity(image.data_bytes());
    image.write_data(&mut data);
    Ok(ChunkOutline { number, head: image.head.into(), data: Some(data.into()) })
}
