//! Answers as psql prints them, and how they are compared: floats as far as the order of a sum may change them, decimals
//! by value.

use super::statements::Statement;
use std::cmp::Ordering;

/// Marks the line behind the rows of each statement, with its number, its SQLSTATE and the last error.
const MARK: &str = "==";
/// Marks the end of the error, which may have several lines.
const END: &str = "==.";

/// Returns the commands of psql that mark the end of a statement's answer.
pub fn marked(number: usize) -> String {
    format!("\\echo {MARK} {number} :SQLSTATE :LAST_ERROR_MESSAGE\n\\echo {END}")
}

/// An answer.
pub struct Said {
    rows: Vec<String>,
    sqlstate: String,
    error: String,
}

impl Said {
    /// Splits psql's output at the marks.
    pub fn all(output: &str) -> Vec<Said> {
        let (mut all, mut rows) = (Vec::new(), Vec::new());
        let mut lines = output.lines();
        while let Some(line) = lines.next() {
            let mark = line.strip_prefix(MARK).and_then(|mark| mark.trim_start().split_once(' '));
            let Some((_, behind)) = mark else {
                rows.push(line.to_string());
                continue;
            };
            let (sqlstate, error) = behind.split_once(' ').unwrap_or((behind, ""));
            let mut error = error.to_string();
            lines.by_ref().take_while(|line| *line != END).for_each(|line| error += &format!(" / {line}"));
            all.push(Said { rows: std::mem::take(&mut rows), sqlstate: sqlstate.to_string(), error });
        }
        all
    }

    fn is_error(&self) -> bool {
        self.sqlstate != "00000"
    }
}

/// Whether an answer is PostgreSQL's.
pub enum Verdict {
    Same,
    /// An error where PostgreSQL has rows.
    Refused(String),
    Differs(String),
}

/// Compares as [`compare`] does, but any error is like any other, numbers are compared to six digits whatever their
/// types, and rows in any order: queries often leave open in which order rows with equal keys stand.
pub fn compare_loosely(expected: &Said, got: &Said) -> Verdict {
    if expected.is_error() && got.is_error() {
        return Verdict::Same;
    }
    let types = vec!["float4".to_string(); expected.rows.first().map_or(0, |row| row.split('\t').count())];
    let statement = Statement { sql: String::new(), types, is_ordered: false, forms: Vec::new() };
    compare(&statement, expected, got)
}

/// Compares an answer with PostgreSQL's.
pub fn compare(statement: &Statement, expected: &Said, got: &Said) -> Verdict {
    match (expected.is_error(), got.is_error()) {
        (true, true) if expected.sqlstate == got.sqlstate => return Verdict::Same,
        (true, true) => {
            return Verdict::Differs(format!(
                "  another code: {} {}\n  PostgreSQL:   {} {}",
                got.sqlstate, got.error, expected.sqlstate, expected.error
            ));
        }
        (true, false) => {
            let rows = got.rows.iter().take(2).cloned().collect::<Vec<_>>().join("; ");
            return Verdict::Differs(format!(
                "  rows: {rows}\n  PostgreSQL: {} {}",
                expected.sqlstate, expected.error
            ));
        }
        (false, true) => {
            let rows = expected.rows.iter().take(2).cloned().collect::<Vec<_>>().join("; ");
            return Verdict::Refused(format!(
                "  error: {} {}\n  PostgreSQL: {rows}",
                got.sqlstate, got.error
            ));
        }
        (false, false) => {}
    }
    let (mut wanted, mut had) = (expected.rows.clone(), got.rows.clone());
    if !statement.is_ordered {
        wanted.sort_by(|a, b| by_value(statement, a, b));
        had.sort_by(|a, b| by_value(statement, a, b));
    }
    let differing = wanted.iter().zip(&had).find(|(wanted, had)| !is_same_row(statement, wanted, had));
    match differing {
        Some((wanted, had)) => Verdict::Differs(format!("  row: {had}\n  PostgreSQL: {wanted}")),
        None if wanted.len() != had.len() => {
            Verdict::Differs(format!("  {} rows\n  PostgreSQL: {} rows", had.len(), wanted.len()))
        }
        None => Verdict::Same,
    }
}

