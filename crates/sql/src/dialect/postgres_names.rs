//! The names that PostgreSQL gives to columns of a result without an alias (its function FigureColname): that of a
//! function, a type or a kind of expression, and `?column?` otherwise. Clients that address columns by name rely on it.

use super::headers::{leftmost, normal};
use datafusion::sql::sqlparser::ast::{
    AccessExpr, ArrayElemTypeDef, DataType, Expr, Function, FunctionArguments, Query, SelectItem,
    TimezoneInfo, TrimWhereField, Value,
};

/// The name of a column that has none.
const NAMELESS: &str = "?column?";

/// A name, and whether it counts even within a cast.
struct Found {
    name: String,
    is_strong: bool,
}

fn strong(name: impl Into<String>) -> Option<Found> {
    Some(Found { name: name.into(), is_strong: true })
}

fn weak(name: impl Into<String>) -> Option<Found> {
    Some(Found { name: name.into(), is_strong: false })
}

/// Returns the name of the column for an expression.
pub(super) fn name(expr: &Expr, lowers: bool) -> String {
    found(expr, lowers).map_or_else(|| NAMELESS.to_string(), |found| found.name)
}

fn found(expr: &Expr, lowers: bool) -> Option<Found> {
    match expr {
        Expr::Identifier(name) => strong(normal(name, lowers)),
        Expr::CompoundIdentifier(path) => strong(normal(path.last()?, lowers)),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => found(inner, lowers),
        Expr::CompoundFieldAccess { root, access_chain } => match access_chain.last()? {
            AccessExpr::Dot(field) => found(field, lowers),
            AccessExpr::Subscript(_) => found(root, lowers),
        },
        Expr::Function(function) => of_function(function, lowers),
        Expr::Cast { expr: inner, data_type, .. } => match found(inner, lowers) {
            Some(inner) if inner.is_strong => Some(inner),
            _ => weak(of_type(data_type)),
        },
        Expr::TypedString(constant) => weak(of_type(&constant.data_type)),
        Expr::Interval(_) => weak("interval"),
        Expr::Value(value) if matches!(value.value, Value::Boolean(_)) => weak("bool"),
        Expr::Case { else_result, .. } => match else_result.as_ref().and_then(|other| found(other, lowers)) {
            Some(other) if other.is_strong => Some(other),
            _ => weak("case"),
        },
        Expr::Exists { .. } => strong("exists"),
        Expr::Subquery(query) => of_query(query, lowers),
        Expr::Array(_) => strong("array"),
        Expr::Tuple(_) => strong("row"),
        Expr::Extract { .. } => strong("extract"),
        Expr::Substring { .. } => strong("substring"),
        Expr::Position { .. } => strong("position"),
        Expr::Overlay { .. } => strong("overlay"),
        Expr::Ceil { .. } => strong("ceil"),
        Expr::Floor { .. } => strong("floor"),
        Expr::AtTimeZone { .. } => strong("timezone"),
        Expr::Trim { trim_where, .. } => strong(match trim_where {
            Some(TrimWhereField::Leading) => "ltrim",
            Some(TrimWhereField::Trailing) => "rtrim",
            Some(TrimWhereField::Both) | None => "btrim",
        }),
        _ => None,
    }
}

fn of_function(function: &Function, lowers: bool) -> Option<Found> {
    let name = normal(function.name.0.last()?.as_ident()?, lowers);
    match (&function.args, name.as_str()) {
        (FunctionArguments::Subquery(_), "array") => strong("array"),
        (_, "trim") => strong("btrim"),
        _ => strong(name),
    }
}

/// Returns the name of the only column of a subquery.
fn of_query(query: &Query, lowers: bool) -> Option<Found> {
    match leftmost(query)?.projection.first()? {
        SelectItem::UnnamedExpr(expr) => found(expr, lowers).map(|found| Found { is_strong: true, ..found }),
        SelectItem::ExprWithAlias { alias, .. } => strong(normal(alias, lowers)),
        _ => None,
    }
}

/// Returns the name that a type has in PostgreSQL's catalog.
fn of_type(data_type: &DataType) -> String {
    let name = match data_type {
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => "int4",
        DataType::BigInt(_) | DataType::Int8(_) => "int8",
        DataType::SmallInt(_) | DataType::Int2(_) => "int2",
        DataType::Real | DataType::Float4 => "float4",
        DataType::Double(_) | DataType::DoublePrecision | DataType::Float8 | DataType::Float(_) => "float8",
        DataType::Numeric(_) | DataType::Decimal(_) | DataType::Dec(_) => "numeric",
        DataType::Varchar(_) | DataType::CharacterVarying(_) => "varchar",
        DataType::Char(_) | DataType::Character(_) => "bpchar",
        DataType::Boolean | DataType::Bool => "bool",
        DataType::Time(_, zone) => with_zone(zone, "time", "timetz"),
        DataType::Timestamp(_, zone) => with_zone(zone, "timestamp", "timestamptz"),
        DataType::Interval { .. } => "interval",
        DataType::Array(
            ArrayElemTypeDef::SquareBracket(element, _)
            | ArrayElemTypeDef::AngleBracket(element)
            | ArrayElemTypeDef::Parenthesis(element),
        ) => return of_type(element),
        other => {
            let written = other.to_string().to_lowercase();
            let name = written.split('(').next().unwrap_or_default();
            return name.rsplit('.').next().unwrap_or(name).trim().to_string();
        }
    };
    name.to_string()
}

fn with_zone<'a>(zone: &TimezoneInfo, without: &'a str, with: &'a str) -> &'a str {
    match zone {
        TimezoneInfo::Tz | TimezoneInfo::WithTimeZone => with,
        TimezoneInfo::None | TimezoneInfo::WithoutTimeZone => without,
    }
}
