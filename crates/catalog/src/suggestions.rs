//! Suggestions for a table name that does not exist: the existing names closest to it.

use farpool_model::{SchemaName, TableName};

/// Maximum number of names that an error lists.
const NAMES_MAX: usize = 5;

/// Returns advice with the names among `known` that are closest to `wanted`, closest first.
pub(super) fn advice<'a>(wanted: &TableName, known: impl Iterator<Item = &'a TableName>) -> String {
    closest(wanted.as_str(), known.map(TableName::as_str))
        .unwrap_or_else(|| "there are no tables yet: load one first".to_string())
}

/// Returns advice as [`advice`] does, for schemas.
pub(super) fn schema_advice<'a>(wanted: &str, known: impl Iterator<Item = &'a str>) -> String {
    let close = closest(wanted, known.chain([SchemaName::PUBLIC])).unwrap_or_default();
    format!("create it with CREATE SCHEMA; {close}")
}

/// Returns the names among `known` that are closest to `wanted`, closest first; `None` without any.
fn closest<'a>(wanted: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut known: Vec<(usize, &str)> = known.map(|name| (distance(wanted, name), name)).collect();
    if known.is_empty() {
        return None;
    }
    known.sort_unstable();
    let more = known.len().saturating_sub(NAMES_MAX);
    let names: Vec<&str> = known.into_iter().take(NAMES_MAX).map(|(_, name)| name).collect();
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    Some(format!("there is: {}{more}", names.join(", ")))
}

/// Returns the Levenshtein distance, ignoring letter case.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, expected) in
            [("", "", 0), ("", "abc", 3), ("kitten", "sitting", 3), ("Orders", "orders", 0), ("ab", "ba", 2)]
        {
            assert_eq!(distance(a, b), expected, "{a} {b}");
            assert_eq!(distance(b, a), expected, "{b} {a}");
        }
    }

    #[test]
    fn at_most_five_names_closest_first() {
        let name = |n: &str| TableName::new(n).unwrap();
        let known: Vec<_> = ["lineitem", "orders", "part", "supplier", "nation", "region"].map(name).into();
        assert_eq!(
            advice(&name("order"), known.iter()),
            "there is: orders, part, nation, region, supplier, and 1 more"
        );
        assert_eq!(advice(&name("x"), [].iter()), "there are no tables yet: load one first");
    }
}
