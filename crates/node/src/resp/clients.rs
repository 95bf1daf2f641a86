//! The clients of a tenant: what they tell one another by `CLIENT LIST` and `INFO`, and how one ends others or has them wait.
//!
//! A connection counts its commands by itself and says what it has done when a batch of them ends, under a lock that is its own:
//! nobody waits for it but who asks for all.

use farpool_kv::{Outcome, Uses};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::Notify;

/// How often the commands of each second are counted.
const SECOND_MS: u64 = 1000;

/// How often commands have run, by their names.
#[derive(Default)]
pub(super) struct Tallies(Vec<Tally>);

/// How often a command has run.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    name: &'static str,
    pub calls: u64,
    pub ns: u64,
    pub rejected: u64,
    pub failed: u64,
}

impl Tallies {
    /// Counts a command that took so long.
    #[inline]
    pub fn count(&mut self, name: &'static str, outcome: Outcome, ns: u64) {
        let tally = self.of(name);
        match outcome {
            Outcome::Queued | Outcome::PutOff(_) => {}
            Outcome::Rejected => tally.rejected += 1,
            Outcome::Done | Outcome::Failed => {
                tally.calls += 1;
                tally.ns += ns;
                tally.failed += u64::from(outcome == Outcome::Failed);
            }
        }
    }

    /// A client uses few commands, whose names are each at one place: there may be others of the same text.
    #[inline]
    fn of(&mut self, name: &'static str) -> &mut Tally {
        let place = self.0.iter().position(|tally| std::ptr::eq(tally.name, name));
        let place = place.unwrap_or_else(|| {
            self.0.push(Tally { name, ..Tally::default() });
            self.0.len() - 1
        });
        &mut self.0[place]
    }

    fn add(&mut self, others: impl IntoIterator<Item = Tally>) {
        for other in others {
            let tally = self.of(other.name);
            tally.calls += other.calls;
            tally.ns += other.ns;
            tally.rejected += other.rejected;
            tally.failed += other.failed;
        }
    }

    fn calls(&self) -> u64 {
        self.0.iter().map(|tally| tally.calls).sum()
    }
}

/// What is known of a connection, by itself and by others.
pub(super) struct Seen {
    pub number: u64,
    /// Address of the client.
    pub peer: String,
    /// Address that it has connected to.
    pub local: String,
    since_ms: u64,
    /// Has the connection end.
    ending: Notify,
    state: Mutex<State>,
}

/// What a connection has told last.
#[derive(Default)]
pub(super) struct State {
    pub name: String,
    pub user: String,
    pub facts: Facts,
    pub is_waiting: bool,
    tallies: Tallies,
}

/// What changes with each batch of commands.
#[derive(Clone, Copy, Default)]
pub(super) struct Facts {
    pub space: u32,
    /// Version of the protocol.
    pub protocol: i64,
    /// How many commands are queued, if they are, and their bytes.
    pub queued: Option<usize>,
    pub queued_bytes: usize,
    /// The latest command; empty if there was none.
    pub command: &'static str,
    /// When it came, in milliseconds since the epoch.
    pub used_ms: u64,
    pub buffers: Buffers,
}

/// Bytes of a connection's buffers.
#[derive(Clone, Copy, Default)]
pub(super) struct Buffers {
    /// Received, and room for more.
    pub received: usize,
    pub free: usize,
    /// Room for replies.
    pub replies: usize,
}

impl Seen {
    pub fn new(number: u64, peer: String, local: String, since_ms: u64) -> Self {
        Seen { number, peer, local, since_ms, ending: Notify::new(), state: Mutex::default() }
    }

    /// Resolves when another client has ended this one.
    pub async fn ended(&self) {
        self.ending.notified().await;
    }

    pub fn end(&self) {
        self.ending.notify_one();
    }

    pub fn set_name(&self, name: &str) {
        self.state.lock().name = name.into();
    }

    pub fn set_user(&self, user: &str) {
        self.state.lock().user = user.into();
    }

