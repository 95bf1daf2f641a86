//! The data that is compressed: rows of TPC-H's lineitem, as the text of their comments and as the images of their
//! encoded chunks.

use anyhow::{Context, Result, bail};
use arrow::array::{AsArray, RecordBatch};
use arrow::compute::concat_batches;
use farpool_columns::encode_row_group;
use farpool_memory::{Pool, PoolConfig};
use farpool_model::limits::ROW_GROUP_ROWS;
use farpool_model::{TenantName, limits};
use tpchgen::generators::LineItemGenerator;
use tpchgen_arrow::LineItemArrow;

/// Bytes of the pool in which rows are encoded: for one row group at a time.
const POOL_BYTES: usize = 256 << 20;

/// Returns at least `bytes` bytes of the named data.
pub fn named(name: &str, bytes: usize) -> Result<Vec<u8>> {
    match name {
        "comments" => comments(bytes),
        "images" => images(bytes),
        other => bail!("there are no data {other:?}: comments and images"),
    }
}

/// Returns the rows of lineitem at scale 1, a row group at a time.
fn row_groups() -> impl Iterator<Item = Result<RecordBatch>> {
    let mut batches =
        LineItemArrow::new(LineItemGenerator::new(1.0, 1, 1)).with_batch_size(limits::BATCH_ROWS);
    std::iter::from_fn(move || {
        let group = batches.by_ref().take(ROW_GROUP_ROWS / limits::BATCH_ROWS);
        let group = group.collect::<std::result::Result<Vec<RecordBatch>, _>>();
        let joined = |group: Vec<RecordBatch>| {
            let schema = group.first()?.schema();
            Some(concat_batches(&schema, &group).context("batches of one schema"))
        };
        group.map_or_else(|error| Some(Err(error.into())), joined)
    })
}

fn comments(bytes: usize) -> Result<Vec<u8>> {
    let mut text = Vec::with_capacity(bytes);
    for group in row_groups() {
        let group = group?;
        let column = group.column_by_name("l_comment").context("lineitem has comments")?;
        let comments = column.as_string_view_opt().context("comments are texts")?;
        for comment in comments.iter().flatten() {
            text.extend_from_slice(comment.as_bytes());
            text.push(b'\n');
        }
        if text.len() >= bytes {
            break;
        }
    }
    text.truncate(bytes);
    Ok(text)
}

/// Returns the bytes of these rows in a segment, without the alignment between chunks.
fn images(bytes: usize) -> Result<Vec<u8>> {
    let (pool, tenant) = (Pool::new(PoolConfig { bytes_limit: POOL_BYTES })?, TenantName::default());
    let mut images = Vec::with_capacity(bytes);
    for group in row_groups() {
        let group = group?;
        for chunk in encode_row_group(&pool, &tenant, &group.schema(), group.columns())?.chunks {
            chunk.to_image()?.write_data(&mut images);
        }
        if images.len() >= bytes {
            break;
        }
    }
    images.truncate(bytes);
    Ok(images)
}
