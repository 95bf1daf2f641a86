//! Planning answers: what a node says about each operator of a program before it runs it (Woods et al., *Ibex*, PVLDB
//! 2014, section 5: hybrid execution). The *host* is the query engine at the client, which executes the rest.

use crate::{Error, Expr, Program, Result, Version};
use arrow_schema::SchemaRef;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Degree to which the node executes an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// Completely, so that the host need not apply the operator again.
    Exact,
    /// In part. A filter passes all matching rows and perhaps others, so that the host must apply it again. A grouping
    /// may return several rows per group, which the host must merge ([`crate::partial`]).
    Superset,
    /// Not at all; the host must apply the operator.
    Refused,
}

/// A kind of operator of a program, as named in answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operator {
    /// Reads columns of the table.
    Scan,
    /// Joins the rows with the result of another program.
    Lookup,
    /// Drops rows.
    Filter,
    /// Computes columns.
    Project,
    /// Aggregates all rows into one.
    Aggregate,
    /// Aggregates the rows of each group.
    Group,
    /// Returns each combination of group keys once (SELECT DISTINCT).
    Distinct,
    /// Drops groups.
    Having,
    /// Stops after a number of rows.
    Limit,
    /// Keeps the first rows of a sort order.
    TopK,
    /// The whole program. Nodes never give an answer for it; an engine uses it if it decides to push nothing down.
    Program,
}

impl Operator {
    /// Every operator.
    pub const ALL: [Operator; 11] = [
        Operator::Scan,
        Operator::Lookup,
        Operator::Filter,
        Operator::Project,
        Operator::Aggregate,
        Operator::Group,
        Operator::Distinct,
        Operator::Having,
        Operator::Limit,
        Operator::TopK,
        Operator::Program,
    ];

    /// Returns the operator's name, in output for people and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Operator::Scan => "scan",
            Operator::Lookup => "lookup",
            Operator::Filter => "filter",
            Operator::Project => "project",
            Operator::Aggregate => "aggregate",
            Operator::Group => "group",
            Operator::Distinct => "distinct",
            Operator::Having => "having",
            Operator::Limit => "limit",
            Operator::TopK => "top-k",
            Operator::Program => "program",
        }
    }

    /// Returns whether the operator aggregates several rows into one.
    pub fn folds_rows(self) -> bool {
        self.is_grouping() || self == Operator::Aggregate
    }

    /// Returns whether the operator returns one row per group.
    pub fn is_grouping(self) -> bool {
        matches!(self, Operator::Group | Operator::Distinct)
    }

    /// Returns whether the operator returns only some of the rows that the output before it has: a condition on groups, a
    /// limit or a top-k.
    pub fn cuts_rows(self) -> bool {
        matches!(self, Operator::Having | Operator::Limit | Operator::TopK)
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

/// The planning answer for one operator of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorAnswer {
    /// The operator.
    #[serde(rename = "name")]
    pub operator: Operator,
    /// The operator's argument, written as SQL.
    pub detail: String,
    /// Degree to which the node executes the operator.
    pub answer: Answer,
    /// Reason why the answer is not [`Answer::Exact`]; `None` if it is.
    pub reason: Option<String>,
}

/// The result of preparing a program: the planning answers, and the program that the node will run.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    /// The table version that the program was prepared for.
    pub version: Version,
    /// The answers, in the order in which the operators run.
    pub answers: Vec<OperatorAnswer>,
    /// The program that the node will run: the requested one without the refused operators. If an aggregation was
    /// refused, it returns the columns that the host needs to compute the aggregation, under their names in the table.
    /// If the answer for an aggregation is [`Answer::Superset`], it returns partial groups in the
    /// [`crate::PartialForm`].
    pub effective: Program,
    /// The schema of the effective program's result.
    pub schema: SchemaRef,
}

impl Prepared {
    /// Returns whether the node executes every operator completely.
    pub fn is_exact(&self) -> bool {
        self.answers.iter().all(|a| a.answer == Answer::Exact)
    }

    /// Returns the effective program for the prepared table version, with `conditions` added to its filter. An engine
    /// derives such conditions at run time, for example from the build side of a join.
    #[must_use]
    pub fn narrowed(&self, conditions: Option<&Expr>) -> Program {
        let parts = self.effective.filter.iter().chain(conditions).flat_map(|expr| match expr {
            Expr::And(parts) => parts.clone(),
            other => vec![other.clone()],
        });
        let filter = Expr::all(parts.collect());
        Program { filter, version: Some(self.version), ..self.effective.clone() }
    }

    /// Returns whether the result may have several rows per group, which the host must merge.
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