    pub fn user(&self) -> String {
        self.state.lock().user.clone()
    }

    /// Tells what a batch of commands has come to, and empties its counts.
    pub fn settle(&self, facts: Facts, counted: &mut Tallies) {
        let mut state = self.state.lock();
        state.facts = facts;
        state.tallies.add(counted.0.drain(..));
    }

    /// A line of `CLIENT LIST`; what is not known is 0 or -1.
    pub fn line(&self, now_ms: u64) -> String {
        let Seen { number, peer, local, since_ms, .. } = self;
        let State { name, user, facts, is_waiting, .. } = &*self.state.lock();
        let Facts { space, protocol, queued, queued_bytes, command, used_ms, buffers } = facts;
        let Buffers { received, free, replies } = buffers;
        let (age, idle) = (now_ms.saturating_sub(*since_ms) / 1000, now_ms.saturating_sub(*used_ms) / 1000);
        let flags = match (is_waiting, queued) {
            (true, Some(_)) => "xb",
            (true, None) => "b",
            (false, Some(_)) => "x",
            (false, None) => "N",
        };
        let multi = queued.map_or(-1, |queued| i64::try_from(queued).unwrap_or(i64::MAX));
        let total = received + free + replies + queued_bytes;
        let command = if command.is_empty() { "NULL" } else { command };
        format!(
            "id={number} addr={peer} laddr={local} fd=-1 name={name} age={age} idle={idle} flags={flags} db={space} \
             sub=0 psub=0 ssub=0 multi={multi} qbuf={received} qbuf-free={free} argv-mem=0 multi-mem={queued_bytes} \
             rbs={replies} rbp={replies} obl=0 oll=0 omem=0 tot-mem={total} events=r cmd={command} user={user} \
             redir=-1 resp={protocol}\n"
        )
    }
}

/// The clients of a tenant.
#[derive(Default)]
pub(crate) struct Clients {
    all: Mutex<BTreeMap<u64, Arc<Seen>>>,
    past: Mutex<Past>,
    /// Until when clients wait, in milliseconds since the epoch; 0 if they do not.
    paused_until_ms: AtomicU64,
    pause: Mutex<Pause>,
    unpaused: Notify,
    /// Clients that wait.
    waiting: AtomicUsize,
}

/// Which commands wait.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pause {
    #[default]
    Writes,
    All,
}

/// What was before.
#[derive(Default)]
struct Past {
    /// Counts of clients that are gone.
    tallies: Tallies,
    /// Clients that have come.
    received: u64,
    /// What had happened to keys when the counts were set to zero.
    uses: Uses,
    /// When the commands were counted last, in milliseconds since the epoch, and how many there were.
    sampled: (u64, u64),
    per_second: u64,
}

/// What `INFO` tells of the commands of a tenant.
pub(super) struct Counts {
    pub by_name: BTreeMap<&'static str, Tally>,
    pub received: u64,
    pub per_second: u64,
    pub uses: Uses,
}

/// That a connection is one of a tenant's, for as long as this lives.
pub(super) struct Membership {
    clients: Arc<Clients>,
    seen: Arc<Seen>,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.clients.all.lock().remove(&self.seen.number);
        let tallies = std::mem::take(&mut self.seen.state.lock().tallies);
        self.clients.past.lock().tallies.add(tallies.0);
    }
}

impl Clients {
    pub(super) fn enter(self: &Arc<Self>, seen: &Arc<Seen>) -> Membership {
        self.past.lock().received += 1;
        self.all.lock().insert(seen.number, Arc::clone(seen));
        Membership { clients: Arc::clone(self), seen: Arc::clone(seen) }
    }

    /// All of them, in the order in which they have come.
    pub(super) fn all(&self) -> Vec<Arc<Seen>> {
        self.all.lock().values().cloned().collect()
    }

    pub(super) fn get(&self, number: u64) -> Option<Arc<Seen>> {
        self.all.lock().get(&number).cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.all.lock().len()
    }

