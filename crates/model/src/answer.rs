//! What a node says about each operator of a program before it runs it (Ibex, section 5: hybrid execution).

use crate::{Error, Expr, Program, Result, Version};
use arrow_schema::SchemaRef;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How far an operator is carried out at the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// Completely: the host need not look again.
    Exact,
    /// A filter that lets all right rows pass and perhaps others: the host must apply it again. A grouping
    /// that may give several rows for a group: the host must merge them ([`crate::partial`]).
    Superset,
    /// Not at all: the host must do it.
    Refused,
}

/// A kind of operator of a program, as answers name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operator {
    /// Reads columns of the table.
    Scan,
    /// Drops rows.
    Filter,
    /// Computes columns.
    Project,
    /// Aggregates all rows into one.
    Aggregate,
    /// Aggregates the rows of each group.
    Group,
    /// Gives each combination of keys once.
    Distinct,
    /// Cuts off after a number of rows.
    Limit,
    /// Keeps the first rows in an order.
    TopK,
    /// The whole program. A node never answers for it; an engine does when it decides against pushing.
    Program,
}

impl Operator {
    /// Every operator.
    pub const ALL: [Operator; 9] = [
        Operator::Scan,
        Operator::Filter,
        Operator::Project,
        Operator::Aggregate,
        Operator::Group,
        Operator::Distinct,
        Operator::Limit,
        Operator::TopK,
        Operator::Program,
    ];

    /// The name that a person and the wire give it.
    pub fn name(self) -> &'static str {
        match self {
            Operator::Scan => "scan",
            Operator::Filter => "filter",
            Operator::Project => "project",
            Operator::Aggregate => "aggregate",
            Operator::Group => "group",
            Operator::Distinct => "distinct",
            Operator::Limit => "limit",
            Operator::TopK => "top-k",
            Operator::Program => "program",
        }
    }

    /// Whether it makes one row of several.
    pub fn folds_rows(self) -> bool {
        self.is_grouping() || self == Operator::Aggregate
    }

    /// Whether it makes one row of each group of rows.
    pub fn is_grouping(self) -> bool {
        matches!(self, Operator::Group | Operator::Distinct)
    }

    /// Whether it comes last and lets only some of the rows through.
    pub fn cuts_rows(self) -> bool {
        matches!(self, Operator::Limit | Operator::TopK)
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Operator {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Operator::ALL.into_iter().find(|operator| operator.name() == text);
        found.ok_or_else(|| Error::corrupt(format!("there is no operator {text:?}")))
    }
}

/// The answer for one operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorAnswer {
    /// The operator.
    #[serde(rename = "name")]
    pub operator: Operator,
    /// What it works on, as SQL would write it.
    pub detail: String,
    /// How far it is carried out.
    pub answer: Answer,
    /// Why it is not `exact`.
    pub reason: Option<String>,
}

/// A program as the node will run it.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    /// The version of the table that was looked at.
    pub version: Version,
    /// The answers, in the order in which the operators run.
    pub answers: Vec<OperatorAnswer>,
    /// What runs: the program that was asked for, less what was refused. Where an aggregation was refused
    /// it gives the columns that the host needs to do it, under their own names; where it is `superset`, it
    /// is in the [`crate::PartialForm`].
    pub effective: Program,
    /// The schema of the effective program's result.
    pub schema: SchemaRef,
}

impl Prepared {
    /// Whether everything that was asked for is done at the node.
    pub fn is_exact(&self) -> bool {
        self.answers.iter().all(|a| a.answer == Answer::Exact)
    }

    /// The program that runs, on the version that was looked at, with `conditions` beside its filter.
    #[must_use]
    pub fn narrowed(&self, conditions: Option<&Expr>) -> Program {
        let parts = self.effective.filter.iter().chain(conditions).flat_map(|expr| match expr {
            Expr::And(parts) => parts.clone(),
            other => vec![other.clone()],
        });
        let filter = Expr::all(parts.collect());
        Program { filter, version: Some(self.version), ..self.effective.clone() }
    }

    /// Whether the result may have several rows for a group, which the host has to merge.
    pub fn is_partial(&self) -> bool {
        self.answers.iter().any(|a| a.answer == Answer::Superset && a.operator.is_grouping())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_is_found_by_its_name() {
        for operator in Operator::ALL {
            assert_eq!(operator.name().parse::<Operator>().unwrap(), operator);
        }
        assert_eq!("sort".parse::<Operator>().unwrap_err().kind, crate::ErrorKind::Corrupt);
        assert_eq!(format!("{:<8}|", Operator::TopK), "top-k   |");
    }
}
