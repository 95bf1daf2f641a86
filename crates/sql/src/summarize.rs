//! SUMMARIZE: a row of statistics for each column of a table or query, as in DuckDB. A single SELECT computes all
//! statistics, each as a column, so that the table is read once; lists of these values are then unnested to rows.

use arrow_schema::{DataType, Schema};
use farpool_model::schema;
use farpool_model::{quoted, sql_name};
use std::fmt::Write;

/// If `text` is a SUMMARIZE statement, returns the query that it describes, padded so that positions stay the same;
/// `None` for another statement.
pub fn summarized(text: &str) -> Option<String> {
    const WORD: &str = "summarize";
    let from = text.find(|c: char| !c.is_whitespace())?;
    let to = from + WORD.len();
    let is_word = text.get(from..to)?.eq_ignore_ascii_case(WORD);
    let rest = text.get(to..)?;
    if !is_word || !rest.starts_with(|c: char| c.is_whitespace() || "'\"(".contains(c)) {
        return None;
    }
    let first = rest.trim_start().split(|c: char| !c.is_alphanumeric()).next()?.to_lowercase();
    let verb = match first.as_str() {
        "select" | "with" | "from" | "values" => "",
        _ => "FROM",
    };
    Some(format!("{}{verb:<9}{rest}", &text[..from]))
}

/// Returns the SQL expression of a statistic of the named column; `None` if columns of this type have no such
/// statistic.
type ValueOf = fn(&str, &DataType) -> Option<String>;

/// The columns of SUMMARIZE's result: their names, and the expressions that compute them for a column.
const VALUES: &[(&str, ValueOf)] = &[
    ("min", |column, of| is_ordered(of).then(|| format!("CAST(min({column}) AS VARCHAR)"))),
    ("max", |column, of| is_ordered(of).then(|| format!("CAST(max({column}) AS VARCHAR)"))),
    ("approx_unique", |column, of| is_ordered(of).then(|| format!("approx_distinct({column})"))),
    ("avg", |column, of| of.is_numeric().then(|| format!("avg(CAST({column} AS DOUBLE))"))),
    ("std", |column, of| of.is_numeric().then(|| format!("stddev(CAST({column} AS DOUBLE))"))),
    ("q25", |column, of| quantile(column, of, 0.25)),
    ("q50", |column, of| quantile(column, of, 0.5)),
    ("q75", |column, of| quantile(column, of, 0.75)),
    ("count", |_, _| Some("count(*)".to_string())),
    ("null_percentage", |column, _| {
        Some(format!("round(100.0 * (count(*) - count({column})) / nullif(count(*), 0), 2)"))
    }),
];

fn quantile(column: &str, of: &DataType, q: f64) -> Option<String> {
    let has_quantiles = |held: DataType| held.is_floating() || schema::is_integer_like(&held);
    let is_time = matches!(of, DataType::Time32(_) | DataType::Time64(_));
    let known = schema::canonical_type(of).is_some_and(has_quantiles);
    (known && !is_time).then(|| format!("CAST(approx_quantile({column}, {q}) AS VARCHAR)"))
}

/// Returns whether values of the type can be sorted and cast to strings.
fn is_ordered(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_ordered(values),
        other => {
            other.is_primitive()
                || matches!(
                    other,
                    DataType::Boolean | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
                )
        }
    }
}

/// Returns the SQL text of the statement that summarizes `query`, which has the columns `columns`.
pub fn statement(query: &str, columns: &Schema) -> String {
    let list = |values: Vec<String>| format!("unnest([{}])", values.join(", "));
    let text = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let names = columns.fields().iter().map(|field| text(field.name()));
    let types = columns.fields().iter().map(|field| text(&sql_name(field.data_type())));
    let mut rows =
        format!("SELECT {} AS column_name, {} AS column_type", list(names.collect()), list(types.collect()));
    let mut computed = Vec::new();
    for (name, of) in VALUES {
        let mut places = Vec::new();
        for field in columns.fields() {
            places.push(match of(&quoted(field.name()), field.data_type()) {
                None => "NULL".to_string(),
                Some(value) => {
                    computed.push(format!("{value} AS v{}", computed.len()));
                    format!("v{}", computed.len() - 1)
                }
            });
        }
        let _ = write!(rows, ", {} AS {}", list(places), quoted(name));
    }
    format!("{rows} FROM (SELECT {} FROM ({query}) AS summarized) AS summary", computed.join(", "))
}
