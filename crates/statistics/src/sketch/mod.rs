//! Sketches of one column, computed in one pass: HyperLogLog, Count-Min and Fast-AGMS, which share one 128-bit hash
//! per value; the most frequent values; quantiles; and the numbers of rows and NULLs, minimum, maximum and sum (M.
//! Chiosa's thesis, ETH Zurich no. 29551, chapter 4).
//!
//! Invariant: a state is the same, bit for bit, however the rows were divided and in which order the parts were merged.
//! Exceptions are sums of floats, the set of frequent values and the sample for quantiles. No two rows of one table of
//! counters use the same bit of the hash.

mod answers;
mod basics;
mod block;
mod codec;
mod counters;
pub(crate) mod distinct;
mod hashed;
mod hot;
mod items;
mod kll;
mod quantiles;
mod top;
mod trust;

#[cfg(test)]
mod tests;

pub use answers::Frequencies;
pub use basics::Total;
pub use quantiles::Quantile;
pub(crate) use quantiles::has_quantiles;
pub use trust::Trust;

use crate::hash::Hash;
use arrow_array::cast::AsArray;
use arrow_array::{AnyDictionaryArray, Array};
use arrow_schema::DataType;
use basics::Basics;
use block::{Block, Hashes};
use counters::{Shape, Table};
use distinct::Distinct;
#[cfg(test)]
use farpool_model::Counters;
use farpool_model::{Error, Literal, Result, SketchParameters, Value, limits, schema};
use hashed::{fill, value};
use hot::Hot;
use items::Items;
use quantiles::Quantiles;
use top::Candidates;

/// State of the sketches of one column.
#[derive(Clone, Debug)]
pub struct Sketch {
    parameters: SketchParameters,
    data_type: DataType,
    basics: Basics,
    distinct: Option<Distinct>,
    /// Counters of Count-Min; `None` if the sketch has no Count-Min, or the counters of Fast-AGMS serve both.
    frequency: Option<Table>,
    second_moment: Option<Table>,
    top: Candidates,
    quantiles: Option<Quantiles>,
}

/// Checks `parameters`.
///
/// # Errors
/// `Invalid` when a shape is outside the limits, when the rows of a table need more bits than a hash has, or
/// when frequent values are wanted without the counters that find them.
pub fn check(parameters: &SketchParameters) -> Result<()> {
    parameters.check()
}

/// Returns whether the counters of Fast-AGMS also serve as those of Count-Min.
fn shared(parameters: &SketchParameters) -> bool {
    match (parameters.frequency, parameters.second_moment) {
        (Some(frequency), Some(moment)) => {
            frequency.precision == moment.precision && frequency.rows <= moment.rows
        }
        _ => false,
    }
}

/// Returns the shapes of the tables of counters: of Count-Min, if it has its own, and of Fast-AGMS.
fn shapes(parameters: &SketchParameters) -> (Option<Shape>, Option<Shape>) {
    let frequency = parameters.frequency.filter(|_| !shared(parameters));
    (
        frequency.map(|c| Shape::new(c.rows, c.precision)),
        parameters.second_moment.map(|c| Shape::new(c.rows, c.precision + 1)),
    )
}

impl Sketch {
    /// Returns the bytes of the tables of counters, which are allocated with the first value.
    pub(crate) fn bytes_of_counters(parameters: &SketchParameters) -> usize {
        let (frequency, second_moment) = shapes(parameters);
        frequency.into_iter().chain(second_moment).map(Shape::bytes).sum()
    }

    /// Returns the maximum number of bytes that the sample for quantiles of `data_type` takes.
    pub(crate) fn bytes_of_quantiles(parameters: &SketchParameters, data_type: &DataType) -> usize {
        parameters.quantiles.map_or(0, |k| Quantiles::bytes_most(k, data_type))
    }

    /// Creates the sketch of a column of `data_type` that has no rows yet.
    ///
    /// # Errors
    /// `Invalid` when the pool does not support the type, or quantiles are requested for a type that has none; errors
    /// of [`check`].
    pub fn new(parameters: SketchParameters, data_type: &DataType) -> Result<Sketch> {
        check(&parameters)?;
        let data_type = schema::canonical_type(data_type)
            .ok_or_else(|| Error::invalid(format!("the pool does not hold values of type {data_type}")))?;
        let (frequency, second_moment) = shapes(&parameters);
        Ok(Sketch {
            parameters,
            basics: Basics::new(&data_type),
            distinct: parameters.distinct.map(Distinct::new),
            frequency: frequency.map(Table::new),
            second_moment: second_moment.map(Table::new),
            top: Candidates::new(parameters.top),
            quantiles: parameters.quantiles.map(|k| Quantiles::new(k, &data_type)).transpose()?,
            data_type,
        })
    }

