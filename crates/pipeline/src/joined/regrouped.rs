//! Grouping by fewer columns than a program says: columns of a lookup with unique keys are determined by its join keys.
//! Rows are grouped by the others, and what these determine is looked up for each group ([`Completion`]), not for each row
//! (Yan and Larson, *Eager aggregation and lazy aggregation*, VLDB 1995: functional dependencies of group keys).
//!
//! Example: of the customers' keys, names and addresses only the keys are looked up for each line item, and grouped.
//!
//! Conditions, for a key that is left out: it is a column that a lookup adds, which finds one row at most, by join keys
//! alone; and these join keys are known from the keys that are left. That the lookup's keys are unique is known once its
//! table is built.

use super::{ColumnForm, Row, forms, reads};
use crate::budget::Budget;
use farpool_model::{Lookup, LookupKind, Output, Program, Result};
use farpool_operators::{Completion, LookupTable, Origin, Plan};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum number of group keys that are looked at. Reason: each is compared with what all others determine.
const KEYS_MAX: usize = 64;

/// A program that groups by fewer keys, and how its groups are completed.
pub(crate) struct Regrouped {
    /// Plan of the upper stage, with fewer keys.
    upper: Plan,
    /// For each lookup, the columns of its rows that are read behind it.
    pub reads: Vec<BTreeSet<usize>>,
    /// For each column behind the lookups, how the upper stage reads it.
    pub forms: Vec<ColumnForm>,
    steps: Vec<Step>,
    keys: Vec<Origin>,
    keys_grouped: usize,
}

/// A step of the completion: a lookup, and its join keys.
struct Step {
    lookup: usize,
    keys: Vec<Origin>,
}

/// Knowledge of a row that follows from some of its columns.
struct Known {
    /// The origin of each column, at the index that [`Dependencies::same`] has for it; `None` if the column is not known.
    origins: Vec<Option<Origin>>,
    /// The lookups by which it is known.
    steps: Vec<Step>,
}

/// The lookups of a program, and which columns of the rows behind them are the same.
struct Dependencies<'a> {
    lookups: &'a [Lookup],
    /// For each lookup, the columns that it adds: the first one, and how many.
    added: Vec<(usize, usize)>,
    /// For each column the first one that has the same value in every row: the join key of an inner lookup for the equal
    /// column of its table, and other columns themselves.
    same: Vec<usize>,
}

impl Regrouped {
    /// Returns how the program `upper`, over `row` behind `lookups`, groups by fewer keys; `None` if it does not aggregate, or
    /// no key depends on others. `added` are for each lookup the columns that it adds: the first one, and how many.
    ///
    /// # Errors
    /// Errors of [`Plan::compile_rows`].
    pub fn of(
        upper: &Program,
        row: &Row,
        lookups: &[Lookup],
        added: Vec<(usize, usize)>,
        budget: Budget,
    ) -> Result<Option<Regrouped>> {
        let Output::Aggregate { keys, aggregates } = &upper.output else { return Ok(None) };
        // Equal floats may be 0.0 and -0.0, of which the result has to have the right one.
        let is_float = |column: usize| row.schema.field(column).data_type().is_floating();
        if lookups.iter().flat_map(|lookup| &lookup.keys).any(|key| is_float(key.row)) {
            return Ok(None);
        }
        let columns: Vec<Option<usize>> = keys.iter().map(|key| key.expr.as_column()).collect();
        if keys.len() > KEYS_MAX {
            return Ok(None);
        }
        let dependencies = Dependencies::of(lookups, added, row.schema.fields().len());
        // A group key has 0.0 for -0.0, and the column of a lookup may not.
        let left = dependencies.fewest(&columns, |column| !is_float(column));
        if left.len() == keys.len() {
            return Ok(None);
        }
        let Known { origins, steps } = dependencies.known_from(left.iter().map(|place| columns[*place]));
        let origin = |(place, column): (usize, &Option<usize>)| match left.iter().position(|l| *l == place) {
            Some(group) => Some(Origin::Group(group)),
            None => origins[dependencies.same[(*column)?]],
        };
        let Some(mut completed) = columns.iter().enumerate().map(origin).collect::<Option<Vec<Origin>>>()
        else {
            return Ok(None);
        };
        let steps = only_needed(steps, &mut completed);
        let output = Output::Aggregate {
            keys: left.iter().map(|place| keys[*place].clone()).collect(),
            aggregates: aggregates.clone(),
        };
        // Groups are filtered and cut when they are complete, since what decides may be looked up.
        let upper = Program { output, having: None, order: Vec::new(), limit: None, ..upper.clone() };
        Ok(Some(Regrouped {
            reads: reads(&upper, lookups),
            forms: forms(&upper, &row.schema),
            upper: row.compile(&upper, budget)?,
            steps,
            keys: completed,
            keys_grouped: left.len(),
        }))
    }

