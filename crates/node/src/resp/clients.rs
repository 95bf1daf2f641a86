//! The clients of the Redis protocol of one tenant: the data for `CLIENT LIST`, `INFO`, `CLIENT KILL` and `CLIENT
//! PAUSE`.
//!
//! A connection counts its commands locally and publishes the counts once per batch, under a lock of its own, for which
//! only requests that visit all clients contend.

use crate::pause::Pause;
use farpool_kv::{Outcome, UsageCounters};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Interval between updates of the rate of commands per second, in milliseconds.
const SECOND_MS: u64 = 1000;

/// Counters of executed commands, by name.
#[derive(Default)]
pub(super) struct Tallies(Vec<Tally>);

/// The counters of one command, for `INFO commandstats`.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    name: &'static str,
    pub calls: u64,
    pub ns: u64,
    pub rejected: u64,
    pub failed: u64,
}

impl Tallies {
    /// Counts a command that took `ns` nanoseconds.
    #[inline]
    pub fn count(&mut self, name: &'static str, outcome: Outcome, ns: u64) {
        let tally = self.of(name);
        match outcome {
            Outcome::Queued | Outcome::Deferred(_) => {}
            Outcome::Rejected => tally.rejected += 1,
            Outcome::Done | Outcome::Failed => {
                tally.calls += 1;
                tally.ns += ns;
                tally.failed += u64::from(outcome == Outcome::Failed);
            }
        }
    }

    /// Returns the counters of a command. Names are compared by address, which is fast. An equal name at another
    /// address gets counters of its own, which readers add up.
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

/// The data of a connection that other clients of the tenant can read.
pub(super) struct ConnectionRecord {
    pub number: u64,
    /// Network address of the client.
    pub peer: String,
    /// Local address that the client connected to.
    pub local: String,
    since_ms: u64,
    /// Notified when the connection must close because another client has killed it.
    ending: Notify,
    is_ending: AtomicBool,
    state: Mutex<PublishedState>,
}

/// The data that a connection has published at the end of its last batch.
#[derive(Default)]
pub(super) struct PublishedState {
    pub name: String,
    pub user: String,
    pub facts: BatchFacts,
    pub is_waiting: bool,
    tallies: Tallies,
}

/// The data of a connection that changes with each batch.
#[derive(Clone, Copy, Default)]
pub(super) struct BatchFacts {
    pub space: u32,
    /// Version of the protocol, 2 or 3.
    pub protocol: i64,
    /// Number of commands queued since `MULTI`, `None` outside a transaction; the next field is their bytes.
    pub queued: Option<usize>,
    pub queued_bytes: usize,
    /// Name of the latest command; empty if there was none.
    pub command: &'static str,
    /// Arrival of the latest command, in milliseconds since the epoch.
    pub used_ms: u64,
    pub buffers: Buffers,
}

/// Sizes of a connection's buffers, in bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct Buffers {
    /// Number of received bytes in the receive buffer; the next field is its free capacity.
    pub received: usize,
    pub free: usize,
    /// Capacity of the reply buffer.
    pub replies: usize,
}

