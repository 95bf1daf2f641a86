//! The interface for threads that help a caller with urgent work. The catalog starts no threads; the node that contains
//! it has them.

use farpool_model::Result;

/// Threads of the node that help the calling thread.
pub trait HelperThreads: std::fmt::Debug + Send + Sync {
    /// Returns the number of threads worth using at the same time, including the caller's.
    fn threads_max(&self) -> usize;

    /// Runs `work` on the calling thread and up to `threads - 1` others in parallel. Blocks until all have finished.
    ///
    /// # Errors
    /// `Internal` if a helper panicked.
    fn run(&self, threads: usize, work: &(dyn Fn() + Sync)) -> Result<()>;
}
