//! Rewrites what PostgreSQL's tools qualify with its catalog, although they mean what the engine has: functions
//! (`pg_catalog.format_type(…)`), operators (`x OPERATOR(pg_catalog.=) y`) and types (`x::pg_catalog.text`). Also types
//! that only PostgreSQL has (`x::name`), names of objects in place of their numbers (`'t'::regclass`), and `ARRAY(SELECT x …)`.

use super::headers::is_called;
use super::{call, refusal, sql};
use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, Expr, Function, FunctionArgumentClause, FunctionArguments, GroupByExpr,
    ObjectName, ObjectNamePart, OrderByKind, SelectItem, SetExpr, Value, ValueWithSpan,
};

/// The schema of PostgreSQL's own functions, operators and types.
const CATALOG: &str = "pg_catalog";

/// Types of PostgreSQL for names and numbers of objects, and the types in which they are held here.
const TYPES: &[(&str, &str)] = &[
    ("name", "text"),
    ("oid", "bigint"),
    ("xid", "bigint"),
    ("cid", "bigint"),
    ("char", "text"),
    ("int2", "smallint"),
    ("int4", "int"),
    ("int8", "bigint"),
    ("float4", "real"),
    ("float8", "double precision"),
    ("bool", "boolean"),
    ("timestamptz", "timestamp with time zone"),
    ("bpchar", "text"),
    ("varchar", "text"),
    ("text", "text"),
    ("numeric", "numeric"),
    ("date", "date"),
    ("timestamp", "timestamp"),
    ("time", "time"),
    ("interval", "interval"),
    ("bytea", "bytea"),
    ("json", "text"),
    ("jsonb", "text"),
    ("unknown", "text"),
];

/// Types whose values are the numbers of objects and whose texts are their names.
const OBJECTS: &[&str] =
    &["regclass", "regtype", "regproc", "regprocedure", "regnamespace", "regrole", "regoper", "regcollation"];

pub(super) fn apply(expr: &mut Expr) -> Result<()> {
    match expr {
        Expr::Function(function) => {
            name(function);
            if let Some(list) = list_of_rows(function) {
                *expr = list;
            }
        }
        Expr::BinaryOp { op, .. } => {
            if let BinaryOperator::PGCustomBinaryOperator(parts) = op {
                *op = operator(parts)?;
            }
        }
        Expr::Cast { data_type: DataType::Regclass, expr: value, .. } => *expr = object("regclass", value),
        Expr::Cast { data_type: DataType::Custom(custom, modifiers), expr: value, .. } => {
            let Some(wanted) = unqualified(custom) else { return Ok(()) };
            if OBJECTS.contains(&wanted.as_str()) {
                *expr = object(&wanted, value);
            } else if let Some((_, ours)) = TYPES.iter().find(|(known, _)| *known == wanted) {
                let modifiers = match modifiers.as_slice() {
                    [] => String::new(),
                    modifiers => format!("({})", modifiers.join(", ")),
                };
                let Expr::Cast { data_type, .. } = sql::expr(&format!("CAST(NULL AS {ours}{modifiers})"))?
                else {
                    return Ok(());
                };
                if let Expr::Cast { data_type: custom, .. } = expr {
                    *custom = data_type;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// Removes the catalog from the name of a function.
fn name(function: &mut Function) {
    if let [ObjectNamePart::Identifier(schema), ObjectNamePart::Identifier(_)] = function.name.0.as_slice()
        && schema.value.eq_ignore_ascii_case(CATALOG)
    {
        function.name.0.remove(0);
    }
}

/// Rewrites `ARRAY(SELECT x … ORDER BY y)` to an aggregation, which is an empty list if there are no rows; `None` for
/// another call, and for a query whose rows an aggregate would not have.
fn list_of_rows(function: &Function) -> Option<Expr> {
    let FunctionArguments::Subquery(query) = &function.args else { return None };
    if !is_called(function, "array")
        || query.with.is_some()
        || query.limit_clause.is_some()
        || query.fetch.is_some()
    {
        return None;
    }
    let mut query = query.clone();
    let order = query.order_by.take();
    let SetExpr::Select(select) = &mut *query.body else { return None };
    let is_plain = select.distinct.is_none()
        && select.having.is_none()
        && matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
    let [SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }] =
        select.projection.as_slice()
    else {
        return None;
    };
    if !is_plain {
        return None;
    }
    let mut keys = match order.map(|order| order.kind) {
        None => Vec::new(),
        Some(OrderByKind::Expressions(keys)) => keys,
        Some(OrderByKind::All(_)) => return None,
    };
    for key in &mut keys {
        // The number of the only column.
        if matches!(&key.expr, Expr::Value(ValueWithSpan { value: Value::Number(..), .. })) {
            key.expr = value.clone();
        }
    }
    let mut all = call("array_agg", vec![value.clone()]);
    if let Expr::Function(Function { args: FunctionArguments::List(list), .. }) = &mut all
        && !keys.is_empty()
    {
        list.clauses.push(FunctionArgumentClause::OrderBy(keys));
    }
    select.projection = vec![SelectItem::UnnamedExpr(all)];
    Some(call("coalesce", vec![Expr::Subquery(query), call("make_array", Vec::new())]))
}

/// Returns the name of a type in lower case and without the catalog; `None` if it is in another schema.
fn unqualified(name: &ObjectName) -> Option<String> {
    let parts: Vec<_> =
        name.0.iter().filter_map(|part| part.as_ident()).map(|part| part.value.to_lowercase()).collect();
    match parts.as_slice() {
        [name] => Some(name.clone()),
        [schema, name] if schema == CATALOG => Some(name.clone()),
        _ => None,
    }
}

/// Returns the operator that is written with its schema.
fn operator(parts: &[String]) -> Result<BinaryOperator> {
    let sign = match parts {
        [sign] => sign,
        [schema, sign] if schema.eq_ignore_ascii_case(CATALOG) => sign,
        _ => "",
    };
    Ok(match sign {
        "=" => BinaryOperator::Eq,
        "<>" | "!=" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        "<=" => BinaryOperator::LtEq,
        ">" => BinaryOperator::Gt,
        ">=" => BinaryOperator::GtEq,
        "+" => BinaryOperator::Plus,
        "-" => BinaryOperator::Minus,
        "*" => BinaryOperator::Multiply,
        "/" => BinaryOperator::Divide,
        "%" => BinaryOperator::Modulo,
        "||" => BinaryOperator::StringConcat,
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "~~*" => BinaryOperator::PGILikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        "!~~*" => BinaryOperator::PGNotILikeMatch,
        _ => {
            return Err(refusal(
                &format!("there is no operator {}", parts.join(".")),
                "write one that SQL has",
            ));
        }
    })
}

/// Returns the number of an object that is named by a constant; otherwise the name of an object that is given by its
/// number.
fn object(kind: &str, value: &Expr) -> Expr {
    let is_name = matches!(value, Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. })
        if !text.bytes().all(|byte| byte.is_ascii_digit()));
    let function = if is_name { format!("{kind}_oid") } else { format!("{kind}_name") };
    call(&function, vec![value.clone()])
}
