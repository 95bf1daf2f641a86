//! Commands on named spaces (namespaces of the keys with a common prefix): `FP.SPACE CREATE`, `DROP`, `LIST` and
//! `INFO`.

use super::rows::{Texts, shown};
use super::{Args, Context, Done, Refusal, SYNTAX};
use crate::effects::Effect;
use crate::entry::Kind;
use crate::packing::Compression;
use crate::rows::RowSchema;
use crate::shard::SpaceId;
use crate::spaces::{Space, Spaces};
use farpool_model::TableName;
use farpool_model::limits::{KV_KEY_BYTES_MAX, KV_MOVED_BYTES_MAX, KV_MOVED_MAX, KV_SPACES_MAX};
use std::borrow::Cow;
use std::sync::Arc;

/// Returns whether the arguments are those of `FP.SPACE LIST` or `INFO`, which only read definitions of spaces.
pub(super) fn only_tells(args: &Args<'_>) -> bool {
    let is = |at: usize, words: &[&[u8]]| {
        args.get(at).is_some_and(|arg| words.iter().any(|word| arg.eq_ignore_ascii_case(word)))
    };
    is(0, &[b"fp.space"]) && is(1, &[b"list", b"info"])
}

pub(super) fn space(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    match (args[1].to_ascii_lowercase().as_slice(), &args[2..]) {
        (b"create", [name, options @ ..]) => create(context, name, options),
        (b"drop", [name]) => drop_space(context, name),
        (b"list", []) => list(context),
        (b"info", [name]) => info(context, name),
        _ => Err(
            "ERR FP.SPACE takes CREATE name [columns | BINARY] [PREFIX prefix] [COMPRESSION codec], DROP name, LIST, \
             or INFO name"
                .into(),
        ),
    }
}

/// An entry that moves to another space because a space is created or dropped: its key, its fields or its string, and
/// its expiry.
struct MovedEntry {
    key: Box<[u8]>,
    value: Result<Texts, Vec<u8>>,
    expiry: Option<u64>,
}

impl Context<'_, '_> {
    /// Returns the definition of the named space with this name; fails if there is none.
    pub(super) fn named_space(&self, name: &[u8]) -> Result<Arc<Space>, Refusal> {
        let text = String::from_utf8_lossy(name);
        let (spaces, name_read) = (self.spaces(), TableName::parse(&text));
        // Names of older spaces may contain dots that do not separate a schema from a name.
        let space = name_read
            .ok()
            .and_then(|read| spaces.named(&read.encoded()))
            .or_else(|| spaces.named(&text))
            .cloned();
        space.ok_or_else(|| {
            let name = shown(name);
            Refusal(Cow::Owned(format!(
                "ERR no space '{name}': FP.SPACE LIST tells all, FP.SPACE CREATE makes one"
            )))
        })
    }

    fn spaces(&self) -> Arc<Spaces> {
        self.all_taken().first().map(|(_, shard)| Arc::clone(shard.spaces())).unwrap_or_default()
    }

    fn set_spaces(&mut self, spaces: Spaces) {
        let spaces = Arc::new(spaces);
        self.resources.shards.all().iter_mut().for_each(|(_, shard)| shard.set_spaces(&spaces));
        let definitions = spaces.to_bytes();
        self.resources.recorder.add(&Effect::Spaces { definitions: &definitions });
        // Charging needs no further memory, so an error is ignored: a dropped space releases the memory of its
        // compression dictionary, and a new one has no dictionary yet.
        self.keyspace.charge_packers(&spaces).ok();
    }

