//! Splits the text of a script, or input at the prompt, into statements and commands of the shell. A command is a line
//! that begins with `.` or `\` at a position where a statement could begin.

use farpool::{PieceKind, Statement, is_whole_sql, split_statements, sql_pieces};
use std::ops::Range;

/// An item of a script.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A statement of SQL.
    Statement(Statement),
    /// A command of the shell: its line, without surrounding white space.
    Command(String),
}

/// Words that are commands if they are the only word of the input, as in psql.
const WORDS: [&str; 3] = ["quit", "exit", "help"];

/// Returns the items of `text`.
///
/// # Errors
/// `Invalid` with the position, if the text does not consist of SQL tokens.
pub fn items(text: &str) -> farpool::Result<Vec<Item>> {
    if let Some(word) = lone_word(text) {
        return Ok(vec![Item::Command(format!(".{word}"))]);
    }
    let mut items = Vec::new();
    let mut begin = 0;
    loop {
        let rest = &text[begin..];
        let command = command_line(rest);
        let sql = command.as_ref().map_or(rest, |command| &rest[..command.start]);
        let line = 1 + text[..begin].matches('\n').count();
        for mut statement in split_statements(sql)? {
            statement.line += farpool::model::cast::u64_from(line - 1);
            items.push(Item::Statement(statement));
        }
        let Some(command) = command else { return Ok(items) };
        items.push(Item::Command(rest[command.clone()].trim().to_string()));
        begin += command.end;
    }
}

/// Returns whether the input is complete, so that it can be executed without reading another line.
pub fn is_whole(text: &str) -> bool {
    let mut rest = text;
    while let Some(command) = command_line(rest) {
        rest = &rest[command.end..];
    }
    lone_word(text).is_some() || is_whole_sql(rest)
}

fn lone_word(text: &str) -> Option<&'static str> {
    let text = text.trim().trim_end_matches(';').trim_end();
    WORDS.into_iter().find(|word| word.eq_ignore_ascii_case(text))
}

/// Returns the range of the first line that is a command; `None` if there is none.
fn command_line(text: &str) -> Option<Range<usize>> {
    let mut is_begin = true;
    for piece in sql_pieces(text) {
        let start = piece.range.start;
        let begins_line = || text[..start].rsplit('\n').next().is_some_and(|before| before.trim().is_empty());
        if is_begin && text[piece.range].starts_with(['.', '\\']) && begins_line() {
            let end = text[start..].find('\n').map_or(text.len(), |end| start + end + 1);
            return Some(start..end);
        }
        match piece.kind {
            PieceKind::Comment => {}
            kind => is_begin = kind == PieceKind::Semicolon,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let show = |item| match item {
            Item::Statement(Statement { text, line, .. }) => format!("{line}: {text}"),
            Item::Command(line) => line,
        };
        items(text).unwrap().into_iter().map(show).collect()
    }

    #[test]
    fn commands_are_lines_where_a_statement_could_begin() {
        assert_eq!(shown("select 1; .mode"), ["1: select 1", "1: .mode"]);
        let script = ".mode csv\n-- first\nselect\n.5;\n  \\d it's; \n select ';\n.mode' ; select 2\n";
        assert_eq!(
            shown(script),
            [".mode csv", "3: select\n.5", "\\d it's;", "6: select ';\n.mode'", "7: select 2"]
        );
        assert_eq!(shown("quit"), [".quit"]);
        assert_eq!(shown(" Exit ;"), [".exit"]);
        assert_eq!(shown("\\x"), ["\\x"]);
        assert_eq!(shown(""), [""; 0]);
        assert!(items("select 'open").is_err());
    }

    #[test]
    fn a_line_is_whole_when_nothing_is_missing() {
        for whole in ["", ".mode", "\\d x", ".read it's", "select 1;", "help", ".mode csv\nselect 1;", "-- x"]
        {
            assert!(is_whole(whole), "{whole}");
        }
        for part in ["select 1", "select 1;\nselect", "select '\n.mode csv", "helpx", ".mode csv\nselect 1"] {
            assert!(!is_whole(part), "{part}");
        }
    }
}