impl ConnectionRecord {
    pub fn new(number: u64, peer: String, local: String, since_ms: u64) -> Self {
        ConnectionRecord {
            number,
            peer,
            local,
            since_ms,
            ending: Notify::new(),
            is_ending: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// Waits until another client has killed this connection.
    pub async fn ended(&self) {
        self.ending.notified().await;
    }

    /// Requests that the connection ends, and does not wait for that; returns false if it was requested before.
    pub fn end(&self) -> bool {
        self.ending.notify_one();
        !self.is_ending.swap(true, Ordering::Relaxed)
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

    /// Publishes the data and the counters of a batch, and clears the counters in `counted`.
    pub fn settle(&self, facts: BatchFacts, counted: &mut Tallies) {
        let mut state = self.state.lock();
        state.facts = facts;
        state.tallies.add(counted.0.drain(..));
    }

    /// Returns the client's line of `CLIENT LIST`; unknown values are 0 or -1.
    pub fn line(&self, now_ms: u64) -> String {
        let ConnectionRecord { number, peer, local, since_ms, .. } = self;
        let PublishedState { name, user, facts, is_waiting, .. } = &*self.state.lock();
        let BatchFacts { space, protocol, queued, queued_bytes, command, used_ms, buffers } = facts;
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

/// The connected clients of one tenant, and the tenant's counters.
#[derive(Default)]
pub(super) struct Clients {
    all: Mutex<BTreeMap<u64, Arc<ConnectionRecord>>>,
    retired: Mutex<RetiredCounts>,
    /// The state of `CLIENT PAUSE` of the tenant.
    pause: Arc<Pause>,
    /// Number of clients whose next command the pause blocks.
    waiting: AtomicUsize,
}

/// Counters of the tenant that do not belong to a connected client.
#[derive(Default)]
struct RetiredCounts {
    /// Counters of clients that have disconnected.
    tallies: Tallies,
    /// Number of clients that have ever connected.
    received: u64,
    /// Key counters at the last `CONFIG RESETSTAT`.
    uses: UsageCounters,
    /// Time of the last update of the command rate, in milliseconds since the epoch, and the number of commands until
    /// then.
    sampled: (u64, u64),
    per_second: u64,
}

/// The counters that `INFO` reports for a tenant.
pub(super) struct Counts {
    pub by_name: BTreeMap<&'static str, Tally>,
    pub received: u64,
    pub per_second: u64,
    pub uses: UsageCounters,
}

/// A guard that keeps a connection in the list of its tenant's clients.
pub(super) struct Membership {
    clients: Arc<Clients>,
    record: Arc<ConnectionRecord>,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.clients.all.lock().remove(&self.record.number);
        let tallies = std::mem::take(&mut self.record.state.lock().tallies);
        self.clients.retired.lock().tallies.add(tallies.0);
    }
}

impl Clients {
    /// Creates the empty list of clients of a tenant whose pause is `pause`.
    pub(super) fn new(pause: Arc<Pause>) -> Self {
        Clients { pause, ..Clients::default() }
    }

    pub(super) fn enter(self: &Arc<Self>, record: &Arc<ConnectionRecord>) -> Membership {
        self.retired.lock().received += 1;
        self.all.lock().insert(record.number, Arc::clone(record));
        Membership { clients: Arc::clone(self), record: Arc::clone(record) }
    }

    /// Returns all clients, oldest connection first.
    pub(super) fn all(&self) -> Vec<Arc<ConnectionRecord>> {
        self.all.lock().values().cloned().collect()
    }

    pub(super) fn get(&self, number: u64) -> Option<Arc<ConnectionRecord>> {
        self.all.lock().get(&number).cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.all.lock().len()
    }

    /// Returns the number of clients blocked by a pause.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns the counters, including those of disconnected clients.
    pub(super) fn counts(&self) -> Counts {
        let mut by_name = BTreeMap::<_, Tallies>::new();
        let all = self.all();
        let retired = self.retired.lock();
        let mut add = |tallies: &Tallies| {
            tallies.0.iter().for_each(|tally| by_name.entry(tally.name).or_default().add([*tally]));
        };
        add(&retired.tallies);
        all.iter().for_each(|record| add(&record.state.lock().tallies));
        let RetiredCounts { received, per_second, uses, .. } = *retired;
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

    /// Resets all counters; `uses` are the current counters of keys, which are subtracted from later ones.
    pub(super) fn reset_counts(&self, uses: UsageCounters) {
        let all = self.all();
        let mut retired = self.retired.lock();
        *retired = RetiredCounts { uses, ..RetiredCounts::default() };
        all.iter().for_each(|record| record.state.lock().tallies = Tallies::default());
    }

    /// Updates the rate of commands once per second; must be called more often than that.
    pub(super) fn sample(&self, now_ms: u64) {
        let all = self.all();
        let mut retired = self.retired.lock();
        let (then_ms, before) = retired.sampled;
        let passed_ms = now_ms.saturating_sub(then_ms);
        if passed_ms < SECOND_MS {
            return;
        }
        let calls = all.iter().map(|record| record.state.lock().tallies.calls()).sum::<u64>()
            + retired.tallies.calls();
        retired.per_second = calls.saturating_sub(before) * 1000 / passed_ms;
        retired.sampled = (now_ms, calls);
    }

    /// Returns the state of `CLIENT PAUSE` of the tenant.
    pub(super) fn pause(&self) -> &Pause {
        &self.pause
    }

    /// Waits until no pause is in effect; `record` is the connection that waits.
    pub(super) async fn unpaused(&self, record: &ConnectionRecord, now_ms: impl Fn() -> u64) {
        let _waiting = PauseWait::new(self, record);
        self.pause.over(now_ms).await;
    }
}

/// A guard that counts a client as blocked by a pause until it is dropped.
struct PauseWait<'a>(&'a Clients, &'a ConnectionRecord);

impl<'a> PauseWait<'a> {
    fn new(clients: &'a Clients, record: &'a ConnectionRecord) -> Self {
        clients.waiting.fetch_add(1, Ordering::Relaxed);
        record.state.lock().is_waiting = true;
        PauseWait(clients, record)
    }
}

impl Drop for PauseWait<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
        self.1.state.lock().is_waiting = false;
    }
}

/// Returns the lines of `INFO commandstats`.
pub(super) fn command_lines(counts: &Counts) -> String {
    let mut text = String::new();
    for (name, Tally { calls, ns, rejected, failed, .. }) in &counts.by_name {
        let us = ns / 1000;
        let each = if *calls == 0 { 0.0 } else { us as f64 / *calls as f64 };
        // The result is ignored, because writing to a string does not fail.
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

    fn record(number: u64) -> Arc<ConnectionRecord> {
        Arc::new(ConnectionRecord::new(number, "1.2.3.4:5".into(), "6.7.8.9:10".into(), 1000))
    }

    #[test]
    fn what_clients_have_done_stays_counted_when_they_are_gone() {
        let clients = Arc::new(Clients::default());
        let (one, other) = (record(1), record(2));
        let member = clients.enter(&one);
        let _other = clients.enter(&other);
        let mut counted = Tallies::default();
        counted.count("get", Outcome::Done, 2_000);
        counted.count("get", Outcome::Failed, 1_000);
        counted.count("set", Outcome::Rejected, 9_000);
        counted.count("set", Outcome::Queued, 9_000);
        one.settle(BatchFacts::default(), &mut counted);
        counted.count("get", Outcome::Done, 3_000);
        other.settle(BatchFacts::default(), &mut counted);
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
        other.settle(BatchFacts::default(), &mut counted);
        clients.sample(10_999);
        clients.sample(12_000);
        assert_eq!((clients.counts().per_second, clients.counts().received), (4, 2));
        clients.reset_counts(UsageCounters::default());
        assert_eq!((command_lines(&clients.counts()).as_str(), clients.counts().received), ("", 0));
    }
}
