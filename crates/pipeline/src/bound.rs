//! A prepared program (the pushed-down part of a query over one table) bound to the table version for which it
//! was prepared. Handles of prepared statements refer to it.
//!
//! Invariant: the program is compiled only once, at its first execution, or when it is prepared if the answers (which
//! operators the node can execute) depend on the compiled plan. When conditions are added for one execution, only the
//! conditions are compiled.

use crate::budget::{Bounded, Budget, Overflow, prepare_rows_within, prepare_within};
use crate::joined::{Joined, Row};
use crate::prepare::{lookup_answers, scan_detail};
use farpool_columns::{LiveRows, Table};
use farpool_model::{Answer, Error, Expr, Facts, Prepared, Program, Result, Version, limits, program};
use farpool_operators::Plan;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Number of copies of the program in memory: decoded, and compiled.
const FORMS: usize = 2;

/// A prepared program with its table version, budget, and plan.
pub struct BoundProgram {
    prepared: Arc<Prepared>,
    table: Arc<Table>,
    budget: Budget,
    overflow: Overflow,
    plan: OnceLock<Plan>,
    bytes: usize,
    columns: BTreeSet<usize>,
    /// The lookups of the program, and the stages in which it is carried out; `None` without lookups.
    joined: Option<Arc<Joined>>,
    /// Conditions that were added to the program by [`BoundProgram::narrowed`].
    conditions: Option<Expr>,
}

