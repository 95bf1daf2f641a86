//! Commands of the Redis protocol on hashes (values that map fields to values), such as `HSET`, `HGET` and `HSCAN`.

use super::keys::{SCAN_COUNT, SCAN_COUNT_LIMIT};
use super::pattern::Pattern;
use super::{Args, Context, Done, NOT_INTEGER, Refusal, SYNTAX, TOO_MUCH, integer};
use crate::fields::Fields;
use crate::resp::{ExtendedFloat, INTEGER_TEXT_BYTES, Replies, integer_text, parse_integer};

/// Number of operations on words of pattern matching that count as one visited field towards the limit of a call.
/// Needed because fields and patterns may be long.
const WORDS_PER_FIELD: usize = 1024;

/// Estimated bytes per string in a reply in addition to the bytes of the string itself: header and line end.
const BESIDE: usize = 16;

fn set_all(context: &mut Context<'_, '_>, args: &Args<'_>) -> Result<i64, Refusal> {
    if args.len() % 2 == 1 {
        let name = args[0].escape_ascii().to_string().to_lowercase();
        return Err(Refusal(format!("ERR wrong number of arguments for '{name}' command").into()));
    }
    let mut handle = context.handle(args[1]);
    handle.fields()?;
    // All fields are checked before the first is set, so that all are set or none.
    args[2..].chunks_exact(2).try_for_each(|pair| handle.check_field(pair[0], pair[1]))?;
    if let [field, value] = &args[2..] {
        return Ok(i64::from(handle.set_field(field, value)?));
    }
    let fields: Vec<(&[u8], &[u8])> = args[2..].chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    Ok(handle.set_fields_of_hash(&fields)? as i64)
}

pub(super) fn hset(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let added = set_all(context, args)?;
    context.replies.integer(added);
    Ok(())
}

pub(super) fn hmset(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    set_all(context, args)?;
    context.replies.ok();
    Ok(())
}

pub(super) fn hsetnx(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let mut handle = context.handle(args[1]);
    let is_absent = handle.fields()?.is_none_or(|fields| fields.get(args[2]).is_none());
    if is_absent {
        handle.set_field(args[2], args[3])?;
    }
    context.replies.integer(i64::from(is_absent));
    Ok(())
}

/// Replies with the value of a field of a hash, or with null if the hash or the field is absent.
fn reply_field(replies: &mut Replies<'_>, fields: Option<&Fields<'_>>, field: &[u8]) -> Done {
    match fields.and_then(|fields| fields.get(field)) {
        Some(value) if !replies.has_room(value.len()) => return Err(TOO_MUCH.into()),
        Some(value) => replies.bulk(&value),
        None => replies.null(),
    }
    Ok(())
}

pub(super) fn hget(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let (handle, replies) = context.handle_and_replies(args[1]);
    reply_field(replies, handle.fields()?.as_ref(), args[2])
}

pub(super) fn hmget(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let (handle, replies) = context.handle_and_replies(args[1]);
    let fields = handle.fields()?;
    replies.array(args.len() - 2);
    args[2..].iter().try_for_each(|field| reply_field(replies, fields.as_ref(), field))
}

pub(super) fn hexists(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let (handle, replies) = context.handle_and_replies(args[1]);
    let is_there = handle.fields()?.is_some_and(|fields| fields.get(args[2]).is_some());
    replies.integer(i64::from(is_there));
    Ok(())
}

pub(super) fn hlen(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let (handle, replies) = context.handle_and_replies(args[1]);
    replies.integer(handle.fields()?.as_ref().map_or(0, Fields::len) as i64);
    Ok(())
}

pub(super) fn hstrlen(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let (handle, replies) = context.handle_and_replies(args[1]);
    let value = handle.fields()?.and_then(|fields| fields.get(args[2]));
    replies.integer(value.map_or(0, |value| value.len()) as i64);
    Ok(())
}

pub(super) fn hdel(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let mut handle = context.handle(args[1]);
    handle.fields()?;
    let mut removed = 0;
    for field in &args[2..] {
        removed += i64::from(handle.remove_field(field)?);
    }
    context.replies.integer(removed);
    Ok(())
}

/// The parts of each field that the reply to `HKEYS`, `HVALS` or `HGETALL` contains: the name, the value or both.
#[derive(Clone, Copy, PartialEq)]
enum FieldParts {
    Names,
    Values,
    Both,
}

