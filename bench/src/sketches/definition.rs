//! The definition of the benchmark suite `sketches`, read from `bench/definitions/sketches.toml` (the fields are
//! explained there).

use crate::parameters;
use farpool::model::SketchParameters;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The definition of the suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub runs: usize,
    pub threads: Vec<usize>,
    pub rows: usize,
    pub rows_slow: usize,
    pub rivals: Vec<String>,
    pub columns: Vec<Column>,
    pub cases: Vec<Case>,
}

/// A column of 32-bit integers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    pub name: String,
    pub skew: Option<f64>,
}

/// A set of sketches that are computed together, with its goals.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub name: String,
    #[serde(deserialize_with = "parameters::read")]
    pub parameters: SketchParameters,
    pub at_least: f64,
    /// Statements of the rivals, by dialect.
    #[serde(default)]
    pub statements: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::Definition;
    use crate::{places, rival::RivalDefinition};

    #[test]
    fn cases_are_sketches_and_rivals_have_statements() {
        let definition: Definition = places::definition("sketches").expect("it can be read");
        for rival in &definition.rivals {
            let dialects = RivalDefinition::named(rival).expect("it is defined").dialects;
            let known =
                |dialect: &String| definition.cases.iter().any(|c| c.statements.contains_key(dialect));
            assert!(dialects.iter().any(known), "{rival}");
        }
    }
}