/// A program over a live table (whose rows are generated when they are read), without the conjuncts of its filter
/// that the source of the rows applies itself.
pub(crate) struct Filtered {
    pub rows: Arc<dyn LiveRows>,
    /// Plan with the remaining conjuncts of the filter.
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
        BoundProgram::of_table(program, table, version, budget, Overflow::Parts)
    }

    /// Prepares `program`, which may have lookups, for `table` at `version` within `budget`. `sides` are the programs of the
    /// lookups, prepared for their own tables.
    ///
    /// # Errors
    /// Errors of [`BoundProgram::prepare`]; `Invalid` or `OverLimit`, naming what is wrong with a lookup, or if the
    /// program of a lookup is not carried out whole.
    pub fn prepare_joined(
        program: &Program,
        table: Arc<Table>,
        version: Version,
        budget: Budget,
        sides: Vec<Arc<BoundProgram>>,
    ) -> Result<Self> {
        if program.lookups.is_empty() && sides.is_empty() {
            return BoundProgram::prepare(program, table, version, budget);
        }
        // A condition and a limit can be applied to whole groups only.
        let has_limit = program.limit.is_some() && !program.top_is_too_large();
        let overflow = if program.having.is_some() || has_limit { Overflow::Error } else { Overflow::Parts };
        BoundProgram::of_rows(program, table, version, budget, sides, overflow)
    }

    /// Prepares the program of a lookup, as [`BoundProgram::prepare_joined`] does. Since the result must be complete and
    /// have each group once, a run ends with `OverLimit` when its groups exceed their memory.
    ///
    /// # Errors
    /// Errors of [`BoundProgram::prepare_joined`].
    pub fn prepare_side(
        program: &Program,
        table: Arc<Table>,
        version: Version,
        budget: Budget,
        sides: Vec<Arc<BoundProgram>>,
    ) -> Result<Self> {
        if program.lookups.is_empty() && sides.is_empty() {
            return BoundProgram::of_table(program, table, version, budget, Overflow::Error);
        }
        BoundProgram::of_rows(program, table, version, budget, sides, Overflow::Error)
    }

    /// Prepares a program without lookups.
    fn of_table(
        program: &Program,
        table: Arc<Table>,
        version: Version,
        budget: Budget,
        overflow: Overflow,
    ) -> Result<Self> {
        if !program.lookups.is_empty() {
            return Err(Error::internal("a program with lookups is prepared with the programs of these"));
        }
        let Bounded { prepared, overflow, plan } =
            prepare_within(program, &table, version, budget, overflow)?;
        let (bytes, columns) = (FORMS * prepared.effective.check_size()?, prepared.effective.columns());
        let plan = plan.map(OnceLock::from).unwrap_or_default();
        Ok(BoundProgram {
            prepared: Arc::new(prepared),
            table,
            budget,
            overflow,
            plan,
            bytes,
            columns,
            joined: None,
            conditions: None,
        })
    }

    /// Prepares a program with lookups.
    fn of_rows(
        program: &Program,
        table: Arc<Table>,
        version: Version,
        budget: Budget,
        sides: Vec<Arc<BoundProgram>>,
        overflow: Overflow,
    ) -> Result<Self> {
        let row = Row::of(program, &table, &sides)?;
        let Bounded { mut prepared, overflow, .. } =
            prepare_rows_within(program, &row, version, budget, overflow)?;
        pin_versions(&mut prepared.effective, &sides);
        let lookups = lookup_answers(program, &row.schema, &sides);
        // Lookups come behind the scan, which is the first answer.
        drop(prepared.answers.splice(1..1, lookups));
        let of_sides: usize = sides.iter().map(|side| side.bytes).sum();
        // Grouped by fewer keys, it is compiled twice.
        let bytes = (FORMS + 1) * prepared.effective.check_size()?
            + of_sides
            + FORMS * lookup_bytes(&prepared.effective)?
            + row.bytes();
        let joined = Joined::new(&prepared.effective, &table, &row, sides, budget)?;
        if let Some(scan) = prepared.answers.first_mut() {
            scan.detail = scan_detail(&joined.scan, &table.schema);
        }
        let columns = joined.scan.columns();
        Ok(BoundProgram {
            prepared: Arc::new(prepared),
            table,
            budget,
            overflow,
            plan: OnceLock::new(),
            bytes,
            columns,
            joined: Some(Arc::new(joined)),
            conditions: None,
        })
    }

    /// Returns the lookups of the program, and its stages; `None` without lookups.
    pub(crate) fn joined(&self) -> Option<&Arc<Joined>> {
        self.joined.as_ref()
    }

    /// Returns this program, or that of one of its lookups, in lookups of lookups too, for which `is_wanted` returns true;
    /// `None` if there is none.
    pub fn find(&self, is_wanted: &dyn Fn(&BoundProgram) -> bool) -> Option<&BoundProgram> {
        if is_wanted(self) {
            return Some(self);
        }
        self.joined.iter().flat_map(|joined| &joined.sides).find_map(|side| side.find(is_wanted))
    }

    /// Returns why an operator of the program is not carried out completely; `None` if all are.
    pub(crate) fn refusal(&self) -> Option<String> {
        let answer = self.prepared.answers.iter().find(|answer| answer.answer != Answer::Exact)?;
        Some(answer.reason.clone().unwrap_or_else(|| answer.operator.name().to_string()))
    }

    /// Returns the prepared program: the answer for each operator, and the effective program, which is executed
    /// instead.
    pub fn prepared(&self) -> &Arc<Prepared> {
        &self.prepared
    }

    /// Returns the table version that the program reads.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Returns the memory budget of an execution.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Returns the consequence of groups that exceed their memory.
    pub(crate) fn overflow(&self) -> Overflow {
        self.overflow
    }

    /// Returns an upper bound of the bytes of memory that the program takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if conditions were added to the program.
    pub(crate) fn is_narrowed(&self) -> bool {
        self.conditions.is_some()
    }

    /// Returns the conditions that were added to the program.
    pub(crate) fn conditions(&self) -> Option<&Expr> {
        self.conditions.as_ref()
    }

    /// Returns the columns that the program reads.
    pub(crate) fn columns(&self) -> &BTreeSet<usize> {
        &self.columns
    }

    /// Returns the program without the conjuncts of its filter that the source of the rows applies itself; `None` if
    /// there are no such conjuncts or the table is not live.
    ///
    /// # Errors
    /// Errors of [`BoundProgram::plan`].
    pub(crate) fn filtered(&self) -> Result<Option<Filtered>> {
        let Some(rows) = self.table.live_rows().filter(|_| self.joined.is_none()) else { return Ok(None) };
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

    /// Returns an upper bound of the number of expression nodes in the program.
    pub(crate) fn parts(&self) -> usize {
        self.bytes / FORMS / limits::EXPR_NODE_BYTES
    }

    /// Returns the program for the rows that also satisfy `conditions`. The answers (which operators the node
    /// executes) stay the same, because conditions only remove rows.
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
            overflow: self.overflow,
            plan: OnceLock::from(self.plan()?.narrowed(conditions, &self.table.schema)?),
            bytes: self.bytes + FORMS * bytes,
            columns,
            joined: self.joined.clone(),
            conditions: Expr::all(self.conditions.iter().chain([conditions]).cloned().collect()),
        })
    }

    /// Returns the compiled program; with lookups, that of its scan. Compiles it if this was not done before.
    ///
    /// # Errors
    /// `Invalid` when the program does not fit the table.
    pub(crate) fn plan(&self) -> Result<Plan> {
        if let Some(plan) = self.plan.get() {
            return Ok(plan.clone());
        }
        // Two threads may compile at the same time; the second result is dropped.
        let program = self.joined.as_ref().map_or(&self.prepared.effective, |joined| &joined.scan);
        let plan = Plan::compile(program, &self.table, self.budget.memory())?;
        Ok(self.plan.get_or_init(|| plan).clone())
    }
}

/// Returns the bytes of the lookups of a program, in lookups of lookups too, of which the program has copies. Does not
/// recurse.
///
/// # Errors
/// `OverLimit` if an expression of them is too large.
fn lookup_bytes(program: &Program) -> Result<usize> {
    let (mut bytes, mut open) = (0, program.lookups.iter().collect::<Vec<_>>());
    while let Some(lookup) = open.pop() {
        let given = lookup.given.as_ref().map_or(0, |given| given.bytes());
        bytes += lookup.program.check_size()? + program::check_size(&lookup.residual)? + given;
        open.extend(&lookup.program.lookups);
    }
    Ok(bytes)
}

/// Makes the lookups of a program name the versions of their tables that were bound, so that the program means the same
/// when it is sent again. Moments of keyspaces are not named, because none can be read a second time; rows that came along
/// with the program have no version.
fn pin_versions(program: &mut Program, sides: &[Arc<BoundProgram>]) {
    for (lookup, side) in program.lookups.iter_mut().zip(sides) {
        lookup.program = side.prepared.effective.clone();
        lookup.program.version =
            Some(side.prepared.version).filter(|version| !version.is_moment() && lookup.given.is_none());
    }
}

impl fmt::Debug for BoundProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundProgram").field("program", &self.prepared.effective).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
