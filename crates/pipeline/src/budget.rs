//! The memory budget of an execution, and the handling of groupings whose groups may exceed it (Woods et al., *Ibex*,
//! PVLDB 2014, sections 4 to 6).
//!
//! Invariant: a grouping without lookups is answered `exact` only if the zone maps prove that its groups fit the budget,
//! whatever the number of workers. Other groupings are answered `superset` and never fail for lack of memory: groups
//! that do not fit are returned early, as partial results. A grouping is refused if its sketches or moments may not fit.
//!
//! Parts of some groupings would be of no use: of those of a lookup's program, and of those behind lookups with a condition
//! on groups or a limit, which could not be applied before the parts are merged. They are answered `exact`, and the run
//! ends with an error if their groups exceed their memory ([`Overflow::Error`]).
//!
//! Example: a group key has 5,000 distinct values according to its zone maps, and the budget has room for 1,000 groups.
//! The answer is `superset`: several result rows may have the same group key, and the host must merge them.

use crate::joined::Row;
use crate::prepare::{prepare, raw_columns};
use arrow_schema::SchemaRef;
use farpool_columns::Table;
use farpool_model::{
    Aggregate, Answer, Columns, NamedExpr, Output, PartialForm, Prepared, Program, Result, Version, brief,
    limits,
};
use farpool_operators::{HashKey, Memory, Plan};

/// Consequence of groups that exceed their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// There is none: the program has no groups, or they are sure to fit.
    Never,
    /// Groups are returned early, as partial results that the host merges.
    Parts,
    /// The run ends with an error, after which the host groups the rows itself.
    Error,
}

/// A program that was prepared within a budget.
pub(crate) struct Bounded {
    pub prepared: Prepared,
    pub overflow: Overflow,
    /// The compiled plan of a program without lookups, if compiling was needed to decide what fits.
    pub plan: Option<Plan>,
}

impl Bounded {
    /// Creates a program without groups, or whose groups come in parts or are refused.
    fn without_whole_groups(prepared: Prepared) -> Bounded {
        let overflow = if prepared.is_partial() { Overflow::Parts } else { Overflow::Never };
        Bounded { prepared, overflow, plan: None }
    }
}

/// Resources that one execution of a program may use.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Maximum number of bytes for the groups of all threads together.
    pub state_bytes_max: usize,
    /// Expected number of threads that execute the program.
    pub workers: usize,
    /// Secret key of the hash function for hash tables of groups. Must be unpredictable where untrusted clients choose
    /// the grouping values; otherwise they could force collisions (hash flooding).
    pub hash_key: HashKey,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { state_bytes_max: limits::GROUP_BYTES_MAX, workers: 1, hash_key: HashKey::default() }
    }
}

impl Budget {
    /// Converts the budget to the form that operators take.
    pub(crate) fn memory(self) -> Memory {
        Memory { bytes_max: self.state_bytes_max, workers: self.workers, hash_key: self.hash_key }
    }

    /// Returns the bytes for the groups of each of `states` operator states.
    pub(crate) fn share(self, states: usize) -> usize {
        self.state_bytes_max / states.max(self.workers).max(1)
    }

    /// Returns the bytes for the groups of each of `states` operator states, if those that are merged at the same time
    /// have as many.
    pub(crate) fn share_with_merging(self, states: usize) -> usize {
        self.state_bytes_max / (states.max(self.workers).max(1) + 1)
    }
}

/// Prepares `program` for `table` at `version` within `budget`. Groups that are not sure to fit are treated by
/// `overflow`.
///
/// # Errors
/// Errors of [`prepare`].
pub(crate) fn prepare_within(
    program: &Program,
    table: &Table,
    version: Version,
    budget: Budget,
    overflow: Overflow,
) -> Result<Bounded> {
    let prepared = prepare(program, Columns::new(&table.schema, &table.statistics), version)?;
    let Output::Aggregate { keys, aggregates } = &prepared.effective.output else {
        return Ok(Bounded::without_whole_groups(prepared));
    };
    let plan = Plan::compile(&prepared.effective, table, budget.memory())?;
    if let Some(overflow) = whole_overflow(keys, aggregates, &plan, budget, overflow) {
        return Ok(Bounded { prepared: with_way(prepared, &plan, table)?, overflow, plan: Some(plan) });
    }
    in_parts(program, prepared, &plan, &table.schema, budget).map(Bounded::without_whole_groups)
}

