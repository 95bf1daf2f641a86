//! What one column holds, found in one pass: HyperLogLog, Count-Min and Fast-AGMS from one 128-bit hash per
//! value, the most frequent values, and count, NULLs, least, greatest and sum (thesis, chapter 4).
//!
//! Invariant: a state is the same, bit for bit, however its rows were divided and in which order its parts
//! were merged, but for sums of floats and the set of frequent values. No two rows of one table of counters
//! use the same bit of the hash.

mod basics;
mod block;
mod codec;
mod counters;
pub(crate) mod distinct;
mod items;
mod top;
mod trust;

#[cfg(test)]
mod tests;

pub use basics::Total;
pub use trust::Trust;

use crate::bounds::{self, CONFIDENCE};
use crate::estimate::Estimate;
use crate::hash::{self, Hash, SEED};
use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_schema::DataType;
use basics::Basics;
use block::{Block, Hashes};
use counters::{Shape, Table, median};
use distinct::Distinct;
use farpool_model::{Counters, Error, Literal, Result, SketchParameters, Value, limits, schema};
use items::Items;
use top::Candidates;

/// The state of the sketches of one column.
#[derive(Clone, Debug)]
pub struct Sketch {
    parameters: SketchParameters,
    data_type: DataType,
    basics: Basics,
    distinct: Option<Distinct>,
    /// Count-Min, if Fast-AGMS does not serve it as well.
    frequency: Option<Table>,
    second_moment: Option<Table>,
    top: Candidates,
}

/// What is wrong with `parameters`, if anything.
///
/// # Errors
/// `Invalid` when a shape is outside the limits, when the rows of a table need more bits than a hash has, or
/// when frequent values are wanted without the counters that find them.
pub fn check(parameters: &SketchParameters) -> Result<()> {
    if let Some(precision) = parameters.distinct {
        within("the precision of HyperLogLog", precision, &limits::DISTINCT_PRECISION)?;
    }
    let tables = [("Count-Min", parameters.frequency, 0), ("Fast-AGMS", parameters.second_moment, 1)];
    for (name, counters, sign) in tables {
        let Some(Counters { rows, precision }) = counters else { continue };
        within(&format!("the precision of {name}"), precision, &limits::COUNTERS_PRECISION)?;
        let bits = u32::from(rows) * u32::from(precision + sign);
        if rows == 0 || bits > limits::SKETCH_HASH_BITS {
            return Err(Error::invalid(format!(
                "{name} of {rows} rows and precision {precision} takes {bits} bits of a hash of {}",
                limits::SKETCH_HASH_BITS
            ))
            .advise(
                "choose at least one row, and fewer rows or a lower precision where there are too many",
            ));
        }
    }
    if parameters.top > limits::SKETCH_TOP_MAX {
        return Err(Error::invalid(format!(
            "a sketch keeps up to {} frequent values, not {}",
            limits::SKETCH_TOP_MAX,
            parameters.top
        )));
    }
    if parameters.top > 0 && parameters.frequency.is_none() {
        return Err(Error::invalid("the most frequent values are found with Count-Min, which is not there")
            .advise("give the parameters of Count-Min as well"));
    }
    Ok(())
}

fn within(what: &str, value: u8, range: &std::ops::RangeInclusive<u8>) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!("{what} is from {} to {}, not {value}", range.start(), range.end())))
}

/// Whether the table of Fast-AGMS also serves as Count-Min's.
fn shared(parameters: &SketchParameters) -> bool {
    match (parameters.frequency, parameters.second_moment) {
        (Some(frequency), Some(moment)) => {
            frequency.precision == moment.precision && frequency.rows <= moment.rows
        }
        _ => false,
    }
}

impl Sketch {
    /// The sketch of a column of `data_type` that has no rows yet.
    ///
    /// # Errors
    /// `Invalid` when the pool does not hold the type, or as [`check`] says.
    pub fn new(parameters: SketchParameters, data_type: &DataType) -> Result<Sketch> {
        check(&parameters)?;
        let data_type = schema::canonical_type(data_type)
            .ok_or_else(|| Error::invalid(format!("the pool does not hold values of type {data_type}")))?;
        let frequency = parameters.frequency.filter(|_| !shared(&parameters));
        let second_moment = parameters.second_moment;
        Ok(Sketch {
            parameters,
            basics: Basics::new(&data_type),
            distinct: parameters.distinct.map(Distinct::new),
            frequency: frequency.map(|c| Table::new(Shape::new(c.rows, c.precision))),
            second_moment: second_moment.map(|c| Table::new(Shape::new(c.rows, c.precision + 1))),
            top: Candidates::new(parameters.top),
            data_type,
        })
    }

    /// Its parameters.
    pub fn parameters(&self) -> SketchParameters {
        self.parameters
    }

