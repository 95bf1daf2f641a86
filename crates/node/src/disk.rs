//! The threads of a node that wait for the disk with its data directory, so that workers never do: one writes the log,
//! one notes how much of the log is durable, some read values that are not in memory, and one does all other work on
//! the disk. A simulation does the work of these threads itself (`disk/stepped.rs`).

#![expect(clippy::disallowed_methods, reason = "the node is where threads come from")]

mod stepped;

pub use stepped::SteppedDisk;

use farpool_catalog::Catalog;
use farpool_model::{Error, Result, limits};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

type Job = Box<dyn FnOnce() + Send>;

/// The queues of jobs that block on the disk.
#[derive(Default)]
pub(crate) struct DiskJobs {
    /// Jobs that one thread executes one after the other.
    pub writes: JobQueue,
    /// Jobs that several threads execute.
    pub reads: JobQueue,
    /// Whether the node has no threads for the jobs, because a simulation executes them.
    pub is_stepped: bool,
}

/// A queue of jobs for one or several threads.
#[derive(Default)]
pub(crate) struct JobQueue {
    state: Mutex<JobQueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct JobQueueState {
    waiting: VecDeque<Job>,
    is_stopped: bool,
}

impl JobQueue {
    /// Adds a job for the queue's threads. After [`JobQueue::stop`], executes it on the calling thread.
    pub fn submit(&self, job: Job) {
        let mut state = self.state.lock();
        if state.is_stopped {
            drop(state);
            return job();
        }
        state.waiting.push_back(job);
        self.changed.notify_one();
    }

    /// Makes the threads of the queue end when it is empty.
    pub fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.changed.notify_all();
    }

    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            match state.waiting.pop_front() {
                Some(job) => {
                    drop(state);
                    // A panic is a bug in this job and must not end the thread, which other jobs need.
                    if catch_unwind(AssertUnwindSafe(job)).is_err() {
                        tracing::error!("a job of the disk has panicked");
                    }
                    state = self.state.lock();
                }
                None if state.is_stopped => return,
                None => self.changed.wait(&mut state),
            }
        }
    }
}

impl fmt::Debug for DiskJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = |jobs: &JobQueue| jobs.state.lock().waiting.len();
        let (writes, reads) = (waiting(&self.writes), waiting(&self.reads));
        f.debug_struct("DiskJobs").field("writes", &writes).field("reads", &reads).finish()
    }
}

/// The threads that wait for the disk.
pub(crate) struct DiskThreads {
    jobs: Arc<DiskJobs>,
    catalog: Arc<Catalog>,
    log: JoinHandle<()>,
    others: Vec<JoinHandle<()>>,
}

impl DiskThreads {
    /// Starts the threads for `catalog`, which has a data directory, and for the queues `jobs`.
    ///
    /// # Errors
    /// `Internal` when the system has no more threads.
    pub fn start(catalog: &Arc<Catalog>, jobs: &Arc<DiskJobs>) -> Result<DiskThreads> {
        let failed =
            |error: std::io::Error| Error::internal(format!("cannot start a thread for the disk: {error}"));
        let (of_log, of_jobs) = (catalog.clone(), jobs.clone());
        let log =
            Builder::new().name("farpool-log".into()).spawn(move || of_log.write_log()).map_err(failed)?;
        let writer = Builder::new().name("farpool-disk".into()).spawn(move || of_jobs.writes.work());
        let mut others = vec![writer.map_err(failed)?];
        let of_mark = catalog.clone();
        // This thread is optional: without it, the number of durable log records (the log's mark) is written only at a
        // clean stop.
        others.extend(Builder::new().name("farpool-mark".into()).spawn(move || of_mark.mark_log()));
        for _ in 0..limits::READERS {
            let jobs = jobs.clone();
            let reader = Builder::new().name("farpool-read".into()).spawn(move || jobs.reads.work());
            others.push(reader.map_err(failed)?);
        }
        Ok(DiskThreads { jobs: jobs.clone(), catalog: catalog.clone(), log, others })
    }

    /// Closes the data directory and blocks until the threads have ended.
    pub fn stop(self) {
        if let Err(error) = self.catalog.close() {
            tracing::error!(%error, "the data directory was not closed as it should be");
        }
        self.jobs.writes.stop();
        self.jobs.reads.stop();
        let own = std::thread::current().id();
        for thread in std::iter::once(self.log).chain(self.others) {
            // A thread must not join itself, and one of these threads may be the one that drops the node, with its last
            // job.
            if thread.thread().id() != own && thread.join().is_err() {
                tracing::error!("a thread of the disk had panicked");
            }
        }
    }
}
