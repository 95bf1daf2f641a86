//! Compares the results of a suite of queries with its goals. A missed goal is reported and does not fail the run.

use super::definition::{Goal, Measure};
use super::results::Results;
use crate::suite::Bound;
use serde::Serialize;

/// A goal and its outcome.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    pub goal: Goal,
    /// The measured value; `None` if a side did not take part.
    pub measured: Option<f64>,
    /// Whether the bound holds; `None` if nothing was measured.
    pub met: Option<bool>,
}

/// Compares the results with all goals.
pub fn check(goals: &[Goal], results: &Results) -> Vec<Checked> {
    let checked = goals.iter().map(|goal| {
        let measured = measured(goal, results);
        let bounds = [goal.at_most.map(Bound::AtMost), goal.at_least.map(Bound::AtLeast)];
        let holds = |value: f64| bounds.iter().flatten().all(|bound| bound.is_met(value) == Some(true));
        Checked { goal: goal.clone(), measured, met: measured.map(holds) }
    });
    checked.collect()
}

fn measured(goal: &Goal, results: &Results) -> Option<f64> {
    let both = |value: &dyn Fn(&str) -> Option<f64>| {
        Some((value(goal.of.as_deref()?)?, value(goal.against.as_deref()?)?))
    };
    let medians = || both(&|side| results.median(goal.query.as_deref()?, side));
    match goal.measure {
        Measure::Total => both(&|side| results.total(side)).map(|(of, against)| of / against),
        Measure::Mean => results.mean(goal.of.as_deref()?, goal.against.as_deref()?),
        Measure::Query => medians().map(|(of, against)| of / against),
        Measure::ExtraMs => medians().map(|(of, against)| of - against),
        Measure::Wire => {
            let wire =
                |side: &str| Some(results.side(goal.query.as_deref()?, side)?.receipt.bytes_on_wire as f64);
            both(&wire).map(|(of, against)| of / against.max(1.0))
        }
        Measure::Load => Some(results.loading.gb_s_per_core(results.loading.profiled)),
        Measure::Encode => Some(results.loading.gb_s_per_core(results.loading.encoded)),
        Measure::Size => Some(results.loading.size_ratio()),
    }
}
