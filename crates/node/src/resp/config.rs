//! The subcommands of `CONFIG` of the Redis protocol: settings that clients can read, and those that they can change
//! for the keys of their tenant.

use super::host::{Client, Done};
use farpool_keystore::Fsync;
use farpool_kv::evict::Policy;
use farpool_kv::resp::{Replies, parse_integer};
use farpool_kv::{Args, Limits, Pattern, Refusal, TimeAndRandom};
use farpool_model::limits::SLOW_LOG_ENTRIES_MAX;
use std::borrow::Cow;

/// Settings that clients can read only, with their values.
const FIXED: &[(&str, &str)] = &[
    ("databases", "16"),
    ("latency-monitor-threshold", "0"),
    ("proto-max-bulk-len", "536870912"),
    ("save", ""),
];

/// Number of all settings that clients can read.
pub(super) const SETTINGS: usize = FIXED.len() + 6;

/// An action of `CONFIG` that locks all shards of the keys. Within a transaction, which has shards locked, the action
/// is executed after the transaction has released them.
pub(super) enum DeferredAction {
    Change(Changes),
    ResetCounts,
}

/// New values of settings; `None` for settings that stay.
#[derive(Clone, Copy, Default)]
pub(super) struct Changes {
    maxmemory: Option<u64>,
    policy: Option<Policy>,
    slower_than_us: Option<i64>,
    slow_most: Option<usize>,
}

impl Client {
    pub(super) fn set_settings(&mut self, pairs: &Args<'_>, replies: &mut Replies<'_>) -> Done {
        // Checked after the number of arguments, so that the errors are those of Redis.
        if !pairs.len().is_multiple_of(2) {
            return Err("ERR syntax error".into());
        }
        let changes = self.changes(pairs)?;
        self.do_or_leave(DeferredAction::Change(changes))?;
        replies.ok();
        Ok(())
    }

    pub(super) fn reset_counts(&mut self, replies: &mut Replies<'_>) -> Done {
        self.check_may_write()?;
        self.do_or_leave(DeferredAction::ResetCounts)?;
        replies.ok();
        Ok(())
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let fsync = self.fsync();
        let limits = self.keys().map(|keys| keys.limits()).unwrap_or_default();
        let mut all: Vec<(&str, String)> =
            FIXED.iter().map(|(name, value)| (*name, (*value).to_string())).collect();
        all.extend([
            ("appendfsync", fsync.unwrap_or(Fsync::No).name().to_string()),
            ("appendonly", if fsync.is_some() { "yes" } else { "no" }.to_string()),
            ("maxmemory", limits.maxmemory.to_string()),
            ("maxmemory-policy", limits.policy.name().to_string()),
        ]);
        if let Some(log) = self.slow_log() {
            all.push(("slowlog-log-slower-than", log.slower_than_us().to_string()));
            all.push(("slowlog-max-len", log.most().to_string()));
        }
        debug_assert!(all.len() <= SETTINGS);
        all.sort_unstable();
        all
    }

    pub(super) fn tell_settings(&self, patterns: &Args<'_>, replies: &mut Replies<'_>) -> Done {
        let patterns = patterns.iter().map(|pattern| Pattern::new(pattern)).collect::<Result<Vec<_>, _>>()?;
        let is_wanted = |name: &str| patterns.iter().any(|pattern| pattern.matches(name.as_bytes()));
        let found: Vec<_> = self.settings().into_iter().filter(|(name, _)| is_wanted(name)).collect();
        replies.map(found.len());
        for (name, value) in found {
            replies.bulk(name.as_bytes());
            replies.bulk(value.as_bytes());
        }
        Ok(())
    }

    /// Executes an action now; inside a transaction, which holds shards, notes it for the end of the transaction,
    /// because the action locks all shards.
    fn do_or_leave(&mut self, what: DeferredAction) -> Done {
        self.transaction.deferred.push(what);
        if self.is_in_transaction() { Ok(()) } else { self.do_later() }
    }

    /// Executes the actions that were noted during a transaction. Called when the transaction has released its shards.
    pub(super) fn do_later(&mut self) -> Done {
        for what in std::mem::take(&mut self.transaction.deferred) {
            match what {
                DeferredAction::Change(changes) => self.change_settings(changes)?,
                DeferredAction::ResetCounts => {
                    let uses = self.keys().map(|keys| keys.uses()).unwrap_or_default();
                    self.settle_now();
                    self.clients().iter().for_each(|clients| clients.reset_counts(uses));
                }
            }
        }
        Ok(())
    }

