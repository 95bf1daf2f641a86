//! Commands of the Redis protocol on the bits of strings, such as `SETBIT` and `BITCOUNT`. Bit 0 is the highest bit of
//! the first byte.

use super::strings::range;
use super::{Args, Context, Done, SYNTAX, integer};
use farpool_model::limits::KV_VALUE_BYTES_MAX;

fn offset(text: &[u8]) -> Result<usize, super::Refusal> {
    let refused = "ERR bit offset is not an integer or out of range";
    let offset = integer(text).ok().and_then(|offset| usize::try_from(offset).ok());
    offset.filter(|offset| offset / 8 < KV_VALUE_BYTES_MAX).ok_or_else(|| refused.into())
}

fn bit(value: &[u8], offset: usize) -> i64 {
    value.get(offset / 8).map_or(0, |byte| i64::from(byte >> (7 - offset % 8) & 1))
}

pub(super) fn getbit(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let offset = offset(args[2])?;
    let found = bit(&context.handle(args[1]).string()?.unwrap_or_default(), offset);
    context.replies.integer(found);
    Ok(())
}

pub(super) fn setbit(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let offset = offset(args[2])?;
    let set = match args[3] {
        b"0" => 0i64,
        b"1" => 1,
        _ => return Err("ERR bit is not an integer or out of range".into()),
    };
    let mut handle = context.handle(args[1]);
    let value = handle.string()?.unwrap_or_default();
    let (before, bytes) = (bit(&value, offset), value.len().max(offset / 8 + 1));
    if before == set && bytes == value.len() {
        // The value is not written, because the bit has the wanted value already; so watches are not touched.
        context.replies.integer(before);
        return Ok(());
    }
    let mask = 0x80 >> (offset % 8);
    handle.edit(bytes, offset / 8..offset / 8 + 1, |byte| {
        byte[0] = if set == 1 { byte[0] | mask } else { byte[0] & !mask };
    })?;
    context.replies.integer(before);
    Ok(())
}

/// Returns the number of set bits, counted eight bytes at a time.
fn ones(bytes: &[u8]) -> i64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let of_words: i64 = words.iter().map(|word| i64::from(u64::from_ne_bytes(*word).count_ones())).sum();
    of_words + rest.iter().map(|byte| i64::from(byte.count_ones())).sum::<i64>()
}

pub(super) fn bitcount(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    // The key is checked before the other arguments, as in Redis.
    let handle = context.handle(args[1]);
    let Some(value) = handle.string()? else {
        context.replies.integer(0);
        return Ok(());
    };
    let bounds = match args {
        [_, _] => (0, -1),
        [_, _, start, end] | [_, _, start, end, _] => (integer(start)?, integer(end)?),
        _ => return Err(SYNTAX.into()),
    };
    let in_bits = match args.get(4) {
        None => false,
        Some(unit) if unit.eq_ignore_ascii_case(b"byte") => false,
        Some(unit) if unit.eq_ignore_ascii_case(b"bit") => true,
        Some(_) => return Err(SYNTAX.into()),
    };
    let count = if in_bits {
        let bits = range(bounds.0, bounds.1, value.len() * 8);
        // Whole bytes are counted at once, the bits before and after them one by one.
        let whole = bits.start.div_ceil(8)..(bits.end / 8).max(bits.start.div_ceil(8));
        let edges = bits.clone().take(8).filter(|at| *at < whole.start * 8);
        let behind = (whole.end * 8).max(bits.start)..bits.end;
        let single = edges.chain(behind).map(|at| bit(&value, at)).sum::<i64>();
        ones(value.get(whole).unwrap_or_default()) + single
    } else {
        ones(&value[range(bounds.0, bounds.1, value.len())])
    };
    context.replies.integer(count);
    Ok(())
}
