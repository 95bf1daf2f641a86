//! Commands of the Redis protocol that set and report the expiry of keys, such as `EXPIRE` and `TTL`.

use super::options::{AT_MILLISECONDS, AT_SECONDS, MILLISECONDS, SECONDS, Unit, invalid_expiry};
use super::{Args, Context, Done, Refusal, integer};
use std::borrow::Cow;

/// Executes the commands of the `EXPIRE` family: sets the expiry of a key and replies 1, or 0 if the key is absent or a
/// condition (`NX`, `XX`, `GT`, `LT`) fails. An expiry in the past removes the key.
fn set(context: &mut Context<'_, '_>, args: &Args<'_>, unit: Unit, command: &str) -> Done {
    // The options are parsed before the time, so that errors are reported as in Redis.
    let conditions = Conditions::parse(&args[3..])?;
    let number = integer(args[2])?;
    let moment = unit.moment(number, context.now).ok_or_else(|| invalid_expiry(command))?;
    let now = context.now;
    let mut handle = context.handle(args[1]);
    let Some(entry) = handle.entry() else {
        context.replies.integer(0);
        return Ok(());
    };
    // A key without an expiry counts as expiring later than all others.
    let before = entry.expiry();
    let is_later = before.is_some_and(|before| i128::from(moment) > i128::from(before));
    let is_earlier = before.is_none_or(|before| i128::from(moment) < i128::from(before));
    let is_set = !(conditions.if_none && before.is_some()
        || conditions.if_some && before.is_none()
        || conditions.if_later && !is_later
        || conditions.if_earlier && !is_earlier);
    match u64::try_from(moment) {
        _ if !is_set => {}
        Ok(at) if at > now => handle.set_expiry(Some(at))?,
        _ => drop(handle.remove()),
    }
    context.replies.integer(i64::from(is_set));
    Ok(())
}

#[derive(Default)]
struct Conditions {
    if_none: bool,
    if_some: bool,
    if_later: bool,
    if_earlier: bool,
}

impl Conditions {
    fn parse(options: &Args<'_>) -> Result<Self, Refusal> {
        let mut found = Conditions::default();
        for option in options {
            match option.to_ascii_lowercase().as_slice() {
                b"nx" => found.if_none = true,
                b"xx" => found.if_some = true,
                b"gt" => found.if_later = true,
                b"lt" => found.if_earlier = true,
                _ => {
                    let text = format!("ERR Unsupported option {}", option.escape_ascii());
                    return Err(Refusal(Cow::Owned(text)));
                }
            }
        }
        if found.if_none && (found.if_some || found.if_later || found.if_earlier) {
            return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
        }
        if found.if_later && found.if_earlier {
            return Err("ERR GT and LT options at the same time are not compatible".into());
        }
        Ok(found)
    }
}

pub(super) fn expire(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    set(context, args, SECONDS, "expire")
}

pub(super) fn pexpire(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    set(context, args, MILLISECONDS, "pexpire")
}

pub(super) fn expireat(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    set(context, args, AT_SECONDS, "expireat")
}

pub(super) fn pexpireat(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    set(context, args, AT_MILLISECONDS, "pexpireat")
}

pub(super) fn persist(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let mut handle = context.handle(args[1]);
    let expires = handle.entry().is_some_and(|entry| entry.expiry().is_some());
    if expires {
        handle.set_expiry(None)?;
    }
    context.replies.integer(i64::from(expires));
    Ok(())
}

/// Executes the commands of the `TTL` family: replies -2 if the key is absent, -1 if it has no expiry, and otherwise
/// the result of `f` for the expiry, which converts it to the unit of the command.
fn tell(context: &mut Context<'_, '_>, args: &Args<'_>, f: impl Fn(u64) -> u64) -> Done {
    let (handle, replies) = context.handle_and_replies(args[1]);
    let told = match handle.entry().map(|entry| entry.expiry()) {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => i64::try_from(f(at)).unwrap_or(i64::MAX),
    };
    replies.integer(told);
    Ok(())
}

pub(super) fn ttl(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let now = context.now;
    tell(context, args, |at| (at.saturating_sub(now) + 500) / 1000)
}

pub(super) fn pttl(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let now = context.now;
    tell(context, args, |at| at.saturating_sub(now))
}

pub(super) fn expiretime(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    tell(context, args, |at| at.saturating_add(500) / 1000)
}

pub(super) fn pexpiretime(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    tell(context, args, |at| at)
}
