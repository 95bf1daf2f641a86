//! A model of keys and values: a map, and the effects of commands on it.
//!
//! Expired keys stay in the map, with the time of their expiry, so that a crash that loses the end of the log restores
//! them.

use super::replies::{Expected, bulk, integer, nil};
use std::collections::{BTreeMap, BTreeSet};

/// A key, with the number of its keyspace.
pub type Key = (u32, String);

/// All keys, including expired ones.
pub type Map = BTreeMap<Key, Entry>;

/// The value of a key in the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A value of the type string.
    Text(Vec<u8>),
    /// A hash, or a row of a keyspace with a schema.
    Hash(BTreeMap<String, Vec<u8>>),
}

/// A value and its expiry, in milliseconds since the epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The value.
    pub value: Value,
    /// The time at which the key expires, if it does.
    pub expiry: Option<u64>,
}

/// The named keyspaces, and whether each exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// `u`, with the columns `id u64, n i32, s utf8`.
    pub rows: bool,
    /// `s`, without a schema.
    pub plain: bool,
}

impl Entry {
    /// Returns whether the entry is live at a given time.
    pub fn is_live(&self, now: u64) -> bool {
        self.expiry.is_none_or(|expiry| expiry > now)
    }
}

/// The keys as a command finds them, and the changes that it makes.
pub struct View<'a> {
    /// The keys before the command, or the transaction that it belongs to.
    pub map: &'a Map,
    /// The named keyspaces that exist.
    pub named: Named,
    /// The number of the client's keyspace, and the time in milliseconds since the epoch.
    pub at: (u32, u64),
    /// Whether expired keys may be counted although they were removed before.
    pub was_restarted: bool,
    /// The changes so far; `None` for a removed key.
    pub changed: Changes,
}

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
const NOT_INTEGER: &str = "-ERR value is not an integer or out of range\r\n";

type Done = Result<Expected, Expected>;

/// A string and its expiry.
type Text = (Vec<u8>, Option<u64>);

/// New or previous entries of keys; `None` for an absent key.
pub type Changes = BTreeMap<Key, Option<Entry>>;

