//! Keys and values in the simulation: clients whose commands are checked against a map, SQL statements that scan a
//! keyspace meanwhile, and a log on a disk that loses power, runs full and fails.
//!
//! Commands are passed to sessions directly, as a connection does; the log's threads are steps of the simulation
//! ([`farpool_node::SteppedKeys`]). After a crash, the keys must be those after the first n records of the log, and all
//! acknowledged or durable records must be among these: only the end of the log may be lost.

mod commands;
mod life;
mod model;
mod recovery;
mod replies;
mod scans;

use crate::checks::Checked;
use crate::random::Random;
use crate::state::Shared;
use commands::{Habits, many, random_command};
use farpool_disk::{Directory, Faults, SimulatedDirectory};
use farpool_kv::resp::{Protocol, Replies};
use farpool_kv::{Session, TimeAndRandom, command};
use farpool_model::Clock;
use farpool_node::{Fsync, SteppedHost};
use life::{DayClock, Life, Setting};
use model::{Changes, Entry, Key, Map, Named, View};
use replies::{elements, is_refused};
use scans::Scan;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Start of the simulation, in milliseconds since the epoch.
const BEGIN_MS: u64 = 1_700_000_000_000;

/// Number of events of a world (one simulated node with its clients).
const EVENTS: std::ops::Range<usize> = 100..600;

/// Maximal number of clients.
const CLIENTS_MAX: usize = 4;

/// Bytes of a value that is so large that a few values fill a file of the log.
const LARGE_BYTES: usize = 60_000;

/// Number of keyspaces that clients select.
const SPACES: u32 = 3;

/// Runs the world of `seed`.
pub fn run(seed: u64, shared: &Shared) -> Checked {
    let mut world = World::new(seed, shared.clone())?;
    let events = EVENTS.start + world.random.below(EVENTS.len());
    for _ in 0..events {
        world.event()?;
    }
    world.end_scans()?;
    world.restart(true)?;
    world.restart(false)
}

/// A simulated client of the key-value store.
#[derive(Default)]
struct Client {
    session: Session,
    space: u32,
    /// The commands queued after `MULTI`.
    queue: Option<Vec<Vec<String>>>,
    /// Whether one of the queued commands was refused when it was queued, for lack of memory for more keys.
    is_refused: bool,
    watched: Vec<Key>,
    touched: Touched,
}

/// Whether a key that a client watches has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Touched {
    #[default]
    No,
    /// A watched key has expired or moved to another keyspace, which may count as a change.
    Perhaps,
    Yes,
}

/// The changes made by a command or a step: the records that it appended, and the previous entries.
struct Past {
    first: u64,
    /// The number of the record that follows the last record of the change.
    end: u64,
    /// Whether the change survives a crash as a whole or not at all.
    is_whole: bool,
    time: u64,
    before: Changes,
    named: Named,
}

/// The simulated node with its keys, clients and model.
struct World {
    random: Random,
    shared: Shared,
    clock: Arc<DayClock>,
    directory: Arc<SimulatedDirectory>,
    setting: Setting,
    habits: Habits,
    life: Arc<Life>,
    clients: Vec<Client>,
    /// A session whose commands are not checked.
    observer: Client,
    scans: Vec<Scan>,
    map: Map,
    named: Named,
    /// The changes since the keys were read from the disk.
    history: Vec<Past>,
    /// The time of day, the latest time that the keys have seen, and the latest time of a client.
    now: u64,
    latest: u64,
    asked: u64,
    /// The latest time that was known when the keys were read.
    base: u64,
    /// Records that replies wait for, and the number of records known to be durable.
    pending: Vec<u64>,
    acknowledged: u64,
    /// Keys that were evicted since the node was last started.
    evicted: u64,
    is_faulty: bool,
    /// Whether memory and log differ, so that the node must be restarted.
    must_crash: bool,
    /// Whether the log was read again: keys that expired and were removed before, which is not recorded, may be counted
    /// for a while.
    was_restarted: bool,
    /// An error that occurred while a snapshot was taken.
    wrong: Checked,
}

