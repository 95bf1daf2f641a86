//! The rows of a program behind its lookups (joins that the pool carries out), described as if they were a table. All
//! estimates of this crate then apply to a program with lookups as to any other.
//!
//! Invariant: the bounds of a column are bounds of its values, because lookups add none that the tables do not have.

use crate::estimate;
use crate::joins::estimate::{Estimate, JoinKind, Known};
use crate::joins::sizes::Source;
use farpool_model::{
    ColumnStatistics, Expr, Lookup, LookupKey, LookupKind, Output, Program, Result, Spread, TableInfo, limits,
};
use std::sync::Arc;

/// The rows of a program behind its lookups.
#[derive(Clone, Debug)]
pub struct Rows {
    /// The table that the program scans.
    pub table: Source,
    /// The rows, described like a table: the columns of the table come first, then those of the lookups. Without
    /// lookups, this is the table's own description.
    pub info: Arc<TableInfo>,
    estimate: Estimate,
    /// For each lookup, its program and the rows of that.
    pub(crate) sides: Vec<Side>,
}

/// The program of a lookup.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub program: Program,
    pub rows: Rows,
    /// Estimated rows of the program's result.
    pub built: f64,
    /// Estimated rows before the lookup and behind it, without the conditions of the program that has the lookup.
    pub probed: f64,
    pub found: f64,
    /// Whether rows without a match are dropped.
    pub drops: bool,
}

impl Rows {
    /// Describes the rows of a table.
    pub fn of_table(table: Source) -> Rows {
        let columns = (0..table.info.schema.fields().len()).map(|column| Known::of_table(&table, column));
        let rows = table.info.rows as f64;
        let estimate = Estimate { rows: rows.max(1.0), rows_unfiltered: rows, columns: columns.collect() };
        Rows { info: table.info.clone(), table, estimate, sides: Vec::new() }
    }

    /// Describes the rows behind `lookup`, whose program has the rows `side`.
    ///
    /// # Errors
    /// `Invalid` or `OverLimit`, naming what is wrong with the lookup.
    pub fn joined(&self, lookup: &Lookup, side: &Rows) -> Result<Rows> {
        let result = lookup.program.result_schema(&side.info.schema)?;
        let schema = Arc::new(lookup.row_schema(&self.info.schema, &result)?);
        let built = Estimate::of_program(&lookup.program, side);
        let known = |key: &LookupKey| {
            Some((
                self.estimate.columns.get(key.row)?.clone(),
                built.columns.get(key.result).cloned().unwrap_or_else(|| Known::new(built.rows)),
            ))
        };
        let keys: Vec<(Known, Known)> = lookup.keys.iter().filter_map(known).collect();
        let (probed, of_side) = (self.estimate.clone(), built.clone());
        let joined = Estimate::joined(probed, of_side, &keys, kind(lookup.kind), lookup.residual.is_some());
        let (before, behind) = (self.info.rows as f64, joined.rows);
        let mut columns: Vec<ColumnStatistics> = Vec::with_capacity(schema.fields().len());
        columns.extend(self.info.columns.iter().map(|column| scaled(column, behind / before.max(1.0))));
        columns.resize_with(self.info.schema.fields().len(), ColumnStatistics::default);
        if lookup.kind.adds_columns() {
            let may_miss = !matches!(lookup.kind, LookupKind::Inner);
            columns.extend(of_result(&lookup.program, side, behind).into_iter().map(|column| {
                let null_count = if may_miss { column.null_count.max(1) } else { column.null_count };
                ColumnStatistics { null_count, ..column }
            }));
        }
        columns.resize_with(schema.fields().len(), ColumnStatistics::default);
        let bytes_encoded = columns.iter().map(|column| column.bytes_encoded).sum();
        let info = TableInfo {
            schema,
            rows: behind as u64,
            bytes_plain: 0,
            bytes_encoded,
            columns,
            ..(*self.info).clone()
        };
        let drops = matches!(lookup.kind, LookupKind::Inner | LookupKind::Semi);
        let mut sides = self.sides.clone();
        let program = lookup.program.clone();
        sides.push(Side {
            program,
            rows: side.clone(),
            built: built.rows,
            probed: before,
            found: behind,
            drops,
        });
        let mut estimate = joined;
        estimate.columns.resize(info.schema.fields().len(), Known::new(2.0));
        Ok(Rows { table: self.table.clone(), info: Arc::new(info), estimate, sides })
    }

