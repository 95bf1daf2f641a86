//! Names in statements: tells names of files from those of tables, and finds similar names for advice about names that
//! do not exist.

use datafusion::common::utils::datafusion_strsim::levenshtein;
use farpool_model::Error;
use std::collections::HashSet;

/// Maximum number of names that the advice lists if none is similar.
const NAMES_SHOWN_MAX: usize = 12;

/// Returns whether `wanted` may be a misspelling of `name`.
pub fn are_close(wanted: &str, name: &str) -> bool {
    levenshtein(&wanted.to_lowercase(), &name.to_lowercase()) * 2 <= wanted.chars().count()
}

/// Adds advice to an error: the names in `known` that are similar to `wanted`; if there are none, the first few names.
pub fn advise(error: Error, wanted: &str, known: &[&str]) -> Error {
    let wanted = wanted.to_lowercase();
    let distance = |name: &str| levenshtein(&wanted, &name.to_lowercase());
    let close = |name: &&str| are_close(&wanted, name);
    let mut alike: Vec<&str> = known.iter().copied().filter(close).collect();
    alike.sort_by_key(|name| distance(name));
    alike.dedup();
    alike.truncate(3);
    if !alike.is_empty() {
        return error.advise(format!("did you mean {}?", alike.join(" or ")));
    }
    if known.is_empty() {
        return error;
    }
    let mut seen = HashSet::new();
    let known: Vec<&str> = known.iter().copied().filter(|name| seen.insert(*name)).collect();
    let mut shown = known.iter().take(NAMES_SHOWN_MAX).copied().collect::<Vec<_>>().join(", ");
    if known.len() > NAMES_SHOWN_MAX {
        shown.push_str(", …");
    }
    error.advise(format!("there are: {shown}"))
}

/// Returns whether `name` refers to a file: a path, a pattern of paths, or a call of a file reader. Names of tables
/// have no directory, extension or wildcard.
pub fn names_a_file(name: &str) -> bool {
    name.contains(['/', '.', '*', '\\']) || crate::dialect::is_call(name)
}
