//! The commands `OBJECT` and `MEMORY`, about the encoding of a value, its last use or frequency of use, and its memory.

use super::handle::KeyHandle;
use super::{Args, Context, Done, SYNTAX, integer};
use crate::entry::{Entry, Kind};
use crate::packing::plain_bytes;
use crate::resp::{Replies, parse_integer};

/// Maximum bytes of a string that Redis stores with its header, with the encoding `embstr`.
const EMBEDDED_BYTES: usize = 44;

/// Error of `OBJECT FREQ` when the eviction policy does not count uses; as in Redis.
const NO_FREQUENCY: &str = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when \
                            switching between policies at runtime LRU and LFU data will take some time to adjust.";
const NO_IDLE_TIME: &str = "ERR An LRU maxmemory policy is not selected, idle time not tracked. Please note that when \
                            switching between policies at runtime LRU and LFU data will take some time to adjust.";

const OBJECT_HELP: &[&str] = &[
    "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "ENCODING <key>",
    "    Return the kind of internal representation used in order to store the value",
    "    associated with a <key>.",
    "FREQ <key>",
    "    Return the access frequency index of the <key>. The returned integer is",
    "    proportional to the logarithm of the recent access frequency of the key.",
    "IDLETIME <key>",
    "    Return the idle time of the <key>, that is the approximated number of",
    "    seconds elapsed since the last access to the key.",
    "REFCOUNT <key>",
    "    Return the number of references of the value associated with the specified",
    "    <key>.",
    "HELP",
    "    Prints this help.",
];

const MEMORY_HELP: &[&str] = &[
    "MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DOCTOR",
    "    Return memory problems reports.",
    "USAGE <key> [SAMPLES <count>]",
    "    Return memory in bytes used by <key> and its value. <count> changes nothing.",
    "HELP",
    "    Prints this help.",
];

fn tell_help(context: &mut Context<'_, '_>, lines: &[&str]) -> Done {
    context.replies.array(lines.len());
    lines.iter().for_each(|line| context.replies.simple(line));
    Ok(())
}

pub(super) fn object_help(context: &mut Context<'_, '_>, _: &Args<'_>) -> Done {
    tell_help(context, OBJECT_HELP)
}

/// Calls `tell` to write a reply about the key's entry; replies with null if the key is absent.
fn tell_of_entry(
    context: &mut Context<'_, '_>,
    key: &[u8],
    tell: impl FnOnce(&KeyHandle<'_, '_, '_>, Entry<'_>, &mut Replies<'_>) -> Done,
) -> Done {
    let (handle, replies) = context.handle_and_replies(key);
    let Some(entry) = handle.entry() else {
        replies.null();
        return Ok(());
    };
    tell(&handle, entry, replies)
}

pub(super) fn reference_count(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    tell_of_entry(context, args[2], |_, _, replies| {
        replies.integer(1);
        Ok(())
    })
}

pub(super) fn frequency(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    tell_of_entry(context, args[2], |handle, _, replies| {
        let counts = handle.use_of().and_then(|(evictor, stamp)| evictor.frequency(stamp));
        replies.integer(counts.ok_or(NO_FREQUENCY)?.into());
        Ok(())
    })
}

pub(super) fn idle_time(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    tell_of_entry(context, args[2], |handle, _, replies| {
        let idle = handle.use_of().and_then(|(evictor, stamp)| evictor.idle_seconds(stamp, handle.now));
        replies.integer(idle.ok_or(NO_IDLE_TIME)? as i64);
        Ok(())
    })
}

/// Executes `OBJECT ENCODING`: replies with the encoding that Redis would use for the value. This crate stores values
/// in other ways.
pub(super) fn encoding(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    tell_of_entry(context, args[2], |handle, entry, replies| {
        replies.bulk(match entry.kind() {
            Kind::Fields | Kind::Row => b"listpack",
            Kind::Table => b"hashtable",
            Kind::String if plain_bytes(entry) > EMBEDDED_BYTES => b"raw",
            Kind::String if parse_integer(&handle.plain(entry)?).is_some() => b"int",
            Kind::String => b"embstr",
        });
        Ok(())
    })
}

pub(super) fn memory_help(context: &mut Context<'_, '_>, _: &Args<'_>) -> Done {
    tell_help(context, MEMORY_HELP)
}

pub(super) fn memory_usage(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    for option in args[3..].chunks(2) {
        match option {
            [name, samples] if name.eq_ignore_ascii_case(b"samples") => match integer(samples)? {
                0.. => {}
                _ => return Err(SYNTAX.into()),
            },
            _ => return Err(SYNTAX.into()),
        }
    }
    match context.handle(args[2]).bytes() {
        Some(bytes) => context.replies.integer(bytes as i64),
        None => context.replies.null(),
    }
    Ok(())
}

pub(super) fn memory_doctor(context: &mut Context<'_, '_>, _: &Args<'_>) -> Done {
    let text = diagnosis(context);
    context.replies.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

/// Returns the reply to `MEMORY DOCTOR`.
fn diagnosis(context: &Context<'_, '_>) -> String {
    let meter = context.keyspace.meter();
    let (used, policy) = (meter.used(), context.keyspace.limits().policy.name());
    match meter.most() {
        Some(most) if used > most => {
            format!("Keys take {used} bytes, more than the {most} of 'maxmemory'. The policy is {policy}.\n")
        }
        Some(most) => {
            format!("Keys take {used} of the {most} bytes of 'maxmemory'. The policy is {policy}.\n")
        }
        None => format!("Keys take {used} bytes. There is no 'maxmemory'. The policy is {policy}.\n"),
    }
}
