//! The keywords that the shell completes and highlights: those that are commonly used. The parser knows hundreds more,
//! many of which occur just as often as names of columns.

/// Keywords, in order.
pub const KEYWORDS: &[&str] = &[
    "ADD",
    "ALL",
    "ALTER",
    "ANALYZE",
    "AND",
    "ANTI",
    "ANY",
    "AS",
    "ASC",
    "ASOF",
    "BETWEEN",
    "BIGINT",
    "BOOLEAN",
    "BY",
    "CASE",
    "CAST",
    "COLLATE",
    "COLUMN",
    "COPY",
    "CREATE",
    "CROSS",
    "CUBE",
    "CURRENT",
    "DATE",
    "DECIMAL",
    "DELETE",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "DOUBLE",
    "DROP",
    "ELSE",
    "END",
    "EXCEPT",
    "EXCLUDE",
    "EXISTS",
    "EXPLAIN",
    "EXTERNAL",
    "EXTRACT",
    "FALSE",
    "FETCH",
    "FILTER",
    "FIRST",
    "FOLLOWING",
    "FROM",
    "FULL",
    "GROUP",
    "GROUPING",
    "HAVING",
    "IF",
    "ILIKE",
    "IN",
    "INNER",
    "INSERT",
    "INTEGER",
    "INTERSECT",
    "INTERVAL",
    "INTO",
    "IS",
    "JOIN",
    "LAST",
    "LATERAL",
    "LEFT",
    "LIKE",
    "LIMIT",
    "NATURAL",
    "NOT",
    "NULL",
    "NULLS",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "OUTER",
    "OVER",
    "PARTITION",
    "PIVOT",
    "PRECEDING",
    "QUALIFY",
    "RANGE",
    "RECURSIVE",
    "RENAME",
    "REPLACE",
    "RIGHT",
    "ROLLUP",
    "ROW",
    "ROWS",
    "SELECT",
    "SEMI",
    "SET",
    "SETS",
    "SHOW",
    "SMALLINT",
    "SUMMARIZE",
    "TABLE",
    "TABLES",
    "TEMPORARY",
    "THEN",
    "TIMESTAMP",
    "TO",
    "TRUE",
    "TRUNCATE",
    "UNBOUNDED",
    "UNION",
    "UNPIVOT",
    "UPDATE",
    "USING",
    "VALUES",
    "VARCHAR",
    "VIEW",
    "WHEN",
    "WHERE",
    "WINDOW",
    "WITH",
    "WITHIN",
];

/// Keywords that a statement may begin with, in order.
pub const STARTERS: [&str; 16] = [
    "ALTER",
    "COPY",
    "CREATE",
    "DELETE",
    "DESCRIBE",
    "DROP",
    "EXPLAIN",
    "FROM",
    "INSERT",
    "SELECT",
    "SHOW",
    "SUMMARIZE",
    "TRUNCATE",
    "UPDATE",
    "VALUES",
    "WITH",
];

/// Returns whether the word is a keyword, in any case.
pub fn is_keyword(word: &str) -> bool {
    KEYWORDS.binary_search(&word.to_ascii_uppercase().as_str()).is_ok()
}

/// Returns a name as written in SQL: in double quotes if they are needed.
pub fn quoted(name: &str) -> String {
    let mut letters = name.bytes();
    let is_plain = letters.next().is_some_and(|b| b.is_ascii_lowercase() || b == b'_')
        && letters.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        && !is_keyword(name);
    if is_plain { name.to_string() } else { in_quotes(name) }
}

/// Returns a name in double quotes.
pub fn in_quotes(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns the name that a text refers to: without its quotes, or in lower case if it has none.
pub fn unquoted(text: &str) -> String {
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote) {
            let twice = format!("{quote}{quote}");
            return inner.strip_suffix(quote).unwrap_or(inner).replace(&twice, &quote.to_string());
        }
    }
    text.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_where_sql_needs_it() {
        for (name, text) in
            [("trips", "trips"), ("Day", "\"Day\""), ("a\"b", "\"a\"\"b\""), ("order", "\"order\"")]
        {
            assert_eq!(quoted(name), text);
            assert_eq!(unquoted(text), name);
        }
        assert_eq!(unquoted("Trips"), "trips");
        assert_eq!(unquoted("'it''s.csv'"), "it's.csv");
    }

    #[test]
    fn words_are_in_order() {
        assert!(KEYWORDS.is_sorted() && STARTERS.is_sorted());
        assert!(STARTERS.iter().all(|word| is_keyword(&word.to_lowercase())));
        assert!(!is_keyword("fare"));
    }
}
