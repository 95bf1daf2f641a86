//! Reads the source files for the rules, and separates code from comments and tests.

use std::path::{Path, PathBuf};

/// A source file of the tree.
pub struct SourceFile {
    /// Path relative to the root, with `/` between folders.
    pub path: String,
    /// The whole text of the file.
    pub text: String,
}

impl SourceFile {
    /// Returns the lines without comments. A `//` within a string is taken for a comment, which does not matter to any
    /// rule.
    pub fn code(&self) -> impl Iterator<Item = &str> {
        self.text.lines().map(|line| line.split("//").next().unwrap_or_default())
    }

    /// Returns the lines of code before a module of tests at the end of the file; no lines if the whole file consists
    /// of tests.
    pub fn code_without_tests(&self) -> impl Iterator<Item = &str> {
        let is_test = self.path.contains("/tests/") || self.path.ends_with("/tests.rs");
        let end =
            if is_test { 0 } else { self.text.find("#[cfg(test)]\nmod tests {").unwrap_or(self.text.len()) };
        self.text[..end].lines().map(|line| line.split("//").next().unwrap_or_default())
    }
}

/// Returns whether a line contains `word` as a whole word, not as part of a longer name.
pub fn has_word(line: &str, word: &str) -> bool {
    let continues = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(continues) && !line[at + word.len()..].starts_with(continues))
}

/// Returns the Rust files below a folder of the tree, sorted by path; no files if the folder does not exist.
pub fn source_files(root: &Path, folder: &str) -> Result<Vec<SourceFile>, String> {
    let read = |file: PathBuf| {
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let path = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().replace('\\', "/");
        Ok(SourceFile { path, text })
    };
    rust_files(&root.join(folder))?.into_iter().map(read).collect()
}

fn rust_files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(files) };
    for entry in entries {
        let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
        if path.is_dir() && !path.ends_with("target") {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