fn of(statement: &Statement, place: usize) -> &str {
    statement.types.get(place).map_or("", String::as_str)
}

/// Orders rows so that values that count as the same are at the same place.
fn by_value(statement: &Statement, a: &str, b: &str) -> Ordering {
    let cells = a.split('\t').zip(b.split('\t')).enumerate();
    let orders =
        cells.map(|(place, (a, b))| match (of(statement, place), a.parse::<f64>(), b.parse::<f64>()) {
            ("float4" | "float8" | "numeric", Ok(x), Ok(y)) => {
                x.total_cmp(&y).then_with(|| digits(a).cmp(digits(b)))
            }
            _ => a.cmp(b),
        });
    // Texts may have tabs of their own.
    orders.fold(Ordering::Equal, Ordering::then).then_with(|| a.cmp(b))
}

fn is_same_row(statement: &Statement, wanted: &str, had: &str) -> bool {
    let (wanted, had): (Vec<&str>, Vec<&str>) = (wanted.split('\t').collect(), had.split('\t').collect());
    wanted.len() == had.len()
        && wanted
            .iter()
            .zip(&had)
            .enumerate()
            .all(|(place, (wanted, had))| wanted == had || is_same_value(of(statement, place), wanted, had))
}

fn is_same_value(of: &str, wanted: &str, had: &str) -> bool {
    let is_close = |relative: f64| match (wanted.parse::<f64>(), had.parse::<f64>()) {
        (Ok(a), Ok(b)) => {
            a == b || (a - b).abs() <= relative * a.abs().max(b.abs()) || a.is_nan() && b.is_nan()
        }
        _ => false,
    };
    match of {
        "float8" => is_close(1e-12),
        "float4" => is_close(1e-6),
        "numeric" => digits(wanted) == digits(had),
        _ => false,
    }
}

/// Returns a decimal without zeros behind its last digit.
fn digits(text: &str) -> &str {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(expected: &str, got: &str, is_ordered: bool) -> Verdict {
        let types = vec!["numeric".to_string(), "float8".to_string()];
        let statement = Statement { sql: String::new(), types, is_ordered, forms: Vec::new() };
        compare(&statement, &Said::all(expected)[0], &Said::all(got)[0])
    }

    #[test]
    fn values_and_errors_are_compared_rather_than_texts() {
        let rows = "1.50\t0.3\n2\tNaN\n== 0 00000\n==.\n";
        assert!(matches!(
            verdict(rows, "1.5\t0.30000000000000004\n2.0\tNaN\n== 0 00000\n==.\n", true),
            Verdict::Same
        ));
        assert!(matches!(verdict(rows, "2\tNaN\n1.5\t0.3\n== 0 00000\n==.\n", false), Verdict::Same));
        assert!(matches!(verdict(rows, "2\tNaN\n1.5\t0.3\n== 0 00000\n==.\n", true), Verdict::Differs(_)));
        assert!(matches!(verdict(rows, "1.5\t0.3\n== 0 00000\n==.\n", true), Verdict::Differs(_)));
        assert!(matches!(verdict(rows, "== 0 22012 division by zero\n==.\n", true), Verdict::Refused(_)));
        assert!(matches!(verdict("== 0 22012 x\n==.\n", rows, true), Verdict::Differs(_)));
        assert!(matches!(verdict("== 0 22012 x\n==.\n", "== 0 22012 y\n==.\n", true), Verdict::Same));
        assert!(matches!(verdict("== 0 22012 x\n==.\n", "== 0 22003 y\n==.\n", true), Verdict::Differs(_)));
    }
}