    /// Returns the plan that groups by fewer keys, and completes the groups to those of `whole`, given the tables of all
    /// lookups; `None` if the keys of a lookup are not unique, or it has long strings.
    pub fn plan(&self, whole: &Plan, tables: &[Arc<LookupTable>]) -> Option<(Plan, Arc<Completion>)> {
        if !self.steps.iter().all(|step| tables[step.lookup].is_unique()) {
            return None;
        }
        let steps = self.steps.iter().map(|step| (tables[step.lookup].clone(), step.keys.clone()));
        let (keys, schema) = (self.keys.clone(), whole.schema().clone());
        let completion = Arc::new(Completion::new(steps.collect(), keys, self.keys_grouped, schema)?);
        Some((self.upper.completed(whole, completion.clone())?, completion))
    }
}

/// Returns the steps that the origins of `keys` need, and renumbers the origins.
fn only_needed(steps: Vec<Step>, keys: &mut [Origin]) -> Vec<Step> {
    let mut is_needed = vec![false; steps.len()];
    let mut open: Vec<Origin> = keys.to_vec();
    while let Some(origin) = open.pop() {
        if let Origin::LookedUp { step, .. } = origin
            && !std::mem::replace(&mut is_needed[step], true)
        {
            open.extend(&steps[step].keys);
        }
    }
    let renumber = |origin: &mut Origin| {
        if let Origin::LookedUp { step, .. } = origin {
            *step = is_needed[..*step].iter().filter(|is_needed| **is_needed).count();
        }
    };
    keys.iter_mut().for_each(renumber);
    let needed = steps.into_iter().zip(&is_needed).filter(|(_, is_needed)| **is_needed);
    let renumbered = |(mut step, _): (Step, _)| {
        step.keys.iter_mut().for_each(renumber);
        step
    };
    needed.map(renumbered).collect()
}

impl<'a> Dependencies<'a> {
    /// Returns the dependencies between rows of `width` columns; `added` as in [`Regrouped::of`].
    fn of(lookups: &'a [Lookup], added: Vec<(usize, usize)>, width: usize) -> Dependencies<'a> {
        let mut same: Vec<usize> = (0..width).collect();
        for (lookup, (first, count)) in lookups.iter().zip(&added) {
            // Join keys are columns before those that their lookup adds.
            let keys =
                lookup.keys.iter().filter(|key| lookup.kind == LookupKind::Inner && key.result < *count);
            keys.for_each(|key| same[first + key.result] = same[key.row]);
        }
        Dependencies { lookups, added, same }
    }

    /// Returns the indexes of the keys that are left: those that do not follow from others. `columns` are the columns that the
    /// keys are; only those for which `may_go` returns true are left out.
    fn fewest(&self, columns: &[Option<usize>], may_go: impl Fn(usize) -> bool) -> Vec<usize> {
        let mut left: Vec<usize> = (0..columns.len()).collect();
        // What later lookups add depends on what earlier ones do, rather than the other way round.
        for place in (0..columns.len()).rev() {
            let Some(column) = columns[place].filter(|column| may_go(*column)) else { continue };
            let others = left.iter().filter(|other| **other != place).map(|other| columns[*other]);
            let known = self.known_from(others);
            if matches!(known.origins[self.same[column]], Some(Origin::LookedUp { .. })) {
                left.retain(|other| *other != place);
            }
        }
        left
    }

    /// Returns what is known from these keys; `None` stands for a key that is no column.
    fn known_from(&self, keys: impl Iterator<Item = Option<usize>>) -> Known {
        let mut origins: Vec<Option<Origin>> = vec![None; self.same.len()];
        for (group, column) in keys.enumerate() {
            if let Some(column) = column {
                origins[self.same[column]].get_or_insert(Origin::Group(group));
            }
        }
        let mut steps: Vec<Step> = Vec::new();
        for (place, lookup) in self.lookups.iter().enumerate() {
            if !matches!(lookup.kind, LookupKind::Inner | LookupKind::Left) || lookup.residual.is_some() {
                continue;
            }
            let keys = lookup.keys.iter().map(|key| origins[self.same[key.row]]);
            let Some(keys) = keys.collect::<Option<Vec<Origin>>>() else { continue };
            let (first, count) = self.added[place];
            for column in 0..count {
                let origin = Origin::LookedUp { step: steps.len(), column };
                origins[self.same[first + column]].get_or_insert(origin);
            }
            steps.push(Step { lookup: place, keys });
        }
        Known { origins, steps }
    }
}