impl World {
    fn new(seed: u64, shared: Shared) -> Checked<World> {
        // Different random numbers than in the world of tables.
        let mut random = Random::new(!seed);
        let clock = Arc::new(DayClock::new(random.next(), BEGIN_MS));
        let (directory, setting) = (SimulatedDirectory::new(), Setting::random(&mut random));
        // If memory is short, values are large, so that the memory is used up.
        let sizes: &[usize] =
            if setting.maxmemory > 0 { &[300, 2000, 8000, 8000] } else { &[60, 300, 2000, 8000] };
        let bytes_max = random.pick(sizes);
        let habits =
            Habits { bytes_max, keys: random.pick(&[8, 40, 300, 300]), has_expiry: random.chance(70) };
        let life = Arc::new(Life::begin(&mut random, &clock, &directory, &setting)?);
        let clients = (0..1 + random.below(CLIENTS_MAX)).map(|_| Client::default()).collect();
        let mut world = World {
            random,
            shared,
            clock,
            directory,
            setting,
            habits,
            life,
            clients,
            observer: Client::default(),
            scans: Vec::new(),
            map: Map::new(),
            named: Named::default(),
            history: Vec::new(),
            now: BEGIN_MS,
            latest: BEGIN_MS,
            asked: 0,
            base: 0,
            pending: Vec::new(),
            acknowledged: 0,
            evicted: 0,
            is_faulty: false,
            must_crash: false,
            was_restarted: false,
            wrong: Ok(()),
        };
        world.tell(format!("keys: {setting:?}, {habits:?}"));
        world.set_limits()?;
        Ok(world)
    }

    fn tell(&self, text: String) {
        let mut state = self.shared.lock();
        state.log.step += 1;
        state.log.event(text);
    }

    fn event(&mut self) -> Checked {
        match self.random.below(100) {
            0..70 => self.ask()?,
            70..74 => self.pass_time()?,
            74..80 => self.write(),
            80..82 => self.record_time(),
            82..86 => self.tidy()?,
            86..88 => self.fill()?,
            88 => self.take_snapshot()?,
            89 => self.break_disk()?,
            90 => self.repair_disk(),
            91..94 => self.begin_scan()?,
            94..98 => self.step_scans()?,
            98 => self.check_all()?,
            _ => {
                let is_clean = self.random.chance(30);
                self.restart(is_clean)?;
            }
        }
        self.take_acknowledgements();
        if self.must_crash { self.restart(false) } else { Ok(()) }
    }

    /// Sends a random command of a random client.
    fn ask(&mut self) -> Checked {
        let client = self.random.below(self.clients.len());
        let is_queueing = self.clients[client].queue.is_some();
        let word = |words: &[&str]| words.iter().map(|word| (*word).to_string()).collect::<Vec<_>>();
        let args = match self.random.below(50) {
            0 if !is_queueing => vec!["SELECT".into(), self.random.below(SPACES as usize).to_string()],
            1 if !is_queueing && self.random.chance(20) => word(&["FLUSHDB"]),
            2 if !is_queueing => word(&[self.random.pick(&["DBSIZE", "KEYS"]), "*"]),
            3 if !is_queueing => word(match self.random.below(4) {
                0 => &["FP.SPACE", "CREATE", "u", "id u64, n i32, s utf8"],
                1 => &["FP.SPACE", "CREATE", "s"],
                2 => &["FP.SPACE", "DROP", "u"],
                _ => &["FP.SPACE", "DROP", "s"],
            }),
            4..7 if !is_queueing => word(&["MULTI"]),
            7 | 8 if !is_queueing => {
                let name = random_command(&mut self.random, &self.habits).swap_remove(1);
                vec!["WATCH".into(), name]
            }
            9 if is_queueing => word(&["DISCARD"]),
            10..20 if is_queueing => word(&["EXEC"]),
            _ => random_command(&mut self.random, &self.habits),
        };
        let arguments = if args[0] == "DBSIZE" { 1 } else { args.len() };
        self.execute(client, &args[..arguments])
    }

    /// Sets or removes many keys, so that indexes grow and shrink.
    fn fill(&mut self) -> Checked {
        let is_set = self.random.chance(60);
        for _ in 0..1 + self.random.below(8) {
            let client = self.random.below(self.clients.len());
            let args = many(&mut self.random, &self.habits, is_set);
            self.execute(client, &args)?;
        }
        Ok(())
    }