fn tell_all(context: &mut Context<'_, '_>, args: &Args<'_>, parts: FieldParts) -> Done {
    let (handle, replies) = context.handle_and_replies(args[1]);
    let fields = handle.fields()?;
    let count = fields.as_ref().map_or(0, Fields::len);
    match parts {
        FieldParts::Both => replies.map(count),
        FieldParts::Names | FieldParts::Values => replies.array(count),
    }
    let Some(fields) = fields else { return Ok(()) };
    let (mut cursor, mut fits) = (0, true);
    loop {
        cursor = fields.scan(cursor, |field, value| {
            fits &= replies.has_room(field.len() + value.len() + 2 * BESIDE);
            if fits && parts != FieldParts::Values {
                replies.bulk(field);
            }
            if fits && parts != FieldParts::Names {
                replies.bulk(value);
            }
        });
        if !fits {
            return Err(TOO_MUCH.into());
        }
        if cursor == 0 {
            return Ok(());
        }
    }
}

pub(super) fn hgetall(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    tell_all(context, args, FieldParts::Both)
}

pub(super) fn hkeys(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    tell_all(context, args, FieldParts::Names)
}

pub(super) fn hvals(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    tell_all(context, args, FieldParts::Values)
}

pub(super) fn hincrby(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let by = integer(args[3])?;
    let mut handle = context.handle(args[1]);
    let before = match handle.fields()?.and_then(|fields| fields.get(args[2])) {
        Some(value) => parse_integer(&value).ok_or("ERR hash value is not an integer")?,
        None => 0,
    };
    let after = before.checked_add(by).ok_or("ERR increment or decrement would overflow")?;
    handle.set_field(args[2], integer_text(after, &mut [0; INTEGER_TEXT_BYTES]))?;
    context.replies.integer(after);
    Ok(())
}

pub(super) fn hincrbyfloat(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let by = ExtendedFloat::parse(args[3]).ok_or(super::NOT_FLOAT)?;
    if by.plus(ExtendedFloat::of_integer(0)).is_none() {
        return Err("ERR value is NaN or Infinity".into());
    }
    let mut handle = context.handle(args[1]);
    let before = match handle.fields()?.and_then(|fields| fields.get(args[2])) {
        Some(value) => ExtendedFloat::parse(&value).ok_or("ERR hash value is not a float")?,
        None => ExtendedFloat::of_integer(0),
    };
    let after = before.plus(by).ok_or("ERR increment would produce NaN or Infinity")?.text();
    handle.set_field(args[2], after.as_bytes())?;
    context.replies.bulk(after.as_bytes());
    Ok(())
}

/// Parses the options of `HSCAN`: returns the pattern of `MATCH`, if given, and the number of fields to visit.
fn scan_options(options: &Args<'_>) -> Result<(Option<Pattern>, usize), Refusal> {
    let (mut pattern, mut count) = (None, SCAN_COUNT);
    for option in options.chunks(2) {
        let &[name, value] = option else { return Err(SYNTAX.into()) };
        match name.to_ascii_lowercase().as_slice() {
            b"match" => pattern = Some(Pattern::new(value)?),
            b"count" => match integer(value) {
                Ok(number) if number > 0 => count = (number as usize).min(SCAN_COUNT_LIMIT),
                Ok(_) => return Err(SYNTAX.into()),
                Err(_) => return Err(NOT_INTEGER.into()),
            },
            _ => return Err(SYNTAX.into()),
        }
    }
    Ok((pattern, count))
}

pub(super) fn hscan(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let mut cursor = super::keys::cursor(args[2])?;
    let (handle, replies) = context.handle_and_replies(args[1]);
    // The key is checked before the options, as in Redis.
    let Some(fields) = handle.fields()? else {
        replies.array(2);
        replies.bulk(b"0");
        replies.array(0);
        return Ok(());
    };
    let (pattern, count) = scan_options(&args[3..])?;
    let (mut found, mut looked_at, mut bytes) = (Vec::new(), 0, 0);
    loop {
        cursor = fields.scan(cursor, |field, value| {
            let words = pattern.as_ref().map_or(0, |pattern| pattern.words_per_byte() * field.len());
            looked_at += 1 + words / WORDS_PER_FIELD;
            if pattern.as_ref().is_none_or(|pattern| pattern.matches(field)) {
                bytes += field.len() + value.len() + 2 * BESIDE;
                found.push((field.to_vec(), value.to_vec()));
            }
        });
        if !replies.has_room(2 * bytes) {
            return Err(TOO_MUCH.into());
        }
        // Empty buckets of the index count as visited, too, so that the time of a call is bounded.
        looked_at += 1;
        if cursor == 0 || looked_at >= count {
            break;
        }
    }
    replies.array(2);
    replies.bulk(cursor.to_string().as_bytes());
    replies.array(2 * found.len());
    for (field, value) in &found {
        replies.bulk(field);
        replies.bulk(value);
    }
    Ok(())
}
