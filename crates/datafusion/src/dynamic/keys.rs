//! The join keys of a join's smaller (build) side, encoded as a condition that the pool evaluates on the rows of the
//! other side: few keys as a list, integers in a narrow range as a bitmap, all others as an approximate filter of their
//! hashes (like a Bloom filter).
//!
//! If a join has several key columns, one filter holds the hashes of their combined values. A column whose own keys are
//! few or in a narrow range also gets a separate condition, if that removes enough rows: it is cheaper to evaluate, and
//! zone maps can use it.
//!
//! Invariant: a condition derived from keys is true for every row that has one of the keys; it may also be true for
//! other rows.

use super::pays;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_buffer::NullBuffer;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::DataType;
use arrow_select::filter::filter;
use datafusion::common::ScalarValue;
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::physical_plan::PhysicalExpr;
use farpool_model::{Expr, KeyFilter, KeySet, Literal, TableInfo, limits, schema};
use farpool_planner::estimate;
use farpool_sql::literal;
use farpool_statistics::keys;
use std::cmp::Ordering;
use std::sync::Arc;

/// Maximum number of join keys that are collected on the smaller side. Reason: with 8 bits per key, the filter just
/// fits [`limits::KEY_SET_BYTES_MAX`] and the quarter of a plan's nodes that one condition may have.
pub(super) const KEYS_MAX: usize = 1_000_000;

/// Maximum total size of the collected join keys, in bytes: enough for [`KEYS_MAX`] strings of more than a hundred
/// bytes.
pub(super) const KEY_BYTES_MAX: usize = 64 << 20;

/// Minimum number of keys that become a bitmap or a hash filter; fewer are sent as a list. Reason: a look-up in a
/// bitmap or a filter takes constant time, whereas that in a list grows with the list.
const SET_KEYS_MIN: usize = 64;

/// Bits per key of a hash filter, by the minimum number of table rows per key: (rows per key, bits). Reason: with more
/// rows per key there are more false positives, each of which costs about 12 bytes on the wire; twice the bits avoid
/// most of them. Filters of many keys have fewer bits, as far as there is room: with 8, one row in 20 without a match passes.
const KEY_BITS: [(u64, usize); 4] = [(300, 64), (40, 32), (0, 16), (0, 8)];

/// Rows of join keys of one or several columns; `columns` are the table columns that they are compared
/// with. No key is NULL.
#[derive(Debug)]
pub(super) struct Keys {
    columns: Vec<(usize, ArrayRef)>,
}

impl Keys {
    /// Creates join keys from their `values`, one array per key column; `args` are the expressions over the result of a
    /// program that the join compares them with. Key columns whose expression is not a column of the table are left
    /// out.
    ///
    /// Rows with a NULL key are left out, because NULL equals nothing. (For a join in which NULLs are equal, DataFusion
    /// adds `OR key IS NULL` to the filter.)
    pub(super) fn of(
        args: &[&Arc<dyn PhysicalExpr>],
        values: Vec<ArrayRef>,
        column: &dyn Fn(usize) -> Option<Expr>,
        info: &TableInfo,
    ) -> Option<Keys> {
        let found = args.iter().zip(values).filter_map(|(arg, values)| key_column(arg, values, column, info));
        Keys { columns: found.collect() }.without_nulls()
    }

    fn without_nulls(self) -> Option<Keys> {
        let nulls = self
            .columns
            .iter()
            .fold(None, |all, (_, values)| NullBuffer::union(all.as_ref(), values.logical_nulls().as_ref()));
        if self.columns.is_empty() {
            return None;
        }
        let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) else { return Some(self) };
        let valid = BooleanArray::new(nulls.into_inner(), None);
        let kept = self.columns.iter().map(|(column, values)| Some((*column, filter(values, &valid).ok()?)));
        Some(Keys { columns: kept.collect::<Option<_>>()? })
    }

    /// Returns conditions that are true for every row with one of the keys; only those that save more than they cost.
    pub(super) fn conditions(&self, info: &TableInfo) -> Vec<Expr> {
        if let [(column, values)] = &self.columns[..] {
            return one(*column, values, info)
                .filter(|condition| pays(condition, info))
                .into_iter()
                .collect();
        }
        let each = self.columns.iter().filter_map(|(column, values)| few(*column, values));
        let mut found: Vec<Expr> = each.filter(|condition| pays(condition, info)).collect();
        // Whether the combined filter is worth its cost depends on the rows that remain after the other conditions.
        let left = Expr::all(found.clone()).map_or(1.0, |all| estimate::selectivity(&all, info));
        let rows = (info.rows as f64 * left) as u64;
        let left = TableInfo { rows, ..info.clone() };
        found.extend(self.together(&left).filter(|filter| pays(filter, &left)));
        found
    }

    /// Returns a single condition that is true for every row with one of the keys; `None` if there is none.
    pub(super) fn condition(&self, info: &TableInfo) -> Option<Expr> {
        match &self.columns[..] {
            [(column, values)] => one(*column, values, info),
            _ => self.together(info),
        }
    }

    /// Returns the filter of the combined values of all columns whose type can be hashed; `None` if there is no such
    /// column.
    fn together(&self, info: &TableInfo) -> Option<Expr> {
        let hashed = self.columns.iter().filter(|(_, values)| has_hash(values.data_type()));
        let (columns, values): (Vec<Expr>, Vec<ArrayRef>) =
            hashed.map(|(column, values)| (Expr::Column(*column), Arc::clone(values))).unzip();
        in_filter(columns, &values, info)
    }
}

