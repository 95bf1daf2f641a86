//! `testdata/slt/skip.toml`: tests that are not run, or are known to fail, with reasons.

use super::package;
use serde::Deserialize;

/// The contents of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skip {
    /// Tables that do not exist here.
    #[serde(default)]
    pub tables: Vec<AbsentTables>,
    /// Files that are not run.
    #[serde(default)]
    pub files: Vec<SkippedFile>,
    /// Single records that are run but need not pass.
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

/// A file, or with a `*` at the end all files whose paths begin with it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkippedFile {
    pub path: String,
    #[expect(dead_code, reason = "for the reader of the list; must be there")]
    pub reason: String,
}

/// Records of a file, by the line where they start.
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
    /// Reads the list.
    pub fn read() -> Skip {
        let path = package::list("skip.toml");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        toml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// Returns whether a file is not run.
    pub fn file(&self, path: &str) -> bool {
        self.files.iter().any(|skipped| match skipped.path.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => path == skipped.path,
        })
    }

    /// Returns the entry of a record, if it is listed.
    pub fn record(&self, file: &str, line: u32) -> Option<&FailingRecords> {
        self.records.iter().find(|entry| entry.file == file && entry.lines.contains(&line))
    }
}
