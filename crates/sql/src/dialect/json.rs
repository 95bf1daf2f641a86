//! Rewrites JSON operators on strings (`j -> 'a'`, `j ->> 'a'`, `j #>> '{a,0}'`) to calls of the engine's
//! (DataFusion's) functions, and JSON paths (`$.a[0]`, `/a/0`) to lists of steps.
//!
//! A step is a key of an object or, as a string or a number, an index of an array; negative indexes count from the end.

use super::headers::is_called;
use super::{call, refusal};
use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Value, ValueWithSpan,
};

/// The function that returns the JSON at a path, as a string.
const JSON: &str = "json_get_json";
/// The function that returns the JSON at a path; a JSON string without its quotes.
const TEXT: &str = "json_as_text";

/// The engine's JSON functions. Their arguments from the second on are steps of a path.
const STEPPED: &[&str] = &[
    JSON,
    TEXT,
    "json_get_str",
    "json_get_int",
    "json_get_float",
    "json_get_bool",
    "json_length",
    "json_object_keys",
    "json_keys",
];

pub(super) fn apply(expr: &mut Expr) -> Result<()> {
    if let Expr::Function(function) = expr {
        return paths_of(function);
    }
    let Expr::BinaryOp { left, op, right } = expr else { return Ok(()) };
    let (function, steps) = match op {
        BinaryOperator::Arrow => (JSON, path(right)?),
        BinaryOperator::LongArrow => (TEXT, path(right)?),
        BinaryOperator::HashArrow => (JSON, braces(right)?),
        BinaryOperator::HashLongArrow => (TEXT, braces(right)?),
        _ => return Ok(()),
    };
    // Consecutive arrows become one call with several steps.
    let mut arguments = match &mut **left {
        Expr::Function(inner) if is_called(inner, JSON) => taken(inner),
        _ => Vec::new(),
    };
    if arguments.is_empty() {
        arguments.push((**left).clone());
    }
    arguments.push(steps);
    *expr = call(function, arguments);
    Ok(())
}

/// Converts JSON paths among the arguments of the functions in [`STEPPED`] to lists of steps.
fn paths_of(function: &mut Function) -> Result<()> {
    if !STEPPED.iter().any(|name| is_called(function, name)) {
        return Ok(());
    }
    let FunctionArguments::List(list) = &mut function.args else { return Ok(()) };
    for argument in list.args.iter_mut().skip(1) {
        if let FunctionArg::Unnamed(FunctionArgExpr::Expr(step)) = argument {
            *step = path(step)?;
        }
    }
    Ok(())
}

/// Removes and returns the arguments of a call if all but the first are constants; otherwise returns none.
fn taken(inner: &Function) -> Vec<Expr> {
    let FunctionArguments::List(list) = &inner.args else { return Vec::new() };
    let expr = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    let arguments: Vec<Expr> = list.args.iter().filter_map(expr).collect();
    let is_constant = |expr: &Expr| matches!(expr, Expr::Value(_));
    if arguments.iter().skip(1).all(is_constant) { arguments } else { Vec::new() }
}

/// Converts a JSON path to steps: a constant string such as `$.a[0]` or `/a/0` to a list of steps; anything else is a
/// single step.
///
/// # Errors
/// Fails for paths with wildcards, and for malformed paths.
pub(super) fn path(expr: &Expr) -> Result<Expr> {
    let text = match text(expr) {
        Some(text) if text.starts_with('$') || text.starts_with('/') => text,
        _ => return Ok(expr.clone()),
    };
    let steps = match text.strip_prefix('/') {
        Some(pointer) => Some(
            pointer.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect::<Vec<_>>(),
        ),
        None => dollar_steps(text.get(1..).unwrap_or_default()),
    };
    match steps {
        Some(steps) => Ok(list(steps)),
        None => Err(refusal(
            &format!("'{text}' is no path into JSON that is known here"),
            "write steps like $.name, $.\"a name\" and $[0]; * and .. are not done",
        )),
    }
}

/// Converts a path in PostgreSQL's form, `'{a,0}'`, to steps.
fn braces(expr: &Expr) -> Result<Expr> {
    let inner = text(expr).and_then(|text| text.strip_prefix('{')?.strip_suffix('}'));
    match inner {
        Some("") => Ok(list(Vec::new())),
        Some(inner) if !inner.contains(['"', '\\']) => {
            Ok(list(inner.split(',').map(|step| step.trim().to_string()).collect()))
        }
        _ => Err(refusal("a path behind #> is a constant like '{a,0}'", "write j -> 'a' -> 0, or '{a,0}'")),
    }
}

fn text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => Some(text),
        _ => None,
    }
}

fn list(steps: Vec<String>) -> Expr {
    call("make_array", steps.into_iter().map(|step| Expr::value(Value::SingleQuotedString(step))).collect())
}

/// Parses the steps of a path after its `$`; returns `None` if they are malformed.
fn dollar_steps(mut rest: &str) -> Option<Vec<String>> {
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let (step, behind) = if let Some(place) = rest.strip_prefix('[') {
            let (place, behind) = place.split_once(']')?;
            let from_the_end = place.strip_prefix("#-").map(|place| format!("-{place}"));
            let place = from_the_end.as_deref().unwrap_or(place);
            (place.parse::<i64>().ok()?.to_string(), behind)
        } else if let Some(quoted) = rest.strip_prefix(".\"") {
            let (key, behind) = quoted.split_once('"')?;
            (key.to_string(), behind)
        } else {
            let key = rest.strip_prefix('.')?;
            let (key, behind) = key.split_at(key.find(['.', '[']).unwrap_or(key.len()));
            if key.is_empty() || key == "*" {
                return None;
            }
            (key.to_string(), behind)
        };
        steps.push(step);
        rest = behind;
    }
    Some(steps)
}

#[cfg(test)]
mod tests {
    use super::dollar_steps;

    #[test]
    fn paths_are_read_in_steps() {
        for (path, steps) in [
            ("", Some(vec![])),
            (".a", Some(vec!["a"])),
            (".a.b[0][-1]", Some(vec!["a", "b", "0", "-1"])),
            ("[#-2].\"a.b [c]\"", Some(vec!["-2", "a.b [c]"])),
            (".ä[12]", Some(vec!["ä", "12"])),
            ("..a", None),
            (".*", None),
            ("[*]", None),
            ("[1", None),
            ("a", None),
            (".\"a", None),
        ] {
            assert_eq!(
                dollar_steps(path),
                steps.map(|s| s.into_iter().map(String::from).collect()),
                "${path}"
            );
        }
    }
}
