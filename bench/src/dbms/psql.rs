//! A session of psql in a process of its own, which reads statements from a pipe.
//!
//! Behind each statement psql is told to print a line with a mark and the statement's SQLSTATE: the time of a statement is
//! that until this line arrives, and everything before the line is its result.

use super::postgres;
use crate::answers::{Answer, Cell};
use crate::pools::milliseconds;
use crate::process::Process;
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::time::Instant;

/// Beginning of the line that follows a result. No value of the suites' tables contains the control character.
const MARK: &str = "\u{1}done ";

/// SQLSTATE of a statement that took longer than the session's `statement_timeout`.
const TIMED_OUT: &str = "57014";

/// Digits behind the point from which a number counts as a quotient, to which systems give different scales: products of
/// the suites' decimals have at most six.
const QUOTIENT_DIGITS: usize = 7;

/// A session, whose process ends when this value is dropped.
pub struct Psql {
    statements: ChildStdin,
    output: BufReader<ChildStdout>,
    _process: Process,
}

/// The result of a statement, with its time.
pub struct Rows {
    /// Milliseconds until the last row was printed.
    pub ms: f64,
    /// The rows, tab-separated, with NULL as `\N`.
    pub lines: Vec<String>,
}

impl Psql {
    /// Connects to a server: a port on this machine, and the user that is also the database.
    pub fn connect(port: u16, user: &str) -> Result<Psql> {
        let mut command = postgres::client_program("psql");
        command.args(["-X", "-q", "-A", "-t", "-F", "\t", "-P", "null=\\N"]);
        command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", user, user]);
        // Messages of errors come with the mark.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = Process::start(&mut command)?;
        let statements = process.stdin.take().context("psql has no input")?;
        let output = BufReader::new(process.stdout.take().context("psql has no output")?);
        let mut psql = Psql { statements, output, _process: process };
        psql.run("SET client_min_messages = error").context("psql cannot connect")?;
        Ok(psql)
    }

    /// Runs one statement.
    ///
    /// # Errors
    /// Fails with the server's message if the statement fails.
    pub fn run(&mut self, sql: &str) -> Result<Rows> {
        let sql = sql.trim().trim_end_matches(';');
        let start = Instant::now();
        write!(self.statements, "{sql}\n;\n\\echo {MARK}:SQLSTATE :LAST_ERROR_MESSAGE\n")
            .and_then(|()| self.statements.flush())
            .context("psql has ended")?;
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            ensure!(self.output.read_line(&mut line)? > 0, "psql has ended: is the server running?");
            let line = line.trim_end_matches('\n');
            let Some(done) = line.strip_prefix(MARK) else {
                lines.push(line.to_string());
                continue;
            };
            let ms = milliseconds(start);
            let (sqlstate, message) = done.split_once(' ').unwrap_or((done, ""));
            match sqlstate {
                "00000" => return Ok(Rows { ms, lines }),
                TIMED_OUT => bail!("took longer than the limit"),
                _ => bail!("{message} (SQLSTATE {sqlstate})"),
            }
        }
    }

    /// Runs one statement that returns a single value.
    pub fn value(&mut self, sql: &str) -> Result<String> {
        let lines = self.run(sql)?.lines;
        lines.into_iter().next().with_context(|| format!("no row: {sql}"))
    }
}

impl Rows {
    /// Returns the rows as cells, whose types follow from their texts.
    pub fn answer(&self) -> Answer {
        let rows: Vec<Vec<Cell>> =
            self.lines.iter().map(|line| line.split('\t').map(cell).collect()).collect();
        let columns = rows.first().map_or(0, Vec::len);
        Answer { columns: (0..columns).map(|column| format!("{}", column + 1)).collect(), rows }
    }
}

/// Takes numbers for texts where `other` has texts, and the other way round: from what psql prints, a text of digits and a
/// number cannot be told apart.
pub fn agree_on_texts(answer: &mut Answer, other: &Answer) {
    for column in 0..other.columns.len() {
        let mut cells = other.rows.iter().filter_map(|row| row.get(column));
        let Some(known) = cells.find(|cell| **cell != Cell::Null) else { continue };
        let is_text = matches!(known, Cell::Text(_));
        for value in answer.rows.iter_mut().filter_map(|row| row.get_mut(column)) {
            match value {
                Cell::Exact { unscaled, scale: 0 } if is_text => *value = Cell::Text(unscaled.to_string()),
                Cell::Text(text) if !is_text => *value = cell(text),
                _ => {}
            }
        }
    }
}

/// Parses a value as psql prints it: a number if it looks like one.
fn cell(text: &str) -> Cell {
    if text == "\\N" {
        return Cell::Null;
    }
    let as_text = || Cell::Text(text.to_string());
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    if !unsigned.starts_with(|first: char| first.is_ascii_digit()) {
        return as_text();
    }
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) || fraction.len() >= QUOTIENT_DIGITS {
        return text.parse().map_or_else(|_| as_text(), Cell::Float);
    }
    match (text.replace('.', "").parse(), i8::try_from(fraction.len())) {
        (Ok(unscaled), Ok(scale)) => Cell::Exact { unscaled, scale },
        _ => as_text(),
    }
}

#[cfg(test)]
mod tests {
    use super::{agree_on_texts, cell};
    use crate::answers::Answer;
    use crate::answers::Cell;

    #[test]
    fn texts_of_digits_are_texts_where_others_have_texts() {
        let answer =
            |cells: [Cell; 2]| Answer { columns: vec!["1".into(), "2".into()], rows: vec![cells.into()] };
        let text = || Cell::Text("13".to_string());
        let (mut printed, typed) = (answer([cell("13"), cell("13")]), answer([text(), cell("7")]));
        agree_on_texts(&mut printed, &typed);
        assert_eq!(printed.rows[0], [text(), cell("13")]);
        let mut typed = answer([text(), text()]);
        agree_on_texts(&mut typed, &printed);
        assert_eq!(typed.rows[0], [text(), cell("13")]);
    }

    #[test]
    fn texts_tell_their_types() {
        assert_eq!(cell("\\N"), Cell::Null);
        assert_eq!(cell("-12"), Cell::Exact { unscaled: -12, scale: 0 });
        assert_eq!(cell("12.50"), Cell::Exact { unscaled: 1250, scale: 2 });
        assert_eq!(cell("25.5000000000000000"), Cell::Float(25.5));
        assert_eq!(cell("1e+20"), Cell::Float(1e20));
        assert_eq!(cell("1995-01-17"), Cell::Text("1995-01-17".to_string()));
        assert_eq!(cell("-"), Cell::Text("-".to_string()));
        assert_eq!(cell("25-989-741-2988"), Cell::Text("25-989-741-2988".to_string()));
    }
}
