//! Profile of a table: for each column a sketch and, for numbers, a histogram; and the moments of the numeric columns
//! together. It is computed in one pass over arrays or, if the caller knows them, over distinct values with their
//! numbers of occurrences.
//!
//! If values of an array repeat, the occurrences of each distinct value are counted first ([`repeats`]), so that each
//! is hashed only once. The state is the same as without that.
//!
//! Invariant, as for the whole crate: the profiles of parts of a table are merged to the same profile however the table
//! was divided, except for sums of floats and the set of values that are kept as frequent.

mod repeats;
mod spread;
mod states;
#[cfg(test)]
mod tests;

use crate::sketch::has_quantiles;
use crate::{BINS_MAX, Histogram, Moments, Sketch, States};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, SchemaRef};
use farpool_model::{
    Counters, Error, Literal, NullHandling, Result, SketchParameters, StateFunction, limits, schema,
};
use repeats::{Counted, Repeats};

/// Sketches for the columns of a table with at most [`limits::TAP_COLUMNS_MAX`] columns. HyperLogLog has an error of
/// 0.8 %; a value that makes up a hundredth of all values is certain to be found as frequent; Count-Min uses the
/// counters of Fast-AGMS. Reason for three rows of 2^11 counters: they cost only three increments per value, and have
/// narrower bounds than five rows of 2^10 (docs/decisions/2026-11-22-what-a-tap-costs.md).
const EVERYTHING: SketchParameters = SketchParameters {
    distinct: Some(14),
    frequency: Some(Counters { rows: 3, precision: 11 }),
    second_moment: Some(Counters { rows: 3, precision: 11 }),
    top: 16,
    quantiles: None,
};

/// Number of values in the highest level of KLL. With it, the error of ranks is less than a hundredth.
const QUANTILES: u16 = 256;

/// Sketches for the columns of tables with more columns than that: only the number of distinct values, with an error
/// of 1.6 %.
const LITTLE: SketchParameters =
    SketchParameters { distinct: Some(12), frequency: None, second_moment: None, top: 0, quantiles: None };

/// Maximum number of candidates per frequent value that is kept: with more, the least frequent are dropped.
/// `BYTES_PER_CANDIDATE` is the number of bytes of a candidate without its string, including empty slots of the hash
/// table.
const CANDIDATES: usize = 8;
const BYTES_PER_CANDIDATE: usize = 256;

/// Statistics of the columns of a table, as states that can be merged.
#[derive(Clone, Debug)]
pub struct Profile {
    schema: SchemaRef,
    columns: Vec<ColumnProfile>,
    moments: Option<ColumnMoments>,
    repeats: Repeats,
}

/// Statistics of one column.
#[derive(Clone, Debug)]
pub struct ColumnProfile {
    /// Sketch: numbers of rows and NULLs, minimum and maximum, distinct and frequent values.
    pub sketch: Sketch,
    /// Histogram of the values; `None` for columns that are not numeric, and in wide tables.
    pub histogram: Option<Histogram>,
}

/// Moments of several columns together.
#[derive(Clone, Debug)]
pub struct ColumnMoments {
    /// Indices of the columns in the schema, ascending.
    pub columns: Vec<usize>,
    /// Moments of these columns, in the same order. A NULL is left out of the pairs with its column only.
    pub moments: Moments,
}

impl Profile {
    /// Creates the profile of a table of `schema`, which must be canonical, without rows.
    ///
    /// # Errors
    /// `Invalid` when the schema is not canonical.
    pub fn new(schema: &SchemaRef) -> Result<Profile> {
        let everything = has_everything(schema);
        let columns = schema.fields().iter().map(|field| {
            let sketch = Sketch::new(parameters(everything, field.data_type()), field.data_type())?;
            let histogram = if everything { Histogram::new(field.data_type()) } else { None };
            Ok(ColumnProfile { sketch, histogram })
        });
        Ok(Profile {
            columns: columns.collect::<Result<_>>()?,
            moments: ColumnMoments::new(schema)?,
            schema: schema.clone(),
            repeats: Repeats::default(),
        })
    }

    /// Returns the schema of the table.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the number of rows that were added.
    pub fn rows(&self) -> u64 {
        self.columns.first().map_or(0, |column| column.sketch.rows())
    }

    /// Returns the statistics of each column.
    pub fn columns(&self) -> &[ColumnProfile] {
        &self.columns
    }

