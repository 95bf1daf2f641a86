//! Commands of the Redis protocol on keys with values of any kind, such as `DEL`, `RENAME`, `KEYS` and `SCAN`.

use super::pattern::Pattern;
use super::{Args, Context, Done, NO_KEY, NOT_INTEGER, Refusal, SYNTAX, TOO_MUCH, integer};
use crate::SpaceId;
use crate::entry::{Entry, Kind};
use farpool_model::limits::KV_SPACES_MAX;

/// Default `COUNT` of `SCAN` and `HSCAN`.
pub(super) const SCAN_COUNT: usize = 10;

/// Maximum number of entries that one call of `SCAN` or `HSCAN` visits, even if `COUNT` is greater. Reason for a limit:
/// other clients wait while the shards are locked, and a call may return fewer entries than `COUNT`.
pub(super) const SCAN_COUNT_LIMIT: usize = 1000;

/// Estimated bytes per key, in a list or in a reply, in addition to the bytes of the key itself.
const KEY_BYTES_BESIDE: usize = 16;

/// Number of operations on words of pattern matching, or of copied bytes, that count as one visited key towards the
/// limit of a call. Needed because keys and patterns may be long.
const WORDS_PER_KEY: usize = 1024;

pub(super) fn exists(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let count = args[1..].iter().filter(|key| context.handle(key).exists()).count();
    context.replies.integer(count as i64);
    Ok(())
}

pub(super) fn del(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let count = args[1..].iter().filter(|key| context.handle(key).remove()).count();
    context.replies.integer(count as i64);
    Ok(())
}

pub(super) fn type_of(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let name = context.handle(args[1]).entry().map_or("none", |entry| entry.kind().name());
    context.replies.simple(name);
    Ok(())
}

pub(super) fn dbsize(context: &mut Context<'_, '_>, _: &Args<'_>) -> Done {
    let keys: usize = context.tables().map(|table| table.len()).sum();
    context.replies.integer(keys as i64);
    Ok(())
}

/// Checks the options of `FLUSHDB` and `FLUSHALL`: `ASYNC` and `SYNC` are accepted and have no effect.
fn flush_options(args: &Args<'_>) -> Done {
    let is_known =
        |option: &&[u8]| option.eq_ignore_ascii_case(b"async") || option.eq_ignore_ascii_case(b"sync");
    if args.len() > 2 || !args[1..].iter().all(is_known) {
        return Err(SYNTAX.into());
    }
    Ok(())
}

pub(super) fn flushdb(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    flush_options(args)?;
    context.flush();
    context.replies.ok();
    Ok(())
}

pub(super) fn flushall(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    flush_options(args)?;
    context.flush_all();
    context.replies.ok();
    Ok(())
}

/// Error of moving a row whose fields are all NULL to a space without a schema: a hash without fields cannot exist, so
/// the key would be lost.
const NO_FIELDS: &str = "ERR no field of this row is set, and a hash has at least one: set a field first";

/// Parses a cursor of `SCAN` or `HSCAN` as Redis 7 does (with `strtoul`): an empty argument is 0, and a negative number
/// is taken modulo 2^64.
pub(super) fn cursor(text: &[u8]) -> Result<u64, Refusal> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let is_signed = digits.len() < text.len();
    let number = match digits {
        [] if !is_signed => Some(0),
        digits if digits.iter().all(u8::is_ascii_digit) => {
            std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u64>().ok())
        }
        _ => None,
    };
    let number = number.ok_or("ERR invalid cursor")?;
    Ok(if is_negative { number.wrapping_neg() } else { number })
}

pub(super) fn keys(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let pattern = Pattern::new(args[1])?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    for table in context.tables() {
        let mut cursor = 0;
        loop {
            cursor = table.scan(cursor, context.now, |entry| {
                if pattern.matches(entry.key()) {
                    bytes += entry.key().len() + KEY_BYTES_BESIDE;
                    found.push(Box::<[u8]>::from(entry.key()));
                }
            });
            if context.host.has_gone() {
                return Err("ERR the client has gone".into());
            }
            // Each key is in memory twice, in this list and in the reply.
            if !context.replies.has_room(2 * bytes) {
                return Err(TOO_MUCH.into());
            }
            if cursor == 0 {
                break;
            }
        }
    }
    // The scan of an index may return a key twice, so duplicates are removed.
    found.sort_unstable();
    found.dedup();
    context.replies.array(found.len());
    found.iter().for_each(|key| context.replies.bulk(key));
    Ok(())
}

pub(super) fn randomkey(context: &mut Context<'_, '_>, _: &Args<'_>) -> Done {
    let total: usize = context.tables().map(|table| table.len()).sum();
    let mut at = if total == 0 { 0 } else { context.random as usize % total };
    let mut found = None;
    for table in context.tables() {
        if at < table.len() {
            found = table.any(context.random.rotate_left(32), context.now).map(|entry| entry.key().to_vec());
            break;
        }
        at -= table.len();
    }
    match found {
        Some(key) => context.replies.bulk(&key),
        None => context.replies.null(),
    }
    Ok(())
}

