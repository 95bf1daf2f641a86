//! Commands with a condition: `FP.CGET` and `FP.SCAN` evaluate one on values (see [`predicate`](crate::predicate)),
//! `FP.UPDATE` and `FP.CAS` write only if the key exists or has an expected value.

use super::{Args, Context, Done, NO_KEY, NOT_INTEGER, Refusal, SYNTAX, TOO_MUCH, integer};
use crate::cut::ReadEntry;
use crate::entry::Entry;
use crate::packing::plain_bytes;
use crate::predicate::{Predicate, parse, plain_schema};
use crate::resp::Replies;
use crate::session::Host;
use crate::spaces::Space;
use farpool_model::Expr;
use farpool_model::limits::KV_PREDICATE_KEPT_BYTES_MAX;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// Number of index buckets plus entries after which one call of `FP.SCAN` ends, which bounds the time that the shards
/// are locked.
const SCAN_ENTRIES: usize = 512;

/// Default `LIMIT` of `FP.SCAN`, the approximate number of matching entries per call; the next constant is the maximum.
const SCAN_LIMIT: usize = 10;
const SCAN_LIMIT_MOST: usize = 1000;

/// Bytes of visited values after which one call of `FP.SCAN` ends. A compressed value counts as the bytes that could be
/// copied in the time of decompressing it.
const SCAN_BYTES: usize = 256 << 10;

/// Estimated bytes per string in a reply in addition to the bytes of the string itself: header and line end.
const BESIDE: usize = 16;

/// A cache of one parsed condition, the latest of this client, because clients tend to repeat the same condition.
#[derive(Debug, Default)]
pub(crate) struct Predicates {
    last: Option<LastPredicate>,
}

#[derive(Debug)]
struct LastPredicate {
    text: Box<[u8]>,
    space: Option<Arc<Space>>,
    predicate: Arc<Predicate>,
    bytes: usize,
}

impl Predicates {
    /// Returns the parsed condition `text` on the entries of a space, from the cache if it was parsed last. Fails if
    /// `text` is not a valid condition.
    fn read(&mut self, text: &[u8], space: Option<&Arc<Space>>) -> Result<Arc<Predicate>, Refusal> {
        let is_same = |other: &Option<Arc<Space>>| match (other, space) {
            (Some(other), Some(space)) => Arc::ptr_eq(other, space),
            (None, None) => true,
            _ => false,
        };
        if let Some(last) = &self.last
            && *last.text == *text
            && is_same(&last.space)
        {
            return Ok(Arc::clone(&last.predicate));
        }
        let plain = plain_schema(space.is_some_and(|space| space.is_binary));
        let predicate = Arc::new(match space.and_then(|space| space.schema.as_ref()) {
            Some(schema) => parse(text, &schema.to_arrow(), false)?,
            None => parse(text, plain, true)?,
        });
        let mut conditions = Vec::new();
        collect(&predicate, &mut conditions);
        let patterns: usize = conditions.into_iter().map(Expr::pattern_bytes).sum();
        // Large conditions are not cached. Freeing them takes milliseconds, and so happens with the command, which is a
        // long one.
        self.last = (patterns <= KV_PREDICATE_KEPT_BYTES_MAX).then(|| LastPredicate {
            text: Box::from(text),
            space: space.cloned(),
            predicate: Arc::clone(&predicate),
            bytes: text.len() + 2 * patterns,
        });
        Ok(predicate)
    }

    /// Returns the bytes of memory of the cached condition, including the form into which the host compiles it.
    pub fn bytes(&self) -> usize {
        self.last.as_ref().map_or(0, |last| last.bytes)
    }
}

/// Returns the bytes that a condition on bytes applies to: the string of an entry, or nothing if the value is no
/// string.
fn bytes_of<'a>(entry: &ReadEntry<'a>) -> &'a [u8] {
    entry.string().unwrap_or_default()
}