    /// Parses the pairs of setting and value of `CONFIG SET`.
    fn changes(&self, pairs: &Args<'_>) -> Result<Changes, Refusal> {
        self.check_may_write()?;
        let mut changes = Changes::default();
        if pairs.len() / 2 > self.settings().len() {
            return Err("ERR more parameters than there are".into());
        }
        // All names are checked before the first value, so that the errors are those of Redis.
        for (at, pair) in pairs.chunks_exact(2).enumerate() {
            if pairs.chunks_exact(2).take(at).any(|before| before[0].eq_ignore_ascii_case(pair[0])) {
                return Err(failed(&pair[0].escape_ascii().to_string(), "duplicate parameter"));
            }
        }
        for pair in pairs.chunks_exact(2) {
            let (name, value) = (String::from_utf8_lossy(pair[0]).to_ascii_lowercase(), pair[1]);
            match &*name {
                "maxmemory" => {
                    changes.maxmemory =
                        Some(bytes(value).ok_or_else(|| failed(&name, "argument must be a memory value"))?);
                }
                "maxmemory-policy" => {
                    let names = Policy::ALL.map(Policy::name).join(", ");
                    let wanted = format!("argument(s) must be one of the following: {names}");
                    changes.policy = Some(Policy::of_name(value).ok_or_else(|| failed(&name, &wanted))?);
                }
                "slowlog-log-slower-than" => {
                    let us = parse_integer(value).filter(|us| *us >= -1);
                    let wanted = "argument must be between -1 and 9223372036854775807 inclusive";
                    changes.slower_than_us = Some(us.ok_or_else(|| failed(&name, wanted))?);
                }
                "slowlog-max-len" => {
                    let most = parse_integer(value).and_then(|most| usize::try_from(most).ok());
                    let most = most.filter(|most| *most <= SLOW_LOG_ENTRIES_MAX);
                    let wanted = format!("argument must be between 0 and {SLOW_LOG_ENTRIES_MAX} inclusive");
                    changes.slow_most = Some(most.ok_or_else(|| failed(&name, &wanted))?);
                }
                name if self.settings().iter().any(|(known, _)| *known == name) => {
                    return Err(failed(name, "can't set immutable config"));
                }
                name => {
                    let name = name[..name.floor_char_boundary(128)].escape_debug();
                    return Err(Refusal(Cow::Owned(format!(
                        "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
                    ))));
                }
            }
        }
        Ok(changes)
    }

    /// Changes settings; blocks until all shards are locked.
    fn change_settings(&mut self, changes: Changes) -> Done {
        if let Some(log) = self.slow_log() {
            if let Some(us) = changes.slower_than_us {
                log.set_slower_than_us(us);
            }
            if let Some(most) = changes.slow_most {
                log.set_most(most);
            }
        }
        let Some(keys) = self.keys().filter(|_| changes.maxmemory.is_some() || changes.policy.is_some())
        else {
            return Ok(());
        };
        let moment = TimeAndRandom { now: self.now_ms(), random: 0 };
        let set = keys.set_limits(moment, |limits| {
            let Limits { maxmemory, policy } = *limits;
            *limits = Limits {
                maxmemory: changes.maxmemory.unwrap_or(maxmemory),
                policy: changes.policy.unwrap_or(policy),
            };
        });
        let number = set.map_err(|error| {
            Refusal(Cow::Owned(format!("MISCONF the log of keys cannot be written: {}", error.message)))
        })?;
        self.note_recorded(number);
        Ok(())
    }
}

pub(super) const HELP: &[&str] = &[
    "CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET <pattern> [<pattern> ...]",
    "    Return the settings whose names match.",
    "SET <setting> <value> [<setting> <value> ...]",
    "    Change settings: all of them or none.",
    "RESETSTAT",
    "    Set the counters of INFO to zero.",
];

/// Returns the error reply for an invalid value of a setting.
fn failed(name: &str, why: &str) -> Refusal {
    Refusal(Cow::Owned(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")))
}

/// Parses a number of bytes in the notation of Redis: `100`, `100b`, `1k` (1000), `1kb` (1024), and so on with `m` and
/// `g`; returns `None` for anything else.
fn bytes(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.to_ascii_lowercase();
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let unit: u64 = match &text[digits..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn bytes_have_the_units_of_redis() {
        let read = [
            ("100", 100),
            ("0", 0),
            ("3b", 3),
            ("1k", 1000),
            ("2KB", 2048),
            ("1mb", 1 << 20),
            ("1Gb", 1 << 30),
        ];
        for (text, expected) in read {
            assert_eq!(bytes(text.as_bytes()), Some(expected), "{text}");
        }
        for text in ["", "kb", "-1", "1.5gb", "1tb", "1 mb", "99999999999999999999", "18446744073709551615kb"]
        {
            assert_eq!(bytes(text.as_bytes()), None, "{text}");
        }
    }
}