    /// Returns the parameters of the sketch.
    pub fn parameters(&self) -> SketchParameters {
        self.parameters
    }

    /// Returns the canonical type of the column.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// Adds the rows of `values`, an array of the column's type. Strings and binaries may have offsets of any width or
    /// be views. For a dictionary array, each dictionary entry is hashed only once.
    ///
    /// # Errors
    /// `Invalid` for an array of another type, `OverLimit` for more rows than a sketch counts.
    pub fn update(&mut self, values: &dyn Array) -> Result<()> {
        if let Some(dictionary) = values.as_any_dictionary_opt() {
            let (counts, nulls) = occurrences(dictionary);
            self.update_counted(dictionary.values().as_ref(), &counts)?;
            return self.count_nulls(nulls);
        }
        self.expect_type(values.data_type())?;
        self.expect_rows(values.len() as u64)?;
        self.basics.rows += values.len() as u64;
        self.basics.nulls += values.null_count() as u64;
        self.take_in(values, None)
    }

    /// Adds rows as [`Sketch::update`] does, for strings whose minimum and maximum are known.
    ///
    /// # Errors
    /// As [`Sketch::update`].
    pub fn update_between(&mut self, values: &dyn Array, (low, high): (Literal, Literal)) -> Result<()> {
        self.expect_type(values.data_type())?;
        self.basics.widen(low, high);
        self.basics.within = true;
        let updated = self.update(values);
        self.basics.within = false;
        updated
    }

    /// Adds each of `values` as many times as its count in `counts`.
    ///
    /// # Errors
    /// Errors of [`Sketch::update`]; also `Invalid` when `counts` differs from `values` in length.
    pub fn update_counted(&mut self, values: &dyn Array, counts: &[u64]) -> Result<()> {
        self.expect_type(values.data_type())?;
        if values.len() != counts.len() {
            return Err(Error::invalid(format!("{} values have {} counts", values.len(), counts.len())));
        }
        let rows = counts.iter().try_fold(0_u64, |rows, count| rows.checked_add(*count));
        let rows = rows.unwrap_or(u64::MAX);
        self.expect_rows(rows)?;
        let nulls = (0..values.len()).filter(|i| values.is_null(*i)).map(|i| counts[i]).sum::<u64>();
        self.basics.rows += rows;
        self.basics.nulls += nulls;
        self.take_in(values, Some(counts))
    }

    /// Adds rows that are all NULL.
    ///
    /// # Errors
    /// `OverLimit` for more rows than a sketch can count.
    pub fn count_nulls(&mut self, rows: u64) -> Result<()> {
        self.expect_rows(rows)?;
        self.basics.rows += rows;
        self.basics.nulls += rows;
        Ok(())
    }

    fn expect_type(&self, data_type: &DataType) -> Result<()> {
        if schema::canonical_type(data_type).as_ref() == Some(&self.data_type) {
            return Ok(());
        }
        Err(Error::invalid(format!("a sketch of {} was given values of type {data_type}", self.data_type)))
    }

    fn expect_rows(&self, more: u64) -> Result<()> {
        match self.basics.rows.checked_add(more) {
            Some(rows) if rows <= limits::SKETCH_ROWS_MAX => Ok(()),
            _ => {
                let most = limits::SKETCH_ROWS_MAX;
                Err(Error::over_limit(format!("a sketch counts up to {most} rows")))
            }
        }
    }

    fn take_in(&mut self, values: &dyn Array, counts: Option<&[u64]>) -> Result<()> {
        let (mut hashes, mut hot) = (Hashes::default(), Hot::default());
        let data_type = self.data_type.clone();
        items::blocks(values, counts, &mut |items, counts| {
            self.basics.update(&items, counts, &data_type);
            if let Some(quantiles) = &mut self.quantiles {
                quantiles.update(&items, counts);
            }
            match items.words().filter(|_| counts.is_none()) {
                Some(words) => {
                    let due = hot.before(words);
                    self.take_in_hot(due, &items, &mut hashes);
                    match hot.split(words) {
                        Some(rest) => self.take_in_items(&items.with_words(rest), None, &mut hashes),
                        None => self.take_in_items(&items, None, &mut hashes),
                    }
                }
                None => self.take_in_items(&items, counts, &mut hashes),
            }
        })?;
        let kind =
            if data_type == DataType::UInt64 { Items::Unsigned(&[]) } else { Items::Signed(&[], None) };
        self.take_in_hot(hot.take(), &kind, &mut hashes);
        Ok(())
    }

    /// Adds hot (very frequent) words with their counts. The words are of the same kind as `items`.
    fn take_in_hot(&mut self, counted: Option<hot::Counted>, items: &Items<'_>, hashes: &mut Hashes) {
        let Some((words, counts)) = counted else { return };
        let there = words.iter().zip(&counts).filter(|(_, count)| **count > 0);
        let (words, counts): (Vec<u64>, Vec<u64>) = there.unzip();
        self.take_in_items(&items.with_words(&words), Some(&counts), hashes);
    }