/// Evaluates `predicate` for each of `entries`; returns one result per entry.
fn judge(
    predicate: &Predicate,
    entries: &[ReadEntry<'_>],
    space: Option<&Arc<Space>>,
    (host, now): (&mut dyn Host, u64),
) -> Result<Vec<bool>, Refusal> {
    // The host evaluates each SQL condition on columns for all entries at once.
    let mut found: HashMap<*const Expr, Vec<bool>> = HashMap::new();
    let mut conditions = Vec::new();
    collect(predicate, &mut conditions);
    for condition in conditions {
        found.insert(condition, host.judge(condition, space, entries, now)?);
    }
    let said =
        |condition: &Expr, at: usize| found.get(&std::ptr::from_ref(condition)).is_some_and(|said| said[at]);
    let judged = entries.iter().enumerate();
    Ok(judged.map(|(at, entry)| predicate.matches(bytes_of(entry), &mut |expr| said(expr, at))).collect())
}

fn collect<'p>(predicate: &'p Predicate, conditions: &mut Vec<&'p Expr>) {
    match predicate {
        Predicate::Columns(condition) => conditions.push(condition),
        Predicate::Bytes(_) => {}
        Predicate::All(parts) | Predicate::Any(parts) => {
            parts.iter().for_each(|part| collect(part, conditions));
        }
    }
}

/// Executes `FP.CGET key condition`: replies with the value if the condition is true for the entry, otherwise with null
/// (conditional get; Caribou, section 3.1).
pub(super) fn cget(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let hash = context.keyspace.hash(args[1]);
    let shard = context.resources.shards.get(context.keyspace.shard_of(hash));
    let (id, space) = shard.owner(context.space, args[1]);
    let predicate = context.predicates.read(args[2], space)?;
    let table = shard.table(id);
    let entry = table.and_then(|table| Some((table, table.get(hash, args[1], context.now)?)));
    let Some((table, entry)) = entry else {
        context.replies.null();
        return Ok(());
    };
    let value = table.plain(entry)?;
    let entry = ReadEntry::new(entry, &value);
    let is_true = match &*predicate {
        Predicate::Columns(_) | Predicate::All(_) | Predicate::Any(_) => {
            // The value is needed in memory twice, because the evaluation copies it.
            if !context.replies.has_room(2 * entry.value().len()) {
                return Err(TOO_MUCH.into());
            }
            judge(&predicate, &[entry], space, (&mut *context.host, context.now))?[0]
        }
        Predicate::Bytes(condition) => condition.matches(bytes_of(&entry)),
    };
    if !is_true {
        context.replies.null();
        return Ok(());
    }
    reply_value(&mut context.replies, &entry, space)
}

/// Appends a value to a reply: a string, or an array of the fields of a row.
fn reply_value(replies: &mut Replies<'_>, entry: &ReadEntry<'_>, space: Option<&Arc<Space>>) -> Done {
    if !replies.has_room(entry.value().len() + BESIDE) {
        return Err(TOO_MUCH.into());
    }
    let schema = space.and_then(|space| space.schema.as_ref());
    match (entry.string(), entry.row().zip(schema)) {
        (Some(value), _) => replies.bulk(value),
        (None, Some((row, schema))) => {
            replies.array(schema.fields().len());
            for (at, field) in schema.fields().iter().enumerate() {
                match schema.field(row, at) {
                    Some(value) => replies.bulk(&field.kind.value_text(value)),
                    None => replies.null(),
                }
            }
        }
        (None, None) => replies.null(),
    }
    Ok(())
}

