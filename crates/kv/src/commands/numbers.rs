//! Commands of the Redis protocol on strings that are numbers in decimal notation, such as `INCR`.

use super::{Args, Context, Done, NOT_FLOAT, NOT_INTEGER, integer};
use crate::resp::{ExtendedFloat, INTEGER_TEXT_BYTES, integer_text, parse_integer};

fn add(context: &mut Context<'_, '_>, key: &[u8], by: i64) -> Done {
    let mut handle = context.handle(key);
    let before = match handle.string()? {
        Some(value) => parse_integer(&value).ok_or(NOT_INTEGER)?,
        None => 0,
    };
    let after = before.checked_add(by).ok_or("ERR increment or decrement would overflow")?;
    let mut buffer = [0; INTEGER_TEXT_BYTES];
    let text = integer_text(after, &mut buffer);
    handle.edit(text.len(), 0..text.len(), |value| value.copy_from_slice(text))?;
    context.replies.integer(after);
    Ok(())
}

pub(super) fn incr(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    add(context, args[1], 1)
}

pub(super) fn decr(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    add(context, args[1], -1)
}

pub(super) fn incrby(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    add(context, args[1], integer(args[2])?)
}

pub(super) fn decrby(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let by = integer(args[2])?.checked_neg().ok_or("ERR decrement would overflow")?;
    add(context, args[1], by)
}

pub(super) fn incrbyfloat(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let mut handle = context.handle(args[1]);
    let float = |text: &[u8]| ExtendedFloat::parse(text).ok_or(NOT_FLOAT);
    let before = handle.string()?.map_or(Ok(ExtendedFloat::of_integer(0)), |text| float(&text))?;
    let by = float(args[2])?;
    let after = before.plus(by).ok_or("ERR increment would produce NaN or Infinity")?;
    let text = after.text();
    handle.edit(text.len(), 0..text.len(), |value| value.copy_from_slice(text.as_bytes()))?;
    context.replies.bulk(text.as_bytes());
    Ok(())
}
