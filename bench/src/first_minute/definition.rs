//! The definition of the benchmark suite `first-minute`, read from `bench/definitions/first-minute.toml` (the fields
//! are explained there).

use super::frames::FramesDefinition;
use serde::{Deserialize, Serialize};

/// The definition of the suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub runs: usize,
    pub rivals: Vec<String>,
    pub files: Vec<FileDefinition>,
    pub cases: Vec<Case>,
    pub written: Written,
    pub frames: FramesDefinition,
}

/// A file that is queried.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileDefinition {
    pub name: String,
    pub format: Format,
    pub scale: f64,
}

/// The format in which a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    Parquet,
    Csv,
}

/// A statement and its goals.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub name: String,
    pub sql: String,
    pub out: Option<String>,
    /// Names of the files over which the case is run; all files if empty.
    #[serde(default)]
    pub files: Vec<String>,
    parquet: Option<f64>,
    csv: Option<f64>,
}

/// A query over files that a case has written, for comparison.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Written {
    pub sql: String,
}

impl Case {
    /// Returns whether the case reads a file at all.
    pub fn reads(&self) -> bool {
        self.sql.contains("{file}")
    }

    /// Returns whether the case is run over `file`.
    pub fn takes(&self, file: &FileDefinition) -> bool {
        self.reads() && (self.files.is_empty() || self.files.contains(&file.name))
    }

    /// Returns the goal: the maximal ratio of farpool's time to the fastest rival's.
    pub fn at_most(&self, format: Format) -> Option<f64> {
        match format {
            Format::Parquet => self.parquet,
            Format::Csv => self.csv,
        }
    }
}

impl Format {
    /// Returns the extension of file names of this format.
    pub fn ending(self) -> &'static str {
        match self {
            Format::Parquet => "parquet",
            Format::Csv => "csv",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Definition;
    use crate::places;
    use crate::rival::RivalDefinition;

    #[test]
    fn cases_name_files_and_rivals_that_there_are() {
        for is_quick in [false, true] {
            let definition: Definition =
                places::definition_for("first-minute", is_quick, None).expect("it can be read");
            for case in &definition.cases {
                let is_whole = |name: &String| definition.files.iter().any(|file| file.name == *name);
                assert!(is_quick || case.files.iter().all(is_whole));
                assert!(!case.reads() || definition.files.iter().any(|file| case.takes(file)));
                assert_eq!(case.out.is_some(), case.sql.contains("{out}"), "{}", case.name);
            }
            definition.rivals.iter().for_each(|name| assert!(RivalDefinition::named(name).is_ok()));
        }
    }
}