    /// Returns the moments of the numeric columns; `None` if there are none. Only the first
    /// [`limits::TAP_MOMENT_COLUMNS_MAX`] numeric columns are included.
    pub fn moments(&self) -> Option<&ColumnMoments> {
        self.moments.as_ref()
    }

    /// Adds rows, given as one array per column with the types of the schema.
    ///
    /// # Errors
    /// `Invalid` when the columns do not match the schema; `OverLimit` for more rows than can be counted. After an
    /// error some of the rows may have been added, so the profile must be discarded.
    pub fn update(&mut self, columns: &[ArrayRef]) -> Result<()> {
        if columns.len() != self.columns.len() {
            let message = format!("a profile of {} columns was given {}", self.columns.len(), columns.len());
            return Err(Error::invalid(message));
        }
        for (column, values) in columns.iter().enumerate() {
            self.update_column(column, values, None)?;
        }
        let numbers = self.moments.iter().flat_map(|moments| &moments.columns);
        let numbers: Vec<ArrayRef> = numbers.map(|column| columns[*column].clone()).collect();
        self.update_moments(&numbers)
    }

    /// Adds the values of one column of some rows; `bounds` has their minimum and maximum, if known. The caller must
    /// add the values of the same rows of all other columns, too, and call [`Profile::update_moments`].
    ///
    /// # Errors
    /// As [`Profile::update`].
    pub fn update_column(
        &mut self,
        column: usize,
        values: &ArrayRef,
        bounds: Option<(Literal, Literal)>,
    ) -> Result<()> {
        if let Some(Counted { values: once, counts }) = self.repeats.count(values) {
            return self.update_counted(column, &once, &counts, values.null_count() as u64);
        }
        let ColumnProfile { sketch, histogram } = self.column_mut(column)?;
        match bounds.filter(|_| schema::is_bytes(values.data_type())) {
            Some(bounds) => sketch.update_between(values, bounds)?,
            None => sketch.update(values)?,
        }
        histogram.as_mut().map_or(Ok(()), |histogram| histogram.update(values))
    }

    /// Adds values of one column as [`Profile::update_column`] does, given as distinct values: each of `values`, none
    /// of them NULL, occurs as many times as its count in `counts`, and NULL `nulls` times.
    ///
    /// # Errors
    /// As [`Profile::update`].
    pub fn update_counted(
        &mut self,
        column: usize,
        values: &ArrayRef,
        counts: &[u64],
        nulls: u64,
    ) -> Result<()> {
        let ColumnProfile { sketch, histogram } = self.column_mut(column)?;
        sketch.update_counted(values, counts)?;
        sketch.count_nulls(nulls)?;
        histogram.as_mut().map_or(Ok(()), |histogram| histogram.update_counted(values, counts))
    }

    fn column_mut(&mut self, column: usize) -> Result<&mut ColumnProfile> {
        self.columns.get_mut(column).ok_or_else(|| Error::invalid("there is no such column"))
    }

    /// Adds the values of some rows for the columns of [`Profile::moments`], in their order.
    ///
    /// # Errors
    /// As [`Profile::update`].
    pub fn update_moments(&mut self, numbers: &[ArrayRef]) -> Result<()> {
        self.moments.as_mut().map_or(Ok(()), |moments| moments.moments.update(numbers))
    }

    /// Merges another profile into this one.
    ///
    /// # Errors
    /// `Invalid` when the profiles are of different columns.
    pub fn merge(&mut self, other: &Profile) -> Result<()> {
        if self.columns.len() != other.columns.len() {
            return Err(of_other_columns());
        }
        (0..self.columns.len()).try_for_each(|column| self.merge_column(column, other))?;
        self.merge_moments(other)
    }

    /// Merges one column of another profile into this one. The caller must merge all other columns, too, and call
    /// [`Profile::merge_moments`].
    ///
    /// # Errors
    /// As [`Profile::merge`].
    pub fn merge_column(&mut self, column: usize, other: &Profile) -> Result<()> {
        let theirs = other.columns.get(column).ok_or_else(of_other_columns)?;
        self.column_mut(column)?.merge(theirs)
    }

    /// Merges the moments of another profile into those of this one.
    ///
    /// # Errors
    /// As [`Profile::merge`].
    pub fn merge_moments(&mut self, other: &Profile) -> Result<()> {
        match (&mut self.moments, &other.moments) {
            (Some(ours), Some(theirs)) => ours.moments.merge(&theirs.moments),
            (None, None) => Ok(()),
            _ => Err(of_other_columns()),
        }
    }

