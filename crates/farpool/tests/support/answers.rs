//! Results of queries as plain cells, so that results of different engines and recorded ones can be compared.
//!
//! Rules of comparison: integers, decimals, dates and strings exactly; floats within [`FLOAT_TOLERANCE`] of their size;
//! a decimal and a float within one unit of the decimal's last digit, because engines give averages and quotients
//! different scales. Rows are compared as a multiset ([`difference`]); if the query has an ORDER BY, its columns are
//! also compared row by row ([`order_difference`]), which leaves the order of ties free.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Float64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use std::cmp::Ordering;
use std::fmt;

/// Maximal difference of two floats, relative to the larger one: sums are computed in different orders.
pub const FLOAT_TOLERANCE: f64 = 1e-9;

/// One value of a result.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// SQL NULL.
    Null,
    /// An integer (scale 0) or a decimal: its value is `unscaled / 10^scale`.
    Exact { unscaled: i128, scale: i8 },
    /// A float.
    Float(f64),
    /// Everything else, as text.
    Text(String),
}

/// A result: column names and rows.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows, a cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

impl Answer {
    /// Converts `batches`; `columns` are needed because there may be no batch.
    pub fn from_batches(columns: Vec<String>, batches: &[RecordBatch]) -> Result<Answer, String> {
        let mut rows = Vec::new();
        for batch in batches {
            let cells = batch.columns().iter().map(column_cells).collect::<Result<Vec<_>, _>>()?;
            rows.extend((0..batch.num_rows()).map(|row| cells.iter().map(|c| c[row].clone()).collect()));
        }
        Ok(Answer { columns, rows })
    }

    /// Parses the text of a recorded file; see `testdata/README.md` for the format.
    pub fn from_recorded(text: &str) -> Result<Answer, String> {
        let mut lines = text.lines();
        let header = lines.next().ok_or("an answer needs a first line")?;
        let (columns, types): (Vec<_>, Vec<_>) =
            header.split('\t').map(|c| c.rsplit_once(':').unwrap_or((c, "VARCHAR"))).unzip();
        let rows = lines
            .map(|line| line.split('\t').zip(&types).map(|(cell, kind)| parse_cell(cell, kind)).collect())
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Answer { columns: columns.into_iter().map(str::to_string).collect(), rows })
    }
}

/// Describes the first difference between two results, whose rows are compared as a multiset. Returns `None` if they
/// agree.
pub fn difference(expected: &Answer, actual: &Answer) -> Option<String> {
    if expected.columns.len() != actual.columns.len() {
        return Some(format!("expected {} columns, got {}", expected.columns.len(), actual.columns.len()));
    }
    if expected.rows.len() != actual.rows.len() {
        return Some(format!("expected {} rows, got {}", expected.rows.len(), actual.rows.len()));
    }
    let (left, right) = (sorted(expected), sorted(actual));
    left.iter().zip(&right).find_map(|(l, r)| row_difference(&expected.columns, l, r))
}

/// Describes the first row at which the values of the columns `keys` differ. Returns `None` if they are equal in all
/// rows.
pub fn order_difference(keys: &[String], expected: &Answer, actual: &Answer) -> Option<String> {
    let positions: Vec<usize> =
        keys.iter().filter_map(|key| expected.columns.iter().position(|column| column == key)).collect();
    expected.rows.iter().zip(&actual.rows).enumerate().find_map(|(at, (l, r))| {
        let differs = positions.iter().any(|&p| !agree(&l[p], &r[p]));
        differs.then(|| format!("row {at} is out of order: expected {}, got {}", show(l), show(r)))
    })
}

/// Returns the columns of the last ORDER BY of a query, without their directions.
pub fn order_keys(sql: &str) -> Vec<String> {
    let upper = sql.to_ascii_uppercase();
    let Some(start) = upper.rfind("ORDER BY") else { return Vec::new() };
    let end = upper[start..].find("LIMIT").map_or(sql.len(), |at| start + at);
    let keys = sql[start + "ORDER BY".len()..end].split(',');
    keys.filter_map(|key| key.split_whitespace().next()).map(str::to_string).collect()
}

fn row_difference(columns: &[String], expected: &[Cell], actual: &[Cell]) -> Option<String> {
    let at = expected.iter().zip(actual).position(|(l, r)| !agree(l, r))?;
    Some(format!("column {}: expected {}, got {}", columns[at], show(expected), show(actual)))
}

/// Returns whether two cells agree under the rules of this module.
pub fn agree(left: &Cell, right: &Cell) -> bool {
    match (left, right) {
        (Cell::Exact { unscaled: a, scale: s }, Cell::Exact { unscaled: b, scale: t }) => {
            if s <= t {
                raised(*a, *s, *t) == Some(*b)
            } else {
                raised(*b, *t, *s) == Some(*a)
            }
        }
        (Cell::Float(f), Cell::Exact { scale, .. }) | (Cell::Exact { scale, .. }, Cell::Float(f)) => {
            let other = if matches!(left, Cell::Float(_)) { number(right) } else { number(left) };
            (f - other).abs() <= 10f64.powi(-i32::from(*scale)).max(FLOAT_TOLERANCE * f.abs())
        }
        (Cell::Float(a), Cell::Float(b)) => {
            a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= FLOAT_TOLERANCE * a.abs().max(b.abs())
        }
        _ => left == right,
    }
}

