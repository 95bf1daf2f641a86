//! What a node says about each operator of a program before it runs it (Ibex, section 5: hybrid execution).

use crate::{Expr, Program, Version};
use arrow_schema::SchemaRef;
use serde::{Deserialize, Serialize};

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

/// The answer for one operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorAnswer {
    /// The operator: `scan`, `filter`, `project`, `aggregate`, `group`, `distinct`, `limit`, `top-k`.
    pub name: String,
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
        let merges = |a: &OperatorAnswer| {
            a.answer == Answer::Superset && matches!(a.name.as_str(), "group" | "distinct")
        };
        self.answers.iter().any(merges)
    }
}
