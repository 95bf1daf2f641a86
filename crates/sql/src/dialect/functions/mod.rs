//! Rewrites calls of functions of other databases: those that the engine has under another name, and those that can be
//! computed by the engine's (DataFusion's) functions. They mean the same for a file and for a table in a pool.
//! Functions of the engine, and those that an application has registered, take precedence.

mod table;
#[cfg(test)]
mod tests;

use super::depth;
use super::{json, refusal, sql};
use datafusion::common::Result;
use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function as Call, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, ObjectNamePart, Value, ValueWithSpan,
};
use farpool_model::limits;
use table::{FUNCTIONS, Function, Means};

/// Rewrites the calls of other databases' functions in one statement.
pub(super) struct Functions<'a> {
    pub state: &'a SessionState,
    /// Number of expression nodes that were duplicated so far. It is limited, because nested calls may double it at
    /// each level.
    pub copied: usize,
}

impl Functions<'_> {
    /// Rewrites `expr`, whose parts have already been rewritten.
    pub(super) fn apply(&mut self, expr: &mut Expr) -> Result<()> {
        let Expr::Function(call) = &mut *expr else { return Ok(()) };
        let Some(name) = name_of(call).filter(|name| !self.is_known(name)) else { return Ok(()) };
        let named: Vec<&Function> = all().filter(|function| function.name == name).collect();
        if named.is_empty() {
            return Ok(());
        }
        let count = arguments(call).map_or(0, <[FunctionArg]>::len);
        let takes = |function: &&&Function| match function.parameters {
            [.., "…"] => true,
            parameters => parameters.len() == count,
        };
        let Some(function) = named.iter().find(takes) else {
            let usages: Vec<String> = named.iter().map(|function| usage(function)).collect();
            let what = format!("{name} does not take {count} arguments");
            return Err(refusal(&what, &format!("write {}", usages.join(" or "))));
        };
        let text = match function.means {
            Means::Same(other) => {
                call.name = ObjectName::from(vec![Ident::new(other)]);
                return Ok(());
            }
            Means::Sql(text) => text,
            Means::ByUnit(texts) => by_unit(call, texts, &usage(function))?,
        };
        *expr = self.written_out(call, function, text)?;
        Ok(())
    }

    /// Returns whether the session has a function of this name, so that the call is not rewritten.
    fn is_known(&self, name: &str) -> bool {
        self.state.scalar_functions().contains_key(name)
            || self.state.aggregate_functions().contains_key(name)
            || self.state.window_functions().contains_key(name)
    }

    fn written_out(&mut self, call: &Call, function: &Function, text: &str) -> Result<Expr> {
        let mut values = Vec::new();
        for (argument, name) in arguments(call).unwrap_or_default().iter().zip(function.parameters) {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) = argument else {
                return Err(refusal(
                    &format!("{argument} is no argument of {}", function.name),
                    &usage(function),
                ));
            };
            values.push((*name, in_format(function.name, name, value)?));
        }
        let uses = |name: &str| {
            text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| *w == name).count()
        };
        for (name, value) in values.iter().filter(|(name, _)| uses(name) > 1) {
            if super::aliases::is_volatile(self.state, value) {
                let what = format!("{} would compute its argument {name} more than once", function.name);
                return Err(refusal(&what, "compute it in a subquery"));
            }
            self.copied += depth::parts(value) * uses(name);
        }
        if self.copied > limits::SQL_NODES_MAX {
            return Err(refusal(
                "functions in arguments of functions make too large an expression",
                "use subqueries",
            ));
        }
        let mut made = sql::expr(text)?;
        sql::put(
            &mut made,
            &values.into_iter().map(|(name, value)| (name, nested(value))).collect::<Vec<_>>(),
        );
        match &mut made {
            Expr::Function(inner) if is_aggregate(self.state, inner) => pass_on(call, inner, function)?,
            _ if call.filter.is_some() || call.over.is_some() || is_adorned(call) => {
                return Err(refusal(&format!("{} is no aggregate", function.name), &usage(function)));
            }
            _ => made = Expr::Nested(Box::new(made)),
        }
        Ok(made)
    }
}

