//! Adding the rows of a row group to a profile (statistics of a table's rows). For columns with few distinct
//! values, the dictionary codes are counted, and each value is added once with its count; other columns are decoded.
//!
//! Invariant: the resulting states equal those of the decoded rows.

use arrow_array::ArrayRef;
use farpool_columns::{Chunk, RowGroup};
use farpool_model::Result;
use farpool_model::cast::u64_from;
use farpool_statistics::Profile;

/// Number of products of two columns that one step computes for the moments, which takes about half a millisecond.
const PRODUCTS: usize = 1 << 20;

/// Adds a column of `group` to `profile`.
pub(super) fn column(profile: &mut Profile, group: &RowGroup, column: usize) -> Result<()> {
    let chunk = &group.chunks[column];
    chunk.check_intact()?;
    match counted(chunk)? {
        Some((values, counts)) => {
            profile.update_counted(column, &values, &counts, u64_from(chunk.null_count()))
        }
        None => {
            let zone = chunk.zone();
            let bounds = zone.min.clone().zip(zone.max.clone());
            profile.update_column(column, &chunk.decode(0..chunk.rows())?, bounds)
        }
    }
}

/// Adds rows from index `start` on to the moments of `profile`; returns the index of the row to continue with. Numeric
/// columns are decoded again for this, block by block: that costs less than the sums, and no memory is held between
/// steps.
pub(super) fn numbers(profile: &mut Profile, group: &RowGroup, start: usize) -> Result<usize> {
    let Some(moments) = profile.moments() else { return Ok(group.rows) };
    let pairs = moments.columns.len() * (moments.columns.len() + 1) / 2;
    let block = moments.moments.block_rows();
    let rows = (PRODUCTS / pairs / block).max(1) * block;
    let end = group.rows.min(start + rows);
    let decode = |column: &usize| group.chunks[*column].decode(start..end);
    let numbers = moments.columns.iter().map(decode).collect::<Result<Vec<_>>>()?;
    profile.update_moments(&numbers).map(|()| end)
}

/// Minimum number of rows per possible value in a chunk for which counting by code pays off.
const ROWS_PER_VALUE_MIN: usize = 2;

/// Maximum number of possible codes for which several tables of counters are used, to which rows are added in turn.
/// Reason: equal neighbouring rows then do not wait for each other's increment.
const SMALL_DOMAIN: usize = 1024;
const TABLES: usize = 4;

/// Returns the distinct values of a chunk and the number of rows of each, if there are few possible values: dictionary
/// entries, or integers in a narrow range. `None` otherwise.
fn counted(chunk: &Chunk) -> Result<Option<(ArrayRef, Vec<u64>)>> {
    let Some((codes, domain)) = codes(chunk) else { return Ok(None) };
    let tables = if domain <= SMALL_DOMAIN { TABLES } else { 1 };
    // For each code, the number of rows that have it, and one of these rows.
    let (mut counts, mut rows) = (vec![0_u32; tables * domain], vec![0_u32; domain]);
    let valid = chunk.validity(0..chunk.rows());
    for (row, code) in codes.into_iter().enumerate() {
        let code = code as usize;
        if valid.as_ref().is_none_or(|valid| valid.value(row)) {
            rows[code] = row as u32;
            counts[(row & (tables - 1)) * domain + code] += 1;
        }
    }
    let sum = |code| counts[code..].iter().step_by(domain).map(|count| u64::from(*count)).sum::<u64>();
    let seen = (0..domain).map(sum).zip(rows).filter(|(count, _)| *count > 0);
    let (counts, rows): (Vec<u64>, Vec<u32>) = seen.unzip();
    Ok(Some((chunk.gather(&rows)?, counts)))
}