    /// The canonical type of the column.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// Takes in the rows of `values`: an array of the column's type, strings and binaries of any width of
    /// offsets and as views; also a dictionary array, each of whose values is then hashed once.
    ///
    /// # Errors
    /// `Invalid` for an array of another type, `OverLimit` for more rows than a sketch counts.
    pub fn update(&mut self, values: &dyn Array) -> Result<()> {
        if let Some(dictionary) = values.as_any_dictionary_opt() {
            let counts = occurrences(dictionary.normalized_keys(), values, dictionary.values().len());
            self.update_counted(dictionary.values().as_ref(), &counts.0)?;
            return self.count_nulls(counts.1);
        }
        self.expect_type(values.data_type())?;
        self.expect_rows(values.len() as u64)?;
        self.basics.rows += values.len() as u64;
        self.basics.nulls += values.null_count() as u64;
        self.take_in(values, None)
    }

    /// Takes in each of `values` as many times as `counts` says: what a dictionary's codes were counted to.
    ///
    /// # Errors
    /// As [`Sketch::update`]; also `Invalid` when there are not as many counts as values.
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

    /// Takes in rows that are all NULL.
    ///
    /// # Errors
    /// `OverLimit` for more rows than a sketch counts.
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
        let mut hashes = Hashes::default();
        let data_type = self.data_type.clone();
        items::blocks(values, counts, &mut |items, counts| {
            self.basics.update(&items, counts, &data_type);
            fill(&mut hashes, &items);
            self.take_in_block(&Block { hashes: &hashes, counts, value: &|i| value(&items, i, &data_type) });
        })
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

