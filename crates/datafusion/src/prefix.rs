//! Converts comparisons of a string's prefix with constants to patterns (LIKE): the pool has no substring function, but
//! matches patterns, often only once for each distinct value of a dictionary-encoded column.
//!
//! Invariant: the pattern is true, false and NULL for the same rows as the comparison.

use datafusion::common::ScalarValue;
use datafusion::functions::unicode::left::LeftFunc;
use datafusion::functions::unicode::substr::SubstrFunc;
use datafusion::logical_expr::Expr as Logical;
use farpool_model::{CompareOp, Expr, Literal, Value};

/// If `expr` is `substr(string, 1, n)` or `left(string, n)`, returns the string and `n`; otherwise `None`.
pub(crate) fn beginning(expr: &Logical) -> Option<(&Logical, usize)> {
    let Logical::ScalarFunction(call) = expr else { return None };
    let count = |expr: &Logical| match expr {
        Logical::Literal(ScalarValue::Int64(Some(n)), _) => usize::try_from(*n).ok(),
        _ => None,
    };
    let function = call.func.inner();
    match call.args.as_slice() {
        [string, from, chars] if function.is::<SubstrFunc>() && count(from) == Some(1) => {
            Some((string, count(chars)?))
        }
        [string, chars] if function.is::<LeftFunc>() => Some((string, count(chars)?)),
        _ => None,
    }
}

/// Returns the condition that the first `chars` characters of `string` are one of the constants `wanted`, as patterns;
/// `None` if that is never true.
pub(crate) fn is_one_of(string: &Expr, chars: usize, wanted: &[Literal]) -> Option<Expr> {
    let is = |wanted: &Literal| {
        let Value::Text(text) = wanted.value() else { return None };
        let pattern = match text.chars().count() {
            count if count > chars => return None,
            // If the constant is shorter than the prefix, the whole string must be equal to it.
            count if count < chars => {
                let wanted = Expr::Literal(wanted.clone());
                return Some(Expr::compare(CompareOp::Eq, string.clone(), wanted));
            }
            _ => text.chars().fold(String::new(), |mut pattern, c| {
                if matches!(c, '%' | '_' | '\\') {
                    pattern.push('\\');
                }
                pattern.push(c);
                pattern
            }),
        };
        let (value, pattern) = (Box::new(string.clone()), pattern + "%");
        Some(Expr::Like { value, pattern, case_insensitive: false })
    };
    let mut parts = wanted.iter().map(is).collect::<Option<Vec<Expr>>>()?;
    if parts.len() == 1 { parts.pop() } else { Some(Expr::Or(parts)).filter(|_| !wanted.is_empty()) }
}
