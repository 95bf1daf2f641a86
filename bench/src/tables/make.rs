//! Creates tables, and Arrow files of them. The files are created on the first run and kept in the cache outside the
//! tree.
//!
//! A value depends on its column and its row alone, so that a table can be created in any order. The hash is the
//! finalizer of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").

use super::{Content, TableDefinition};
use crate::places;
use crate::random::{below, hash};
use anyhow::{Context, Result};
use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::ipc::reader::FileReader;
use arrow::ipc::writer::FileWriter;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows of a batch in a file.
const BATCH_ROWS: u64 = 64 << 10;

/// 2^53: floats are multiples of its inverse.
const UNIT: f64 = (1u64 << 53) as f64;

/// Words of which strings consist, apart from the words that queries search for.
const WORDS: [&str; 16] = [
    "error", "packet", "timeout", "user", "login", "query", "disk", "node", "retry", "lease", "page",
    "client", "token", "write", "commit", "queue",
];

/// Returns the file with `rows` rows of `table`, and creates it if it does not exist.
pub fn file(table: &TableDefinition, rows: u64) -> Result<PathBuf> {
    let columns = table.columns();
    let name = format!("{}-{rows}-{:016x}.arrow", table.name, fingerprint(&columns));
    places::made("data/made", &name, |file| write(file, &columns, rows))
}

/// Reads the batches of a file.
pub fn read(file: &Path) -> Result<FileReader<File>> {
    let opened = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    Ok(FileReader::try_new(opened, None)?)
}

fn write(file: &Path, columns: &[(String, Content)], rows: u64) -> Result<()> {
    let output = BufWriter::new(File::create(file)?);
    let mut writer = FileWriter::try_new(output, &batch(columns, rows, 0..0)?.schema())?;
    for batch in batches(columns, rows) {
        writer.write(&batch?)?;
    }
    Ok(writer.finish()?)
}

/// Creates the batches of all rows of a table.
pub fn batches(columns: &[(String, Content)], rows: u64) -> impl Iterator<Item = Result<RecordBatch>> {
    batches_between(columns, rows, 0..rows, BATCH_ROWS)
}

/// Creates the batches, of `batch_rows` rows, of some rows of a table that has `all` rows.
pub fn batches_between(
    columns: &[(String, Content)],
    all: u64,
    rows: std::ops::Range<u64>,
    batch_rows: u64,
) -> impl Iterator<Item = Result<RecordBatch>> {
    let starts = rows.clone().step_by(batch_rows as usize);
    starts.map(move |start| batch(columns, all, start..rows.end.min(start + batch_rows)))
}

/// Creates some rows of a table that has `all` rows.
fn batch(columns: &[(String, Content)], all: u64, rows: std::ops::Range<u64>) -> Result<RecordBatch> {
    let arrays = columns.iter().enumerate().map(|(number, (name, content))| {
        let rows = rows.clone();
        let random = move |row: u64| hash(hash(number as u64) ^ row);
        let array: ArrayRef = match *content {
            Content::Uniform(values) => Arc::new(Int64Array::from_iter_values(
                rows.map(|row| below(random(row), values).cast_signed()),
            )),
            Content::Serial => Arc::new(Int64Array::from_iter_values(rows.map(u64::cast_signed))),
            Content::Twice => {
                Arc::new(Int64Array::from_iter_values(rows.map(|row| scattered(row, all / 2).cast_signed())))
            }
            Content::Float => {
                Arc::new(Float64Array::from_iter_values(rows.map(|row| (random(row) >> 11) as f64 / UNIT)))
            }
            Content::Text(bytes) => {
                Arc::new(StringArray::from_iter_values(rows.map(|row| text(random(row), bytes))))
            }
        };
        (name, array)
    });
    Ok(RecordBatch::try_from_iter(arrays)?)
}

/// Permutes the numbers below `domain`, differently for each run of `domain` rows. It permutes the numbers
/// below the next power of two, repeatedly until the result is below `domain`.
fn scattered(row: u64, domain: u64) -> u64 {
    let domain = domain.max(1);
    let bits = domain.next_power_of_two().trailing_zeros().max(1);
    let (mask, half) = ((1u64 << bits) - 1, bits.div_ceil(2));
    let (round, mut value) = (row / domain, row % domain);
    loop {
        for key in 0..3 {
            value = value.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(hash(round * 3 + key)) & mask;
            value ^= value >> half;
        }
        if value < domain {
            return value;
        }
    }
}

/// Creates a string of words of about `bytes` bytes. One string in two has `fox`, two digits, and later `bar`; one
/// string in four has `fox` and digits but no `bar`.
fn text(random: u64, bytes: usize) -> String {
    let mut text = Vec::with_capacity(bytes + 8);
    let mut state = random;
    while text.len() < bytes {
        state = hash(state);
        text.extend_from_slice(WORDS[below(state, WORDS.len() as u64) as usize].as_bytes());
        text.push(b' ');
    }
    text.truncate(bytes);
    let kind = below(hash(random ^ 1), 4);
    if kind < 3 && bytes >= 8 {
        let room = bytes as u64 - 8;
        let fox = below(hash(random ^ 2), room + 1);
        let number = below(hash(random ^ 3), 100);
        let bar = fox + 5 + below(hash(random ^ 4), room - fox + 1);
        text[fox as usize..][..5].copy_from_slice(format!("fox{number:02}").as_bytes());
        if kind < 2 {
            text[bar as usize..][..3].copy_from_slice(b"bar");
        }
    }
    String::from_utf8(text).unwrap_or_default()
}

/// Hashes the definition of a table, to distinguish files of different definitions.
fn fingerprint(columns: &[(String, Content)]) -> u64 {
    format!("{columns:?}").bytes().fold(1, |state, byte| hash(state ^ u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::{scattered, text};
    use std::collections::BTreeMap;

    #[test]
    fn every_number_is_there_twice() {
        for domain in [1, 2, 3, 1000, 1024, 4097] {
            let mut seen = BTreeMap::new();
            (0..2 * domain).for_each(|row| *seen.entry(scattered(row, domain)).or_insert(0) += 1);
            assert_eq!(seen.len() as u64, domain);
            assert!(seen.iter().all(|(value, count)| *value < domain && *count == 2));
        }
    }

    #[test]
    fn half_of_the_strings_match() {
        for bytes in [16, 64, 256] {
            let strings: Vec<String> = (0..4000).map(|row| text(super::hash(row), bytes)).collect();
            assert!(strings.iter().all(|text| text.len() == bytes));
            let matches = |text: &&String| text.find("fox").is_some_and(|at| text[at..].contains("bar"));
            let share = strings.iter().filter(matches).count() as f64 / 4000.0;
            assert!((0.47..0.53).contains(&share), "{share}");
        }
    }
}