    /// Takes in what another sketch has seen.
    ///
    /// # Errors
    /// `Invalid` when it has other parameters or is of a column of another type.
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
        let Sketch { parameters, frequency, second_moment, top, .. } = self;
        top.merge(&other.top, &|hash| count(parameters, frequency.as_ref(), second_moment.as_ref(), hash));
        Ok(())
    }

    /// Bytes of memory that it takes.
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
    }

    /// Rows, NULLs included.
    pub fn rows(&self) -> u64 {
        self.basics.rows
    }

    /// Rows that are NULL.
    pub fn nulls(&self) -> u64 {
        self.basics.nulls
    }

    /// The least value; `None` if there is none but NULLs. NaN is greater than any number.
    pub fn minimum(&self) -> Option<&Literal> {
        self.basics.range.as_ref().map(|(low, _)| low)
    }

    /// The greatest value.
    pub fn maximum(&self) -> Option<&Literal> {
        self.basics.range.as_ref().map(|(_, high)| high)
    }

    /// The sum of numbers; `None` for other types, and if there is none but NULLs.
    pub fn sum(&self) -> Option<Total> {
        self.basics.total()
    }

    /// How many distinct values there are, NULL not being one; `None` without HyperLogLog.
    pub fn distinct(&self) -> Option<Estimate> {
        let (value, low, high) = self.distinct.as_ref()?.estimate();
        let values = self.basics.values() as f64;
        Some(estimate(value.round(), low, high, values.min(1.0), values))
    }

    /// How often `value` occurs; `None` without Count-Min.
    ///
    /// # Errors
    /// `Invalid` when the value is not of the column's type.
    pub fn frequency(&self, value: &Literal) -> Result<Option<Estimate>> {
        self.expect_type(value.data_type())?;
        if value.is_null() {
            let nulls = self.basics.nulls as f64;
            return Ok(Some(Estimate { value: nulls, low: nulls, high: nulls, confidence: 1.0 }));
        }
        Ok(self.frequency_of(hash_of(value), self.count_min_trust().trusted))
    }

    /// The most frequent values, the most frequent first, with how often they occur; up to `count`, of those
    /// that the parameters said to keep.
    pub fn top(&self, count: usize) -> Vec<(Literal, Estimate)> {
        let trusted = self.count_min_trust().trusted;
        let mut all: Vec<_> = self
            .top
            .iter()
            .filter_map(|(hash, value)| Some((self.frequency_of(hash, trusted)?, hash, value)))
            .collect();
        all.sort_by(|one, other| other.0.value.total_cmp(&one.0.value).then(one.1.cmp(&other.1)));
        let count = count.min(self.parameters.top as usize);
        all.into_iter().take(count).map(|(estimate, _, value)| (value.clone(), estimate)).collect()
    }

    /// The least of Count-Min's counters is never too low; the signed counters of Fast-AGMS say from both
    /// sides how far it may be too high.
    fn frequency_of(&self, hash: Hash, trusted: bool) -> Option<Estimate> {
        let shape = self.parameters.frequency?;
        let values = self.basics.values() as f64;
        let least = self.count(hash) as f64;
        let excess = bounds::minimum_excess(shape.rows, 0.025) * (values - least).max(0.0) / width(shape);
        let (mut value, mut low) = (least, least - excess);
        if let (Some(table), Some(moment)) = (&self.second_moment, self.parameters.second_moment) {
            let signed = median(table.signed_at(hash));
            let most = self.moment_within(0.01)?.high;
            let deviation = bounds::median_deviations(moment.rows, 0.02) * (most / width(moment)).sqrt();
            low = low.max(signed - deviation);
            value = if trusted { least } else { signed };
        }
        Some(estimate(value.round(), low.ceil(), least, 0.0, least))
    }

    fn count(&self, hash: Hash) -> u64 {
        count(&self.parameters, self.frequency.as_ref(), self.second_moment.as_ref(), hash)
    }

    /// The sum of the squares of how often each value occurs: the size of the column's join with itself.
    /// `None` without Fast-AGMS.
    pub fn second_moment(&self) -> Option<Estimate> {
        self.moment_within(1.0 - CONFIDENCE)
    }

    fn moment_within(&self, failure: f64) -> Option<Estimate> {
        let (table, shape) = (self.second_moment.as_ref()?, self.parameters.second_moment?);
        let value = median(table.products(table));
        // The variance of a row is at most 2 F2² / 2^P.
        let error = bounds::median_deviations(shape.rows, failure) * (2.0 / width(shape)).sqrt();
        let high = if error < 1.0 { value / (1.0 - error) } else { f64::INFINITY };
        let values = self.basics.values() as f64;
        let found = estimate(value, value / (1.0 + error), high, values, values * values);
        Some(Estimate { confidence: 1.0 - failure, ..found })
    }

    /// How many pairs of rows have equal values: the size of the equi-join of the two columns. `None` if
    /// either is without Fast-AGMS.
    ///
    /// # Errors
    /// `Invalid` when Fast-AGMS has different shapes, or the columns' values are not hashed alike.
    pub fn join_size(&self, other: &Sketch) -> Result<Option<Estimate>> {
        let (Some(ours), Some(theirs)) = (&self.second_moment, &other.second_moment) else { return Ok(None) };
        let shape = self.parameters.second_moment;
        let (Some(shape), true) = (shape, shape == other.parameters.second_moment) else {
            return Err(Error::invalid("the two sketches have Fast-AGMS of different shapes")
                .advise("make both with the same parameters"));
        };
        self.expect_comparable(other)?;
        let value = median(ours.products(theirs));
        let moments = self.moment_within(0.02).zip(other.moment_within(0.02));
        let product = moments.map_or(f64::INFINITY, |(one, two)| one.high * two.high);
        // The variance of a row is at most (F2 F2' + J²) / 2^P, and J² at most F2 F2'.
        let error = bounds::median_deviations(shape.rows, 0.03) * (2.0 * product / width(shape)).sqrt();
        let most = product.sqrt().min(self.basics.values() as f64 * other.basics.values() as f64);
        Ok(Some(estimate(value.max(0.0).round(), value - error, value + error, 0.0, most)))
    }

    /// Equal values of the two columns have equal hashes, and different ones different ones.
    fn expect_comparable(&self, other: &Sketch) -> Result<()> {
        let (one, two) = (&self.data_type, &other.data_type);
        let alike = match (one, two) {
            (DataType::Timestamp(unit, _), DataType::Timestamp(other, _)) => unit == other,
            (DataType::Decimal128(_, scale), DataType::Decimal128(_, other)) => scale == other,
            _ if one.is_integer() => two.is_integer() && !self.wraps(other) && !other.wraps(self),
            _ if one.is_floating() => two.is_floating(),
            _ => one == two,
        };
        if alike {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "values of {one} and of {two} are not hashed alike: their join is unknown"
        ))
        .advise("cast both columns to the same type"))
    }

    /// Whether this has integers beyond 63 bits and the other negative ones: they have the same 8 bytes.
    fn wraps(&self, other: &Sketch) -> bool {
        let beyond = |literal: &Literal| literal.as_int().is_some_and(|v| v > i64::MAX.into());
        let negative = |literal: &Literal| literal.as_int().is_some_and(|v| v < 0);
        self.maximum().is_some_and(beyond) && other.minimum().is_some_and(negative)
    }

    /// What the counts of Count-Min are worth.
    pub fn count_min_trust(&self) -> Trust {
        let Some(shape) = self.parameters.frequency else {
            let reason = "there is no Count-Min".to_string();
            return Trust { trusted: false, frequent_from: None, reason };
        };
        let evidence = trust::Evidence {
            rows: shape.rows,
            width: width(shape),
            values: self.basics.values() as f64,
            distinct: self.distinct().map(|estimate| estimate.high),
            second_moment: self.second_moment().map(|estimate| estimate.value),
        };
        evidence.verdict()
    }
}

