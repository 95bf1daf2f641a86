//! Completion by Tab. Offers keywords at the beginning of a statement, tables after FROM, files in a string, and
//! elsewhere columns of the statement's tables, functions and keywords; also the commands of the shell.

use super::commands::{COMMANDS, Takes, described};
use super::words::{KEYWORDS, STARTERS, in_quotes, is_keyword, quoted, unquoted};
use crate::cli::output::Format;
use clap::ValueEnum;
use farpool::{Piece, PieceKind, sql_pieces};
use std::path::Path;

/// Maximum number of completions that are offered; a longer list would not help the user.
const MANY: usize = 500;

/// Maximum number of tables whose columns are offered if a statement names no table.
const TABLES_LOOKED_AT: usize = 50;

/// Functions that read files, which may be used in place of a table.
const READERS: [&str; 4] = ["read_csv", "read_json", "read_parquet", "read_arrow"];

/// Keywords that a table name follows.
const BEFORE_TABLES: [&str; 10] =
    ["DESC", "DESCRIBE", "FROM", "INTO", "JOIN", "SUMMARIZE", "TABLE", "TRUNCATE", "UPDATE", "VIEW"];

/// Provides names for completion.
pub trait Known {
    /// Tables and views.
    fn tables(&self) -> Vec<String>;

    /// Returns the columns of a table, a view or a file; none if there is no such relation.
    fn columns(&self, table: &str) -> Vec<String>;

    /// Functions.
    fn functions(&self) -> &[String];
}

/// A text that is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The text that is displayed.
    pub shown: String,
    /// The text that replaces the typed word.
    pub text: String,
}

impl Choice {
    fn of(text: impl Into<String>) -> Self {
        let text = text.into();
        Choice { shown: text.clone(), text }
    }
}

/// Returns the start of the word before offset `place`, and its possible completions.
pub fn complete(line: &str, place: usize, known: &dyn Known) -> (usize, Vec<Choice>) {
    let (start, mut choices) = match line.trim_start().starts_with(['.', '\\']) {
        true => of_command(&line[..place], known),
        false => of_statement(line, place, known),
    };
    choices.truncate(MANY);
    (start, choices)
}

fn of_command(before: &str, known: &dyn Known) -> (usize, Vec<Choice>) {
    let line = before.trim_start();
    let Some((name, _)) = line.split_once(char::is_whitespace) else {
        let all = COMMANDS.iter().flat_map(|command| command.names);
        return (before.len() - line.len(), beginning_with(line, all.map(|name| name.to_string())));
    };
    let start = before.rfind(char::is_whitespace).map_or(0, |space| space + 1);
    let word = &before[start..];
    let choices = match described(name).map(|command| command.takes) {
        Some(Takes::Command) => {
            let names = COMMANDS.iter().map(|command| command.names[0].to_string());
            beginning_with(word, names)
        }
        Some(Takes::Table) if word.starts_with('\'') => return (start, files(word, true)),
        Some(Takes::Table) => names(word, known.tables()),
        Some(Takes::Mode) => beginning_with(word, Format::value_variants().iter().map(|mode| mode.name())),
        Some(Takes::Switch) => beginning_with(word, ["on", "off"].map(str::to_string)),
        Some(Takes::File) => return (start, files(word, false)),
        Some(Takes::Nothing) | None => Vec::new(),
    };
    (start, choices)
}

