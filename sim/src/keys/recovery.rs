//! Crashes and stops of the node, and checks of the recovered keys.

use super::life::Life;
use super::model::{Key, Value};
use super::replies::{Expected, integer};
use super::{Client, World};
use crate::checks::Checked;
use farpool_disk::Faults;
use farpool_model::Clock;
use std::collections::BTreeMap;
use std::sync::Arc;

impl World {
    /// Stops the node, cleanly or by a loss of power, starts it again and checks its keys.
    pub fn restart(&mut self, is_clean: bool) -> Checked {
        self.take_acknowledgements();
        let is_clean = is_clean && !self.must_crash && !self.is_faulty && self.life.log.is_writing();
        if is_clean {
            self.life.log.close(self.now / 1000).map_err(|error| format!("a stop failed: {error}"))?;
        }
        let (durable, end) = (self.acknowledged, self.life.log.next_record());
        self.scans.clear();
        self.clients.iter_mut().for_each(|client| *client = Client::default());
        self.observer = Client::default();
        self.pending.clear();
        self.directory.set_faults(Faults::default());
        if !is_clean {
            self.directory.crash(self.random.next());
        }
        (self.is_faulty, self.must_crash, self.was_restarted) = (false, false, true);
        if self.random.chance(30) {
            self.set_clock();
        }
        self.life = Arc::new(Life::begin(&mut self.random, &self.clock, &self.directory, &self.setting)?);
        let found = self.life.log.next_record();
        self.now = self.life.log.now_ms();
        self.tell(format!(
            "a {} after {end} records, {durable} of them durable; found are {found}",
            if is_clean { "stop" } else { "loss of power" }
        ));
        if found < durable || found > end || is_clean && found < end {
            return Err(format!("of {end} records, {durable} of them durable, {found} were found"));
        }
        self.lose_from(found)?;
        self.acknowledged = found;
        self.evicted = self.life.keys.uses().evicted;
        self.check_all()?;
        self.set_limits()
    }

    /// Reverts all changes in the model that are recorded from record `found` on.
    fn lose_from(&mut self, found: u64) -> Checked {
        let mut unsure = BTreeMap::new();
        let (mut known, mut limits) = (self.base, false);
        for past in std::mem::take(&mut self.history).into_iter().rev() {
            if past.end <= found {
                known = known.max(past.time);
                limits = true;
                continue;
            }
            self.named = past.named;
            for (key, entry) in past.before {
                if !past.is_whole && past.first < found {
                    // Some records of the change survived, so that the key may have its previous or its new entry.
                    unsure.insert(key, entry);
                    continue;
                }
                unsure.remove(&key);
                match entry {
                    Some(entry) => self.map.insert(key, entry),
                    None => self.map.remove(&key),
                };
            }
        }
        let (latest, seen) = (self.life.latest(), self.latest);
        if latest < known || latest > seen {
            return Err(format!("the latest time was {seen}, {known} is recorded, and {latest} was found"));
        }
        if self.now != latest.max(self.clock.unix_ms()) {
            return Err(format!("it is {} for keys after {latest} was seen", self.now));
        }
        let has_limits = self.life.keys.limits().maxmemory == self.setting.maxmemory;
        if limits && !has_limits {
            return Err("the limits are lost".into());
        }
        (self.base, self.latest, self.asked) = (latest, latest.max(self.now), latest);
        let may_be_gone = |entry: &super::Entry| entry.expiry.is_some_and(|expiry| expiry <= seen);
        let seen_expired: Vec<Key> =
            self.live().into_iter().filter(|key| may_be_gone(&self.map[key])).collect();
        for key in seen_expired {
            // The key may be removed or present: no client was told that it had expired, and the removal need not be on
            // disk.
            if !self.is_there(&key) {
                self.map.remove(&key);
            }
        }
        for (key, entry) in unsure {
            if let Some(entry) = entry.filter(|_| self.is_there(&key)) {
                self.map.insert(key, entry);
            }
        }
        Ok(())
    }

    /// Checks all keys and keyspaces of the node against the model.
    pub fn check_all(&mut self) -> Checked {
        for space in 0..super::SPACES {
            self.observed(&["SELECT", &space.to_string()]);
            let found = self.observed(&["KEYS", "*"]);
            let live: Vec<Key> = self.live().into_iter().filter(|(of, _)| *of == space).collect();
            let expected = Expected::Set(live.iter().map(|(_, name)| name.clone().into_bytes()).collect());
            if !expected.fits(&found) {
                return Err(format!("the keys of space {space} are expected {}", expected.differing(&found)));
            }
            for key in live {
                self.check_key(&key)?;
            }
        }
        let spaces = self.life.keys.spaces();
        let is_there = |name: &str| spaces.named(name).is_some();
        if (is_there("u"), is_there("s")) != (self.named.rows, self.named.plain) {
            return Err(format!("there are other spaces than {:?}", self.named));
        }
        Ok(())
    }

    fn check_key(&mut self, key: &Key) -> Checked {
        let entry = self.map[key].clone();
        let (read, expected) = match entry.value {
            Value::Text(text) => ("GET", Expected::Is(super::replies::bulk(&text))),
            Value::Hash(fields) => {
                let pairs = fields.into_iter().map(|(field, value)| (field.into_bytes(), value));
                ("HGETALL", Expected::Pairs(pairs.collect()))
            }
        };
        let expiry = integer(entry.expiry.map_or(-1, |expiry| expiry as i64));
        for (command, expected) in [(read, expected), ("PEXPIRETIME", expiry)] {
            let found = self.observed(&[command, &key.1]);
            if !expected.fits(&found) {
                let (found, expected) = (found.escape_ascii().to_string(), format!("{expected:?}"));
                return Err(format!("{command} of {key:?}: {found:.300} in place of {expected:.300}"));
            }
        }
        Ok(())
    }
}
