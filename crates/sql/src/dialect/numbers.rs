//! Reads `0x1F` as the integer 31, as in PostgreSQL and DuckDB; `X'1F'` stays a binary string. The parser produces the
//! same value for both, so that the text of the statement must be inspected.

use super::refusal;
use crate::statements::Offsets;
use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{Value, ValueWithSpan};

/// If the value was written as a hexadecimal integer, rewrites it to that integer. `text` is the statement's text.
pub(super) fn apply(value: &mut ValueWithSpan, text: &str) -> Result<()> {
    let Value::HexStringLiteral(digits) = &value.value else { return Ok(()) };
    let at = Offsets::new(text).of(value.span.start);
    if !text.get(at..).is_some_and(|rest| rest.starts_with("0x") || rest.starts_with("0X")) {
        return Ok(());
    }
    let Ok(number) = u64::from_str_radix(&digits.replace('_', ""), 16) else {
        return Err(refusal(
            &format!("0x{digits} is no integer of 64 bits"),
            "write X'…' for a binary string",
        ));
    };
    value.value = Value::Number(number.to_string(), false);
    Ok(())
}