    /// Returns the bytes of memory that the profile takes.
    pub fn bytes_held(&self) -> usize {
        let moments = self.moments.as_ref().map_or(0, |m| m.moments.bytes_held());
        self.columns.iter().map(ColumnProfile::bytes_held).sum::<usize>()
            + moments
            + self.repeats.bytes_held()
    }

    /// Returns the maximum number of bytes of memory that the profile of a table of `schema` takes, not counting long
    /// strings as minimum or maximum.
    ///
    /// # Errors
    /// As [`Profile::new`].
    pub fn bytes_most(schema: &SchemaRef) -> Result<usize> {
        let everything = has_everything(schema);
        let of_state = |function, types: &[DataType]| Ok(States::bytes_per_group(function, types)?.1);
        let column = |data_type: &DataType| -> Result<usize> {
            let parameters = parameters(everything, data_type);
            let candidates = CANDIDATES * parameters.top as usize;
            let text = if schema::is_bytes(data_type) { limits::SKETCH_VALUE_BYTES_MAX } else { 0 };
            let bins = if everything { BINS_MAX * size_of::<u64>() + size_of::<Histogram>() } else { 0 };
            let sketch = of_state(StateFunction::Sketch(parameters), std::slice::from_ref(data_type))?;
            Ok(sketch + candidates * (BYTES_PER_CANDIDATE + text) + bins)
        };
        let columns = schema.fields().iter().map(|field| column(field.data_type()));
        let moments = match ColumnMoments::new(schema)? {
            // Half as much again is added for scratch memory, which this bound on states does not include.
            Some(none) => {
                of_state(StateFunction::Moments(NullHandling::Pairwise), none.moments.types())? * 3 / 2
            }
            None => 0,
        };
        Ok(columns.sum::<Result<usize>>()? + moments + Repeats::BYTES_MOST)
    }
}

/// Returns whether the table has so few columns that all sketches are computed.
fn has_everything(schema: &SchemaRef) -> bool {
    schema.fields().len() <= limits::TAP_COLUMNS_MAX
}

/// Returns the parameters of the sketch of a column of `data_type`.
fn parameters(everything: bool, data_type: &DataType) -> SketchParameters {
    match everything {
        true => SketchParameters { quantiles: has_quantiles(data_type).then_some(QUANTILES), ..EVERYTHING },
        false => LITTLE,
    }
}

fn of_other_columns() -> Error {
    Error::invalid("profiles of different tables cannot be merged")
}

impl ColumnProfile {
    fn merge(&mut self, other: &ColumnProfile) -> Result<()> {
        self.sketch.merge(&other.sketch)?;
        match (&mut self.histogram, &other.histogram) {
            (Some(ours), Some(theirs)) => ours.merge(theirs),
            _ => Ok(()),
        }
    }

    fn bytes_held(&self) -> usize {
        self.sketch.bytes_held() + self.histogram.as_ref().map_or(0, Histogram::bytes_held)
    }
}

impl ColumnMoments {
    fn new(schema: &SchemaRef) -> Result<Option<ColumnMoments>> {
        let numeric = |i: &usize| is_numeric(schema.field(*i).data_type());
        let columns: Vec<usize> =
            (0..schema.fields().len()).filter(numeric).take(limits::TAP_MOMENT_COLUMNS_MAX).collect();
        if columns.is_empty() {
            return Ok(None);
        }
        let types: Vec<DataType> = columns.iter().map(|i| schema.field(*i).data_type().clone()).collect();
        let moments = Moments::new(&types, NullHandling::Pairwise)?;
        Ok(Some(ColumnMoments { columns, moments }))
    }

    /// Returns the position in [`ColumnMoments::columns`] of a table column; `None` if it is not one of them.
    pub fn place(&self, column: usize) -> Option<usize> {
        self.columns.binary_search(&column).ok()
    }
}

/// Returns whether values of this canonical type can be multiplied (and so have moments): integers, decimals and
/// floats.
pub fn is_numeric(data_type: &DataType) -> bool {
    use DataType::{Date32, Timestamp};
    data_type.is_floating()
        || schema::is_integer_like(data_type) && !matches!(data_type, Date32 | Timestamp(..))
}
