//! Commands of the Redis protocol on strings, such as `GET`, `SET` and `APPEND`.

use super::options::{self, Expiry, MILLISECONDS, SECONDS, Unit};
use super::{Args, Context, Done, TOO_LONG, TOO_MUCH, integer};
use crate::entry::Kind;
use crate::resp::Replies;
use farpool_model::limits::KV_VALUE_BYTES_MAX;

pub(super) fn get(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    reply_value(context, args[1])
}

/// Replies with the string at a key, or with null if the key is absent.
fn reply_value(context: &mut Context<'_, '_>, key: &[u8]) -> Done {
    let (handle, replies) = context.handle_and_replies(key);
    reply_string(replies, handle.string()?.as_deref())
}

fn reply_string(replies: &mut Replies<'_>, value: Option<&[u8]>) -> Done {
    match value {
        Some(value) if !replies.has_room(value.len()) => return Err(TOO_MUCH.into()),
        Some(value) => replies.bulk(value),
        None => replies.null(),
    }
    Ok(())
}

pub(super) fn set(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let options = options::parse(&args[3..], "set")?;
    let expiry = options.expiry(context.now, "set")?;
    if options.gets {
        context.handle(args[1]).string()?;
    }
    let is_set = match (options.if_absent, options.if_present) {
        (false, false) => true,
        (if_absent, _) => context.handle(args[1]).exists() != if_absent,
    };
    if options.gets {
        reply_value(context, args[1])?;
    } else if !is_set {
        context.replies.null();
    }
    if is_set {
        put(context, args[1], args[2], expiry)?;
        if !options.gets {
            context.replies.ok();
        }
    }
    Ok(())
}

/// Sets the value of a key to a string; removes the key if `expiry` is in the past.
fn put(context: &mut Context<'_, '_>, key: &[u8], value: &[u8], expiry: Expiry) -> Done {
    let now = context.now;
    let mut handle = context.handle(key);
    let expiry = match expiry {
        Expiry::At(at) => Some(at),
        Expiry::Keep => handle.entry().and_then(|entry| entry.expiry()),
        Expiry::Unsaid | Expiry::Persist => None,
    };
    if expiry.is_some_and(|at| at <= now) {
        handle.remove();
        return Ok(());
    }
    handle.put(value, expiry)
}

fn set_for(context: &mut Context<'_, '_>, args: &Args<'_>, unit: Unit, command: &str) -> Done {
    let at = options::moment(args[2], unit, context.now, command)?;
    put(context, args[1], args[3], Expiry::At(at))?;
    context.replies.ok();
    Ok(())
}

pub(super) fn setex(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    set_for(context, args, SECONDS, "setex")
}

pub(super) fn psetex(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    set_for(context, args, MILLISECONDS, "psetex")
}

pub(super) fn setnx(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let is_absent = !context.handle(args[1]).exists();
    if is_absent {
        context.handle(args[1]).put(args[2], None)?;
    }
    context.replies.integer(i64::from(is_absent));
    Ok(())
}

pub(super) fn getset(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    reply_value(context, args[1])?;
    context.handle(args[1]).put(args[2], None)
}

pub(super) fn getdel(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    reply_value(context, args[1])?;
    context.handle(args[1]).remove();
    Ok(())
}

pub(super) fn getex(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let options = options::parse(&args[2..], "getex")?;
    let now = context.now;
    // The key is looked up before the numbers are parsed, because in Redis an invalid number is an error only if the
    // key exists.
    let is_there = context.handle(args[1]).string()?.is_some();
    let expiry = if is_there { options.expiry(now, "getex")? } else { Expiry::Unsaid };
    reply_value(context, args[1])?;
    let mut handle = context.handle(args[1]);
    let expires = handle.entry().is_some_and(|entry| entry.expiry().is_some());
    match expiry {
        Expiry::At(at) if at <= now => drop(handle.remove()),
        Expiry::At(at) => handle.set_expiry(Some(at))?,
        Expiry::Persist if expires => handle.set_expiry(None)?,
        Expiry::Unsaid | Expiry::Keep | Expiry::Persist => {}
    }
    Ok(())
}

pub(super) fn mget(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    context.replies.array(args.len() - 1);
    for key in &args[1..] {
        let (handle, replies) = context.handle_and_replies(key);
        // A value that is not a string counts as absent, as in Redis.
        reply_string(replies, handle.string().unwrap_or_default().as_deref())?;
    }
    Ok(())
}

fn set_all(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    context.put_all(None, Kind::String, args[1..].chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
}

/// Fails with the error of a wrong number of arguments unless the arguments are pairs of key and value.
fn in_pairs(args: &Args<'_>, command: &str) -> Done {
    if args.len() % 2 == 1 {
        return Ok(());
    }
    Err(super::Refusal(format!("ERR wrong number of arguments for '{command}' command").into()))
}

pub(super) fn mset(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    in_pairs(args, "mset")?;
    set_all(context, args)?;
    context.replies.ok();
    Ok(())
}

pub(super) fn msetnx(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    in_pairs(args, "msetnx")?;
    let are_absent = !args[1..].chunks_exact(2).any(|pair| context.handle(pair[0]).exists());
    if are_absent {
        set_all(context, args)?;
    }
    context.replies.integer(i64::from(are_absent));
    Ok(())
}

pub(super) fn append(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let mut handle = context.handle(args[1]);
    let before = handle.string()?.map_or(0, |value| value.len());
    let bytes = before + args[2].len();
    handle.edit(bytes, before..bytes, |value| value.copy_from_slice(args[2]))?;
    context.replies.integer(bytes as i64);
    Ok(())
}

pub(super) fn strlen(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let bytes = context.handle(args[1]).string()?.map_or(0, |value| value.len());
    context.replies.integer(bytes as i64);
    Ok(())
}

/// Returns the range of bytes of a value of `bytes` bytes that the inclusive bounds `start` and `end` select; negative
/// bounds count from the end of the value.
pub(super) fn range(start: i64, end: i64, bytes: usize) -> std::ops::Range<usize> {
    let bytes = bytes as i64;
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let from_front = |at: i64| if at < 0 { (bytes + at).max(0) } else { at };
    let (start, end) = (from_front(start), from_front(end).min(bytes - 1));
    if start > end { 0..0 } else { start as usize..end as usize + 1 }
}

pub(super) fn getrange(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let (start, end) = (integer(args[2])?, integer(args[3])?);
    let (handle, replies) = context.handle_and_replies(args[1]);
    let value = handle.string()?.unwrap_or_default();
    let part = &value[range(start, end, value.len())];
    if !replies.has_room(part.len()) {
        return Err(TOO_MUCH.into());
    }
    replies.bulk(part);
    Ok(())
}

pub(super) fn setrange(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let offset = usize::try_from(integer(args[2])?).map_err(|_| "ERR offset is out of range")?;
    let mut handle = context.handle(args[1]);
    let before = handle.string()?.map_or(0, |value| value.len());
    if args[3].is_empty() {
        context.replies.integer(before as i64);
        return Ok(());
    }
    let end = offset.saturating_add(args[3].len());
    if end > KV_VALUE_BYTES_MAX {
        return Err(TOO_LONG.into());
    }
    let bytes = before.max(end);
    handle.edit(bytes, offset..end, |value| value.copy_from_slice(args[3]))?;
    context.replies.integer(bytes as i64);
    Ok(())
}
