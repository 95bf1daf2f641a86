//! Statements of a script for psql.

/// Splits a script at its semicolons, without comments and lines that are commands of psql. Rows of a `COPY` are a part of
/// its statement.
pub fn statements(script: &str) -> Vec<String> {
    let (mut all, mut text) = (Vec::new(), String::new());
    let mut lines = script.lines();
    while let Some(line) = lines.next() {
        let is_copy = line.to_lowercase().starts_with("copy ") && line.to_lowercase().contains(" from stdin");
        if is_copy {
            all.append(&mut at_semicolons(&std::mem::take(&mut text)));
            let rows: String =
                lines.by_ref().take_while(|row| *row != "\\.").map(|row| format!("{row}\n")).collect();
            all.push(format!("{line}\n{rows}\\."));
        } else if !line.trim_start().starts_with('\\') {
            text.push_str(line);
            text.push('\n');
        }
    }
    all.append(&mut at_semicolons(&text));
    all
}

fn at_semicolons(text: &str) -> Vec<String> {
    let (mut all, mut statement, mut rest) = (Vec::new(), String::new(), text);
    while let Some(first) = rest.chars().next() {
        let token = token(rest, first);
        match first {
            ';' => all.push(std::mem::take(&mut statement)),
            '-' | '/' if token > 1 => statement.push(' '),
            _ => statement.push_str(&rest[..token]),
        }
        rest = &rest[token..];
    }
    let statements = all.into_iter().map(|statement| without_session(statement.trim()));
    statements.filter(|statement| !statement.is_empty()).collect()
}

/// Makes a table of a session one of the database, which each file has for itself.
fn without_session(statement: &str) -> String {
    let head: Vec<&str> = statement.splitn(3, ' ').collect();
    match head.as_slice() {
        [create, temporary, rest]
            if create.eq_ignore_ascii_case("create")
                && ["temp", "temporary"].contains(&temporary.to_lowercase().as_str()) =>
        {
            format!("{create} {rest}")
        }
        _ => statement.to_string(),
    }
}

/// Returns the bytes of the comment, the quoted text or the character at the start.
fn token(rest: &str, first: char) -> usize {
    let until =
        |end: &str, from: usize| rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len());
    match first {
        '-' if rest.starts_with("--") => until("\n", 2),
        '/' if rest.starts_with("/*") => comment(rest),
        '\'' => until("'", 1),
        'e' | 'E' if rest[1..].starts_with('\'') => escaped(rest),
        '"' => until("\"", 1),
        '$' => {
            let tag = rest[1..].find('$').map(|end| &rest[..end + 2]);
            match tag.filter(|tag| tag[1..tag.len() - 1].chars().all(|c| c.is_alphanumeric() || c == '_')) {
                Some(tag) => until(tag, tag.len()),
                None => 1,
            }
        }
        _ => first.len_utf8(),
    }
}

/// Returns the bytes of a text with escapes (`E'…'`).
fn escaped(rest: &str) -> usize {
    let mut at = 2;
    while let Some(found) = rest[at..].find(['\'', '\\']) {
        at += found + 1;
        match rest.as_bytes()[at - 1] {
            // The character behind a backslash may have several bytes.
            b'\\' => at += rest[at..].chars().next().map_or(0, char::len_utf8),
            _ => return at,
        }
    }
    rest.len()
}

/// Returns the bytes of a comment, which may have comments within.
fn comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest.as_bytes()[at..(at + 2).min(rest.len())] {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" if depth == 1 => return at + 2,
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    rest.len()
}

/// Returns whether a statement gives rows that are compared.
pub fn is_query(statement: &str) -> bool {
    let word: String = statement.trim_start_matches('(').chars().take_while(|c| c.is_alphabetic()).collect();
    ["select", "values", "with", "table"].contains(&word.to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semicolons_in_quotes_and_comments_end_nothing() {
        let script = "select 'a;''b'; -- no; \n\\set x 1\nselect \"c;d\" /* e; /* f; */ g */ from t;\n\
                      do $$ begin; end $$;\nvalues ($1, E'\\';');";
        let all = statements(script);
        let expected =
            ["select 'a;''b'", "select \"c;d\"   from t", "do $$ begin; end $$", "values ($1, E'\\';')"];
        assert_eq!(all, expected);
        assert_eq!(
            statements("create temp table t (a int);\nCOPY t FROM stdin;\n1;\n\\.\nx;"),
            ["create table t (a int)", "COPY t FROM stdin;\n1;\n\\.", "x"]
        );
        assert!(is_query("(SELECT 1)") && is_query("with x as (select 1) table x") && !is_query("selection"));
    }
}
