//! The threads for long commands of the Redis protocol. A long command may take longer than a step (some ten
//! microseconds), so the serving threads, each of which serves many connections, do not execute it.
//!
//! One command of a tenant runs at a time, so that a tenant occupies at most one thread. The operating system divides
//! the processors among the threads. If more tenants than threads have commands, the tenants take turns, one command
//! each.
//!
//! Invariant: a tenant that has queued commands, none of which runs, is in `ready` exactly once; other tenants are not
//! in it, except that a tenant whose commands were all withdrawn may stay until its turn comes. If a tenant were in
//! `ready` twice, two of its commands would run at the same time.

use crate::precedence::step_back;
use farpool_model::limits::KV_LONG_THREADS_MAX;
use farpool_model::{Error, Result, TenantName};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Time that an idle thread waits for another command before it ends. The first thread does not end.
const LINGER: Duration = Duration::from_millis(200);

type Work = Box<dyn FnOnce() + Send>;

/// The place of a command in the queue of its tenant: clean-ups come first, then commands in the order of their
/// arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueuePosition {
    is_command: bool,
    number: u64,
}

/// The queues of long commands of all tenants.
#[derive(Default)]
pub(super) struct LongCommands {
    line: Mutex<LongQueues>,
    /// Notified when a command is added or the threads must end.
    come: Condvar,
}

#[derive(Default)]
struct LongQueues {
    /// The queued commands of each tenant that has queued or running commands.
    tenants: HashMap<TenantName, BTreeMap<QueuePosition, Work>>,
    /// Tenants with queued commands of which none runs, in the order of their turns.
    ready: VecDeque<TenantName>,
    last_number: u64,
    threads: usize,
    idle: usize,
    is_ended: bool,
}

impl LongQueues {
    fn add(&mut self, tenant: &TenantName, is_command: bool, work: Work) -> QueuePosition {
        self.last_number += 1;
        let place = QueuePosition { is_command, number: self.last_number };
        match self.tenants.get_mut(tenant) {
            Some(waiting) => drop(waiting.insert(place, work)),
            None => {
                self.tenants.insert(tenant.clone(), BTreeMap::from([(place, work)]));
                self.ready.push_back(tenant.clone());
            }
        }
        place
    }

    /// Takes the first command of the next tenant in `ready`; `None` if no tenant has a command that can begin.
    fn take(&mut self) -> Option<(TenantName, Work)> {
        while let Some(tenant) = self.ready.pop_front() {
            match self.tenants.get_mut(&tenant).and_then(BTreeMap::pop_first) {
                Some((_, work)) => return Some((tenant, work)),
                None => drop(self.tenants.remove(&tenant)),
            }
        }
        None
    }
}

impl LongCommands {
    /// Creates the empty queues and starts the first thread.
    ///
    /// # Errors
    /// `OverLimit` when the system has no more threads.
    pub fn start() -> Result<Arc<Self>> {
        let commands = Arc::<LongCommands>::default();
        commands.add_thread()?;
        Ok(commands)
    }

    /// Queues a command of a tenant after its earlier commands; returns its place, for [`LongCommands::withdraw`].
    pub fn submit(self: &Arc<Self>, tenant: &TenantName, work: Work) -> Option<QueuePosition> {
        self.add(tenant, true, work)
    }

    /// Queues a clean-up after a connection of a tenant, before the tenant's commands, because it releases shards and
    /// memory that others wait for.
    pub fn clean_up(self: &Arc<Self>, tenant: &TenantName, work: Work) {
        self.add(tenant, false, work);
    }

    /// Removes the command at `place` from the queue of its tenant; does nothing if the command has begun.
    pub fn withdraw(&self, tenant: &TenantName, place: QueuePosition) {
        let mut line = self.line.lock();
        let work = line.tenants.get_mut(tenant).and_then(|waiting| waiting.remove(&place));
        drop(line);
        drop(work);
    }

    fn add(self: &Arc<Self>, tenant: &TenantName, is_command: bool, work: Work) -> Option<QueuePosition> {
        let mut line = self.line.lock();
        if line.is_ended {
            return None;
        }
        let place = line.add(tenant, is_command, work);
        let is_wanting = line.ready.len() > line.idle && line.threads < KV_LONG_THREADS_MAX;
        drop(line);
        self.come.notify_one();
        if is_wanting && let Err(error) = self.add_thread() {
            // Failing to start a thread is no error, because the existing threads execute the command later.
            tracing::debug!(%error, "no further thread for long commands");
        }
        Some(place)
    }

    /// Drops queued commands and ends the threads.
    pub fn end(&self) {
        let mut line = self.line.lock();
        line.is_ended = true;
        let dropped = std::mem::take(&mut line.tenants);
        line.ready.clear();
        drop(line);
        drop(dropped);
        self.come.notify_all();
    }

