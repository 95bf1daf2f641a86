//! Groups that are never emitted early, because the receiver needs each of them once: they stay within a memory limit,
//! or the aggregation fails.
//!
//! Invariant: the groups of a worker exceed its limit by those of one batch at most, and so do the groups that merge
//! tasks hold at the same time, which together have the limit of one worker.

use super::fitted::FittedAggregation;
use super::partial::Partial;
use crate::pace::Pace;
use farpool_model::{Error, Result};
use std::sync::atomic::{AtomicUsize, Ordering};

impl FittedAggregation {
    /// Checks the groups of a worker against its limit. Rows that are partitioned and not grouped yet are grouped
    /// first, because their groups may take much less memory. Returns false if the step ends before that is finished.
    ///
    /// # Errors
    /// `OverLimit`, with both sizes, if the groups exceed the limit.
    pub(super) fn keep_limit(&self, partial: &mut Partial, pace: &mut dyn Pace) -> Result<bool> {
        let limit = partial.spill.limit;
        if limit == usize::MAX || partial.group_bytes() <= limit || partial.is_empty() {
            return Ok(true);
        }
        if let (Some(radix), Some(shape)) = (&mut partial.radix, &self.radix)
            && !radix.group(&self.aggregation, shape, pace)?
        {
            return Ok(false);
        }
        check(partial.group_bytes(), limit)?;
        Ok(true)
    }
}

fn check(bytes: usize, limit: usize) -> Result<()> {
    if bytes <= limit {
        return Ok(());
    }
    let kib = |bytes: usize| bytes.div_ceil(1 << 10);
    let (taken, limit) = (kib(bytes), kib(limit));
    let message = format!("the groups of one thread take {taken} KiB, and may take {limit} KiB");
    Err(Error::over_limit(message).advise("let the caller group these rows itself, or group fewer of them"))
}

/// Bytes of the groups that all merge tasks hold at present.
pub(super) struct MergedBytes {
    limit: usize,
    bytes: AtomicUsize,
}

/// Bytes of the groups that one merge task holds, until it is dropped.
pub(super) struct HeldBytes<'a> {
    all: &'a MergedBytes,
    bytes: usize,
}

impl MergedBytes {
    /// Creates the count for tasks that merge `partials`.
    pub(super) fn of(partials: &[Partial]) -> Self {
        let limits = partials.iter().map(|partial| partial.spill.limit);
        MergedBytes { limit: limits.min().unwrap_or(usize::MAX), bytes: AtomicUsize::new(0) }
    }

    /// Begins to count the groups of one more task.
    pub(super) fn hold(&self) -> HeldBytes<'_> {
        HeldBytes { all: self, bytes: 0 }
    }
}

impl HeldBytes<'_> {
    /// Sets the bytes of the task's groups.
    ///
    /// # Errors
    /// `OverLimit`, with both sizes, if the groups of all tasks exceed the limit.
    pub(super) fn set(&mut self, bytes: usize) -> Result<()> {
        // The difference wraps where the groups became fewer.
        let more = bytes.wrapping_sub(self.bytes);
        let all = self.all.bytes.fetch_add(more, Ordering::Relaxed).wrapping_add(more);
        self.bytes = bytes;
        check(all, self.all.limit)
    }
}

impl Drop for HeldBytes<'_> {
    fn drop(&mut self) {
        self.all.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
