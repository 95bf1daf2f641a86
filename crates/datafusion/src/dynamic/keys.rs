//! The keys of a join's smaller side, in the form in which they go to the pool: few as a list, integers that
//! lie close together as a bitmap, all others as a filter of their hashes.
//!
//! Several columns go as one filter of their values together, and besides each whose own keys are few or lie
//! close together, if these remove enough: they cost less to look up, and zone maps know them.
//!
//! Invariant: what is made of keys holds for every row that has one of them.

use super::pays;
use crate::literal;
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
use farpool_statistics::keys;
use std::cmp::Ordering;
use std::sync::Arc;

/// Keys of a join's smaller side up to which they are kept. At 16 bits each, the filter of as many just stays
/// within [`limits::KEY_SET_BYTES_MAX`] and the quarter of a plan's nodes that one condition may have.
pub(super) const KEYS_MAX: usize = 500_000;

/// Bytes of keys up to which they are kept: as many of them as strings of a hundred bytes.
pub(super) const KEY_BYTES_MAX: usize = 64 << 20;

/// Keys from which on a list goes as a set or filter: looking one up takes as long whatever their number.
const SET_KEYS_MIN: usize = 64;

/// Bits for each key of a filter when it is asked of this many rows for each: twice the bits keep out most of
/// the rows that are let through by mistake, which are worth some 12 bytes each on their way.
const KEY_BITS: [(u64, usize); 3] = [(300, 64), (40, 32), (0, 16)];

/// Rows of keys, one column or several of the table; none is NULL.
#[derive(Debug)]
pub(super) struct Keys {
    columns: Vec<(usize, ArrayRef)>,
}

impl Keys {
    /// The `values` of a join's keys, which the expressions `args` over the result of a program are compared with.
    /// Of several keys those are left out that are not columns of the table.
    ///
    /// A key that is NULL is left out: it equals nothing. To a join in which NULLs are equal it matters, but
    /// DataFusion adds `OR key IS NULL` to the filter then.
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

    /// The conditions that rows with one of the keys fulfil, those that pay.
    pub(super) fn conditions(&self, info: &TableInfo) -> Vec<Expr> {
        if let [(column, values)] = &self.columns[..] {
            return one(*column, values, info)
                .filter(|condition| pays(condition, info))
                .into_iter()
                .collect();
        }
        let each = self.columns.iter().filter_map(|(column, values)| few(*column, values));
        let mut found: Vec<Expr> = each.filter(|condition| pays(condition, info)).collect();
        // What the others let through is what there is left to remove.
        let left = Expr::all(found.clone()).map_or(1.0, |all| estimate::selectivity(&all, info));
        let rows = (info.rows as f64 * left) as u64;
        let left = TableInfo { rows, ..info.clone() };
        found.extend(self.together(&left).filter(|filter| pays(filter, &left)));
        found
    }

    /// One condition that rows with one of the keys fulfil.
    pub(super) fn condition(&self, info: &TableInfo) -> Option<Expr> {
        match &self.columns[..] {
            [(column, values)] => one(*column, values, info),
            _ => self.together(info),
        }
    }

    /// The filter of all columns that have hashes.
    fn together(&self, info: &TableInfo) -> Option<Expr> {
        let hashed = self.columns.iter().filter(|(_, values)| has_hash(values.data_type()));
        let (columns, values): (Vec<Expr>, Vec<ArrayRef>) =
            hashed.map(|(column, values)| (Expr::Column(*column), Arc::clone(values))).unzip();
        in_filter(columns, &values, info)
    }
}

/// The column of the table that `expr` is, and the values that are asked for as its type.
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
    // Integers are compared by value, whatever their widths: a key that does not fit the column becomes NULL,
    // and equals nothing in it.
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

/// The condition on one column that fits its keys best.
fn one(column: usize, values: &ArrayRef, info: &TableInfo) -> Option<Expr> {
    few(column, values).or_else(|| {
        if !has_hash(values.data_type()) {
            return (values.len() <= limits::IN_LIST_MAX).then(|| list(column, values)).flatten();
        }
        in_filter(vec![Expr::Column(column)], std::slice::from_ref(values), info)
    })
}

/// The filter of the keys `values` of some columns.
fn in_filter(columns: Vec<Expr>, values: &[ArrayRef], info: &TableInfo) -> Option<Expr> {
    let hashes = keys::of_rows(values).ok()?;
    let rows_per_key = info.rows / (hashes.len() as u64).max(1);
    let fits = |bits: usize| hashes.len() * bits <= KEYS_MAX * 16;
    let (_, bits) = KEY_BITS.into_iter().find(|(rows, bits)| rows_per_key >= *rows && fits(*bits))?;
    Some(Expr::InFilter(columns, KeyFilter::new(hashes, bits)?))
}

/// The keys of one column, if they are few or lie close together.
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

/// Integers, or what is held as such, that fit 64 bits.
fn words(values: &ArrayRef) -> Option<Vec<i64>> {
    match values.data_type() {
        DataType::Decimal128(..) => {
            let values = values.as_primitive::<arrow_array::types::Decimal128Type>().values();
            values.iter().map(|value| i64::try_from(*value).ok()).collect()
        }
        other if schema::is_integer_like(other) => {
            let options = CastOptions { safe: false, ..CastOptions::default() };
            // Dates have no way to 64 bits but through 32.
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
