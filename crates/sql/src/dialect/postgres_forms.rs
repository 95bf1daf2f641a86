//! Forms that mean something else in PostgreSQL than here: `x::varchar(3)` cuts a text, seconds have their fraction, and
//! base 64 has padding.

use super::{refusal, sql};
use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{
    CharacterLength, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    TableAliasColumnDef, TableFactor, Value, ValueWithSpan,
};

/// Rewrites an expression to one with PostgreSQL's meaning.
///
/// # Errors
/// Fails for a form that is not carried out.
pub(super) fn apply(expr: &mut Expr) -> Result<()> {
    let made = match expr {
        Expr::Cast { data_type, expr: value, .. } => match data_type {
            DataType::Varchar(Some(length)) | DataType::CharacterVarying(Some(length)) => {
                let text = format!("left(CAST(x AS VARCHAR), {})", characters(length)?);
                Some(sql::expr_with(&text, &[("x", (**value).clone())])?)
            }
            DataType::Char(Some(_)) | DataType::Character(Some(_)) => {
                return Err(refusal(
                    "a cast to char(n) is not done",
                    "cast to varchar(n), which has no blanks at the end",
                ));
            }
            _ => None,
        },
        Expr::Extract { field, expr: value, .. } => match parts_of_second(&field.to_string()) {
            Some(per_second) => Some(seconds(value, per_second)?),
            None => None,
        },
        Expr::Function(function) if super::headers::is_called(function, "date_part") => {
            match arguments(function) {
                Some((part, value)) => match parts_of_second(part) {
                    Some(per_second) => {
                        let seconds = seconds(value, per_second)?;
                        Some(sql::expr_with("CAST(x AS DOUBLE)", &[("x", seconds)])?)
                    }
                    None => None,
                },
                None => None,
            }
        }
        Expr::Function(function) if super::headers::is_called(function, "encode") => base64(function)?,
        _ => None,
    };
    if let Some(made) = made {
        *expr = made;
    }
    Ok(())
}

/// Names the only column of a function in FROM by the alias of the function: `FROM unnest(list) x` has the column `x`.
pub(super) fn name_by_alias(table: &mut TableFactor) {
    let alias = match table {
        TableFactor::UNNEST { alias: Some(alias), array_exprs, with_offset: false, .. }
            if array_exprs.len() == 1 =>
        {
            alias
        }
        TableFactor::Table { name, args: Some(_), alias: Some(alias), .. }
            if ["generate_series", "unnest"].contains(&name.to_string().to_lowercase().as_str()) =>
        {
            alias
        }
        _ => return,
    };
    if alias.columns.is_empty() {
        alias.columns.push(TableAliasColumnDef { name: alias.name.clone(), data_type: None });
    }
}

/// Rewrites `encode(bytes, 'base64')` to lines of 76 signs with padding at the end (RFC 2045), as PostgreSQL writes them.
fn base64(function: &Function) -> Result<Option<Expr>> {
    let FunctionArguments::List(list) = &function.args else { return Ok(None) };
    let [
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(form)),
    ] = list.args.as_slice()
    else {
        return Ok(None);
    };
    let is_base64 = matches!(form, Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(form), .. })
        if form.eq_ignore_ascii_case("base64"));
    if !is_base64 {
        return Ok(None);
    }
    let text =
        "rtrim(regexp_replace(encode(x, 'base64pad'), '(.{76})', concat('\\1', chr(10)), 'g'), chr(10))";
    sql::expr_with(text, &[("x", value.clone())]).map(Some)
}

fn characters(length: &CharacterLength) -> Result<u64> {
    match length {
        CharacterLength::IntegerLength { length, .. } => Ok(*length),
        CharacterLength::Max => Err(refusal("varchar(max) is not a type", "write varchar")),
    }
}

/// Returns how many of a part there are in a second; `None` for a part that has no fraction in PostgreSQL.
fn parts_of_second(part: &str) -> Option<u32> {
    match part.to_ascii_lowercase().as_str() {
        "second" | "seconds" => Some(1),
        "millisecond" | "milliseconds" => Some(1000),
        _ => None,
    }
}

/// Returns the seconds of a time within its minute, or parts of them, with their fraction.
fn seconds(value: &Expr, per_second: u32) -> Result<Expr> {
    let (divisor, scale) = (1_000_000 / per_second, if per_second == 1 { 6 } else { 3 });
    let text = format!(
        "CAST(CAST(date_part('microsecond', x) AS DECIMAL(18, {scale})) / {divisor} AS DECIMAL(18, {scale}))"
    );
    sql::expr_with(&text, &[("x", value.clone())])
}

fn arguments(function: &Function) -> Option<(&str, &Expr)> {
    let FunctionArguments::List(list) = &function.args else { return None };
    match list.args.as_slice() {
        [
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(ValueWithSpan {
                value: Value::SingleQuotedString(part),
                ..
            }))),
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)),
        ] => Some((part, value)),
        _ => None,
    }
}
