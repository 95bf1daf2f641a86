//! Rewrites expressions that DataFusion 55.2 lacks to equivalent ones: `GROUP BY ()`, `x // y`, `'…'::uuid`, `ORDER BY
//! x COLLATE "C"`, `percentile_disc(…)`, and functions of lists with a lambda.

use super::headers::is_called;
use super::{call, refusal, sql};
use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, GroupByExpr, LambdaFunction, LambdaFunctionParameter, LambdaSyntax, ObjectName,
    OneOrManyWithParens, OrderByExpr, Select,
};

/// Rewrites `GROUP BY ()`, which is one group of all rows, even if there are none.
pub(super) fn grand_total(select: &mut Select) -> Result<()> {
    let GroupByExpr::Expressions(keys, modifiers) = &mut select.group_by else { return Ok(()) };
    let is_empty = |key: &Expr| matches!(key, Expr::Tuple(parts) if parts.is_empty());
    if !keys.iter().any(is_empty) || !modifiers.is_empty() {
        return Ok(());
    }
    keys.retain(|key| !is_empty(key));
    if keys.is_empty() && select.having.is_none() {
        // The condition is always true. HAVING without GROUP BY makes the query an aggregation of all rows, whatever
        // its SELECT list.
        select.having = Some(sql::expr("count(*) >= 0")?);
    }
    Ok(())
}

pub(super) fn apply(expr: &mut Expr) -> Result<()> {
    match expr {
        Expr::BinaryOp { left, op: BinaryOperator::DuckIntegerDivide, right } => {
            let op = BinaryOperator::Divide;
            *expr = Expr::BinaryOp { left: left.clone(), op, right: right.clone() };
        }
        Expr::Cast { data_type: DataType::Uuid, expr: value, .. } => {
            *expr = call("to_uuid", vec![(**value).clone()]);
        }
        Expr::TypedString(typed) if typed.data_type == DataType::Uuid => {
            *expr = call("to_uuid", vec![Expr::Value(typed.value.clone())]);
        }
        Expr::Collate { expr: value, collation } => {
            // The default is that of the database, whose texts are compared by their characters.
            let name = collation.to_string().to_lowercase().replace('"', "");
            let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
            if !["c", "posix", "ucs_basic", "binary", "default"].contains(&name) {
                let what = format!("there is no collation {collation} here");
                return Err(refusal(
                    &what,
                    "texts are compared by their characters, COLLATE \"C\"; NOCASE may stand in ORDER BY",
                ));
            }
            *expr = (**value).clone();
        }
        Expr::Function(function) if is_called(function, "percentile_disc") => {
            *expr = percentile_disc(function)?;
        }
        Expr::Function(function) if is_called(function, "string_agg") => {
            if let Some(made) = distinct_texts(function) {
                *expr = made;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Rewrites `string_agg(DISTINCT x, ',' ORDER BY x)` to a list that is converted to a string, because the engine
/// supports no ORDER BY next to DISTINCT in `string_agg`.
fn distinct_texts(function: &Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let is_distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(value)), separator] = list.args.as_slice() else {
        return None;
    };
    if !is_distinct || list.clauses.is_empty() || function.over.is_some() {
        return None;
    }
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(separator)) = separator else { return None };
    let mut lists = function.clone();
    lists.name = ObjectName::from(vec!["array_agg".into()]);
    if let FunctionArguments::List(list) = &mut lists.args {
        list.args.truncate(1);
    }
    let is_there = Expr::Nested(Box::new(Expr::IsNotNull(Box::new(Expr::Nested(Box::new(value.clone()))))));
    let condition = match lists.filter.take() {
        Some(filter) => Expr::BinaryOp {
            left: Box::new(is_there),
            op: BinaryOperator::And,
            right: Box::new(Expr::Nested(filter)),
        },
        None => is_there,
    };
    lists.filter = Some(Box::new(condition));
    Some(call("array_to_string", vec![Expr::Function(lists), separator.clone()]))
}

/// Rewrites `ORDER BY x COLLATE NOCASE`.
pub(super) fn order(key: &mut OrderByExpr) {
    let Expr::Collate { expr, collation } = &key.expr else { return };
    if collation.to_string().trim_matches('"').eq_ignore_ascii_case("nocase") {
        key.expr = call("lower", vec![(**expr).clone()]);
    }
}

/// Returns an expression for the discrete percentile: the least value such that at least the fraction `p` of the values
/// are not greater.
fn percentile_disc(function: &Function) -> Result<Expr> {
    let ([key], FunctionArguments::List(list)) = (function.within_group.as_slice(), &function.args) else {
        let advice = "write percentile_disc(0.5) WITHIN GROUP (ORDER BY x)";
        return Err(refusal("percentile_disc without the order of its values", advice));
    };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(share))] = list.args.as_slice() else {
        return Err(refusal("percentile_disc of other than one share", "write it once for each share"));
    };
    if function.over.is_some() {
        return Err(refusal("percentile_disc in a window", "compute it in a subquery with GROUP BY"));
    }
    let order = if key.options.asc == Some(false) { "DESC" } else { "ASC" };
    let condition =
        if function.filter.is_some() { "value IS NOT NULL AND condition" } else { "value IS NOT NULL" };
    let text = format!(
        "array_element(array_agg(value ORDER BY value {order}) FILTER (WHERE {condition}), \
         CAST(greatest(ceil(CAST(share AS DOUBLE) * CAST(count(value) FILTER (WHERE {condition}) AS DOUBLE)), \
         CAST(1 AS DOUBLE)) AS BIGINT))"
    );
    let mut named = vec![("value", key.expr.clone()), ("share", share.clone())];
    named.extend(function.filter.as_ref().map(|filter| ("condition", Expr::Nested(filter.clone()))));
    sql::expr_with(&text, &named)
}

