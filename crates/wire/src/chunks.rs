//! Messages about column chunks of a table (a chunk has the values of one column in one row group), for clients that
//! cache chunks.

use crate::proto;
use crate::request::{body, read};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use farpool_model::cast::u32_checked;
use farpool_model::{Error, Result, limits};

/// Bytes of a `Chunk` message before the chunk's head: three numbers of 4 bytes.
const FIXED_BYTES: usize = 12;

/// Descriptions of chunks, which a client gets before it requests values: the chunks of some columns in consecutive row
/// groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlines {
    /// Id of the table version's list of row groups; a process of a node gives no other list the same id.
    pub table: u64,
    /// Number of row groups in the table version.
    pub row_groups: u32,
    /// Number of rows of each row group that is described here, beginning with the first one requested.
    pub rows: Vec<u32>,
    /// The chunks of these row groups, one row group after the other, in the order of the columns.
    pub chunks: Vec<ChunkOutline>,
}

/// Description of a column chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkOutline {
    /// Id of the chunk; a process of a node gives no other chunk the same id. Versions of a table share chunks that
    /// have not changed.
    pub number: u64,
    /// The encoded description of the chunk without its values. If `data` is set, it is the head of the whole chunk
    /// instead.
    pub head: Bytes,
    /// The values, if the chunk is so small that they are sent with its description.
    pub data: Option<Bytes>,
}

/// A chunk with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkImage {
    /// The row group's position in the table version.
    pub row_group: u32,
    /// The column's position among the requested ones.
    pub column: u32,
    /// The head of the encoded chunk, which describes the encoding of the values.
    pub head: Bytes,
    /// The encoded values of the chunk.
    pub data: Bytes,
}

impl ChunkImage {
    /// Returns the bytes of a `Chunk` message before the chunk's data: the numbers and the head.
    pub fn front(row_group: usize, column: usize, head: &[u8]) -> Bytes {
        let mut front = BytesMut::with_capacity(FIXED_BYTES + head.len());
        [row_group, column, head.len()].into_iter().for_each(|number| front.put_u32_le(u32_checked(number)));
        front.put_slice(head);
        front.freeze()
    }
}

pub(crate) fn write_image(image: &ChunkImage) -> Bytes {
    let front = ChunkImage::front(image.row_group as usize, image.column as usize, &image.head);
    [&front[..], &image.data[..]].concat().into()
}

/// Decodes the body of a `Chunk` message (a column chunk with its values).
///
/// # Errors
/// `Corrupt` if the body is too short.
pub(crate) fn read_image(body: &Bytes) -> Result<ChunkImage> {
    let mut rest = body.clone();
    if rest.len() < FIXED_BYTES {
        return Err(Error::corrupt("a chunk that is cut off"));
    }
    let (row_group, column, head) = (rest.get_u32_le(), rest.get_u32_le(), rest.get_u32_le() as usize);
    if rest.len() < head {
        return Err(Error::corrupt("a chunk whose head is cut off"));
    }
    Ok(ChunkImage { row_group, column, head: rest.split_to(head), data: rest })
}

pub(crate) fn write_outlines(outlines: &Outlines) -> Bytes {
    let chunk = |chunk: &ChunkOutline| {
        body(&proto::ChunkOutline {
            number: chunk.number,
            head: chunk.head.clone(),
            data: chunk.data.clone(),
        })
    };
    body(&proto::OutlineList {
        table: outlines.table,
        row_groups: outlines.row_groups,
        rows: outlines.rows.clone(),
        chunks: outlines.chunks.iter().map(chunk).collect(),
    })
}

/// Decodes the body of an `OutlineList` message (descriptions of column chunks).
///
/// # Errors
/// `Corrupt` if the bytes cannot be decoded.
pub(crate) fn read_outlines(bytes: &Bytes) -> Result<Outlines> {
    let proto::OutlineList { table, row_groups, rows, chunks } = read(bytes)?;
    let chunk = |chunk: &Bytes| {
        let proto::ChunkOutline { number, head, data } = read(chunk)?;
        Ok(ChunkOutline { number, head, data })
    };
    Ok(Outlines { table, row_groups, rows, chunks: chunks.iter().map(chunk).collect::<Result<_>>()? })
}

pub(crate) fn write_outlines_request(handle: u32, columns: &[u32], first: u32, known: u64) -> Result<Bytes> {
    check_columns(columns)?;
    Ok(body(&proto::OutlinesRequest { handle, columns: columns.to_vec(), first, known }))
}

/// Decodes the body of an `Outlines` message; returns the handle of a prepared program, columns, the first row group,
/// and the id of the list of row groups that the client knows.
///
/// # Errors
/// `Corrupt` if the bytes cannot be decoded; `Invalid` if there are no columns, or they are not in ascending order;
/// `OverLimit` if there are more columns than a table may have.
pub(crate) fn read_outlines_request(bytes: &Bytes) -> Result<(u32, Vec<u32>, u32, u64)> {
    let proto::OutlinesRequest { handle, columns, first, known } = read(bytes)?;
    check_columns(&columns)?;
    Ok((handle, columns, first, known))
}

pub(crate) fn write_fetch(handle: u32, columns: &[u32], row_groups: &[u32]) -> Result<Bytes> {
    check_columns(columns)?;
    check_row_groups(row_groups)?;
    let (columns, row_groups) = (columns.to_vec(), row_groups.to_vec());
    Ok(body(&proto::Fetch { handle, columns, row_groups }))
}

/// Decodes the body of a `Fetch` message; returns the handle of a prepared program, the positions of columns, and the
/// positions of row groups.
///
/// # Errors
/// Errors of [`read_outlines_request`]; `Invalid` also for row groups that are not in ascending order.
pub(crate) fn read_fetch(bytes: &Bytes) -> Result<(u32, Vec<u32>, Vec<u32>)> {
    let proto::Fetch { handle, columns, row_groups } = read(bytes)?;
    check_columns(&columns)?;
    check_row_groups(&row_groups)?;
    Ok((handle, columns, row_groups))
}

fn check_columns(columns: &[u32]) -> Result<()> {
    check_ascending("columns", columns, limits::COLUMNS_MAX)?;
    match columns.last() {
        Some(last) if *last as usize >= limits::COLUMNS_MAX => {
            Err(Error::over_limit(format!("a table may have {} columns", limits::COLUMNS_MAX)))
        }
        _ => Ok(()),
    }
}

fn check_row_groups(row_groups: &[u32]) -> Result<()> {
    check_ascending("row groups", row_groups, limits::FETCHED_GROUPS_MAX)
}

fn check_ascending(what: &str, numbers: &[u32], most: usize) -> Result<()> {
    if numbers.len() > most {
        return Err(Error::over_limit(format!("{} {what} are asked for, and {most} may be", numbers.len())));
    }
    match numbers.is_empty() || numbers.windows(2).any(|pair| pair[0] >= pair[1]) {
        true => Err(Error::invalid(format!("{what} are asked for in ascending order, one at least"))),
        false => Ok(()),
    }
}
