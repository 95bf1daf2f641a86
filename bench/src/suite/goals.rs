//! Goals of the suites. A goal that is missed is reported and does not fail the run.

use super::Table;
use serde::{Serialize, Serializer};
use std::fmt::{Display, Formatter};

/// A bound of a measured value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    /// Returns whether a value keeps the bound; `None` if nothing was measured.
    pub fn is_met(self, measured: impl Into<Option<f64>>) -> Option<bool> {
        measured.into().map(|measured| match self {
            Bound::AtLeast(least) => measured >= least,
            Bound::AtMost(most) => measured <= most,
        })
    }
}

impl Display for Bound {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Bound::AtLeast(bound) | Bound::AtMost(bound) if bound.is_nan() => write!(out, "-"),
            Bound::AtLeast(least) => write!(out, ">= {least:.2}"),
            Bound::AtMost(most) => write!(out, "<= {most:.2}"),
        }
    }
}

impl Serialize for Bound {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// A goal and its outcome.
#[derive(Clone, Debug, Serialize)]
struct Goal {
    what: String,
    goal: Bound,
    /// `None` if it was not measured.
    measured: Option<f64>,
    is_met: Option<bool>,
}

/// The goals of a suite, in the order of the report.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Goals(Vec<Goal>);

impl Goals {
    /// Adds a goal with a lower bound.
    pub fn at_least(&mut self, what: String, least: f64, measured: impl Into<Option<f64>>) {
        self.add(what, Bound::AtLeast(least), measured.into());
    }

    /// Adds a goal with an upper bound.
    pub fn at_most(&mut self, what: String, most: f64, measured: impl Into<Option<f64>>) {
        self.add(what, Bound::AtMost(most), measured.into());
    }

    fn add(&mut self, what: String, goal: Bound, measured: Option<f64>) {
        self.0.push(Goal { what, goal, measured, is_met: goal.is_met(measured) });
    }

    /// Returns whether there are no goals.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the table of the goals.
    pub fn table(&self) -> String {
        let table = Table::of(&self.0)
            .column("", |goal| &goal.what)
            .column("goal", |goal| goal.goal)
            .number("measured", 2, |goal| goal.measured)
            .met(|goal| goal.is_met);
        table.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::Bound;

    #[test]
    fn a_goal_is_met_missed_or_not_measured() {
        let (least, most) = (Bound::AtLeast(2.0), Bound::AtMost(2.0));
        assert_eq!((least.is_met(2.0), least.is_met(1.9)), (Some(true), Some(false)));
        assert_eq!((most.is_met(2.0), most.is_met(2.1), most.is_met(None)), (Some(true), Some(false), None));
        assert_eq!((least.to_string(), most.to_string()), (">= 2.00".to_string(), "<= 2.00".to_string()));
    }
}
