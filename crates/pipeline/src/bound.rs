//! A program that was prepared, bound to the version of the table that it was prepared for: what a handle keeps.
//!
//! Invariant: it is compiled once, when it first runs or, if the answers depend on it, when it is prepared. Conditions
//! that are added for one run are all that is compiled for it.

use crate::budget::{Budget, prepare_within};
use farpool_columns::Table;
use farpool_model::{Error, Expr, Facts, Prepared, Program, Result, Version, limits, program};
use farpool_operators::Plan;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// How often the bytes of a program are held: as it was decoded, and compiled.
const FORMS: usize = 2;

/// See the file's comment.
pub struct BoundProgram {
    prepared: Arc<Prepared>,
    table: Arc<Table>,
    budget: Budget,
    plan: OnceLock<Plan>,
    bytes: usize,
    columns: BTreeSet<usize>,
}

impl BoundProgram {
    /// What of `program` runs over `table` at `version` within `budget`.
    ///
    /// # Errors
    /// As [`crate::prepare`].
    pub fn prepare(program: &Program, table: Arc<Table>, version: Version, budget: Budget) -> Result<Self> {
        let (prepared, plan) = prepare_within(program, &table, version, budget)?;
        let (bytes, columns) = (FORMS * prepared.effective.check_size()?, prepared.effective.columns());
        let plan = plan.map(OnceLock::from).unwrap_or_default();
        Ok(BoundProgram { prepared: Arc::new(prepared), table, budget, plan, bytes, columns })
    }

    /// The answers, and the program that runs.
    pub fn prepared(&self) -> &Arc<Prepared> {
        &self.prepared
    }

    /// The version of the table that it reads.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Within which it runs.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Bytes that it takes, from above.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The columns that it reads.
    pub(crate) fn columns(&self) -> &BTreeSet<usize> {
        &self.columns
    }

    /// Parts of its expressions, at most.
    pub(crate) fn parts(&self) -> usize {
        self.bytes / FORMS / limits::EXPR_NODE_BYTES
    }

    /// Narrows the program to the rows for which `conditions` hold as well. These only thin out what comes, so the
    /// answers stay.
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
        })
    }

    /// The compiled program.
    ///
    /// # Errors
    /// `Invalid` when the program does not fit the table.
    pub(crate) fn plan(&self) -> Result<Plan> {
        if let Some(plan) = self.plan.get() {
            return Ok(plan.clone());
        }
        // Of two threads that come here at once, one works in vain.
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
