//! Translates constant formats of times, as in `to_char(d, 'YYYY-MM')`, from PostgreSQL's patterns to those of the
//! engine (DataFusion, which uses chrono's). A format with `%` is one of the engine's already.

use super::headers::is_called;
use super::refusal;
use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Value, ValueWithSpan,
};

/// PostgreSQL's patterns with the engine's equivalents. If one pattern begins with another, the longer one comes first.
/// Patterns without an equivalent (`None`) are refused: names padded with blanks or in capital letters, and numbers
/// without padding.
const PATTERNS: &[(&str, Option<&str>)] = &[
    ("FMMonth", Some("%B")),
    ("FMMon", Some("%b")),
    ("FMDay", Some("%A")),
    ("FMDD", Some("%-d")),
    ("FMMM", Some("%-m")),
    ("FMHH24", Some("%-H")),
    ("FMHH12", Some("%-I")),
    ("FMHH", Some("%-I")),
    ("HH24", Some("%H")),
    ("HH12", Some("%I")),
    ("HH", Some("%I")),
    ("MI", Some("%M")),
    ("SS", Some("%S")),
    ("MS", Some("%3f")),
    ("US", Some("%6f")),
    ("YYYY", Some("%Y")),
    ("IYYY", Some("%G")),
    ("YY", Some("%y")),
    ("Month", None),
    ("Mon", Some("%b")),
    ("MM", Some("%m")),
    ("DDD", Some("%j")),
    ("DD", Some("%d")),
    ("Dy", Some("%a")),
    ("IW", Some("%V")),
    ("ID", Some("%u")),
    ("AM", Some("%p")),
    ("PM", Some("%p")),
    ("am", Some("%P")),
    ("pm", Some("%P")),
    ("TZ", None),
    ("FM", None),
    ("MONTH", None),
    ("MON", None),
    ("Day", None),
    ("DAY", None),
    ("DY", None),
    ("Y", None),
    ("Q", None),
    ("WW", None),
    ("W", None),
    ("D", None),
    ("J", None),
    ("CC", None),
];

/// Names of the engine's formats for durations, which are no patterns.
const DURATIONS: &[&str] = &["pretty", "iso8601", "ISO8601"];

pub(super) fn apply(expr: &mut Expr) -> Result<()> {
    let Expr::Function(call) = expr else { return Ok(()) };
    if !["to_char", "to_date", "to_timestamp"].iter().any(|name| is_called(call, name)) {
        return Ok(());
    }
    let FunctionArguments::List(list) = &mut call.args else { return Ok(()) };
    for argument in list.args.iter_mut().skip(1) {
        if let FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(ValueWithSpan {
            value: Value::SingleQuotedString(format),
            ..
        }))) = argument
            && !format.contains('%')
            && !DURATIONS.contains(&format.as_str())
        {
            *format = translated(format)?;
        }
    }
    Ok(())
}

/// Returns whether `text` begins with `pattern`. Case matters only for names of months and days, because it selects the
/// case of the output there.
fn begins(text: &str, pattern: &str) -> bool {
    let is_number = pattern.chars().all(|c| !c.is_lowercase());
    text.starts_with(pattern)
        || (is_number
            && text.get(..pattern.len()).is_some_and(|text| {
                text.eq_ignore_ascii_case(pattern) && text.chars().all(|c| !c.is_uppercase())
            }))
}

fn translated(format: &str) -> Result<String> {
    let mut made = String::with_capacity(2 * format.len());
    let mut rest = format;
    while let Some(first) = rest.chars().next() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (text, behind) = quoted.split_once('"').unwrap_or((quoted, ""));
            made.push_str(text);
            rest = behind;
        } else if let Some((pattern, means)) = PATTERNS.iter().find(|(pattern, _)| begins(rest, pattern)) {
            let Some(means) = means else {
                let what = format!("the pattern {pattern} in the format '{format}' is not done");
                return Err(refusal(
                    &what,
                    "use one of YYYY MM DD HH24 MI SS MS US Mon Dy FMMonth FMDay, or %A as in C",
                ));
            };
            made.push_str(means);
            rest = &rest[pattern.len()..];
        } else {
            made.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    Ok(made)
}
