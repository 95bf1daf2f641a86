//! `testdata/slt/skip.toml`: tests that are not run, or are known to fail, with reasons.

use super::package;
use serde::Deserialize;

/// The contents of `testdata/slt/skip.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skip {
    /// Tables that the tests expect and that do not exist here.
    #[serde(default)]
    pub tables: Vec<AbsentTables>,
    /// Test files that are not run.
    #[serde(default)]
    pub files: Vec<SkippedFile>,
    /// Single records (statements and queries of a test file) that are run but need not pass.
    #[serde(default)]
    pub records: Vec<FailingRecords>,
}

/// Tables that the tests expect and that do not exist here.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AbsentTables {
    pub names: Vec<String>,
    #[expect(dead_code, reason = "for the reader of the list; must be there")]
    pub reason: String,
}

/// A test file, or all files whose paths begin with the text before a final `*`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkippedFile {
    pub path: String,
    #[expect(dead_code, reason = "for the reader of the list; must be there")]
    pub reason: String,
}

/// Records of a test file, by the lines where they start.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailingRecords {
    pub file: String,
    pub lines: Vec<u32>,
    #[expect(dead_code, reason = "for the reader of the list; must be there")]
    pub reason: String,
    /// Whether the records may also pass, because SQL leaves their result undefined (for example, a LIMIT without ORDER
    /// BY).
    #[serde(default)]
    pub may_pass: bool,
}

impl Skip {
    /// Reads `testdata/slt/skip.toml`.
    pub fn read() -> Skip {
        let path = package::list("skip.toml");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        toml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// Returns whether a test file is not run.
    pub fn file(&self, path: &str) -> bool {
        self.files.iter().any(|skipped| match skipped.path.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => path == skipped.path,
        })
    }

    /// Returns the entry of the record that starts at this line; `None` if it is not listed.
    pub fn record(&self, file: &str, line: u32) -> Option<&FailingRecords> {
        self.records.iter().find(|entry| entry.file == file && entry.lines.contains(&line))
    }
}