/// Moves FILTER, OVER and the other clauses of a call to the aggregate by which it is replaced.
fn pass_on(call: &Call, inner: &mut Call, function: &Function) -> Result<()> {
    inner.filter = match (inner.filter.take(), call.filter.clone()) {
        (Some(ours), Some(theirs)) => {
            let (left, right) = (Box::new(nested(*ours)), Box::new(nested(*theirs)));
            Some(Box::new(Expr::BinaryOp { left, op: BinaryOperator::And, right }))
        }
        (ours, theirs) => ours.or(theirs),
    };
    inner.over = call.over.clone();
    if !is_adorned(call) {
        return Ok(());
    }
    let (FunctionArguments::List(given), FunctionArguments::List(made)) = (&call.args, &mut inner.args)
    else {
        return Ok(());
    };
    let is_free = made.clauses.is_empty() && inner.filter == call.filter;
    if !is_free || call.null_treatment.is_some() || !call.within_group.is_empty() {
        let what = format!("DISTINCT, ORDER BY or NULLS within {}", function.name);
        return Err(refusal(&format!("{what} is not done"), &format!("write {}", usage(function))));
    }
    made.duplicate_treatment = given.duplicate_treatment;
    made.clauses.clone_from(&given.clauses);
    Ok(())
}

/// Returns whether a call has clauses other than arguments, FILTER and OVER, such as DISTINCT or ORDER BY.
fn is_adorned(call: &Call) -> bool {
    let is_plain =
        |list: &FunctionArgumentList| list.duplicate_treatment.is_none() && list.clauses.is_empty();
    let has_plain_arguments = match &call.args {
        FunctionArguments::List(list) => is_plain(list),
        FunctionArguments::None | FunctionArguments::Subquery(_) => true,
    };
    !has_plain_arguments || call.null_treatment.is_some() || !call.within_group.is_empty()
}

fn is_aggregate(state: &SessionState, call: &Call) -> bool {
    name_of(call).is_some_and(|name| state.aggregate_functions().contains_key(&name))
}

fn all() -> impl Iterator<Item = &'static Function> {
    FUNCTIONS.iter().flat_map(|(_, functions)| *functions)
}

/// Returns the names of the functions that are rewritten.
pub fn function_names() -> impl Iterator<Item = &'static str> {
    all().map(|function| function.name)
}

/// Returns the table of rewritten functions as text, as `docs/sql.md` contains it.
#[cfg(test)]
fn listed() -> String {
    let mut text = String::from("| about | functions |\n| --- | --- |\n");
    for (about, functions) in FUNCTIONS {
        let calls: Vec<String> = functions.iter().map(|function| format!("`{}`", usage(function))).collect();
        text.push_str(&format!("| {about} | {} |\n", calls.join(", ")));
    }
    text
}

fn name_of(call: &Call) -> Option<String> {
    match call.name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => Some(name.value.to_lowercase()),
        _ => None,
    }
}

fn arguments(call: &Call) -> Option<&[FunctionArg]> {
    match &call.args {
        FunctionArguments::List(list) => Some(&list.args),
        FunctionArguments::None | FunctionArguments::Subquery(_) => None,
    }
}

fn usage(function: &Function) -> String {
    let parameters: Vec<&str> = function.parameters.iter().map(|name| name.trim_end_matches('_')).collect();
    format!("{}({})", function.name, parameters.join(", "))
}

/// Returns the replacement that belongs to the unit of time (such as `'day'`), the call's first argument.
fn by_unit(call: &Call, texts: &[(&str, &'static str)], usage: &str) -> Result<&'static str> {
    let unit = match arguments(call).and_then(<[FunctionArg]>::first) {
        Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(ValueWithSpan {
            value: Value::SingleQuotedString(unit),
            ..
        })))) => unit.to_lowercase(),
        _ => String::new(),
    };
    let found = texts.iter().find(|(known, _)| unit == *known || unit.strip_suffix('s') == Some(*known));
    let units: Vec<String> = texts.iter().map(|(unit, _)| format!("'{unit}'")).collect();
    found.map(|(_, text)| *text).ok_or_else(|| {
        let what = format!("the first argument of {usage} is one of {}", units.join(", "));
        refusal(&what, "write it as a constant")
    })
}

/// Converts an argument to the form that the engine's function takes: a constant C format (`%f` has six digits in C and
/// nine here), or a JSON path, which becomes a list of steps.
fn in_format(function: &str, parameter: &str, value: &Expr) -> Result<Expr> {
    if parameter == "path" {
        return json::path(value);
    }
    let mut value = value.clone();
    if matches!((function, parameter), ("strftime" | "strptime", "format"))
        && let Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(format), .. }) = &mut value
    {
        *format = format.replace("%f", "%6f");
    }
    Ok(value)
}

fn nested(expr: Expr) -> Expr {
    match expr {
        Expr::Value(_) | Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Function(_) => expr,
        Expr::Nested(_) => expr,
        other => Expr::Nested(Box::new(other)),
    }
}