    fn take_in_items(&mut self, items: &Items<'_>, counts: Option<&[u64]>, hashes: &mut Hashes) {
        fill(hashes, items);
        let data_type = self.data_type.clone();
        self.take_in_block(&Block { hashes, counts, value: &|i| value(items, i, &data_type) });
    }

    fn take_in_block(&mut self, block: &Block<'_>) {
        if let Some(distinct) = &mut self.distinct {
            distinct.update(block.hashes);
        }
        if let Some(table) = &mut self.frequency {
            table.update(block);
        }
        if let Some(table) = &mut self.second_moment {
            table.update(block);
        }
        let Sketch { parameters, frequency, second_moment, top, .. } = self;
        top.update(block, &|hash| count(parameters, frequency.as_ref(), second_moment.as_ref(), hash));
    }

    /// Merges another sketch into this one.
    ///
    /// # Errors
    /// `Invalid` when the other sketch has other parameters or is of a column of another type.
    pub fn merge(&mut self, other: &Sketch) -> Result<()> {
        if self.parameters != other.parameters || self.data_type != other.data_type {
            return Err(Error::invalid(format!(
                "sketches of {} with {:?} and of {} with {:?} cannot be merged",
                self.data_type, self.parameters, other.data_type, other.parameters
            ))
            .advise("make both with the same parameters, over columns of the same type"));
        }
        self.expect_rows(other.basics.rows)?;
        self.basics.merge(&other.basics);
        if let (Some(ours), Some(theirs)) = (&mut self.distinct, &other.distinct) {
            ours.merge(theirs);
        }
        if let (Some(ours), Some(theirs)) = (&mut self.frequency, &other.frequency) {
            ours.merge(theirs);
        }
        if let (Some(ours), Some(theirs)) = (&mut self.second_moment, &other.second_moment) {
            ours.merge(theirs);
        }
        if let (Some(ours), Some(theirs)) = (&mut self.quantiles, &other.quantiles) {
            ours.merge(theirs);
        }
        let Sketch { parameters, frequency, second_moment, top, .. } = self;
        top.merge(&other.top, &|hash| count(parameters, frequency.as_ref(), second_moment.as_ref(), hash));
        Ok(())
    }

    /// Returns the bytes of memory that the sketch takes.
    pub fn bytes_held(&self) -> usize {
        let tables = [&self.frequency, &self.second_moment];
        let tables: usize = tables.into_iter().flatten().map(Table::bytes_held).sum();
        let range =
            self.basics.range.as_ref().map_or(0, |(low, high)| literal_bytes(low) + literal_bytes(high));
        size_of::<Sketch>()
            + self.distinct.as_ref().map_or(0, Distinct::bytes_held)
            + tables
            + range
            + self.top.bytes_held()
            + self.quantiles.as_ref().map_or(0, Quantiles::bytes_held)
    }

    /// Returns the state of HyperLogLog; `None` if the sketch has none.
    pub(crate) fn distinct_state(&self) -> Option<&Distinct> {
        self.distinct.as_ref()
    }

    fn count(&self, hash: Hash) -> u64 {
        count(&self.parameters, self.frequency.as_ref(), self.second_moment.as_ref(), hash)
    }
}

/// Returns the smallest of Count-Min's counters for `hash`: from Count-Min's own table, or else from that of
/// Fast-AGMS, which may serve both.
fn count(parameters: &SketchParameters, own: Option<&Table>, both: Option<&Table>, hash: Hash) -> u64 {
    let rows = parameters.frequency.map_or(0, |counters| counters.rows.into());
    match (own, both) {
        (Some(table), _) => table.at(hash).min(),
        (None, Some(table)) => table.unsigned_at(hash).take(rows).min(),
        (None, None) => None,
    }
    .unwrap_or(0)
}

/// Counts how often each dictionary entry occurs, and the rows that are NULL.
fn occurrences(dictionary: &dyn AnyDictionaryArray) -> (Vec<u64>, u64) {
    let mut counts = vec![0; dictionary.values().len()];
    if counts.is_empty() {
        return (counts, dictionary.len() as u64);
    }
    for (i, key) in dictionary.normalized_keys().into_iter().enumerate() {
        if dictionary.keys().is_valid(i) {
            counts[key] += 1;
        }
    }
    (counts, dictionary.keys().null_count() as u64)
}

/// Returns the bytes of heap memory that a literal takes.
fn literal_bytes(literal: &Literal) -> usize {
    match literal.value() {
        Value::Text(text) => text.capacity(),
        Value::Bytes(bytes) => bytes.capacity(),
        _ => 0,
    }
}
