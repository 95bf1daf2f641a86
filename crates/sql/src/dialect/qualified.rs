//! Rewrites what PostgreSQL's tools qualify with its catalog, although they mean what the engine has: functions
//! (`pg_catalog.format_type(…)`), operators (`x OPERATOR(pg_catalog.=) y`) and types (`x::pg_catalog.text`). Also types
//! that only PostgreSQL has (`x::name`), names of objects in place of their numbers (`'t'::regclass`), `ARRAY(SELECT x …)`
//! and `generate_subscripts`.

use super::headers::is_called;
use super::{call, refusal, sql};
use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, ArrayElemTypeDef, BinaryOperator, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArguments, GroupByExpr, ObjectName, ObjectNamePart, OrderByKind,
    SelectItem, SetExpr, TableFactor, Value, ValueWithSpan,
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
            without(&mut function.name);
            if is_called(function, EXPANDED) {
                *expr = call("unnest", vec![expr.clone()]);
                return Ok(());
            }
            if let Some(other) =
                list_of_rows(function).map_or_else(|| subscripts(function), |list| Ok(Some(list)))?
            {
                *expr = other;
            }
        }
        Expr::BinaryOp { left, op, right } => {
            if let BinaryOperator::PGCustomBinaryOperator(parts) = op {
                *op = operator(parts)?;
            }
            if matches!(op, BinaryOperator::Eq | BinaryOperator::NotEq) && is_function(left) && is_zero(right)
            {
                **right = Expr::value(Value::SingleQuotedString(NO_FUNCTION.into()));
            }
        }
        Expr::CompoundFieldAccess { root, access_chain } => {
            if let Some(field) = field_of(root, access_chain) {
                *expr = field;
            }
        }
        Expr::Cast { data_type: DataType::Regclass, expr: value, .. } => *expr = object("regclass", value),
        Expr::Cast { data_type: DataType::Custom(custom, modifiers), expr: value, .. } => {
            let Some(wanted) = unqualified(custom) else { return Ok(()) };
            if OBJECTS.contains(&wanted.as_str()) {
                *expr = object(&wanted, value);
            } else if let Some(held) = held(&wanted, modifiers)?
                && let Expr::Cast { data_type: custom, .. } = expr
            {
                *custom = held;
            }
        }
        Expr::Cast { data_type: DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)), .. } => {
            if let DataType::Custom(custom, modifiers) = &**element
                && let Some(held) =
                    unqualified(custom).map(|name| held(&name, modifiers)).transpose()?.flatten()
            {
                **element = held;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Returns the type in which values of PostgreSQL's type `name` are held; `None` if it is not one of those.
fn held(name: &str, modifiers: &[String]) -> Result<Option<DataType>> {
    let Some((_, ours)) = TYPES.iter().find(|(known, _)| *known == name) else { return Ok(None) };
    let modifiers = match modifiers {
        [] => String::new(),
        modifiers => format!("({})", modifiers.join(", ")),
    };
    match sql::expr(&format!("CAST(NULL AS {ours}{modifiers})"))? {
        Expr::Cast { data_type, .. } => Ok(Some(data_type)),
        _ => Ok(None),
    }
}

/// Removes the catalog from the name of a function in FROM.
pub(super) fn in_from(table: &mut TableFactor) {
    match table {
        TableFactor::Table { name, args: Some(_), .. } | TableFactor::Function { name, .. } => without(name),
        _ => {}
    }
}

/// Removes `database`, which is the session's, from the name of a table of the catalog or of the information schema: these
/// stand in no pool.
pub(super) fn without_database(table: &mut TableFactor, database: &str) {
    let TableFactor::Table { name, args: None, .. } = table else { return };
    let is_named = |part: &ObjectNamePart, names: &[&str]| {
        part.as_ident().is_some_and(|part| names.contains(&part.value.as_str()))
    };
    if let [first, schema, _] = name.0.as_slice()
        && is_named(first, &[database])
        && is_named(schema, &[CATALOG, "information_schema"])
    {
        name.0.remove(0);
    }
}

/// Removes the catalog from the name of a function.
fn without(name: &mut ObjectName) {
    if let [ObjectNamePart::Identifier(schema), ObjectNamePart::Identifier(function)] = name.0.as_slice()
        && (schema.value.eq_ignore_ascii_case(CATALOG) || function.value.eq_ignore_ascii_case(EXPANDED))
    {
        name.0.remove(0);
    }
}

/// A function of the schema `information_schema`: the elements of a list with their places, a row each.
const EXPANDED: &str = "_pg_expandarray";

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

/// Rewrites `generate_subscripts(list, dimension)` to rows with the places of the list's elements, of which there are none in
/// a dimension other than the first; `None` for another call.
fn subscripts(function: &Function) -> Result<Option<Expr>> {
    let FunctionArguments::List(arguments) = &function.args else { return Ok(None) };
    let [
        FunctionArg::Unnamed(FunctionArgExpr::Expr(list)),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(dimension)),
    ] = arguments.args.as_slice()
    else {
        return Ok(None);
    };
    if !is_called(function, "generate_subscripts") {
        return Ok(None);
    }
    let text = "unnest(generate_series(1, CASE WHEN dimension = 1 THEN array_length(list) END))";
    sql::expr_with(text, &[("list", list.clone()), ("dimension", dimension.clone())]).map(Some)
}

/// Rewrites a field of a structure that a call returns, `(f(x)).a`, which the engine takes of columns only; `None` for
/// another access.
fn field_of(root: &Expr, access_chain: &[AccessExpr]) -> Option<Expr> {
    let Expr::Nested(inner) = root else { return None };
    let (Expr::Function(_), [AccessExpr::Dot(Expr::Identifier(name))]) = (&**inner, access_chain) else {
        return None;
    };
    let name = Expr::value(Value::SingleQuotedString(name.value.clone()));
    Some(call("get_field", vec![(**inner).clone(), name]))
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

/// Columns of the catalog that name functions (`regproc`), which are texts here, and the text that stands for none.
const FUNCTIONS: &[&str] = &[
    "typinput",
    "typoutput",
    "typreceive",
    "typsend",
    "typmodin",
    "typmodout",
    "typanalyze",
    "typsubscript",
];
const NO_FUNCTION: &str = "-";

fn is_function(expr: &Expr) -> bool {
    let name = match expr {
        Expr::Nested(inner) => return is_function(inner),
        Expr::Identifier(name) => name,
        Expr::CompoundIdentifier(path) => match path.last() {
            Some(name) => name,
            None => return false,
        },
        _ => return false,
    };
    FUNCTIONS.iter().any(|known| name.value.eq_ignore_ascii_case(known))
}

fn is_zero(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) if digits == "0")
}

/// Returns the number of an object that is named by a text; otherwise the name of an object that is given by its number.
fn object(kind: &str, value: &Expr) -> Expr {
    let function = if is_text(value) { format!("{kind}_oid") } else { format!("{kind}_name") };
    call(&function, vec![value.clone()])
}

/// Returns whether an expression is a text by the looks of it: a constant, a parameter, or cast to one.
fn is_text(expr: &Expr) -> bool {
    match expr {
        Expr::Value(ValueWithSpan {
            value: Value::SingleQuotedString(_) | Value::Placeholder(_), ..
        }) => true,
        Expr::Cast { data_type, .. } => match data_type {
            DataType::Text | DataType::Varchar(_) | DataType::CharacterVarying(_) => true,
            DataType::Custom(name, _) => {
                unqualified(name).is_some_and(|name| name == "name" || name == "text")
            }
            _ => false,
        },
        Expr::Nested(inner) => is_text(inner),
        Expr::BinaryOp { op: BinaryOperator::StringConcat, .. } => true,
        // Functions return names, but for those that return numbers of objects.
        Expr::Function(function) => !function.name.to_string().ends_with("_oid"),
        _ => false,
    }
}