    /// Carries out a command of a client, or of the observer if there is no such client.
    fn reply(&mut self, client: usize, args: &[String]) -> Vec<u8> {
        let life = self.life.clone();
        let client = self.clients.get_mut(client).unwrap_or(&mut self.observer);
        let mut host = SteppedHost::new(life.caller.clone(), life.keys.clone());
        let words: Vec<&[u8]> = args.iter().map(String::as_bytes).collect();
        let moment = TimeAndRandom { now: self.now, random: self.random.next() };
        (self.latest, self.asked) = (self.latest.max(self.now), self.asked.max(self.latest.max(self.now)));
        let mut bytes = Vec::new();
        let mut replies = Replies::new(&mut bytes, Protocol::Resp2);
        client.session.execute(&life.keys, &words, moment, &mut host, &mut replies);
        self.pending.extend(client.session.take_recorded());
        bytes
    }

    /// Returns the reply that the observer gets.
    fn observed(&mut self, args: &[&str]) -> Vec<u8> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_string()).collect();
        self.reply(usize::MAX, &args)
    }

    /// Carries out a command, and checks its reply and the resulting keys.
    fn execute(&mut self, client: usize, args: &[String]) -> Checked {
        let (first, was_writing) = (self.life.log.next_record(), self.life.log.is_writing());
        let reply = self.reply(client, args);
        let shown = args.iter().map(|arg| arg.get(..60).unwrap_or(arg)).collect::<Vec<_>>().join(" ");
        let told = reply[..reply.len().min(70)].escape_ascii().to_string();
        self.tell(format!(
            "client {client} in {} at {}: {shown} -> {told}",
            self.clients[client].space, self.latest
        ));
        self.shared.lock().log.bytes(&reply);
        let end = self.life.log.next_record();
        let failed = |wrong: String| format!("{shown}: {wrong}");
        if reply.starts_with(b"-MISCONF") {
            let is_writing = was_writing && self.life.log.is_writing();
            if is_writing {
                return Err(failed("it was refused although the log can be written".into()));
            }
            // A change in memory that could not be recorded is resolved by the restart.
            self.must_crash |= was_writing && !is_writing;
            let client = &mut self.clients[client];
            if args[0] == "EXEC" {
                (client.queue, client.touched) = (None, Touched::No);
                client.watched.clear();
            }
            return if was_writing && !is_writing || first == end {
                Ok(())
            } else {
                Err(failed("it was recorded".into()))
            };
        }
        let (named, watched) = (self.named, self.clients[client].watched.len());
        let (changed, names) = self.checked(client, args, &reply, was_writing).map_err(failed)?;
        if first == end && (!changed.is_empty() || named != self.named) {
            return Err(failed("its changes were not recorded".into()));
        }
        let mut before = self.apply(changed);
        self.clients[client].note_watch(args, watched, &self.map);
        let evicted = self.sweep().map_err(failed)?;
        if let Some(key) = evicted.keys().find(|key| names.contains(*key)) {
            return Err(failed(format!("{key:?}, which it names, was evicted")));
        }
        for (key, entry) in evicted {
            before.entry(key).or_insert(entry);
        }
        self.note(Past { first, end, is_whole: true, time: self.latest, before, named });
        Ok(())
    }

    fn note(&mut self, past: Past) {
        if past.first < past.end || !past.before.is_empty() {
            self.history.push(past);
        }
    }

    /// Checks a reply; returns the changes by the command, and the keys that it names.
    fn checked(
        &mut self,
        client: usize,
        args: &[String],
        reply: &[u8],
        was_writing: bool,
    ) -> Checked<(Changes, BTreeSet<Key>)> {
        let now = self.latest;
        let is_lossy = self.setting.maxmemory > 0;
        let client = &mut self.clients[client];
        let nothing = Ok(Default::default());
        let is = |expected: &str| match reply == expected.as_bytes() {
            true => Ok(Default::default()),
            false => Err(format!("in place of {expected:?}")),
        };
        if args[0] == "EXEC" && reply.starts_with(b"-EXECABORT ") {
            let is_full = is_lossy && reply.starts_with(b"-EXECABORT Transaction discarded because of: OOM ");
            let is_right = std::mem::take(&mut client.is_refused) || is_full;
            (client.queue, client.touched) = (None, Touched::No);
            client.watched.clear();
            return if is_right { nothing } else { Err("nothing of it had been refused".into()) };
        }
        let commands = match (args[0].as_str(), &mut client.queue) {
            ("EXEC", _) if client.is_refused => return Err("one of its commands had been refused".into()),
            ("EXEC", queue) => queue.take().unwrap_or_default(),
            ("DISCARD", queue) => {
                *queue = None;
                client.is_refused = false;
                client.watched.clear();
                client.touched = Touched::No;
                return is("+OK\r\n");
            }
            (_, Some(_)) if is_lossy && reply.starts_with(b"-OOM ") => {
                client.is_refused = true;
                return nothing;
            }
            (_, Some(queue)) => {
                queue.push(args.to_vec());
                return is("+QUEUED\r\n");
            }
            ("MULTI", queue) => {
                *queue = Some(Vec::new());
                return is("+OK\r\n");
            }
            ("WATCH", _) => {
                let key = (client.space, args[1].clone());
                client.watched.push(key);
                return is("+OK\r\n");
            }
            ("SELECT", _) => {
                client.space = args[1].parse().unwrap_or(0);
                return is("+OK\r\n");
            }
            _ => vec![args.to_vec()],
        };
        let mut parts = vec![reply];
        if args[0] == "EXEC" {
            let touched = std::mem::take(&mut client.touched);
            let may_expire = |key: &Key| self.map.get(key).is_some_and(|entry| entry.expiry.is_some());
            let is_unsure = touched == Touched::Perhaps || client.watched.iter().any(may_expire);
            client.watched.clear();
            match (reply == b"*-1\r\n", touched) {
                (true, Touched::Yes) => return nothing,
                (true, _) if is_unsure => return nothing,
                (false, Touched::Yes) => return Err("a watched key had changed".into()),
                _ => {}
            }
            parts = elements(reply).ok_or("in place of the replies of a transaction")?;
            if parts.len() != commands.len() {
                return Err(format!("in place of {} replies", commands.len()));
            }
        }
        let is_writing = |name: &[u8]| command(&[name]).is_some_and(|known| known.may_write());
        let writes = |args: &Vec<String>| is_writing(args[0].as_bytes());
        if !was_writing && commands.iter().any(writes) {
            return Err("it was done although the log cannot be written".into());
        }
        let at = (client.space, now);
        let (map, named, changed) = (&self.map, self.named, BTreeMap::new());
        let mut view = View { map, named, at, was_restarted: self.was_restarted, changed };
        for (args, reply) in commands.iter().zip(parts) {
            let before = (view.changed.clone(), view.named);
            let expected = view.run(args);
            if is_refused(reply) && is_lossy && writes(args) {
                (view.changed, view.named) = before;
            } else if !expected.fits(reply) {
                return Err(format!("{}, and expected {:.400}", args[0], expected.differing(reply)));
            }
        }
        let names = commands.iter().flatten().map(|word| (client.space, word.clone())).collect();
        let moves = view.named != self.named;
        (self.named, view.named) = (view.named, self.named);
        let changed = view.changed;
        if moves {
            // The keys of the keyspace that the command names are in another keyspace now, which may count as a change.
            for client in &mut self.clients {
                let is_moved = |(space, name): &Key| *space == 0 && name.contains(':');
                if client.touched == Touched::No && client.watched.iter().any(is_moved) {
                    client.touched = Touched::Perhaps;
                }
            }
        }
        Ok((changed, names))
    }

    /// Changes the map; returns the previous entries.
    fn apply(&mut self, changed: Changes) -> Changes {
        let mut before = BTreeMap::new();
        for (key, entry) in changed {
            for client in &mut self.clients {
                if client.watched.contains(&key) {
                    client.touched = Touched::Yes;
                }
            }
            let old = match entry {
                Some(entry) => self.map.insert(key.clone(), entry),
                None => self.map.remove(&key),
            };
            before.insert(key, old);
        }
        before
    }

    /// Removes evicted keys from the map; returns their entries.
    fn sweep(&mut self) -> Checked<Changes> {
        let evicted = self.life.keys.uses().evicted;
        let count = evicted - self.evicted;
        self.evicted = evicted;
        if count == 0 {
            return Ok(BTreeMap::new());
        }
        self.tell(format!("{count} keys were evicted"));
        let gone: Vec<Key> = self.live().into_iter().filter(|key| !self.is_there(key)).collect();
        let has_expired = self.map.values().any(|entry| entry.expiry.is_some());
        let most = usize::try_from(count).unwrap_or(usize::MAX);
        if gone.len() > most || gone.len() < most && !has_expired {
            return Err(format!("{count} keys were evicted, and gone are {}: {gone:?}", gone.len()));
        }
        let is_volatile = self.setting.policy.name().starts_with("volatile");
        let stays = |key: &&Key| is_volatile && self.map[*key].expiry.is_none();
        if let Some(key) = gone.iter().find(stays) {
            return Err(format!("{key:?} does not expire, and was evicted"));
        }
        Ok(self.apply(gone.into_iter().map(|key| (key, None)).collect()))
    }

    fn is_there(&mut self, (space, name): &Key) -> bool {
        self.observed(&["SELECT", &space.to_string()]);
        self.observed(&["EXISTS", name]) == b":1\r\n"
    }

    fn live(&self) -> Vec<Key> {
        let is_live = |entry: &Entry| entry.is_live(self.latest);
        self.map.iter().filter(|(_, entry)| is_live(entry)).map(|(key, _)| key.clone()).collect()
    }

    /// Advances time; the machine's clock may be set meanwhile, which must not matter.
    fn pass_time(&mut self) -> Checked {
        let most = if self.random.chance(8) { 10_000_000 } else { 1000 };
        let passed = self.random.magnitude(most) as u64;
        self.clock.pass(passed);
        if self.random.chance(20) {
            self.set_clock();
        }
        let expected = self.now + passed;
        self.now = self.life.log.now_ms();
        self.tell(format!("it is {}, and {} on the wall", self.now, self.clock.unix_ms()));
        match self.now == expected {
            true => Ok(()),
            false => Err(format!("it is {} for keys, and {expected} is right", self.now)),
        }
    }

    /// Sets the machine's clock forward or back.
    fn set_clock(&mut self) {
        let wall = self.clock.unix_ms();
        let step = self.random.magnitude(100_000_000) as u64;
        self.clock.set(if self.random.chance(50) { wall + step } else { wall.saturating_sub(step) });
    }

    fn write(&mut self) {
        self.life.log.write();
        self.tell(format!("{} records are durable", self.life.log.durable()));
        self.must_crash |= self.is_faulty && !self.life.log.is_writing() && self.random.chance(30);
    }

    fn record_time(&mut self) {
        let (first, named) = (self.life.log.next_record(), self.named);
        let done = self.life.log.record_time();
        let end = self.life.log.next_record();
        self.tell(format!("the time is recorded: {done:?}"));
        if done.is_ok() {
            let before = BTreeMap::new();
            self.note(Past { first, end, is_whole: true, time: self.asked, before, named });
        }
    }

    fn tidy(&mut self) -> Checked {
        let (first, named, was_writing) =
            (self.life.log.next_record(), self.named, self.life.log.is_writing());
        self.latest = self.latest.max(self.now);
        for _ in 0..1 + self.random.below(40) {
            if !self.life.keys.tidy(self.now) {
                break;
            }
        }
        let end = self.life.log.next_record();
        self.tell(format!("tidied up, with records {first} to {end}"));
        let before = self.sweep()?;
        self.must_crash |= was_writing && !self.life.log.is_writing();
        self.note(Past { first, end, is_whole: false, time: 0, before, named });
        Ok(())
    }

    fn set_limits(&mut self) -> Checked {
        let (first, named) = (self.life.log.next_record(), self.named);
        let moment = TimeAndRandom { now: self.now, random: self.random.next() };
        self.latest = self.latest.max(self.now);
        self.asked = self.asked.max(self.latest);
        self.life.limit(moment, &self.setting)?;
        let (end, time) = (self.life.log.next_record(), self.latest);
        self.note(Past { first, end, is_whole: true, time, before: BTreeMap::new(), named });
        Ok(())
    }

    /// Takes a snapshot while clients continue; the power may fail meanwhile.
    fn take_snapshot(&mut self) -> Checked {
        let life = self.life.clone();
        let (log_bytes, mut has_crashed) = (life.log.log_bytes(), false);
        let crashes_at = self.random.chance(20).then(|| self.random.below(6));
        let mut step = 0;
        let taken = life.log.take_snapshot(self.now / 1000, &mut || {
            if crashes_at == Some(step) {
                self.directory.crash(self.random.next());
                has_crashed = true;
            }
            step += 1;
            for _ in 0..self.random.below(4) {
                if self.wrong.is_ok() && !self.must_crash {
                    self.wrong = self.ask();
                    self.take_acknowledgements();
                }
            }
        });
        self.tell(format!("a snapshot behind {log_bytes} bytes, in {step} steps: {taken:?}"));
        std::mem::replace(&mut self.wrong, Ok(()))?;
        if taken.is_err() && !has_crashed && !self.is_faulty {
            return Err(format!("no snapshot was taken: {taken:?}"));
        }
        self.must_crash |= has_crashed;
        Ok(())
    }

    /// Makes the disk run full, or fail after some writes.
    fn break_disk(&mut self) -> Checked {
        let names = self.directory.names().unwrap_or_default();
        let bytes = |name: &String| self.directory.open(name).and_then(|file| file.bytes()).unwrap_or(0);
        let used: u64 = names.iter().map(bytes).sum();
        let is_full = self.random.chance(60);
        let faults = match is_full {
            true => {
                Faults { capacity: Some(used + self.random.magnitude(1 << 20) as u64), ..Faults::default() }
            }
            false => Faults { fails_after: Some(self.random.magnitude(12) as u64), ..Faults::default() },
        };
        self.is_faulty = true;
        self.directory.set_faults(faults);
        self.tell(format!("the disk has {used} bytes, and {faults:?}"));
        // The rest of the current file of the log is used up, so that another file is needed.
        for _ in 0..if is_full { 60 } else { 0 } {
            let client = self.random.below(self.clients.len());
            self.execute(client, &["SET".into(), "k1".into(), "v".repeat(LARGE_BYTES)])?;
            self.write();
            if self.must_crash || !self.life.log.is_writing() {
                break;
            }
        }
        Ok(())
    }

    /// Frees disk space and ends the failures of writes.
    fn repair_disk(&mut self) {
        self.directory.set_faults(Faults::default());
        self.is_faulty = false;
        let was_refusing = !self.life.log.is_writing();
        self.life.log.write();
        let is_writing = self.life.log.is_writing();
        self.tell(format!(
            "the disk is repaired; the log was refusing: {was_refusing}, is writing: {is_writing}"
        ));
        // After a failed write the node must be restarted.
        self.must_crash |= !is_writing;
    }

    /// Records which replies have been sent by now.
    fn take_acknowledgements(&mut self) {
        let waits = self.setting.fsync == Fsync::Always;
        let mut known = self.acknowledged;
        self.pending.retain(|record| match self.life.log.acknowledged(*record) {
            Some(Ok(())) => {
                // Without waiting for the disk, an acknowledgement guarantees nothing.
                known = if waits { known.max(record + 1) } else { known };
                false
            }
            Some(Err(_)) => false,
            None => true,
        });
        self.acknowledged = known.max(self.life.log.durable());
    }
}

impl Client {
    /// Records that a newly watched key may expire, which may count as a change.
    fn note_watch(&mut self, args: &[String], watched: usize, map: &Map) {
        let expires = |key: &Key| map.get(key).is_some_and(|entry| entry.expiry.is_some());
        if args[0] == "WATCH" && self.watched.len() > watched && self.watched.last().is_some_and(expires) {
            self.touched = if self.touched == Touched::No { Touched::Perhaps } else { self.touched };
        }
    }
}