/// The least of Count-Min's counters, in whichever table it is.
fn count(parameters: &SketchParameters, own: Option<&Table>, both: Option<&Table>, hash: Hash) -> u64 {
    let rows = parameters.frequency.map_or(0, |counters| counters.rows.into());
    match (own, both) {
        (Some(table), _) => table.at(hash).min(),
        (None, Some(table)) => table.unsigned_at(hash).take(rows).min(),
        (None, None) => None,
    }
    .unwrap_or(0)
}

fn width(shape: Counters) -> f64 {
    f64::from(1_u32 << shape.precision)
}

/// An estimate whose parts are within what is certain.
fn estimate(value: f64, low: f64, high: f64, least: f64, most: f64) -> Estimate {
    let clamp = |v: f64| v.max(least).min(most);
    let (low, high) = (clamp(low), clamp(high));
    Estimate { value: clamp(value).max(low).min(high), low, high, confidence: CONFIDENCE }
}

/// How often each value of a dictionary occurs, and how many keys are NULL.
fn occurrences(keys: Vec<usize>, array: &dyn Array, values: usize) -> (Vec<u64>, u64) {
    let mut counts = vec![0; values];
    for (i, key) in keys.into_iter().enumerate() {
        if array.is_valid(i) {
            counts[key] += 1;
        }
    }
    (counts, array.null_count() as u64)
}

fn fill(hashes: &mut Hashes, items: &Items<'_>) {
    match items {
        Items::Signed(words, _) | Items::Unsigned(words) => hashes.fill_words(words),
        Items::Floats(bits) => {
            let mut words = [0; block::BLOCK];
            let canonical = bits.iter().map(|bits| hash::float_bits(f64::from_bits(*bits)));
            words.iter_mut().zip(canonical).for_each(|(to, bits)| *to = bits);
            hashes.fill_words(&words[..bits.len()]);
        }
        Items::Wide(values) => fill_wide(hashes, values),
        Items::Bytes(values) => hashes.fill(values.iter().map(|bytes| hash::murmur3(bytes, SEED))),
    }
}

/// Most decimals fit 64 bits.
fn fill_wide(hashes: &mut Hashes, values: &[i128]) {
    let mut words = [0; block::BLOCK];
    words.iter_mut().zip(values).for_each(|(to, value)| *to = *value as u64);
    if values.iter().all(|value| i128::from(*value as i64) == *value) {
        hashes.fill_words(&words[..values.len()]);
    } else {
        hashes.fill(values.iter().map(|value| hash_of_wide(*value)));
    }
}

fn hash_of_wide(value: i128) -> Hash {
    match i64::try_from(value) {
        Ok(value) => hash::murmur3_word(value as u64, SEED),
        Err(_) => hash::murmur3(&value.to_le_bytes(), SEED),
    }
}

/// The hash of a constant, the same as of the value in a column.
fn hash_of(literal: &Literal) -> Hash {
    match literal.value() {
        Value::Null => hash::murmur3(&[], SEED),
        Value::Bool(v) => hash::murmur3_word((*v).into(), SEED),
        Value::Int(v) if *literal.data_type() == DataType::UInt64 => hash::murmur3_word(*v as u64, SEED),
        Value::Int(v) => hash_of_wide(*v),
        Value::Float(v) => hash::murmur3_word(hash::float_bits(*v), SEED),
        Value::Text(v) => hash::murmur3(v.as_bytes(), SEED),
        Value::Bytes(v) => hash::murmur3(v, SEED),
    }
}

/// The value at a place of a block; `None` if it is too long to be kept.
fn value(items: &Items<'_>, i: usize, data_type: &DataType) -> Option<Literal> {
    let value = match items {
        Items::Signed(words, _) if *data_type == DataType::Boolean => Value::Bool(words[i] != 0),
        Items::Signed(words, _) => Value::Int((words[i] as i64).into()),
        Items::Unsigned(words) => Value::Int(words[i].into()),
        Items::Wide(values) => Value::Int(values[i]),
        Items::Floats(bits) => Value::Float(f64::from_bits(hash::float_bits(f64::from_bits(bits[i])))),
        Items::Bytes(values) if values[i].len() > limits::SKETCH_VALUE_BYTES_MAX => return None,
        Items::Bytes(values) => return Some(basics::bytes_literal(values[i], data_type)),
    };
    Some(basics::literal(value, data_type))
}

/// Bytes of memory behind a literal.
fn literal_bytes(literal: &Literal) -> usize {
    match literal.value() {
        Value::Text(text) => text.capacity(),
        Value::Bytes(bytes) => bytes.capacity(),
        _ => 0,
    }
}