/// Converts an unscaled value from one scale to a larger one. Returns `None` if it overflows.
fn raised(unscaled: i128, from: i8, to: i8) -> Option<i128> {
    unscaled.checked_mul(10i128.checked_pow(u32::from(from.abs_diff(to)))?)
}

fn sorted(answer: &Answer) -> Vec<Vec<Cell>> {
    let mut rows = answer.rows.clone();
    rows.sort_by(|l, r| compare_rows(l, r));
    rows
}

/// Compares text cells first, because they are exact on both sides; then numbers, which may have different types.
fn compare_rows(left: &[Cell], right: &[Cell]) -> Ordering {
    let texts = |row: &[Cell]| -> Vec<String> {
        row.iter().filter_map(|c| if let Cell::Text(t) = c { Some(t.clone()) } else { None }).collect()
    };
    let exact_first = |row: &[Cell]| -> Vec<f64> {
        let whole = row.iter().filter(|c| matches!(c, Cell::Exact { scale: 0, .. })).map(number);
        let rest = row.iter().filter(|c| !matches!(c, Cell::Exact { scale: 0, .. } | Cell::Text(_)));
        whole.chain(rest.map(number)).collect()
    };
    let numbers = || {
        let (l, r) = (exact_first(left), exact_first(right));
        let unequal = l.iter().zip(&r).map(|(a, b)| a.total_cmp(b)).find(|o| o.is_ne());
        unequal.unwrap_or(l.len().cmp(&r.len()))
    };
    texts(left).cmp(&texts(right)).then_with(numbers)
}

fn number(cell: &Cell) -> f64 {
    match cell {
        Cell::Exact { unscaled, scale } => *unscaled as f64 / 10f64.powi(i32::from(*scale)),
        Cell::Float(f) => *f,
        Cell::Null | Cell::Text(_) => f64::INFINITY,
    }
}

fn column_cells(column: &ArrayRef) -> Result<Vec<Cell>, String> {
    let with = |cell: &dyn Fn(usize) -> Cell| {
        (0..column.len()).map(|row| if column.is_null(row) { Cell::Null } else { cell(row) }).collect()
    };
    let as_type = |t: &DataType| cast(column, t).map_err(|e| e.to_string());
    Ok(match column.data_type() {
        t if t.is_integer() => {
            let wide = as_type(&DataType::Decimal128(38, 0))?;
            let wide = wide.as_primitive::<Decimal128Type>();
            with(&|row| Cell::Exact { unscaled: wide.value(row), scale: 0 })
        }
        DataType::Decimal128(_, scale) => {
            let values = column.as_primitive::<Decimal128Type>();
            with(&|row| Cell::Exact { unscaled: values.value(row), scale: *scale })
        }
        t if t.is_floating() => {
            let wide = as_type(&DataType::Float64)?;
            let wide = wide.as_primitive::<Float64Type>();
            with(&|row| Cell::Float(wide.value(row)))
        }
        _ => {
            let options = FormatOptions::default();
            let formatter = ArrayFormatter::try_new(column, &options).map_err(|e| e.to_string())?;
            with(&|row| Cell::Text(formatter.value(row).to_string()))
        }
    })
}

fn parse_cell(cell: &str, kind: &str) -> Result<Cell, String> {
    let wrong = |_| format!("{cell:?} is no {kind}");
    if cell == "\\N" {
        return Ok(Cell::Null);
    }
    if let Some(scale) = kind.strip_prefix("DECIMAL(").and_then(|k| k.strip_suffix(')')) {
        let scale: i8 =
            scale.rsplit(',').next().unwrap_or("0").trim().parse().map_err(|_| kind.to_string())?;
        let unscaled = cell.replace('.', "").parse().map_err(wrong)?;
        return Ok(Cell::Exact { unscaled, scale });
    }
    match kind {
        "TINYINT" | "SMALLINT" | "INTEGER" | "BIGINT" | "HUGEINT" => {
            Ok(Cell::Exact { unscaled: cell.parse().map_err(wrong)?, scale: 0 })
        }
        "FLOAT" | "DOUBLE" => cell.parse().map(Cell::Float).map_err(|_| format!("{cell:?} is no {kind}")),
        _ => Ok(Cell::Text(cell.to_string())),
    }
}

fn show(row: &[Cell]) -> String {
    row.iter().map(Cell::to_string).collect::<Vec<_>>().join(" | ")
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Null => f.write_str("NULL"),
            Cell::Exact { unscaled, scale: 0 } => write!(f, "{unscaled}"),
            Cell::Exact { unscaled, scale } => write!(f, "{unscaled}e-{scale}"),
            Cell::Float(v) => write!(f, "{v:?}"),
            Cell::Text(text) => f.write_str(text),
        }
    }
}
