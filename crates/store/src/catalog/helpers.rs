//! Threads from outside that help a caller which wants something done at once: the store starts none for it.

use farpool_model::Result;

/// See the file's comment.
pub trait Helpers: std::fmt::Debug + Send + Sync {
    /// Threads that are worth using at once, the caller's among them.
    fn threads_max(&self) -> usize;

    /// Runs `work` on the calling thread and up to `threads - 1` others at once; returns when all are through.
    ///
    /// # Errors
    /// `Internal` when a helper panicked.
    fn run(&self, threads: usize, work: &(dyn Fn() + Sync)) -> Result<()>;
}