    /// Returns the number of columns of the table that is scanned.
    pub fn table_columns(&self) -> usize {
        self.table.info.schema.fields().len()
    }

    /// Returns whether there are lookups.
    pub fn are_joined(&self) -> bool {
        !self.sides.is_empty()
    }

    /// Returns what is known of a column.
    pub(crate) fn known(&self, column: usize) -> Known {
        self.estimate.columns.get(column).cloned().unwrap_or_else(|| Known::new(self.estimate.rows))
    }

    /// Returns the rows that there would be without filters.
    pub(crate) fn rows_unfiltered(&self) -> f64 {
        self.estimate.rows_unfiltered
    }

    /// Returns the rows of the largest table.
    pub(crate) fn largest(&self) -> f64 {
        let of_sides = self.sides.iter().map(|side| side.rows.largest());
        of_sides.fold(self.table.info.rows as f64, f64::max)
    }

    /// Returns why a node would probably refuse to hold the results of the lookups' programs; `None` if they are small
    /// enough.
    pub fn too_large(&self) -> Option<String> {
        self.sides.iter().find_map(|side| {
            // All groups must fit, also those that a condition then drops.
            let whole = Program { having: None, ..side.program.clone() };
            let bytes = estimate::bytes(&whole, &side.rows.info);
            if bytes > limits::LOOKUP_BYTES_MAX as f64 * LOOKUP_SHARE / self.sides.len() as f64 {
                let (rows, table) = (side.built, &side.program.table);
                return Some(format!("about {rows:.0} rows of {table} are too many to be held at the pool"));
            }
            side.rows.too_large()
        })
    }
}

/// Maximum part of the bytes that the results of all lookups of a program may have together, by estimate. Reason:
/// estimates are rough, and a node that turns out to have too little room has worked in vain.
const LOOKUP_SHARE: f64 = 0.5;

fn kind(kind: LookupKind) -> JoinKind {
    match kind {
        LookupKind::Inner => JoinKind::Inner,
        LookupKind::Left | LookupKind::Single => JoinKind::Left,
        LookupKind::Semi => JoinKind::LeftSemi,
        LookupKind::Anti | LookupKind::NotIn => JoinKind::LeftAnti,
        LookupKind::Exists | LookupKind::In => JoinKind::LeftMark,
    }
}

/// Returns the statistics of the columns of a program's result, as if they were columns of `rows` rows.
fn of_result(program: &Program, of: &Rows, rows: f64) -> Vec<ColumnStatistics> {
    let factor = rows / (of.info.rows as f64).max(1.0);
    let column = |expr: &Expr| match expr {
        Expr::Column(index) => {
            of.info.columns.get(*index).map(|known| scaled(known, factor)).unwrap_or_default()
        }
        _ => ColumnStatistics::default(),
    };
    match &program.output {
        Output::Rows(columns) => columns.iter().map(|c| column(&c.expr)).collect(),
        Output::Aggregate { keys, aggregates } => {
            let results = aggregates.iter().map(|_| ColumnStatistics::default());
            keys.iter().map(|key| column(&key.expr)).chain(results).collect()
        }
    }
}

/// Returns the statistics of a column of `factor` times as many rows with the same shares of values.
fn scaled(column: &ColumnStatistics, factor: f64) -> ColumnStatistics {
    if factor == 1.0 {
        return column.clone();
    }
    let count = |count: u64| (count as f64 * factor) as u64;
    let spread = column.spread.as_ref().map(|spread| {
        let frequent = spread.frequent.iter().map(|(value, rows)| (value.clone(), count(*rows)));
        let bins = spread.bins.iter().map(|rows| count(*rows));
        Arc::new(Spread { frequent: frequent.collect(), bins: bins.collect(), ..(**spread).clone() })
    });
    ColumnStatistics {
        // A column that may have NULLs still may.
        null_count: count(column.null_count).max(column.null_count.min(1)),
        bytes_encoded: count(column.bytes_encoded),
        spread,
        ..column.clone()
    }
}