fn of_statement(line: &str, place: usize, known: &dyn Known) -> (usize, Vec<Choice>) {
    let before = sql_pieces(&line[..place]);
    let text = |piece: &Piece| &line[piece.range.clone()];
    // The current statement, and the word before the cursor.
    let begin = before.iter().rposition(|piece| piece.kind == PieceKind::Semicolon).map_or(0, |i| i + 1);
    let mut pieces = &before[begin..];
    let (start, word) = match pieces.last() {
        Some(last) if last.kind == PieceKind::Open => {
            return match text(last).chars().next() {
                Some('\'') => (last.range.start, files(text(last), true)),
                Some('"') => (last.range.start, of_quoted(text(last), line, pieces, known)),
                _ => (place, Vec::new()),
            };
        }
        Some(last) if last.kind == PieceKind::Comment && !text(last).ends_with(['\n', '/']) => {
            return (place, Vec::new());
        }
        Some(last) if last.kind == PieceKind::Number && last.range.end == place => {
            return (place, Vec::new());
        }
        Some(last) if last.kind == PieceKind::Word && last.range.end == place => {
            pieces = &pieces[..pieces.len() - 1];
            (last.range.start, text(last))
        }
        _ => (place, ""),
    };
    let pieces: Vec<&Piece> = pieces.iter().filter(|piece| piece.kind != PieceKind::Comment).collect();
    let whole = sql_pieces(line);
    let relations = relations(line, &whole, place);
    if let [.., of, dot] = pieces[..]
        && text(dot) == "."
        && dot.range.end == start
    {
        let qualifier = unquoted(text(of));
        let table = relations.iter().find(|relation| relation.is_called(&qualifier));
        let table = table.map_or(qualifier.as_str(), |relation| relation.name.as_str());
        return (start, names(word, known.columns(table)));
    }
    let choices = match place_of(line, &pieces) {
        Place::Beginning => keywords(word, &STARTERS),
        Place::Table => {
            let readers = READERS.iter().map(|reader| format!("{reader}("));
            names(word, known.tables()).into_iter().chain(beginning_with(word, readers)).collect()
        }
        Place::Expression => expression(word, &relations, known),
    };
    (start, choices)
}

fn expression(word: &str, relations: &[Relation], known: &dyn Known) -> Vec<Choice> {
    let tables: Vec<String> = match relations {
        [] => known.tables().into_iter().take(TABLES_LOOKED_AT).collect(),
        some => some.iter().map(|relation| relation.name.clone()).collect(),
    };
    let mut columns: Vec<String> = tables.iter().flat_map(|table| known.columns(table)).collect();
    columns.sort_unstable();
    columns.dedup();
    let mut choices = names(word, columns);
    choices.extend(names(word, relations.iter().map(|relation| relation.alias.clone())));
    if !word.is_empty() {
        let functions = known.functions().iter().map(|function| format!("{function}("));
        choices.extend(beginning_with(word, functions));
        choices.extend(keywords(word, KEYWORDS));
    }
    choices
}

/// Completes names in double quotes, after the opening quote has been typed.
fn of_quoted(typed: &str, line: &str, before: &[Piece], known: &dyn Known) -> Vec<Choice> {
    let (_, before) = before.split_last().unwrap_or((&NOTHING, &[]));
    let before: Vec<&Piece> = before.iter().filter(|piece| piece.kind != PieceKind::Comment).collect();
    let pieces: Vec<Piece> = before.iter().map(|piece| (*piece).clone()).collect();
    let relations = relations(line, &pieces, line.len());
    let all = match place_of(line, &before) {
        Place::Table => known.tables(),
        Place::Beginning | Place::Expression if relations.is_empty() => {
            known.tables().iter().take(TABLES_LOOKED_AT).flat_map(|table| known.columns(table)).collect()
        }
        Place::Beginning | Place::Expression => {
            relations.iter().flat_map(|relation| known.columns(&relation.name)).collect()
        }
    };
    let typed = typed.trim_start_matches('"').to_lowercase();
    let mut found: Vec<String> =
        all.into_iter().filter(|name| name.to_lowercase().starts_with(&typed)).collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().map(|name| Choice { text: in_quotes(&name), shown: name }).collect()
}

const NOTHING: Piece = Piece { kind: PieceKind::Sign, range: 0..0 };

/// The kind of a position, which determines the possible completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Beginning,
    Table,
    Expression,
}

fn place_of(line: &str, before: &[&Piece]) -> Place {
    let text = |piece: &Piece| line[piece.range.clone()].to_ascii_uppercase();
    let Some(last) = before.last() else { return Place::Beginning };
    let is_before_tables = |word: &str| BEFORE_TABLES.contains(&word);
    let is_table = match last.kind {
        PieceKind::Word => is_before_tables(&text(last)),
        // A comma continues the list after FROM.
        PieceKind::Sign if text(last) == "," => {
            let clause = before.iter().rev().filter(|piece| piece.kind == PieceKind::Word).map(|p| text(p));
            let clauses = ["SELECT", "FROM", "WHERE", "BY", "ON", "SET", "VALUES", "HAVING", "USING"];
            clause
                .into_iter()
                .find(|word| clauses.contains(&word.as_str()))
                .is_some_and(|word| word == "FROM")
        }
        _ => false,
    };
    if is_table { Place::Table } else { Place::Expression }
}