/// Prepares `program`, whose lookups give the rows `row`, at `version` within `budget`. Groups that are not sure to fit
/// are treated by `overflow`.
///
/// # Errors
/// Errors of [`prepare`].
pub(crate) fn prepare_rows_within(
    program: &Program,
    row: &Row,
    version: Version,
    budget: Budget,
    overflow: Overflow,
) -> Result<Bounded> {
    let prepared = prepare(program, row.columns(), version)?;
    let Output::Aggregate { keys, aggregates } = &prepared.effective.output else {
        return Ok(Bounded::without_whole_groups(prepared));
    };
    let plan = row.compile(&prepared.effective, budget)?;
    if let Some(overflow) = whole_overflow(keys, aggregates, &plan, budget, overflow) {
        return Ok(Bounded { prepared, overflow, plan: None });
    }
    in_parts(program, prepared, &plan, &row.schema, budget).map(Bounded::without_whole_groups)
}

/// Returns the consequence of too many groups if each group is returned once; `None` if they come in parts or are
/// refused. `unproven` is the wanted consequence for groups that are not sure to fit.
fn whole_overflow(
    keys: &[NamedExpr],
    aggregates: &[Aggregate],
    plan: &Plan,
    budget: Budget,
    unproven: Overflow,
) -> Option<Overflow> {
    if is_small(keys, aggregates) || plan.fits(budget.memory()) {
        return Some(Overflow::Never);
    }
    // Groups are counted after each batch, whose new sketches must fit in any case.
    let is_counted = !keys.is_empty() && plan.partial_states_fit(budget.memory());
    (is_counted && unproven == Overflow::Error).then_some(Overflow::Error)
}

/// Returns whether an aggregation has a single group, without sketches.
fn is_small(keys: &[NamedExpr], aggregates: &[Aggregate]) -> bool {
    keys.is_empty() && !aggregates.iter().any(|a| a.function.is_state())
}

/// Appends to the answer of the aggregation, which EXPLAIN shows, the implementation that it uses and the reason.
///
/// # Errors
/// Fails only on a bug in the operators.
fn with_way(mut prepared: Prepared, plan: &Plan, table: &Table) -> Result<Prepared> {
    let mut answers = prepared.answers.iter_mut();
    let aggregation = answers.find(|answer| answer.operator.folds_rows());
    let groups = table.row_groups.iter().map(|group| &**group);
    if let (Some(answer), Some(way)) = (aggregation, plan.way(groups)?) {
        answer.detail = brief(format_args!("{} [{way}]", answer.detail));
    }
    Ok(prepared)
}

/// Returns the answers to a program with a grouping whose groups may not fit the budget: the grouping returns partial
/// results, or is refused.
fn in_parts(
    program: &Program,
    prepared: Prepared,
    plan: &Plan,
    schema: &SchemaRef,
    budget: Budget,
) -> Result<Prepared> {
    let Output::Aggregate { keys, aggregates } = &prepared.effective.output else { return Ok(prepared) };
    let mebibytes = budget.state_bytes_max.div_ceil(1 << 20);
    if keys.is_empty() || !plan.partial_states_fit(budget.memory()) {
        let reason = format!("its states may not fit {mebibytes} MiB");
        return refused(program, &prepared, &reason, schema);
    }
    let form = PartialForm::of(aggregates, schema)?;
    let reason = format!("its groups may not fit {mebibytes} MiB");
    let output = Output::Aggregate { keys: keys.clone(), aggregates: form.aggregates };
    let effective =
        Program { output, having: None, order: Vec::new(), limit: None, ..prepared.effective.clone() };
    // The partial result of a mean is two columns, so that there may be more columns than a program may have.
    match effective.result_schema(schema) {
        Ok(_) if plan.partial_sums_fit() => weakened(&prepared, effective, Answer::Superset, &reason, schema),
        _ => {
            let reason = format!("{reason}, and its sums in parts may not fit 38 digits");
            refused(program, &prepared, &reason, schema)
        }
    }
}

/// Refuses the grouping: the effective program returns the columns that the host needs to group the rows itself.
fn refused(program: &Program, prepared: &Prepared, reason: &str, schema: &SchemaRef) -> Result<Prepared> {
    let output = raw_columns(program, schema);
    let effective =
        Program { output, having: None, order: Vec::new(), limit: None, ..prepared.effective.clone() };
    weakened(prepared, effective, Answer::Refused, reason, schema)
}

/// Replaces the answer of the grouping by `answer`, which is not `exact`, and refuses the limit or top-k after it.
fn weakened(
    prepared: &Prepared,
    effective: Program,
    answer: Answer,
    reason: &str,
    rows: &SchemaRef,
) -> Result<Prepared> {
    let mut answers = prepared.answers.clone();
    for operator in &mut answers {
        let (answer, reason) = match operator.operator {
            folds if folds.folds_rows() => (answer, reason),
            cuts if cuts.cuts_rows() => (Answer::Refused, "it comes after an operator that the host does"),
            _ => continue,
        };
        (operator.answer, operator.reason) = (answer, Some(reason.to_string()));
    }
    let schema = effective.result_schema(rows)?;
    Ok(Prepared { version: prepared.version, answers, effective, schema })
}

#[cfg(test)]
mod tests;