    /// Returns the keys in the space `owner` that begin with `prefix`.
    fn keys_with(&self, prefix: &[u8], owner: SpaceId) -> Result<Vec<Box<[u8]>>, Refusal> {
        let mut keys = Vec::new();
        for (_, shard) in self.all_taken() {
            let Some(table) = shard.table(owner) else { continue };
            if table.len() > KV_MOVED_MAX {
                return Err(Refusal(Cow::Owned(format!(
                    "ERR more than {KV_MOVED_MAX} keys would have to be looked at: create spaces before their keys"
                ))));
            }
            let mut cursor = 0;
            loop {
                if self.host.has_gone() {
                    return Err("ERR the client has gone".into());
                }
                cursor = table.scan(cursor, self.now, |entry| {
                    if entry.key().starts_with(prefix) {
                        keys.push(Box::from(entry.key()));
                    }
                });
                if cursor == 0 {
                    break;
                }
            }
        }
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    /// Replaces the definitions of named spaces by `spaces`, and moves the keys that begin with `prefix` from the space
    /// `from` to `to` (`None` for space 0). Changes nothing if it fails.
    fn change_spaces(
        &mut self,
        spaces: Spaces,
        prefix: &[u8],
        (from, to): (Option<&Arc<Space>>, Option<&Arc<Space>>),
    ) -> Done {
        let id_of = |space: Option<&Arc<Space>>| space.map_or(0, |space| space.id);
        let (mut moved, mut bytes) = (Vec::new(), 0);
        for key in self.keys_with(prefix, id_of(from))? {
            let handle = self.handle_in(id_of(from), from, &key);
            let Some(entry) = handle.entry() else { continue };
            let value = match entry.kind() {
                Kind::String => Err(handle.plain(entry)?.into_owned()),
                _ => Ok(handle.all_fields()?),
            };
            bytes += match &value {
                Err(text) => text.len(),
                Ok(fields) => fields.iter().map(|(field, value)| field.len() + value.len()).sum(),
            };
            if bytes > KV_MOVED_BYTES_MAX {
                let most = KV_MOVED_BYTES_MAX >> 20;
                return Err(Refusal(Cow::Owned(format!(
                    "ERR more than {most} MiB of values begin with this prefix: create spaces before their keys"
                ))));
            }
            let expiry = entry.expiry();
            let target = self.handle_in(id_of(to), to, &key);
            match &value {
                Err(_) => target.check_no_rows(),
                Ok(fields) => fields.iter().try_for_each(|(field, value)| target.check_field(field, value)),
            }
            .map_err(|Refusal(text)| {
                let (key, text) = (shown(&key), text.trim_start_matches("ERR ").to_string());
                Refusal(Cow::Owned(format!("ERR the key '{key}', which is there, does not fit: {text}")))
            })?;
            // Protected, because a key that has moved must not be evicted to make room for the next one.
            self.resources.keep(self.keyspace, &key);
            moved.push(MovedEntry { key, value, expiry });
        }
        let mut done = Ok(());
        let mut count = 0;
        for MovedEntry { key, value, expiry } in &moved {
            let mut target = self.handle_in(id_of(to), to, key);
            done = match value {
                Err(text) => target.put(text, *expiry),
                Ok(fields) => target.put_fields(fields, *expiry),
            };
            if done.is_err() {
                break;
            }
            count += 1;
        }
        // Removes the keys from the old space; if memory was too small for all, removes those written so far from the
        // new one.
        let (gone, gone_id, keys) = match done {
            Ok(()) => (from, id_of(from), &moved[..]),
            Err(_) => (to, id_of(to), &moved[..count]),
        };
        for MovedEntry { key, .. } in keys {
            self.handle_in(gone_id, gone, key).remove();
        }
        if done.is_ok() {
            self.set_spaces(spaces);
        }
        done
    }
}

/// The words with which options of `FP.SPACE CREATE` begin; no column definition begins with one of them.
const WORDS: [&[u8]; 3] = [b"prefix", b"binary", b"compression"];

/// Returns the compression with this name; `Ok(None)` for the name `none`.
fn compression_named(name: &[u8]) -> Result<Option<Compression>, Refusal> {
    let compression = Compression::named(name);
    if compression.is_none() && !is_word(name, b"none") {
        let shown = shown(name);
        return Err(Refusal(Cow::Owned(format!(
            "ERR there is no compression '{shown}': use fsst for short texts, lz4, deflate for long values, or none"
        ))));
    }
    Ok(compression)
}

fn is_word(given: &[u8], word: &[u8]) -> bool {
    given.eq_ignore_ascii_case(word)
}

fn create(context: &mut Context<'_, '_>, name: &[u8], options: &Args<'_>) -> Done {
    let name = std::str::from_utf8(name).map_err(|_| "ERR the name of a space must be UTF-8")?;
    let table = TableName::parse(name).map_err(Refusal::with_advice)?;
    let name = table.encoded();
    let is_number = |rest: &str| !rest.is_empty() && rest.bytes().all(|digit| digit.is_ascii_digit());
    if name == "default" || name.strip_prefix("db").is_some_and(is_number) {
        return Err("ERR this is the name of what SELECT chooses: choose another one".into());
    }
    let (schema, options) = match options {
        [first, rest @ ..] if !WORDS.iter().any(|word| is_word(first, word)) => {
            let text = std::str::from_utf8(first).map_err(|_| "ERR a schema must be UTF-8")?;
            (Some(RowSchema::parse(text).map_err(Refusal::with_advice)?), rest)
        }
        _ => (None, options),
    };
    let (is_binary, options) = match options {
        [first, rest @ ..] if schema.is_none() && is_word(first, b"binary") => (true, rest),
        _ => (false, options),
    };
    let (mut prefix, mut compression) = (None, None);
    for option in options.chunks(2) {
        match option {
            [word, given] if is_word(word, b"prefix") && prefix.is_none() => prefix = Some(Box::from(*given)),
            [word, given] if is_word(word, b"compression") && compression.is_none() => {
                compression = Some(compression_named(given)?);
            }
            _ => return Err(SYNTAX.into()),
        }
    }
    let prefix: Box<[u8]> = prefix.unwrap_or_else(|| format!("{table}:").into_bytes().into());
    let compression = compression.flatten();
    if prefix.is_empty() || prefix.len() > KV_KEY_BYTES_MAX / 2 {
        return Err(Refusal(Cow::Owned(format!("ERR a prefix has 1 to {} bytes", KV_KEY_BYTES_MAX / 2))));
    }
    let _held = context.host.hold_schema(&table)?;
    let spaces = context.spaces();
    if spaces.named(&name).is_some() {
        return Err(Refusal(Cow::Owned(format!("ERR there is a space '{}'", table.as_str().escape_debug()))));
    }
    if let Some(other) = spaces.iter().find(|space| space.prefix == prefix) {
        let other = other.written_name();
        let other = other.escape_debug();
        return Err(Refusal(Cow::Owned(format!("ERR the prefix is that of space '{other}'"))));
    }
    if spaces.len() >= KV_SPACES_MAX {
        return Err(Refusal(Cow::Owned(format!("ERR there are {KV_SPACES_MAX} spaces, which is the most"))));
    }
    let owner = spaces.owner(&prefix).cloned();
    let id = spaces.free_id();
    let space = Space { id, name: name.clone(), prefix: prefix.clone(), schema, is_binary, compression };
    let changed = spaces.with(space);
    let space = changed.named(&name).cloned();
    context.change_spaces(changed, &prefix, (owner.as_ref(), space.as_ref()))?;
    context.replies.ok();
    Ok(())
}

fn drop_space(context: &mut Context<'_, '_>, name: &[u8]) -> Done {
    let space = context.named_space(name)?;
    let changed = context.spaces().without(space.id);
    let owner = changed.owner(&space.prefix).cloned();
    context.change_spaces(changed, &space.prefix, (Some(&space), owner.as_ref()))?;
    context.replies.ok();
    Ok(())
}

fn list(context: &mut Context<'_, '_>) -> Done {
    let mut spaces: Vec<Arc<Space>> = context.spaces().iter().cloned().collect();
    spaces.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    context.replies.array(spaces.len());
    spaces.iter().for_each(|space| context.replies.bulk(space.written_name().as_bytes()));
    Ok(())
}

fn info(context: &mut Context<'_, '_>, name: &[u8]) -> Done {
    let space = context.named_space(name)?;
    let (mut keys, mut bytes) = (0, 0);
    for (_, shard) in context.all_taken() {
        if let Some(table) = shard.table(space.id) {
            keys += table.len();
            bytes += table.bytes();
        }
    }
    let dictionary = context.spaces().packer(space.id).map_or(0, |packer| packer.dictionary().len());
    let replies = &mut context.replies;
    replies.map(7);
    replies.bulk(b"name");
    replies.bulk(space.written_name().as_bytes());
    replies.bulk(b"prefix");
    replies.bulk(&space.prefix);
    replies.bulk(b"schema");
    match &space.schema {
        Some(schema) => replies.bulk(schema.text().as_bytes()),
        None => replies.null(),
    }
    replies.bulk(b"compression");
    match space.compression {
        Some(compression) => replies.bulk(compression.name().as_bytes()),
        None => replies.null(),
    }
    replies.bulk(b"dictionary_bytes");
    replies.integer(dictionary as i64);
    replies.bulk(b"keys");
    replies.integer(keys as i64);
    replies.bulk(b"bytes");
    replies.integer(bytes as i64);
    Ok(())
}
