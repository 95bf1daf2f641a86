//! Reads Parquet files with the `parquet` crate: strings as views, and only the requested columns.

pub(super) mod types;

use super::input::{Chunks, Input, Place};
use super::lanes::{Lanes, Tail};
use super::progress::Progress;
use super::tasks::{Task, Tasks};
use super::{Batches, ahead, damaged, files};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use farpool_model::{Error, Result, cast, limits};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

pub(super) use types::Footer;

/// Approximate bytes per batch: enough that a row group of the pool usually comes from one batch and is encoded without
/// concatenation, and not so many that a few batches of wide rows fill the memory.
const BATCH_BYTES: u64 = 32 << 20;

/// Returns the columns, the number of rows and the footer of a file.
pub(super) fn open(path: &Path, file: &Input) -> Result<(SchemaRef, u64, Footer)> {
    let footer = match file {
        Input::Local(file) => ArrowReaderMetadata::load(file, types::plain_options()),
        Input::Remote(reader) => ArrowReaderMetadata::load(&Tail(&reader.of), types::plain_options()),
    };
    let footer = footer.and_then(|footer| Footer::of(&footer)).map_err(|e| failure(path, &e))?;
    if footer.schema.fields().is_empty() {
        return Err(Error::invalid(format!("{} has no columns", path.display())));
    }
    let footer = with_views(footer);
    let rows = footer.metadata().file_metadata().num_rows();
    let rows = u64::try_from(rows).map_err(|_| damaged(path, "its number of rows is negative"))?;
    Ok((footer.schema.clone(), rows, footer))
}

/// Reads the columns at the indexes `columns`, at most `limit` rows.
pub(super) fn read(
    path: &Path,
    file: Input,
    footer: &Footer,
    columns: &[usize],
    limit: Option<usize>,
    progress: Arc<Progress>,
) -> Result<Batches> {
    let rows = batch_rows(footer);
    let file = match file {
        Input::Local(file) => Chunks::Local(file),
        Input::Remote(reader) => {
            let leaves = leaves(footer, columns);
            let groups = 0..footer.metadata().num_row_groups();
            let all: Vec<_> = groups.flat_map(|group| ranges(footer, group, &leaves)).collect();
            Chunks::Remote(Lanes::of_look(&reader.of, &all, leaves.len()))
        }
    };
    let mut builder =
        builder(file, footer, columns).with_batch_size(limit.map_or(rows, |limit| rows.min(limit.max(1))));
    if let Some(limit) = limit {
        builder = builder.with_limit(limit);
    }
    let reader = builder.build().map_err(|error| failure(path, &error))?;
    let rows_all = rows_of(footer);
    let mut rows_read = 0;
    let path = path.to_path_buf();
    let (footer, columns) = (footer.clone(), columns.to_vec());
    Ok(Box::new(reader.map(move |batch| {
        let batch = batch.map_err(|error| damaged(&path, error))?;
        let batch = footer.converted(batch, &columns).map_err(|error| error.at(path.display()))?;
        rows_read += batch.num_rows();
        // In proportion to the rows: columns that are left out count as read.
        progress.reach((progress.bytes() as f64 * (rows_read as f64 / rows_all)) as u64);
        Ok(batch)
    })))
}

/// Number of row groups ahead of the reader for which read-ahead is requested.
const GROUPS_AHEAD: usize = 3;

/// Reads the same rows as [`read`] in tasks, one per row group.
pub(super) fn tasks(place: &Place, footer: &Footer, columns: &[usize], progress: &Arc<Progress>) -> Tasks {
    let columns: Arc<[usize]> = columns.into();
    let groups = footer.metadata().num_row_groups();
    let (place, footer, progress) = (place.clone(), footer.clone(), progress.clone());
    let ahead = place.remote.is_none().then(|| files::open(&place.path).ok());
    let ahead = ahead.flatten().map(|(file, _)| file);
    let leaves = leaves(&footer, &columns);
    let mut asked = 0;
    let task = move |group: usize| -> Task {
        if let Some(file) = &ahead {
            let until = (group + GROUPS_AHEAD).min(groups);
            (asked..until).for_each(|group| ask_for(file, &footer, group, &leaves));
            asked = asked.max(until);
        }
        let lanes = place.remote.as_ref().map(|of| Lanes::of_group(of, ranges(&footer, group, &leaves)));
        let (path, footer, columns) = (place.path.clone(), footer.clone(), columns.clone());
        let progress = progress.clone();
        Box::new(move || match row_group(&path, lanes, &footer, group, &columns, &progress) {
            Ok(batches) => batches,
            Err(error) => Box::new(std::iter::once(Err(error))),
        })
    };
    Box::new((0..groups).map(task))
}

/// Maximum bytes of read-ahead per row group. Reason: a larger request could make the system evict pages that are still
/// needed.
const GROUP_BYTES_AHEAD: u64 = 256 << 20;