/// A table that a statement names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Relation {
    name: String,
    /// The alias of the table in the statement.
    alias: String,
}

impl Relation {
    fn is_called(&self, name: &str) -> bool {
        self.alias.eq_ignore_ascii_case(name)
    }
}

/// Returns the tables of the statement around offset `place`.
fn relations(line: &str, pieces: &[Piece], place: usize) -> Vec<Relation> {
    let is_end = |piece: &&Piece| piece.kind == PieceKind::Semicolon;
    let before = |piece: &&Piece| piece.range.end <= place;
    let begin = pieces.iter().filter(is_end).rfind(before).map_or(0, |piece| piece.range.end);
    let end = pieces.iter().filter(is_end).find(|piece| piece.range.end > place);
    let end = end.map_or(line.len(), |piece| piece.range.start);
    let of_statement = |piece: &&Piece| piece.range.start >= begin && piece.range.end <= end;
    let pieces: Vec<&Piece> =
        pieces.iter().filter(of_statement).filter(|piece| piece.kind != PieceKind::Comment).collect();
    let text = |piece: &Piece| &line[piece.range.clone()];
    let mut found = Vec::new();
    for (i, piece) in pieces.iter().enumerate() {
        // A table whose name is still being typed does not count.
        let is_typed = |piece: &Piece| piece.range.end == place;
        let is_name = |piece: &Piece| match piece.kind {
            PieceKind::Word => !is_keyword(text(piece)),
            PieceKind::QuotedName | PieceKind::Text => true,
            _ => false,
        };
        if !is_name(piece) || is_typed(piece) || place_of(line, &pieces[..i]) != Place::Table {
            continue;
        }
        let name = unquoted(text(piece));
        let mut behind = pieces[i + 1..].iter().filter(|piece| !text(piece).eq_ignore_ascii_case("AS"));
        let alias =
            behind.next().filter(|next| next.kind != PieceKind::Text && is_name(next) && !is_typed(next));
        let alias = alias.map_or_else(|| name.clone(), |alias| unquoted(text(alias)));
        found.push(Relation { name, alias });
    }
    found
}

/// Offers names, in quotes if SQL requires them.
fn names(word: &str, names: impl IntoIterator<Item = String>) -> Vec<Choice> {
    let word = word.to_lowercase();
    let found = names.into_iter().filter(|name| name.to_lowercase().starts_with(&word));
    found.map(|name| Choice { text: quoted(&name), shown: name }).collect()
}

fn keywords(word: &str, all: &[&str]) -> Vec<Choice> {
    let upper = word.chars().all(|c| !c.is_lowercase()) && !word.is_empty();
    let cased = |keyword: &&str| if upper { keyword.to_string() } else { keyword.to_lowercase() };
    beginning_with(word, all.iter().map(cased))
}

fn beginning_with(word: &str, all: impl IntoIterator<Item = String>) -> Vec<Choice> {
    let word = word.to_lowercase();
    let found = all.into_iter().filter(|text| text.to_lowercase().starts_with(&word));
    found.map(Choice::of).collect()
}

