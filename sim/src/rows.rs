//! Rows in the model's plain form, and as Arrow batches.

use crate::random::Random;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringViewArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use farpool_columns::{Chunk, RowGroup};
use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

/// The strings in the tables. One is long, so that results with it exceed flow-control windows sooner.
pub const WORDS: [&str; 6] = [
    "",
    "ab",
    "abc",
    "zebra",
    "a word that does not fit into a view of twelve bytes",
    "a word that takes more than a hundred bytes, so that the rows of a result with it overrun a window sooner",
];

/// Number of long strings, which tables larger than memory contain.
const LONG_WORDS: usize = 16 << 10;

/// Bytes of each long string.
const LONG_WORD_BYTES: usize = 60;

/// Maximal absolute value of a large number; the sum of a million of them does not overflow.
pub const LARGE_MAX: i64 = 1 << 42;

/// The columns of every table: a key that never repeats within a load, a small number, a large one, a string.
pub const COLUMNS: [&str; 4] = ["id", "small", "large", "word"];

/// A value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell {
    /// NULL.
    Null,
    /// An integer.
    Int(i64),
    /// One of [`WORDS`] or of [`long_words`].
    Text(&'static str),
}

/// A row of a table.
pub type Row = [Cell; 4];

/// Returns the schema of every table.
pub fn schema() -> SchemaRef {
    let field = |index: usize| {
        let data_type = if index == 3 { DataType::Utf8View } else { DataType::Int64 };
        Field::new(COLUMNS[index], data_type, true)
    };
    Arc::new(Schema::new((0..COLUMNS.len()).map(field).collect::<Vec<_>>()))
}

/// Creates `count` random rows, whose strings are among `words`.
pub fn random_rows(random: &mut Random, count: usize, words: &[&'static str]) -> Vec<Row> {
    let start = random.below(1000) as i64;
    let distinct = 1 + random.magnitude(300);
    let row = |index: usize| {
        let small = Cell::Int(random.below(distinct) as i64);
        let large = Cell::Int(random_large(random));
        let word = Cell::Text(random.pick(words));
        let mut some = |cell| if random.chance(10) { Cell::Null } else { cell };
        [Cell::Int(start + index as i64), some(small), some(large), some(word)]
    };
    (0..count).map(row).collect()
}

/// Returns a random number for the third column.
pub fn random_large(random: &mut Random) -> i64 {
    random.below(2 * LARGE_MAX as usize) as i64 - LARGE_MAX
}

/// Returns strings that do not compress: no two share more than strings of this length must.
pub fn long_words() -> &'static [&'static str] {
    static WORDS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
        let mut random = Random::new(0);
        let letter = |random: &mut Random| char::from(b'!' + random.below(94) as u8);
        let word = |_| -> &'static str {
            let letters: String = (0..LONG_WORD_BYTES).map(|_| letter(&mut random)).collect();
            letters.leak()
        };
        (0..LONG_WORDS).map(word).collect()
    });
    &WORDS
}

/// Converts rows to a batch.
pub fn batch(rows: &[Row]) -> RecordBatch {
    let ints = |column: usize| {
        let value = |row: &Row| match row[column] {
            Cell::Int(value) => Some(value),
            _ => None,
        };
        Arc::new(rows.iter().map(value).collect::<Int64Array>()) as ArrayRef
    };
    let word = |row: &Row| match row[3] {
        Cell::Text(word) => Some(word),
        _ => None,
    };
    let words: ArrayRef = Arc::new(rows.iter().map(word).collect::<StringViewArray>());
    RecordBatch::try_new(schema(), vec![ints(0), ints(1), ints(2), words]).expect("columns of the schema")
}

/// Converts a batch received from the node to rows.
///
/// # Errors
/// Fails if the batch has a value that no table contains.
pub fn rows_of(batch: &RecordBatch) -> Result<Vec<Vec<Cell>>, String> {
    let columns = batch.columns().iter().map(cells_of).collect::<Result<Vec<_>, _>>()?;
    Ok((0..batch.num_rows()).map(|row| columns.iter().map(|cells| cells[row]).collect()).collect())
}

/// Reads the rows of a table from index `place` on directly from the node's row groups, as far as their values are in
/// memory.
///
/// # Errors
/// Fails if there is a value that no table contains.
pub fn rows_behind<'a>(
    groups: impl Iterator<Item = &'a Arc<RowGroup>>,
    place: usize,
) -> Result<Vec<Option<Row>>, String> {
    let (mut rows, mut skipped) = (Vec::new(), 0);
    for group in groups {
        let first = (place - skipped).min(group.rows);
        skipped += first;
        if first == group.rows {
            continue;
        }
        let Ok(filled) = group.with_values(0..group.chunks.len()) else {
            rows.extend(std::iter::repeat_n(None, group.rows - first));
            continue;
        };
        let chunks = &filled.as_ref().unwrap_or(group).chunks;
        let decode = |chunk: &Arc<Chunk>| chunk.decode(first..group.rows).map_err(|error| error.to_string());
        let columns = chunks.iter().map(decode).collect::<Result<Vec<_>, _>>()?;
        let batch = RecordBatch::try_new(schema(), columns).map_err(|error| error.to_string())?;
        rows.extend(rows_of(&batch)?.into_iter().map(|row| Row::try_from(row).ok()));
    }
    Ok(rows)
}

fn cells_of(column: &ArrayRef) -> Result<Vec<Cell>, String> {
    match column.data_type() {
        DataType::Int64 => {
            let values = column.as_primitive::<Int64Type>();
            Ok(values.iter().map(|value| value.map_or(Cell::Null, Cell::Int)).collect())
        }
        DataType::Utf8View => column.as_string_view().iter().map(text_cell).collect(),
        other => Err(format!("a column of type {other}")),
    }
}

fn text_cell(text: Option<&str>) -> Result<Cell, String> {
    static LONG: LazyLock<HashSet<&'static str>> = LazyLock::new(|| long_words().iter().copied().collect());
    let Some(text) = text else { return Ok(Cell::Null) };
    let known = WORDS.into_iter().find(|word| *word == text).or_else(|| LONG.get(text).copied());
    known.map(Cell::Text).ok_or_else(|| format!("the string {text:?}, which no table holds"))
}