/// Returns the indexes, within a row group, of the leaf columns of which `columns` consist.
fn leaves(footer: &Footer, columns: &[usize]) -> Vec<usize> {
    let descriptor = footer.read.parquet_schema();
    let wanted: HashSet<usize> = columns.iter().copied().collect();
    let is_wanted = |leaf: &usize| wanted.contains(&descriptor.get_column_root_idx(*leaf));
    (0..descriptor.num_columns()).filter(is_wanted).collect()
}

/// Requests read-ahead for the leaf columns `leaves` of a row group.
fn ask_for(file: &File, footer: &Footer, group: usize, leaves: &[usize]) {
    let mut left = GROUP_BYTES_AHEAD;
    for range in ranges(footer, group, leaves) {
        let bytes = (range.end - range.start).min(left);
        left -= bytes;
        ahead::advise(file, range.start, range.start.saturating_add(bytes));
    }
}

/// Returns the byte ranges of the leaf columns `leaves` of a row group. Omits invalid ranges of a corrupted file;
/// reading the columns then returns the error.
fn ranges(footer: &Footer, group: usize, leaves: &[usize]) -> Vec<Range<u64>> {
    let columns = footer.metadata().row_group(group).columns();
    let range = |leaf: &usize| {
        let chunk = columns.get(*leaf)?;
        let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
        let (start, bytes) = (u64::try_from(start).ok()?, u64::try_from(chunk.compressed_size()).ok()?);
        Some(start..start.checked_add(bytes)?)
    };
    leaves.iter().filter_map(range).collect()
}

fn row_group(
    path: &Path,
    lanes: Option<Lanes>,
    footer: &Footer,
    group: usize,
    columns: &[usize],
    progress: &Arc<Progress>,
) -> Result<Batches> {
    let file = match lanes {
        Some(lanes) => Chunks::Remote(lanes),
        None => Chunks::Local(files::open(path)?.0),
    };
    let reader = builder(file, footer, columns)
        .with_batch_size(batch_rows(footer))
        .with_row_groups(vec![group])
        .build()
        .map_err(|error| failure(path, &error))?;
    let bytes_of_row = progress.bytes() as f64 / rows_of(footer);
    let (path, progress) = (path.to_path_buf(), progress.clone());
    let (footer, columns) = (footer.clone(), columns.to_vec());
    Ok(Box::new(reader.map(move |batch| {
        let batch = batch.map_err(|error| damaged(&path, error))?;
        let batch = footer.converted(batch, &columns).map_err(|error| error.at(path.display()))?;
        progress.add((batch.num_rows() as f64 * bytes_of_row) as u64);
        Ok(batch)
    })))
}

fn builder(file: Chunks, footer: &Footer, columns: &[usize]) -> ParquetRecordBatchReaderBuilder<Chunks> {
    let mask = ProjectionMask::roots(footer.read.parquet_schema(), columns.iter().copied());
    ParquetRecordBatchReaderBuilder::new_with_metadata(file, footer.read.clone()).with_projection(mask)
}

/// Returns the number of rows of the file; 1 for an empty file, because progress is computed by division.
fn rows_of(footer: &Footer) -> f64 {
    footer.metadata().file_metadata().num_rows().max(1) as f64
}

/// Makes the reader return strings as views if possible. Views need no copy from the Parquet page, and are the form in
/// which the pool stores strings.
fn with_views(footer: Footer) -> Footer {
    let view = |field: &Arc<Field>| -> Arc<Field> {
        let data_type = match plain(field.data_type()) {
            DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
            DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
            _ => return field.clone(),
        };
        Arc::new(Field::new(field.name(), data_type, field.is_nullable()))
    };
    let fields: Fields = footer.read.schema().fields().iter().map(view).collect();
    if fields == *footer.read.schema().fields() {
        return footer;
    }
    let options = ArrowReaderOptions::new().with_schema(Arc::new(Schema::new(fields)));
    // The views are an optimisation: files for which the reader rejects the hint are read without it.
    match ArrowReaderMetadata::try_new(footer.read.metadata().clone(), options) {
        Ok(read) => footer.over(read),
        Err(_) => footer,
    }
}

fn plain(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values,
        other => other,
    }
}

fn batch_rows(footer: &Footer) -> usize {
    let metadata = footer.metadata();
    let bytes: i64 =
        metadata.row_groups().iter().map(|g| g.total_byte_size().max(0)).fold(0, i64::saturating_add);
    let rows = metadata.file_metadata().num_rows().max(1);
    let bytes_of_row = u64::try_from(bytes / rows).unwrap_or(0).max(1);
    cast::usize_saturating(BATCH_BYTES / bytes_of_row).clamp(limits::BLOCK_ROWS, limits::ROW_GROUP_ROWS)
}

fn failure(path: &Path, error: &parquet::errors::ParquetError) -> Error {
    use parquet::errors::ParquetError;
    match error {
        ParquetError::NYI(what) => Error::invalid(format!("{}: {what}", path.display()))
            .advise("the file uses a part of Parquet that is not read: write it again without"),
        other => damaged(path, format_args!("not a readable Parquet file: {other}")),
    }
}