/// Returns the code of each row and the number of possible codes; `None` if there are too many.
fn codes(chunk: &Chunk) -> Option<(Vec<u32>, usize)> {
    let integers = match chunk.dictionary() {
        Some(dictionary) => dictionary.codes(),
        None => chunk.integers()?,
    };
    let domain = usize::try_from(integers.max().checked_sub(integers.min())?).ok()?.checked_add(1)?;
    if domain > chunk.rows() / ROWS_PER_VALUE_MIN {
        return None;
    }
    let mut of_rows = Vec::new();
    integers.widen_deltas_u32(0..chunk.rows(), &mut of_rows);
    Some((of_rows, domain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Array, Float64Array, Int32Array, Int64Array, RecordBatch, StringViewArray};
    use arrow_schema::{DataType, Field, Schema};
    use farpool_columns::TableBuilder;
    use farpool_memory::{Pool, PoolConfig};
    use farpool_model::TenantName;
    use std::sync::Arc;

    #[test]
    fn a_row_group_tells_what_its_rows_tell() {
        let schema = Arc::new(Schema::new(vec![
            Field::new("few", DataType::Utf8View, true),
            Field::new("many", DataType::Utf8View, true),
            Field::new("close", DataType::Int32, true),
            Field::new("apart", DataType::Int64, true),
            Field::new("float", DataType::Float64, true),
            Field::new("null", DataType::Int32, true),
            Field::new("one", DataType::Int32, false),
        ]));
        let unless = |value: i64, every: i64| (value % every != 0).then_some(value);
        let texts = |values: i64| {
            let text = |i| unless(i, 7).map(|i| format!("a name of some length {}", i % values));
            (0..9000).map(text).collect::<StringViewArray>()
        };
        let columns: Vec<ArrayRef> = vec![
            Arc::new(texts(11)),
            Arc::new(texts(9000)),
            Arc::new((0..9000).map(|i| unless(i, 5).map(|i| (i % 300) as i32 - 100)).collect::<Int32Array>()),
            Arc::new((0..9000).map(|i| unless(i, 3).map(|i| i * i * 1_000_003)).collect::<Int64Array>()),
            Arc::new((0..9000).map(|i| unless(i, 4).map(|i| i as f64 / 7.0)).collect::<Float64Array>()),
            Arc::new(Int32Array::new_null(9000)),
            Arc::new(Int32Array::from(vec![7; 9000])),
        ];
        let pool = Pool::new(PoolConfig { bytes_limit: 16 << 20 }).unwrap();
        let mut builder = TableBuilder::new(pool, TenantName::default(), &schema, None).unwrap();
        builder.buffer(&RecordBatch::try_new(schema.clone(), columns.clone()).unwrap()).unwrap();
        let group = builder.encoder().encode(&builder.take_last_row_group().unwrap()).unwrap();
        let by_code: Vec<bool> = group.chunks.iter().map(|chunk| codes(chunk).is_some()).collect();
        assert_eq!(by_code, [true, false, true, false, false, false, true]);
        let (mut ours, mut plain) = (Profile::new(&schema).unwrap(), Profile::new(&schema).unwrap());
        (0..columns.len()).for_each(|index| column(&mut ours, &group, index).unwrap());
        let mut rows_done = 0;
        while rows_done < 9000 {
            rows_done = numbers(&mut ours, &group, rows_done).unwrap();
        }
        plain.update(&columns).unwrap();
        assert_eq!(ours.rows(), 9000);
        for ((ours, plain), values) in ours.columns().iter().zip(plain.columns()).zip(&columns) {
            let answers = |sketch: &farpool_statistics::Sketch| {
                let bounds = (sketch.minimum().cloned(), sketch.maximum().cloned());
                (sketch.rows(), sketch.nulls(), bounds, sketch.distinct(), sketch.second_moment())
            };
            assert_eq!(answers(&ours.sketch), answers(&plain.sketch));
            assert_eq!(ours.sketch.nulls(), values.null_count() as u64);
            let bins = |profile: &farpool_statistics::ColumnProfile| {
                profile.histogram.as_ref().map(|h| h.to_bytes())
            };
            assert_eq!(bins(ours), bins(plain));
        }
        let state = |profile: &Profile| profile.moments().unwrap().moments.to_bytes();
        assert_eq!(state(&ours), state(&plain));
    }
}
