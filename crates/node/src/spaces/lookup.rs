//! Finds the keys that a SQL filter over a key space (namespace of keys) names, by `key = 'a'` or IN, so that these
//! keys are looked up instead of scanning the space.

use super::SpaceTable;
use arrow_schema::DataType;
use farpool_model::limits::KV_LOOKUPS_MAX;
use farpool_model::{CompareOp, Expr, Literal, Value};

/// Returns the keys, without duplicates, one of which each row that passes the filter must have; `None` if the filter
/// does not name keys, or names too many.
pub(super) fn keys(filter: &Expr, space: &SpaceTable) -> Option<Vec<Vec<u8>>> {
    let parts = match filter {
        Expr::And(parts) => &parts[..],
        other => std::slice::from_ref(other),
    };
    let literals = parts.iter().filter_map(literals).min_by_key(|literals| literals.len())?;
    if literals.len() > KV_LOOKUPS_MAX {
        return None;
    }
    let values = literals.into_iter().filter(|literal| !matches!(literal.value(), Value::Null));
    let mut keys = values.map(|literal| key(literal, space)).collect::<Option<Vec<_>>>()?;
    keys.sort_unstable();
    keys.dedup();
    Some(keys)
}

/// Returns the values of the first column to which a condition limits rows; `None` if it does not limit them to certain
/// values.
fn literals(condition: &Expr) -> Option<Vec<&Literal>> {
    match condition {
        Expr::Compare(CompareOp::Eq, left, right) => match (&**left, &**right) {
            (Expr::Column(0), Expr::Literal(literal)) | (Expr::Literal(literal), Expr::Column(0)) => {
                Some(vec![literal])
            }
            _ => None,
        },
        Expr::InList(value, literals) if **value == Expr::Column(0) => Some(literals.iter().collect()),
        _ => None,
    }
}

/// Returns the key for a value of the first column; `None` if the value has no text form, or several.
fn key(literal: &Literal, space: &SpaceTable) -> Option<Vec<u8>> {
    let bytes = match (literal.value(), literal.data_type()) {
        (Value::Text(text), _) => text.clone().into_bytes(),
        (Value::Bytes(bytes), _) => bytes.clone(),
        (Value::Bool(value), DataType::Boolean) => vec![u8::from(*value)],
        (Value::Int(value), _) => value.to_le_bytes()[..space.rows.as_ref()?.key().kind.width()?].to_vec(),
        // Equal floats can have several texts, so a float does not name a single key.
        _ => return None,
    };
    match &space.rows {
        Some(schema) => Some([&space.prefix, &*schema.key().kind.value_text(&bytes)].concat()),
        None => Some(bytes),
    }
}