/// Executes `FP.SCAN space condition [LIMIT n] [CURSOR c]`, one step of a scan like that of `SCAN`: replies with the
/// next cursor, 0 at the end, and with the keys and values of the visited entries for which the condition is true.
pub(super) fn scan(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let (mut limit, mut cursor) = (SCAN_LIMIT, 0);
    for option in args[3..].chunks(2) {
        let &[name, value] = option else { return Err(SYNTAX.into()) };
        match name.to_ascii_lowercase().as_slice() {
            b"limit" => match integer(value) {
                Ok(number) if number > 0 => limit = (number as usize).min(SCAN_LIMIT_MOST),
                Ok(_) => return Err(SYNTAX.into()),
                Err(_) => return Err(NOT_INTEGER.into()),
            },
            b"cursor" => {
                let read = std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
                cursor = read.ok_or("ERR invalid cursor")?;
            }
            _ => return Err(SYNTAX.into()),
        }
    }
    let space = match args[1] {
        b"default" => None,
        name => Some(context.named_space(name)?),
    };
    let predicate = context.predicates.read(args[2], space.as_ref())?;
    let id = space.as_ref().map_or(0, |space| space.id);
    let shards = context.keyspace.shards() as u64;
    let (mut shard, mut inner) = (cursor % shards, cursor / shards);
    let (mut looked_at, mut bytes) = (0, 0);
    let mut found: Vec<(Entry<'_>, Cow<'_, [u8]>)> = Vec::new();
    let taken = context.resources.shards.several();
    let next = loop {
        let (mut entries, mut unpackers) = (Vec::new(), None);
        if let Some(table) = taken.get(shard as usize).and_then(|(_, shard)| shard.table(id)) {
            unpackers = Some(table.unpackers());
            let cost = |entry: &Entry<'_>| table.unpackers().cost(*entry);
            // Reads several buckets before evaluating, because evaluating the condition for many entries at once is
            // faster.
            let (buckets, before_all) = (looked_at + SCAN_ENTRIES, bytes);
            let is_full = |bytes: usize| bytes - before_all >= SCAN_BYTES;
            while entries.len() < SCAN_ENTRIES / 4 && !is_full(bytes) && looked_at < buckets {
                let before = entries.len();
                inner = table.scan_entries(inner, context.now, &mut entries);
                bytes += entries[before..].iter().map(cost).sum::<usize>();
                looked_at += 1;
                if inner == 0 {
                    break;
                }
            }
        } else {
            inner = 0;
        }
        looked_at += entries.len();
        let values = entries.iter().map(|entry: &Entry<'_>| plain_bytes(*entry)).sum::<usize>();
        // Evaluation copies the values, so they need memory twice.
        if !context.replies.has_room(2 * values) {
            return Err(TOO_MUCH.into());
        }
        let mut read = Vec::with_capacity(entries.len());
        for entry in entries {
            read.push((entry, unpackers.map_or(Ok(Cow::Borrowed(entry.stored())), |of| of.plain(entry))?));
        }
        let entries = read;
        let read: Vec<ReadEntry<'_>> =
            entries.iter().map(|(entry, value)| ReadEntry::new(*entry, value)).collect();
        let judged = judge(&predicate, &read, space.as_ref(), (&mut *context.host, context.now))?;
        found.extend(entries.into_iter().zip(judged).filter(|(_, is_true)| *is_true).map(|(entry, _)| entry));
        if inner == 0 {
            shard += 1;
        }
        if shard >= shards {
            break 0;
        }
        if looked_at >= SCAN_ENTRIES || bytes >= SCAN_BYTES || found.len() >= limit {
            break inner * shards + shard;
        }
    };
    let replies = &mut context.replies;
    replies.array(2);
    replies.bulk(next.to_string().as_bytes());
    replies.array(found.len());
    for (entry, value) in &found {
        let entry = ReadEntry::new(*entry, value);
        if !replies.has_room(entry.key().len() + BESIDE) {
            return Err(TOO_MUCH.into());
        }
        replies.array(2);
        replies.bulk(entry.key());
        reply_value(replies, &entry, space.as_ref())?;
    }
    Ok(())
}

/// Executes `FP.UPDATE key value`: replaces the value of an existing key and keeps its expiry; replies with an error if
/// the key is absent.
pub(super) fn update(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let mut handle = context.handle(args[1]);
    let Some(expiry) = handle.entry().map(|entry| entry.expiry()) else { return Err(NO_KEY.into()) };
    handle.string()?;
    handle.put(args[2], expiry)?;
    context.replies.ok();
    Ok(())
}

/// Executes `FP.CAS key expected value` (compare and set): replaces the value by `value` if it equals `expected`.
/// Replies 1 if the value was replaced, 0 if it differs from `expected`, and null if the key is absent.
pub(super) fn cas(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let mut handle = context.handle(args[1]);
    let is_expected = handle.string()?.map(|value| *value == *args[2]);
    match is_expected {
        None => context.replies.null(),
        Some(false) => context.replies.integer(0),
        Some(true) => {
            let expiry = handle.entry().and_then(|entry| entry.expiry());
            handle.put(args[3], expiry)?;
            context.replies.integer(1);
        }
    }
    Ok(())
}