    #[expect(clippy::disallowed_methods, reason = "the node is where threads come from")]
    fn add_thread(self: &Arc<Self>) -> Result<()> {
        self.line.lock().threads += 1;
        let this = self.clone();
        let work = move || {
            step_back();
            this.work();
        };
        let started = std::thread::Builder::new().name("farpool-long".into()).spawn(work);
        started.map(drop).map_err(|error| {
            self.line.lock().threads -= 1;
            Error::over_limit(format!("cannot start a thread for long commands: {error}"))
        })
    }

    fn work(&self) {
        while let Some((tenant, work)) = self.next() {
            if catch_unwind(AssertUnwindSafe(work)).is_err() {
                tracing::error!(tenant = tenant.as_str(), "a defect stopped a long command");
            }
            let mut line = self.line.lock();
            match line.tenants.get(&tenant) {
                Some(waiting) if waiting.is_empty() => drop(line.tenants.remove(&tenant)),
                Some(_) => line.ready.push_back(tenant),
                None => {}
            }
        }
    }

    /// Blocks until there is a command and returns it; returns `None` if the calling thread must end.
    fn next(&self) -> Option<(TenantName, Work)> {
        let mut line = self.line.lock();
        loop {
            if let Some(next) = line.take() {
                return Some(next);
            }
            if line.is_ended {
                line.threads -= 1;
                return None;
            }
            line.idle += 1;
            let waited = self.come.wait_for(&mut line, LINGER);
            line.idle -= 1;
            if waited.timed_out() && line.ready.is_empty() && line.threads > 1 {
                line.threads -= 1;
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn tenant(name: &str) -> TenantName {
        TenantName::new(name).unwrap()
    }

    #[test]
    fn a_tenant_does_not_wait_for_the_commands_of_another() {
        let commands = LongCommands::start().unwrap();
        let (end, ends) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        commands.submit(
            &tenant("a"),
            Box::new(move || {
                _ = ends.recv();
            }),
        );
        for number in 0..3 {
            let tell = tell.clone();
            commands.submit(
                &tenant("a"),
                Box::new(move || {
                    _ = tell.send(("a", number));
                }),
            );
            assert!(told_of(&commands).recv().is_ok());
        }
        assert!(told.try_recv().is_err());
        drop(end);
        assert_eq!([0, 1, 2].map(|_| told.recv().unwrap()), [("a", 0), ("a", 1), ("a", 2)]);
        commands.end();
    }

    fn told_of(commands: &Arc<LongCommands>) -> mpsc::Receiver<()> {
        let (tell, told) = mpsc::channel();
        commands.submit(
            &tenant("b"),
            Box::new(move || {
                _ = tell.send(());
            }),
        );
        told
    }

    #[test]
    fn what_is_withdrawn_is_dropped_at_once_and_cleaning_up_goes_before_commands() {
        let commands = LongCommands::start().unwrap();
        let (end, ends) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let telling = |what: &'static str| {
            let tell = tell.clone();
            Box::new(move || _ = tell.send(what))
        };
        let a = tenant("a");
        let blocker = move || {
            _ = begin.send(());
            _ = ends.recv();
        };
        let running = commands.submit(&a, Box::new(blocker)).unwrap();
        begun.recv().unwrap();
        let held = Arc::new(());
        let holding = Arc::clone(&held);
        let first = commands.submit(&a, Box::new(move || drop(holding))).unwrap();
        commands.submit(&a, telling("command"));
        commands.clean_up(&a, telling("cleaning"));
        commands.withdraw(&a, first);
        // Withdrawing a command that is running already has no effect.
        commands.withdraw(&a, running);
        assert_eq!(Arc::strong_count(&held), 1);
        drop(end);
        assert_eq!([told.recv(), told.recv()], [Ok("cleaning"), Ok("command")]);
        commands.end();
    }

    #[test]
    fn a_tenant_whose_commands_were_withdrawn_keeps_no_turn() {
        let (mut line, b) = (LongQueues::default(), tenant("b"));
        let place = line.add(&tenant("a"), true, Box::new(|| {}));
        line.add(&b, true, Box::new(|| {}));
        line.tenants.get_mut(&tenant("a")).unwrap().remove(&place);
        assert_eq!(line.take().map(|(tenant, _)| tenant), Some(b));
        assert!(!line.tenants.contains_key(&tenant("a")) && line.ready.is_empty());
    }

    #[test]
    fn a_panic_ends_one_command_only() {
        let commands = LongCommands::start().unwrap();
        commands.submit(&tenant("a"), Box::new(|| panic!("a defect")));
        assert!(told_of(&commands).recv().is_ok());
        let (tell, told) = mpsc::channel();
        commands.submit(
            &tenant("a"),
            Box::new(move || {
                _ = tell.send(());
            }),
        );
        assert!(told.recv().is_ok());
        commands.end();
    }
}
