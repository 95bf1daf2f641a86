//! Work that several threads do at the same time.

use anyhow::{Result, anyhow};

/// Calls `work` on `threads` threads, each with the number of its thread from 0, and waits for all of them. Returns the
/// results in the order of the numbers.
///
/// # Errors
/// Fails with the first error of a call, or if a call panics.
pub fn on_each<T: Send>(threads: usize, work: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        running.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::on_each;
    use anyhow::bail;

    #[test]
    fn results_are_in_the_order_of_threads_and_errors_are_returned() {
        assert_eq!(on_each(3, |thread| Ok(thread * 2)).expect("no thread fails"), [0, 2, 4]);
        let failed = on_each(3, |thread| if thread == 1 { bail!("number {thread}") } else { Ok(()) });
        assert_eq!(failed.expect_err("a thread fails").to_string(), "number 1");
    }
}