/// Functions of a list and a lambda, in other systems and in the engine.
const OF_LAMBDAS: &[(&str, &str)] = &[
    ("list_transform", "array_transform"),
    ("array_transform", "array_transform"),
    ("list_apply", "array_transform"),
    ("array_apply", "array_transform"),
    ("list_filter", "array_filter"),
    ("array_filter", "array_filter"),
];

/// Parses `x -> …` among the arguments of functions in [`OF_LAMBDAS`] as a lambda. Otherwise `->` would be taken for a
/// JSON operator.
pub(super) fn lambdas(expr: &mut Expr) -> Result<()> {
    let Expr::Function(function) = expr else { return Ok(()) };
    let Some((_, engine)) = OF_LAMBDAS.iter().find(|(name, _)| is_called(function, name)) else {
        return Ok(());
    };
    function.name = ObjectName::from(vec![(*engine).into()]);
    let FunctionArguments::List(list) = &mut function.args else { return Ok(()) };
    for argument in list.args.iter_mut().skip(1) {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(body)) = argument else { continue };
        if let Some(params) = parameters(body) {
            let lambda = LambdaFunction { params, body: Box::new(body.clone()), syntax: LambdaSyntax::Arrow };
            *body = Expr::Lambda(lambda);
        }
    }
    Ok(())
}

/// Removes and returns the parameters at the left end of `x -> x + 1 > 2`, which the grammar parses as `(x -> x + 1) >
/// 2`; the rest is the body of the lambda.
fn parameters(body: &mut Expr) -> Option<OneOrManyWithParens<LambdaFunctionParameter>> {
    let mut left = body;
    loop {
        match left {
            Expr::BinaryOp { left: names, op: BinaryOperator::Arrow, right } => {
                let named = |name: &Expr| match name {
                    Expr::Identifier(name) => {
                        Some(LambdaFunctionParameter { name: name.clone(), data_type: None })
                    }
                    _ => None,
                };
                let params = match &**names {
                    Expr::Tuple(names) => {
                        OneOrManyWithParens::Many(names.iter().map(named).collect::<Option<_>>()?)
                    }
                    Expr::Nested(name) => OneOrManyWithParens::One(named(name)?),
                    name => OneOrManyWithParens::One(named(name)?),
                };
                let right = (**right).clone();
                *left = right;
                return Some(params);
            }
            Expr::BinaryOp { left: inner, .. }
            | Expr::IsNull(inner)
            | Expr::IsNotNull(inner)
            | Expr::Between { expr: inner, .. }
            | Expr::InList { expr: inner, .. }
            | Expr::Like { expr: inner, .. }
            | Expr::ILike { expr: inner, .. } => left = inner,
            _ => return None,
        }
    }
}