pub(super) fn scan(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let cursor = cursor(args[1])?;
    let (mut pattern, mut count, mut kind) = (None, SCAN_COUNT, None);
    let mut options = args[2..].chunks(2);
    for option in options.by_ref() {
        let &[name, value] = option else { return Err(SYNTAX.into()) };
        match name.to_ascii_lowercase().as_slice() {
            b"match" => pattern = Some(Pattern::new(value)?),
            b"count" => match integer(value) {
                Ok(number) if number > 0 => count = (number as usize).min(SCAN_COUNT_LIMIT),
                Ok(_) => return Err(SYNTAX.into()),
                Err(_) => return Err(NOT_INTEGER.into()),
            },
            b"type" => kind = Some(value),
            _ => return Err(SYNTAX.into()),
        }
    }
    let shards = context.keyspace.shards() as u64;
    let spaces = context.scanned_spaces();
    // The cursor is a mixed-radix number. Its digits, from the lowest: shard, index of the space in `spaces`, cursor of
    // the index.
    let places = shards * (KV_SPACES_MAX as u64 + 1);
    let (mut place, mut inner) = (cursor % places, cursor / places);
    let (mut found, mut looked_at) = (Vec::new(), 0);
    let next = loop {
        let space = spaces.get((place / shards) as usize).copied().flatten();
        let table = space.and_then(|space| context.table_of((place % shards) as usize, space));
        let seen = |entry: Entry<'_>| {
            let words = pattern.as_ref().map_or(0, |pattern| pattern.words_per_byte() * entry.key().len());
            // Matching and copying count towards the limit of visited keys, because they take longer for longer keys.
            looked_at += 1 + (words + entry.key().len()) / WORDS_PER_KEY;
            let is_wanted = kind.is_none_or(|kind| kind.eq_ignore_ascii_case(entry.kind().name().as_bytes()));
            if is_wanted && pattern.as_ref().is_none_or(|pattern| pattern.matches(entry.key())) {
                found.push(Box::<[u8]>::from(entry.key()));
            }
        };
        inner = table.map_or(0, |table| table.scan(inner, context.now, seen));
        if inner == 0 {
            place += 1;
        }
        if place >= shards * spaces.len() as u64 {
            break 0;
        }
        // Empty buckets of the index count as visited, too, so that the time of a call is bounded.
        looked_at += 1;
        if looked_at >= count {
            break inner * places + place;
        }
    };
    context.replies.array(2);
    context.replies.bulk(next.to_string().as_bytes());
    context.replies.array(found.len());
    found.iter().for_each(|key| context.replies.bulk(key));
    Ok(())
}

/// Moves (`moves`) or copies the value and the expiry of the key `from` to the key `to` in the space `to_space`.
/// Returns false, with nothing changed, if `from` is absent, or if `to` exists and `replaces` is false.
fn give(
    context: &mut Context<'_, '_>,
    (from, to): (&[u8], &[u8]),
    to_space: SpaceId,
    (moves, replaces): (bool, bool),
) -> Result<bool, Refusal> {
    let from_space = context.space;
    let handle = context.handle(from);
    let Some(entry) = handle.entry() else { return Ok(false) };
    let (kind, expiry) = (entry.kind(), entry.expiry());
    let has_rows = handle.schema().is_some();
    let value = if kind == Kind::Table { Vec::new() } else { handle.plain(entry)?.into_owned() };
    context.space = to_space;
    let target = context.handle(to);
    let (is_free, has_rows) = (replaces || !target.exists(), has_rows || target.schema().is_some());
    context.space = from_space;
    if !is_free {
        return Ok(false);
    }
    if has_rows {
        let fields = context.handle(from).all_fields()?;
        context.space = to_space;
        let mut target = context.handle(to);
        let done = match fields.is_empty() && target.schema().is_none() {
            true => Err(NO_FIELDS.into()),
            false => target.put_fields(&fields, expiry),
        };
        context.space = from_space;
        done?;
        if moves {
            context.handle(from).remove();
        }
        return Ok(true);
    }
    let copied = if moves { None } else { context.handle(from).copied_fields()? };
    context.space = to_space;
    let mut target = context.handle(to);
    let done = match copied {
        _ if kind != Kind::Table => target.put_as(kind, &value, expiry),
        Some(fields) => target.put_table(fields, expiry),
        // The table of fields is moved further below, after everything that can fail.
        None => target.put_empty_table(expiry),
    };
    context.space = from_space;
    done?;
    if moves {
        if let Some(fields) = context.handle(from).take_fields() {
            context.handle(to).set_fields(fields);
        }
        context.handle(from).remove();
    }
    Ok(true)
}

/// Renames a key, the first argument after the name, to the second; returns false if the new name exists and `replaces`
/// is false. Fails if the key is absent.
fn moved(context: &mut Context<'_, '_>, args: &Args<'_>, replaces: bool) -> Result<bool, Refusal> {
    if !context.handle(args[1]).exists() {
        return Err(NO_KEY.into());
    }
    if args[1] == args[2] {
        return Ok(replaces);
    }
    give(context, (args[1], args[2]), context.space, (true, replaces))
}

pub(super) fn rename(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    moved(context, args, true)?;
    context.replies.ok();
    Ok(())
}

pub(super) fn renamenx(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let is_done = moved(context, args, false)?;
    context.replies.integer(i64::from(is_done));
    Ok(())
}

pub(super) fn copy(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let (mut replaces, mut to_space) = (false, context.space);
    let mut options = args[3..].iter();
    while let Some(option) = options.next() {
        if option.eq_ignore_ascii_case(b"replace") {
            replaces = true;
        } else if option.eq_ignore_ascii_case(b"db") {
            to_space = crate::session::space_of_text(options.next().ok_or(SYNTAX)?)?;
        } else {
            return Err(SYNTAX.into());
        }
    }
    if args[1] == args[2] && to_space == context.space {
        return Err("ERR source and destination objects are the same".into());
    }
    let done = give(context, (args[1], args[2]), to_space, (false, replaces));
    context.replies.integer(i64::from(done?));
    Ok(())
}
