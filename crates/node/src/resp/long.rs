//! Threads for commands that take long: the threads that serve connections never carry these out.
//!
//! One command of a tenant runs at a time, so that a tenant gets one thread, and the system shares the processors among the
//! threads. With more tenants than threads, the tenants take turns, a command each.

use crate::precedence::step_back;
use farpool_model::limits::KV_LONG_THREADS_MAX;
use farpool_model::{Error, Result, TenantName};
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// How long a thread waits for the next command before it ends; the first one stays.
const LINGER: Duration = Duration::from_millis(200);

type Work = Box<dyn FnOnce() + Send>;

/// The long commands of all tenants.
#[derive(Default)]
pub(super) struct LongCommands {
    line: Mutex<Line>,
    /// Tells idle threads that there is a command.
    come: Condvar,
}

#[derive(Default)]
struct Line {
    /// The commands of each tenant that has some, or of which one runs.
    tenants: HashMap<TenantName, VecDeque<Work>>,
    /// Tenants of which none runs, in the order of their turns.
    ready: VecDeque<TenantName>,
    threads: usize,
    idle: usize,
    is_ended: bool,
}

impl LongCommands {
    /// Starts the first thread.
    ///
    /// # Errors
    /// `OverLimit` when the system gives no thread.
    pub fn start() -> Result<Arc<Self>> {
        let commands = Arc::<LongCommands>::default();
        commands.add_thread()?;
        Ok(commands)
    }

    /// Has a thread carry out a command of a tenant, behind those of the tenant that came before.
    pub fn submit(self: &Arc<Self>, tenant: &TenantName, work: Work) {
        let mut line = self.line.lock();
        if line.is_ended {
            return;
        }
        match line.tenants.get_mut(tenant) {
            Some(waiting) => waiting.push_back(work),
            None => {
                line.tenants.insert(tenant.clone(), VecDeque::from([work]));
                line.ready.push_back(tenant.clone());
            }
        }
        let is_wanting = line.ready.len() > line.idle && line.threads < KV_LONG_THREADS_MAX;
        drop(line);
        self.come.notify_one();
        if is_wanting && let Err(error) = self.add_thread() {
            // Those that there are take turns.
            tracing::debug!(%error, "no further thread for long commands");
        }
    }

    /// Drops commands that have not begun, and has threads end.
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

    /// Waits for a command; `None` when the thread should end.
    fn next(&self) -> Option<(TenantName, Work)> {
        let mut line = self.line.lock();
        loop {
            let next = line.ready.pop_front();
            let work = next.and_then(|tenant| {
                let work = line.tenants.get_mut(&tenant)?.pop_front()?;
                Some((tenant, work))
            });
            if work.is_some() {
                return work;
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
