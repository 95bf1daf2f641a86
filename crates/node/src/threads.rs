//! Helper threads for loads at a node without workers, which runs inside a database engine's process.

#![expect(clippy::disallowed_methods, reason = "the node is where threads come from")]

use farpool_catalog::HelperThreads;
use farpool_model::{Error, Result};
use std::num::NonZero;
use std::thread;

/// Starts helper threads at the beginning of each call and joins them at the end of the call.
#[derive(Debug)]
pub(crate) struct ScopedThreads;

impl HelperThreads for ScopedThreads {
    fn threads_max(&self) -> usize {
        thread::available_parallelism().map_or(1, NonZero::get)
    }

    fn run(&self, threads: usize, work: &(dyn Fn() + Sync)) -> Result<()> {
        thread::scope(|scope| {
            let mut helpers = Vec::new();
            for _ in 1..threads {
                match thread::Builder::new().spawn_scoped(scope, work) {
                    Ok(helper) => helpers.push(helper),
                    // The system cannot start another thread, so the threads that were started do all the work.
                    Err(_) => break,
                }
            }
            work();
            let failed = helpers.into_iter().filter_map(|helper| helper.join().err()).count();
            if failed == 0 { Ok(()) } else { Err(Error::internal("a defect stopped a thread that encodes")) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farpool_model::ErrorKind;
    use std::sync::Barrier;
    use std::thread::current;

    #[test]
    fn all_threads_work_at_once() {
        let met = Barrier::new(3);
        let meet = || {
            met.wait();
        };
        ScopedThreads.run(3, &meet).unwrap();
    }

    #[test]
    fn the_panic_of_a_helper_is_an_error() {
        let caller = current().id();
        let panicked = ScopedThreads.run(2, &|| assert_eq!(current().id(), caller));
        assert_eq!(panicked.unwrap_err().kind, ErrorKind::Internal);
    }
}