impl View<'_> {
    /// Carries out a command on the map; returns the reply.
    pub fn run(&mut self, args: &[String]) -> Expected {
        let before = self.changed.clone();
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        let done = match words[0] {
            "SET" => self.set(&words),
            "MSET" | "MSETNX" => self.mset(&words),
            "HSET" | "HSETNX" | "HDEL" | "HINCRBY" | "HGET" | "HLEN" | "HGETALL" => self.hash(&words),
            "RENAME" | "RENAMENX" | "COPY" => self.give(&words),
            "DEL" | "EXISTS" | "MGET" => Ok(self.several(&words)),
            "FP.SPACE" => self.space(&words),
            "FP.ROWSET" => self.rowset(&words),
            "FLUSHDB" => {
                let all: Vec<String> = self.live().map(|(key, _)| key).collect();
                all.iter().for_each(|key| self.put(key, None));
                Ok(Expected::ok())
            }
            "KEYS" => Ok(Expected::Set(self.live().map(|(key, _)| key.into_bytes()).collect())),
            "DBSIZE" => Ok(self.size()),
            "PEXPIRE" | "PERSIST" | "PEXPIRETIME" | "TYPE" => Ok(self.of_any(&words)),
            _ => self.string(&words),
        };
        done.unwrap_or_else(|refused| {
            // A refused command changes nothing. The error that the keys belong to rows may take precedence.
            self.changed = before;
            if words[1..].iter().any(|word| self.is_row(self.at.0, word)) { Expected::Error } else { refused }
        })
    }

    fn key(&self, name: &str) -> Key {
        (self.at.0, name.to_string())
    }

    fn entry_in(&self, space: u32, name: &str) -> Option<&Entry> {
        let key = (space, name.to_string());
        let entry = match self.changed.get(&key) {
            Some(changed) => changed.as_ref(),
            None => self.map.get(&key),
        };
        entry.filter(|entry| entry.is_live(self.at.1))
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        self.entry_in(self.at.0, name)
    }

    fn put(&mut self, name: &str, entry: Option<Entry>) {
        self.changed.insert(self.key(name), entry);
    }

    /// Returns all live keys of the client's keyspace.
    fn live(&self) -> impl Iterator<Item = (String, Entry)> + '_ {
        let (space, now) = self.at;
        let unchanged = self.map.iter().filter(|(key, _)| !self.changed.contains_key(*key));
        let changed = self.changed.iter().filter_map(|(key, entry)| entry.as_ref().map(|entry| (key, entry)));
        let all = unchanged.chain(changed);
        all.filter(move |((of, _), entry)| *of == space && entry.is_live(now))
            .map(|((_, name), entry)| (name.clone(), entry.clone()))
    }

    /// Returns the number of keys; expired keys may still be counted.
    fn size(&self) -> Expected {
        let least = self.live().count() as i64;
        let all = self.map.keys().chain(self.changed.keys()).filter(|(space, _)| *space == self.at.0);
        let most = all.collect::<BTreeSet<_>>().len() as i64;
        Expected::Between(least, if self.was_restarted { i64::MAX } else { most })
    }

    fn is_row(&self, space: u32, name: &str) -> bool {
        space == 0 && self.named.rows && name.starts_with("u:")
    }

    /// Returns a string and its expiry.
    fn text(&self, name: &str) -> Result<Option<Text>, Expected> {
        match self.entry(name) {
            None => Ok(None),
            Some(Entry { value: Value::Text(text), expiry }) => Ok(Some((text.clone(), *expiry))),
            Some(_) => Err(Expected::text(WRONG_TYPE)),
        }
    }

    /// Sets a string, which the keyspace must accept.
    fn put_text(&mut self, name: &str, text: Vec<u8>, expiry: Option<u64>) -> Result<(), Expected> {
        if self.is_row(self.at.0, name) {
            return Err(Expected::Error);
        }
        self.put(name, Some(Entry { value: Value::Text(text), expiry }));
        Ok(())
    }

    fn set(&mut self, words: &[&str]) -> Done {
        let (name, text) = (words[1], words[2].as_bytes().to_vec());
        let mut expiry = None;
        let is_there = self.entry(name).is_some();
        for (at, word) in words.iter().enumerate().skip(3) {
            match *word {
                "PX" => expiry = words[at + 1].parse::<u64>().ok().map(|ms| self.at.1 + ms),
                "KEEPTTL" => expiry = self.entry(name).and_then(|entry| entry.expiry),
                "NX" if is_there => return Ok(nil()),
                "XX" if !is_there => return Ok(nil()),
                _ => {}
            }
        }
        self.put_text(name, text, expiry)?;
        Ok(Expected::ok())
    }

    fn mset(&mut self, words: &[&str]) -> Done {
        let pairs = || words[1..].chunks_exact(2);
        if words[0] == "MSETNX" && pairs().any(|pair| self.entry(pair[0]).is_some()) {
            return Ok(integer(0));
        }
        for pair in pairs() {
            self.put_text(pair[0], pair[1].as_bytes().to_vec(), None)?;
        }
        Ok(if words[0] == "MSET" { Expected::ok() } else { integer(1) })
    }

    fn several(&mut self, words: &[&str]) -> Expected {
        let mut count = 0;
        let mut values = format!("*{}\r\n", words.len() - 1).into_bytes();
        for name in &words[1..] {
            let is_there = self.entry(name).is_some();
            count += i64::from(is_there);
            match self.text(name) {
                Ok(Some((text, _))) => values.extend(bulk(&text)),
                _ => values.extend(b"$-1\r\n"),
            }
            if words[0] == "DEL" && is_there {
                self.put(name, None);
            }
        }
        if words[0] == "MGET" { Expected::Is(values) } else { integer(count) }
    }

    fn of_any(&mut self, words: &[&str]) -> Expected {
        let name = words[1];
        let Some(entry) = self.entry(name).cloned() else {
            return match words[0] {
                "PEXPIRETIME" => integer(-2),
                "TYPE" => Expected::text("+none\r\n"),
                _ => integer(0),
            };
        };
        match words[0] {
            "PEXPIRE" => {
                let expiry = words[2].parse::<u64>().ok().map(|ms| self.at.1 + ms);
                self.put(name, Some(Entry { expiry, ..entry }));
                integer(1)
            }
            "PERSIST" if entry.expiry.is_none() => integer(0),
            "PERSIST" => {
                self.put(name, Some(Entry { expiry: None, ..entry }));
                integer(1)
            }
            "PEXPIRETIME" => integer(entry.expiry.map_or(-1, |expiry| expiry as i64)),
            _ => match entry.value {
                Value::Text(_) => Expected::text("+string\r\n"),
                Value::Hash(_) => Expected::text("+hash\r\n"),
            },
        }
    }

    /// Carries out commands on one string.
    fn string(&mut self, words: &[&str]) -> Done {
        let name = words[1];
        if words[0] == "FP.UPDATE" && self.entry(name).is_none() {
            return Err(Expected::text("-ERR no such key\r\n"));
        }
        if words[0] == "FP.CGET" {
            return Ok(self.conditional(name, words[2]));
        }
        let found = self.text(name)?;
        let old = found.as_ref().map_or_else(nil, |(text, _)| Expected::Is(bulk(text)));
        let expiry = found.as_ref().and_then(|(_, expiry)| *expiry);
        let text = found.as_ref().map(|(text, _)| text.clone());
        match words[0] {
            "GET" => {}
            "STRLEN" => return Ok(integer(text.map_or(0, |text| text.len() as i64))),
            "GETSET" => self.put_text(name, words[2].as_bytes().to_vec(), None)?,
            "GETDEL" if found.is_some() => self.put(name, None),
            "GETEX" if found.is_some() => {
                let expiry = words.get(3).and_then(|ms| ms.parse::<u64>().ok()).map(|ms| self.at.1 + ms);
                let entry = self.entry(name).cloned();
                self.put(name, entry.map(|entry| Entry { expiry, ..entry }));
            }
            "APPEND" => {
                let text = [&text.unwrap_or_default(), words[2].as_bytes()].concat();
                let bytes = text.len() as i64;
                self.put_text(name, text, expiry)?;
                return Ok(integer(bytes));
            }
            "SETRANGE" => {
                let (mut text, at) = (text.unwrap_or_default(), words[2].parse::<usize>().unwrap_or(0));
                text.resize(text.len().max(at + words[3].len()), 0);
                text[at..at + words[3].len()].copy_from_slice(words[3].as_bytes());
                let bytes = text.len() as i64;
                self.put_text(name, text, expiry)?;
                return Ok(integer(bytes));
            }
            "INCRBY" => {
                let number = sum(text.as_deref(), words[2]).ok_or_else(|| Expected::text(NOT_INTEGER))?;
                self.put_text(name, number.to_string().into_bytes(), expiry)?;
                return Ok(integer(number));
            }
            "FP.UPDATE" => {
                self.put_text(name, words[2].as_bytes().to_vec(), expiry)?;
                return Ok(Expected::ok());
            }
            "FP.CAS" => match text {
                None => return Ok(nil()),
                Some(text) if text != words[2].as_bytes() => return Ok(integer(0)),
                Some(_) => {
                    self.put_text(name, words[3].as_bytes().to_vec(), expiry)?;
                    return Ok(integer(1));
                }
            },
            _ => {}
        }
        Ok(old)
    }

    /// Carries out `FP.CGET key "value like 'a%'"`, and in a keyspace of rows `"n > NUMBER"`.
    fn conditional(&self, name: &str, condition: &str) -> Expected {
        let is_of_row = condition.starts_with("n > ");
        if is_of_row != self.is_row(self.at.0, name) {
            return Expected::Error;
        }
        match self.entry(name).map(|entry| &entry.value) {
            Some(Value::Text(text)) if text.starts_with(b"a") => Expected::Is(bulk(text)),
            Some(Value::Hash(fields)) if is_of_row && passes(fields, condition) => {
                let value =
                    |name: &str| fields.get(name).map_or_else(|| b"$-1\r\n".to_vec(), |value| bulk(value));
                Expected::Is([b"*2\r\n".to_vec(), value("n"), value("s")].concat())
            }
            _ => nil(),
        }
    }

    fn hash(&mut self, words: &[&str]) -> Done {
        let name = words[1];
        let (mut fields, expiry) = match self.entry(name) {
            None => (BTreeMap::new(), None),
            Some(Entry { value: Value::Hash(fields), expiry }) => (fields.clone(), *expiry),
            Some(_) => return Err(Expected::text(WRONG_TYPE)),
        };
        let count = fields.len() as i64;
        let value = |field: &str| fields.get(field).map_or_else(nil, |value| Expected::Is(bulk(value)));
        let reply = match words[0] {
            "HGET" => return Ok(value(words[2])),
            "HLEN" => return Ok(integer(count)),
            "HGETALL" => {
                let pairs = fields.into_iter().map(|(field, value)| (field.into_bytes(), value));
                return Ok(Expected::Pairs(pairs.collect()));
            }
            "HSETNX" if fields.contains_key(words[2]) => return Ok(integer(0)),
            "HSET" | "HSETNX" => {
                for pair in words[2..].chunks_exact(2) {
                    fields.insert(pair[0].to_string(), pair[1].as_bytes().to_vec());
                }
                integer(fields.len() as i64 - count)
            }
            "HDEL" => {
                words[2..].iter().for_each(|field| drop(fields.remove(*field)));
                integer(count - fields.len() as i64)
            }
            _ => {
                let number = sum(fields.get(words[2]).map(Vec::as_slice), words[3]);
                let number = number.ok_or_else(|| Expected::text("-ERR hash value is not an integer\r\n"))?;
                fields.insert(words[2].to_string(), number.to_string().into_bytes());
                integer(number)
            }
        };
        if words[0] == "HDEL" && fields.len() as i64 == count {
            return Ok(reply);
        }
        self.put(name, (!fields.is_empty()).then_some(Entry { value: Value::Hash(fields), expiry }));
        Ok(reply)
    }

    /// Carries out `RENAME`, `RENAMENX` and `COPY` within a keyspace, or `COPY from to DB number`.
    fn give(&mut self, words: &[&str]) -> Done {
        let (from, to) = (words[1], words[2]);
        let option = |name: &str| words.iter().position(|word| *word == name);
        let to_space = option("DB").and_then(|at| words[at + 1].parse::<u32>().ok()).unwrap_or(self.at.0);
        let is_same = from == to && to_space == self.at.0;
        if words[0] == "COPY" && is_same {
            return Err(Expected::Error);
        }
        let Some(entry) = self.entry(from).cloned() else {
            return if words[0] == "COPY" {
                Ok(integer(0))
            } else {
                Err(Expected::text("-ERR no such key\r\n"))
            };
        };
        let is_there = self.entry_in(to_space, to).is_some();
        if is_there && (words[0] == "RENAMENX" || words[0] == "COPY" && option("REPLACE").is_none()) {
            return Ok(integer(0));
        }
        if self.is_row(to_space, to) && matches!(entry.value, Value::Text(_)) {
            return Err(Expected::Error);
        }
        if words[0] != "COPY" {
            self.put(from, None);
        }
        self.changed.insert((to_space, to.to_string()), Some(entry));
        Ok(if words[0] == "RENAME" { Expected::ok() } else { integer(1) })
    }

    /// Carries out `FP.SPACE CREATE` and `DROP` of one of the two named keyspaces.
    fn space(&mut self, words: &[&str]) -> Done {
        let (is_made, name) = (words[1] == "CREATE", words[2]);
        let is_there = if name == "u" { self.named.rows } else { self.named.plain };
        let all = View { at: (0, self.at.1), changed: self.changed.clone(), ..*self };
        let has_text =
            all.live().any(|(key, entry)| key.starts_with("u:") && matches!(entry.value, Value::Text(_)));
        if is_made == is_there || is_made && name == "u" && has_text {
            return Err(Expected::Error);
        }
        match name {
            "u" => self.named.rows = is_made,
            _ => self.named.plain = is_made,
        }
        Ok(Expected::ok())
    }

    /// Carries out `FP.ROWSET u id n s ...`.
    fn rowset(&mut self, words: &[&str]) -> Done {
        if !self.named.rows {
            return Err(Expected::Error);
        }
        let rows = words[2..].chunks_exact(3);
        let count = rows.len() as i64;
        for row in rows {
            let fields = [("n", row[1]), ("s", row[2])];
            let fields = fields.map(|(field, value)| (field.to_string(), value.as_bytes().to_vec()));
            let entry = Entry { value: Value::Hash(fields.into()), expiry: None };
            self.changed.insert((0, format!("u:{}", row[0])), Some(entry));
        }
        Ok(integer(count))
    }
}

/// Returns whether `n > NUMBER` is true for a row.
pub fn passes(fields: &BTreeMap<String, Vec<u8>>, condition: &str) -> bool {
    let number = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
    let least = number(&condition.as_bytes()[4..]);
    fields.get("n").and_then(|n| number(n)).is_some_and(|n| Some(n) > least)
}

/// Returns the sum computed by `INCRBY`; `None` if the value is not a number.
fn sum(text: Option<&[u8]>, more: &str) -> Option<i64> {
    let text = text.map_or(Some("0"), |text| std::str::from_utf8(text).ok())?;
    let number = text.parse::<i64>().ok().filter(|number| number.to_string() == text)?;
    number.checked_add(more.parse().ok()?)
}