    /// Clients that wait for the end of a pause.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Counts of commands, those of clients that are gone included.
    pub(super) fn counts(&self) -> Counts {
        let mut by_name = BTreeMap::<_, Tallies>::new();
        let all = self.all();
        let past = self.past.lock();
        let mut add = |tallies: &Tallies| {
            tallies.0.iter().for_each(|tally| by_name.entry(tally.name).or_default().add([*tally]));
        };
        add(&past.tallies);
        all.iter().for_each(|seen| add(&seen.state.lock().tallies));
        let Past { received, per_second, uses, .. } = *past;
        let by_name = by_name.into_iter().filter_map(|(name, tallies)| {
            let mut sum = Tally { name, ..Tally::default() };
            for tally in tallies.0 {
                sum.calls += tally.calls;
                sum.ns += tally.ns;
                sum.rejected += tally.rejected;
                sum.failed += tally.failed;
            }
            (sum.calls + sum.rejected > 0).then_some((name, sum))
        });
        Counts { by_name: by_name.collect(), received, per_second, uses }
    }

    /// Sets all counts to zero; `uses` is what has happened to keys until now.
    pub(super) fn reset_counts(&self, uses: Uses) {
        let all = self.all();
        let mut past = self.past.lock();
        *past = Past { uses, ..Past::default() };
        all.iter().for_each(|seen| seen.state.lock().tallies = Tallies::default());
    }

    /// Counts the commands of each second: called more often than that.
    pub(super) fn sample(&self, now_ms: u64) {
        let all = self.all();
        let mut past = self.past.lock();
        let (then_ms, before) = past.sampled;
        let passed_ms = now_ms.saturating_sub(then_ms);
        if passed_ms < SECOND_MS {
            return;
        }
        let calls =
            all.iter().map(|seen| seen.state.lock().tallies.calls()).sum::<u64>() + past.tallies.calls();
        past.per_second = calls.saturating_sub(before) * 1000 / passed_ms;
        past.sampled = (now_ms, calls);
    }

    /// Has clients wait until a time in milliseconds since the epoch, as Redis does where they wait already: until the later
    /// time, and with all commands if either says so.
    pub(super) fn pause(&self, kind: Pause, until_ms: u64, now_ms: u64) {
        let mut pause = self.pause.lock();
        let is_paused = self.paused_until_ms.load(Ordering::Relaxed) > now_ms;
        *pause = if is_paused { kind.max(*pause) } else { kind };
        self.paused_until_ms.fetch_max(until_ms, Ordering::Relaxed);
    }

    pub(super) fn unpause(&self) {
        self.paused_until_ms.store(0, Ordering::Relaxed);
        self.unpaused.notify_waiters();
    }

    /// How many milliseconds changes of keys still wait, if they do.
    pub(crate) fn pauses_writes(&self, now_ms: u64) -> Option<u64> {
        self.paused(|| now_ms).map(|(_, left_ms)| left_ms)
    }

    /// Which commands wait, and how many milliseconds they still do.
    #[inline]
    pub(super) fn paused(&self, now_ms: impl FnOnce() -> u64) -> Option<(Pause, u64)> {
        match self.paused_until_ms.load(Ordering::Relaxed) {
            0 => None,
            until_ms => {
                let Some(left_ms) = until_ms.checked_sub(now_ms()).filter(|left| *left > 0) else {
                    // Others need not look at the clock any more.
                    let paused = &self.paused_until_ms;
                    let _ = paused.compare_exchange(until_ms, 0, Ordering::Relaxed, Ordering::Relaxed);
                    return None;
                };
                Some((*self.pause.lock(), left_ms))
            }
        }
    }

    /// Resolves when clients need not wait any more; `seen` is who does.
    pub(super) async fn unpaused(&self, seen: &Seen, now_ms: impl Fn() -> u64) {
        let _waiting = Waiting::new(self, seen);
        loop {
            let mut unpaused = std::pin::pin!(self.unpaused.notified());
            unpaused.as_mut().enable();
            let Some((_, left_ms)) = self.paused(&now_ms) else { return };
            let left = std::time::Duration::from_millis(left_ms);
            drop(tokio::time::timeout(left, unpaused).await);
        }
    }
}

