//! Doc comments must begin with a noun or a verb, and file names must say what the file contains.
//!
//! A comment that begins with `What` or `Those` refers to something that the reader does not know yet. The rule is
//! textual: it reads the first word of each block of `///` or `//!` lines, and the name of each file.

use super::source::source_files;
use std::path::Path;

/// Folders whose files are checked.
const FOLDERS: &[&str] = &["bench", "bindings", "crates", "sim", "xtask"];

/// Words that a doc comment must not begin with.
const OPENINGS: &[&str] = &[
    "How", "It", "Its", "Of", "Such", "That", "These", "They", "Those", "What", "Where", "Which", "Who",
    "Whose",
];

/// File names that fit any content.
const VAGUE_NAMES: &[&str] = &[
    "absorb", "common", "company", "helper", "helpers", "homes", "keeper", "lobby", "made", "misc", "pulse",
    "stuff", "things", "used", "util", "utils", "warm",
];

/// Files and folders that keep one of [`VAGUE_NAMES`], with the reason.
const NAMED_VAGUELY: &[(&str, &str)] =
    &[("crates/node/tests/common/mod.rs", "Cargo's name for what several tests share")];

/// Returns the violations of both rules, one line each.
pub fn violations(root: &Path) -> Result<Vec<String>, String> {
    let mut wrong = Vec::new();
    for folder in FOLDERS {
        for file in source_files(root, folder)? {
            wrong.extend(opening_violations(&file.path, &file.text));
            if !NAMED_VAGUELY.iter().any(|(path, _)| *path == file.path) {
                wrong.extend(name_violation(&file.path));
            }
        }
    }
    Ok(wrong)
}

/// Returns the doc comments of a file that begin with one of [`OPENINGS`].
fn opening_violations(path: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut marker_before = None;
    for (index, line) in text.lines().enumerate() {
        let comment = doc_comment(line);
        let marker = comment.map(|(marker, _)| marker);
        if let Some((_, text)) = comment.filter(|_| marker != marker_before)
            && let word = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default()
            && OPENINGS.contains(&word)
        {
            let number = index + 1;
            wrong.push(format!(
                "{path}:{number}: {text:?} begins with {word:?}: begin with a noun, or with a verb as in \"Returns\""
            ));
        }
        marker_before = marker;
    }
    wrong
}

/// Splits a line that is a doc comment into its marker and its text.
fn doc_comment(line: &str) -> Option<(&str, &str)> {
    let (marker, text) = line.trim().split_at_checked(3)?;
    (matches!(marker, "///" | "//!") && !text.starts_with('/')).then_some((marker, text.trim()))
}

/// Returns the violation of a file, or of the folder of a `mod.rs`, that has one of [`VAGUE_NAMES`].
fn name_violation(path: &str) -> Option<String> {
    let name = path.strip_suffix("/mod.rs").or(path.strip_suffix(".rs"))?.rsplit('/').next()?;
    VAGUE_NAMES
        .contains(&name)
        .then(|| format!("{path}: {name:?} fits any content: name the file after what it has"))
}

#[test]
fn openings_and_vague_names_are_reported() {
    let bad = "//! What it is.\n//! Where it lies.\n\n/// Those.\nfn f() {}\n    /// It's new.\n//// Of none.\n// How.\n";
    let found = opening_violations("crates/a/src/b.rs", bad);
    let starts = ["crates/a/src/b.rs:1: ", "crates/a/src/b.rs:4: ", "crates/a/src/b.rs:6: "];
    assert!(
        found.len() == 3 && starts.iter().zip(&found).all(|(start, line)| line.starts_with(start)),
        "{found:?}"
    );
    let good = "//! Italic words.\n/// Returns it.\n/// What follows is not the first line.\n";
    assert!(opening_violations("crates/a/src/b.rs", good).is_empty());
    let names = [
        "crates/a/src/utils.rs",
        "crates/a/src/misc/mod.rs",
        "crates/a/src/used_pages.rs",
        "crates/a/src/mod.rs",
    ];
    let vague: Vec<bool> = names.into_iter().map(|path| name_violation(path).is_some()).collect();
    assert_eq!(vague, [true, true, false, false]);
}
