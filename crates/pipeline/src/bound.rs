//! A prepared program, bound to the table version that it was prepared for. Handles refer to it.
//!
//! Invariant: the program is compiled once, when it first runs or, if the answers depend on the plan, when it
//! is prepared. When conditions are added for one run, only these are compiled.

use crate::budget::{Budget, prepare_within};
use farpool_columns::{LiveRows, Table};
use farpool_model::{Error, Expr, Facts, Prepared, Program, Result, Version, limits, program};
use farpool_operators::Plan;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Number of forms in which the program is in memory: decoded, and compiled.
const FORMS: usize = 2;

/// A prepared program with its table version, budget, and plan.
pub struct BoundProgram {
    prepared: Arc<Prepared>,
    table: Arc<Table>,
    budget: Budget,
    plan: OnceLock<Plan>,
    bytes: usize,
    columns: BTreeSet<usize>,
    /// Conditions added to the program.
    conditions: Option<Expr>,
}

/// A program over live rows, part of whose filter is applied when the rows are generated.
pub(crate) struct Filtered {
    pub rows: Arc<dyn LiveRows>,
    /// Plan for the remaining rows.
    pub plan: Plan,
    /// Columns that the plan reads.
    pub columns: Vec<usize>,
}

impl BoundProgram {
    /// Prepares `program` for `table` at `version` within `budget`.
    ///
    /// # Errors
    /// Errors of [`crate::prepare`].
    pub fn prepare(program: &Program, table: Arc<Table>, version: Version, budget: Budget) -> Result<Self> {
        let (prepared, plan) = prepare_within(program, &table, version, budget)?;
        let (bytes, columns) = (FORMS * prepared.effective.check_size()?, prepared.effective.columns());
        let plan = plan.map(OnceLock::from).unwrap_or_default();
        Ok(BoundProgram {
            prepared: Arc::new(prepared),
            table,
            budget,
            plan,
            bytes,
            columns,
            conditions: None,
        })
    }

    /// Returns the prepared program: its answers, and the effective program.
    pub fn prepared(&self) -> &Arc<Prepared> {
        &self.prepared
    }

    /// Returns the table version that the program reads.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Returns the budget within which the program runs.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Returns an upper bound of the bytes that the program takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if conditions were added to the program.
    pub(crate) fn is_narrowed(&self) -> bool {
        self.conditions.is_some()
    }

    /// Returns the columns that the program reads.
    pub(crate) fn columns(&self) -> &BTreeSet<usize> {
        &self.columns
    }

    /// Returns the program without the part of its filter that the source of live rows applies; `None` if there is no
    /// such part.
    ///
    /// # Errors
    /// Errors of [`BoundProgram::plan`].
    pub(crate) fn filtered(&self) -> Result<Option<Filtered>> {
        let Some(rows) = self.table.live_rows() else { return Ok(None) };
        let program = &self.prepared.effective;
        let filter = Expr::all(program.filter.iter().chain(&self.conditions).cloned().collect());
        let Some(filtered) = filter.and_then(|filter| rows.filtered(&filter)) else { return Ok(None) };
        let plan = self.plan()?;
        if !filtered.is_exact {
            let columns = self.columns.iter().copied().collect();
            return Ok(Some(Filtered { rows: filtered.rows, plan, columns }));
        }
        let unfiltered = Program { filter: None, ..program.clone() };
        let columns = unfiltered.columns().into_iter().collect();
        Ok(Some(Filtered { rows: filtered.rows, plan: plan.without_filter(), columns }))
    }

    /// Returns an upper bound of the number of expression nodes of the program.
    pub(crate) fn parts(&self) -> usize {
        self.bytes / FORMS / limits::EXPR_NODE_BYTES
    }

    /// Narrows the program to the rows for which `conditions` hold as well. Since they only remove rows, the
    /// answers stay the same.
    ///
    /// # Errors
    /// `Invalid` for conditions that are not well typed, cannot be evaluated exactly, or may fail on a row; `OverLimit`
    /// when they are too large.
    pub fn narrowed(&self, conditions: &Expr) -> Result<Self> {
        let bytes = program::check_size([conditions])?;
        if let Some(reason) = conditions.opaque_reason() {
            let message = format!("a condition that is added to a prepared program must be exact: {reason}");
            return Err(Error::invalid(message));
        }
        program::require_boolean("condition", conditions, &self.table.schema)?;
        if Facts::of(conditions, &self.table.schema)?.may_fail {
            return Err(Error::invalid("a condition that is added to a prepared program may fail on a row"));
        }
        let mut columns = self.columns.clone();
        conditions.collect_columns(&mut columns);
        Ok(BoundProgram {
            prepared: self.prepared.clone(),
            table: self.table.clone(),
            budget: self.budget,
            plan: OnceLock::from(self.plan()?.narrowed(conditions, &self.table.schema)?),
            bytes: self.bytes + FORMS * bytes,
            columns,
            conditions: Expr::all(self.conditions.iter().chain([conditions]).cloned().collect()),
        })
    }

    /// Returns the compiled program; compiles it on first use.
    ///
    /// # Errors
    /// `Invalid` when the program does not fit the table.
    pub(crate) fn plan(&self) -> Result<Plan> {
        if let Some(plan) = self.plan.get() {
            return Ok(plan.clone());
        }
        // Two threads may compile at once; the second result is dropped.
        let plan = Plan::compile(&self.prepared.effective, &self.table, self.budget.memory())?;
        Ok(self.plan.get_or_init(|| plan).clone())
    }
}

impl fmt::Debug for BoundProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundProgram").field("program", &self.prepared.effective).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