/// That a client waits, for as long as this lives.
struct Waiting<'a>(&'a Clients, &'a Seen);

impl<'a> Waiting<'a> {
    fn new(clients: &'a Clients, seen: &'a Seen) -> Self {
        clients.waiting.fetch_add(1, Ordering::Relaxed);
        seen.state.lock().is_waiting = true;
        Waiting(clients, seen)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
        self.1.state.lock().is_waiting = false;
    }
}

/// The lines of `INFO commandstats`.
pub(super) fn command_lines(counts: &Counts) -> String {
    let mut text = String::new();
    for (name, Tally { calls, ns, rejected, failed, .. }) in &counts.by_name {
        let us = ns / 1000;
        let each = if *calls == 0 { 0.0 } else { us as f64 / *calls as f64 };
        // Writing to a text does not fail.
        let _ = write!(
            text,
            "cmdstat_{name}:calls={calls},usec={us},usec_per_call={each:.2},rejected_calls={rejected},failed_calls={failed}\r\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(number: u64) -> Arc<Seen> {
        Arc::new(Seen::new(number, "1.2.3.4:5".into(), "6.7.8.9:10".into(), 1000))
    }

    #[test]
    fn what_clients_have_done_stays_counted_when_they_are_gone() {
        let clients = Arc::new(Clients::default());
        let (one, other) = (seen(1), seen(2));
        let member = clients.enter(&one);
        let _other = clients.enter(&other);
        let mut counted = Tallies::default();
        counted.count("get", Outcome::Done, 2_000);
        counted.count("get", Outcome::Failed, 1_000);
        counted.count("set", Outcome::Rejected, 9_000);
        counted.count("set", Outcome::Queued, 9_000);
        one.settle(Facts::default(), &mut counted);
        counted.count("get", Outcome::Done, 3_000);
        other.settle(Facts::default(), &mut counted);
        assert!(counted.0.is_empty());
        drop(member);
        assert_eq!(clients.len(), 1);
        assert_eq!(
            command_lines(&clients.counts()),
            "cmdstat_get:calls=3,usec=6,usec_per_call=2.00,rejected_calls=0,failed_calls=1\r\n\
             cmdstat_set:calls=0,usec=0,usec_per_call=0.00,rejected_calls=1,failed_calls=0\r\n"
        );
        clients.sample(10_000);
        counted.count("get", Outcome::Done, 0);
        (0..7).for_each(|_| counted.count("set", Outcome::Done, 0));
        other.settle(Facts::default(), &mut counted);
        clients.sample(10_999);
        clients.sample(12_000);
        assert_eq!((clients.counts().per_second, clients.counts().received), (4, 2));
        clients.reset_counts(Uses::default());
        assert_eq!((command_lines(&clients.counts()).as_str(), clients.counts().received), ("", 0));
    }

    #[test]
    fn a_pause_ends_with_its_time_or_before() {
        let clients = Clients::default();
        assert!(clients.paused(|| 0).is_none());
        clients.pause(Pause::Writes, 2000, 1000);
        assert!(clients.paused(|| 1999) == Some((Pause::Writes, 1)));
        clients.pause(Pause::All, 1500, 1000);
        assert!(clients.paused(|| 1000) == Some((Pause::All, 1000)));
        clients.pause(Pause::Writes, 1700, 1000);
        assert!(clients.paused(|| 1000) == Some((Pause::All, 1000)));
        clients.unpause();
        assert!(clients.paused(|| 1000).is_none());
        clients.pause(Pause::Writes, 1700, 1000);
        assert!(clients.paused(|| 1000) == Some((Pause::Writes, 700)));
        assert!(clients.paused(|| 1700).is_none());
    }
}