/// Offers files whose path begins with the typed text. `in_quotes` says that the text is an SQL string.
fn files(typed: &str, in_quotes: bool) -> Vec<Choice> {
    let path = if in_quotes { typed.trim_start_matches('\'').replace("''", "'") } else { typed.to_string() };
    let (folder, begin) =
        path.rsplit_once('/').map_or(("", path.as_str()), |(folder, begin)| (folder, begin));
    let place = match (folder, path.starts_with('/')) {
        ("", true) => Path::new("/"),
        ("", false) => Path::new("."),
        (folder, _) => Path::new(folder),
    };
    let Ok(entries) = std::fs::read_dir(place) else { return Vec::new() };
    let mut choices = Vec::new();
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let is_hidden = name.starts_with('.') && !begin.starts_with('.');
        if is_hidden || !name.starts_with(begin) || name.contains(char::is_control) {
            continue;
        }
        let is_folder = entry.path().is_dir();
        let shown = if is_folder { format!("{name}/") } else { name };
        let whole = format!("{}{shown}", &path[..path.len() - begin.len()]);
        let text = match (in_quotes, is_folder) {
            (false, _) => whole,
            (true, true) => format!("'{}", whole.replace('\'', "''")),
            (true, false) => format!("'{}'", whole.replace('\'', "''")),
        };
        choices.push(Choice { shown, text });
    }
    choices.sort_unstable_by(|a, b| a.shown.cmp(&b.shown));
    choices
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Vec<String>);

    impl Known for Fixed {
        fn tables(&self) -> Vec<String> {
            ["trips", "Trip Notes", "cities"].map(str::to_string).into()
        }

        fn columns(&self, table: &str) -> Vec<String> {
            let columns: &[&str] = match table {
                "trips" => &["city", "fare", "Day"],
                "cities" => &["city", "country"],
                _ => &[],
            };
            columns.iter().map(|name| name.to_string()).collect()
        }

        fn functions(&self) -> &[String] {
            &self.0
        }
    }

    /// Returns the completions that are offered if the cursor is at the `|` in `line`, which is removed.
    fn offered(line: &str) -> Vec<String> {
        let place = line.find('|').unwrap();
        let known = Fixed(["count", "cos", "avg"].map(str::to_string).into());
        let (start, choices) = complete(&line.replace('|', ""), place, &known);
        assert!(start <= place);
        choices.into_iter().map(|choice| choice.text).collect()
    }

    #[test]
    fn what_is_offered_depends_on_the_place() {
        for (line, expected) in [
            ("sel|", vec!["select"]),
            ("SEL|", vec!["SELECT"]),
            ("select 1; sel|", vec!["select"]),
            ("select * from tr|", vec!["trips", "\"Trip Notes\""]),
            ("select * from trips, ci|", vec!["cities"]),
            ("select * from read_p|", vec!["read_parquet("]),
            ("\\d ci|", vec!["cities"]),
            ("describe ci|", vec!["cities"]),
            ("select co| from cities", vec!["country", "count(", "cos(", "collate", "column", "copy"]),
            ("select CO| from trips", vec!["count(", "cos(", "COLLATE", "COLUMN", "COPY"]),
            ("select d| from trips", vec!["\"Day\"", "date", "desc", "distinct"]),
            ("select t.f| from trips as t", vec!["fare"]),
            ("select t.| from trips t, cities c", vec!["city", "fare", "\"Day\""]),
            ("select c.| from trips t join cities c on true", vec!["city", "country"]),
            ("select cities.co| from cities", vec!["country"]),
            ("select | from cities", vec!["city", "country", "cities"]),
            ("select * from cities where cou|; select * from trips", vec!["country", "count("]),
            ("select \"d|", vec!["\"Day\""]),
            ("select fa|", vec!["fare", "false"]),
            (".mo|", vec![".mode"]),
            (".mode m|", vec!["markdown"]),
            (".timer o|", vec!["on", "off"]),
            ("-- sel|", vec![]),
            ("select 12|", vec![]),
        ] {
            let mut found = offered(line);
            if line.contains("select d|") {
                found.retain(|text| expected.contains(&text.as_str()));
            }
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn files_are_offered_within_a_text() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["it's.csv", "item.parquet", ".hidden"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("items")).unwrap();
        let path = folder.path().display();
        let at = |begin: &str| offered(&format!("select * from '{path}/{begin}|"));
        assert_eq!(
            at("it"),
            [format!("'{path}/it''s.csv'"), format!("'{path}/item.parquet'"), format!("'{path}/items/")]
        );
        assert_eq!(at("it''"), [format!("'{path}/it''s.csv'")]);
        assert_eq!(at("."), [format!("'{path}/.hidden'")]);
        assert_eq!(at("none/"), [""; 0]);
        assert_eq!(offered(&format!(".read {path}/item.|")), [format!("{path}/item.parquet")]);
    }
}
