//! The suite as data: `bench/definitions/first-minute.toml`, which explains the fields.

use super::frames::FramesDefinition;
use serde::{Deserialize, Serialize};

/// The suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub runs: usize,
    pub rivals: Vec<String>,
    pub quick: Quick,
    pub files: Vec<FileDefinition>,
    pub cases: Vec<Case>,
    pub written: Written,
    pub frames: FramesDefinition,
}

/// The settings of `--quick`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    runs: usize,
    scale: f64,
    /// Divisor of the rows and statements of the part about Python.
    frames_part: u64,
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

impl Definition {
    /// Applies the settings of `--quick`, with one file of each format.
    pub fn shrink_to_quick(&mut self) {
        self.runs = self.quick.runs;
        self.frames.runs = self.quick.runs;
        for count in [&mut self.frames.numbers, &mut self.frames.strings, &mut self.frames.loops] {
            *count /= self.quick.frames_part;
        }
        let mut seen = Vec::new();
        self.files.retain(|file| {
            let is_new = !seen.contains(&file.format);
            seen.push(file.format);
            is_new
        });
        self.files.iter_mut().for_each(|file| file.scale = self.quick.scale);
    }
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
        let definition: Definition = places::definition("first-minute").expect("it can be read");
        for case in &definition.cases {
            assert!(case.files.iter().all(|name| definition.files.iter().any(|file| file.name == *name)));
            assert_eq!(case.out.is_some(), case.sql.contains("{out}"), "{}", case.name);
        }
        definition.rivals.iter().for_each(|name| assert!(RivalDefinition::named(name).is_ok()));
        let mut quick = definition.clone();
        quick.shrink_to_quick();
        let has_file = |case: &super::Case| !case.reads() || quick.files.iter().any(|file| case.takes(file));
        assert!(quick.cases.iter().all(has_file));
    }
}