/// If `expr` is a column of the table, returns the column's index, and `values` converted to its type; otherwise
/// `None`.
fn key_column(
    expr: &Arc<dyn PhysicalExpr>,
    values: ArrayRef,
    column: &dyn Fn(usize) -> Option<Expr>,
    info: &TableInfo,
) -> Option<(usize, ArrayRef)> {
    let widened = expr.downcast_ref::<CastExpr>();
    let inner = widened.map_or(expr, CastExpr::expr).downcast_ref::<Column>()?;
    let index = column(inner.index())?.as_column()?;
    let to = info.schema.fields().get(index)?.data_type();
    // Integers of different widths are compared by value: a join key that does not fit the column's type becomes NULL,
    // because it equals no value of the column.
    let integers = to.is_integer() && values.data_type().is_integer();
    let same = schema::canonical_type(values.data_type()).as_ref() == Some(to);
    if !(integers || same && widened.is_none()) {
        return None;
    }
    let options = CastOptions { safe: integers, ..CastOptions::default() };
    Some((index, cast_with_options(&values, to, &options).ok()?))
}

fn has_hash(data_type: &DataType) -> bool {
    schema::is_integer_like(data_type) || schema::is_bytes(data_type)
}

/// Returns the condition on one column for its keys: a list if they are few, else a bitmap if their range is narrow,
/// else a hash filter. `None` if there are too many keys of a type that cannot be hashed.
fn one(column: usize, values: &ArrayRef, info: &TableInfo) -> Option<Expr> {
    few(column, values).or_else(|| {
        if !has_hash(values.data_type()) {
            return (values.len() <= limits::IN_LIST_MAX).then(|| list(column, values)).flatten();
        }
        in_filter(vec![Expr::Column(column)], std::slice::from_ref(values), info)
    })
}

/// Returns a hash filter of the keys `values` of one or several columns.
fn in_filter(columns: Vec<Expr>, values: &[ArrayRef], info: &TableInfo) -> Option<Expr> {
    let hashes = keys::of_rows(values).ok()?;
    let rows_per_key = info.rows / (hashes.len() as u64).max(1);
    let fits = |bits: usize| hashes.len() * bits <= KEYS_MAX * 8;
    let (_, bits) = KEY_BITS.into_iter().find(|(rows, bits)| rows_per_key >= *rows && fits(*bits))?;
    Some(Expr::InFilter(columns, KeyFilter::new(hashes, bits)?))
}

/// Returns the condition on one column as a list or a bitmap; `None` if there are too many keys and their range is too
/// wide.
fn few(column: usize, values: &ArrayRef) -> Option<Expr> {
    if values.len() < SET_KEYS_MIN {
        return list(column, values);
    }
    Some(Expr::InSet(Box::new(Expr::Column(column)), KeySet::new(&words(values)?)?))
}

fn list(column: usize, values: &ArrayRef) -> Option<Expr> {
    let constant = |row| literal::from_scalar(&ScalarValue::try_from_array(values, row).ok()?);
    let mut constants = (0..values.len()).map(constant).collect::<Option<Vec<Literal>>>()?;
    constants.sort_by(|a, b| a.compare(b).unwrap_or(Ordering::Equal));
    constants.dedup();
    Some(Expr::InList(Box::new(Expr::Column(column)), constants))
}

/// Returns the values as 64-bit integers; `None` unless the type is an integer or stored as one, such as a date.
fn words(values: &ArrayRef) -> Option<Vec<i64>> {
    match values.data_type() {
        DataType::Decimal128(..) => {
            let values = values.as_primitive::<arrow_array::types::Decimal128Type>().values();
            values.iter().map(|value| i64::try_from(*value).ok()).collect()
        }
        other if schema::is_integer_like(other) => {
            let options = CastOptions { safe: false, ..CastOptions::default() };
            // Arrow casts dates to 64-bit integers only by way of 32-bit integers.
            let values = match other {
                DataType::Date32 => cast_with_options(values, &DataType::Int32, &options).ok()?,
                _ => Arc::clone(values),
            };
            let values = cast_with_options(&values, &DataType::Int64, &options).ok()?;
            Some(values.as_primitive::<Int64Type>().values().to_vec())
        }
        _ => None,
    }
}
