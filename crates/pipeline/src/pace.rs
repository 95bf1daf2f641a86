//! Decides how many rows a step takes: about as many as can be processed in [`limits::STEP_NS`], according to the cost
//! of earlier rows of the same execution.
//!
//! The cost of the first rows is unknown, so the first batch is as small as operators allow. After that, batches are
//! sized to fit the remaining time, so that a step exceeds its time by at most one such batch, or by the work at the
//! end of a row group. Cost is measured in wall time, because that is what other tasks wait for, and because reading
//! CPU time costs ten times as much. After a thread was preempted, a few small batches correct the estimate.

use farpool_model::{Clock, cast, limits};
use farpool_operators::Pace;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Divisor: a step may exceed its time by one part in this many if it completes the row group in that time.
const TAIL_PART: u64 = 4;

/// Value of [`RowCost::block_ns`] before any row was measured.
const UNKNOWN: u64 = u64::MAX;

/// Cost of rows in one execution, as measured by all its threads.
#[derive(Debug)]
pub(crate) struct RowCost {
    /// Nanoseconds for [`limits::BLOCK_ROWS`] rows, at least 1.
    block_ns: AtomicU64,
}

impl Default for RowCost {
    fn default() -> Self {
        RowCost { block_ns: AtomicU64::new(UNKNOWN) }
    }
}

impl RowCost {
    /// Records that `rows` rows took `ns`. Higher costs take effect at once, lower ones gradually.
    fn learn(&self, rows: usize, ns: u64) {
        let rows = cast::u64_from(rows.max(1));
        let now = ns.saturating_mul(cast::u64_from(limits::BLOCK_ROWS)) / rows;
        let before = self.block_ns.load(Relaxed);
        let block_ns = if before == UNKNOWN { now } else { now.max(before.midpoint(now)) };
        self.block_ns.store(block_ns.max(1), Relaxed);
    }

    /// Returns the number of rows that can be processed in about `ns`.
    fn rows_in(&self, ns: u64) -> usize {
        let rows = ns.saturating_mul(cast::u64_from(limits::BLOCK_ROWS)) / self.block_ns.load(Relaxed);
        cast::usize_saturating(rows)
    }
}

/// Pace of one step.
pub(crate) struct StepPace<'r> {
    clock: &'r dyn Clock,
    cost: &'r RowCost,
    is_stopped: &'r dyn Fn() -> bool,
    begun_ns: u64,
    /// Time at which the first batch of the current row group began; `None` if it has not begun.
    rows_begun_ns: Option<u64>,
    /// Time at which the latest batch began, and the number of rows that were left then.
    last: Option<(u64, usize)>,
}

impl<'r> StepPace<'r> {
    /// Begins a step. The step ends early if `is_stopped` returns true.
    pub(crate) fn new(clock: &'r dyn Clock, cost: &'r RowCost, is_stopped: &'r dyn Fn() -> bool) -> Self {
        StepPace { clock, cost, is_stopped, begun_ns: clock.now_ns(), rows_begun_ns: None, last: None }
    }

    /// Continues the step with another row group.
    pub(crate) fn next_group(&mut self) {
        (self.rows_begun_ns, self.last) = (None, None);
    }

    fn learn(&mut self, now: u64, left: usize) {
        if let Some((then, before)) = self.last.replace((now, left)) {
            self.cost.learn(before - left, now.saturating_sub(then));
        }
    }
}

impl Pace for StepPace<'_> {
    fn rows(&mut self, left: usize) -> usize {
        let now = self.clock.now_ns();
        self.learn(now, left);
        let rows_begun = *self.rows_begun_ns.get_or_insert(now);
        let spent = now.saturating_sub(self.begun_ns);
        // Continues at least until the rows have taken as long as the work of this step before them.
        let is_worth_it = now.saturating_sub(rows_begun) >= rows_begun.saturating_sub(self.begun_ns);
        let tail = limits::STEP_NS / TAIL_PART;
        let is_over = spent >= limits::STEP_NS && is_worth_it && left > self.cost.rows_in(tail);
        if (self.is_stopped)() || is_over {
            return 0;
        }
        self.cost.rows_in(limits::STEP_NS.saturating_sub(spent).max(tail)).max(1)
    }

    fn ends(&mut self) -> bool {
        (self.is_stopped)() || self.clock.now_ns().saturating_sub(self.begun_ns) >= limits::STEP_NS
    }
}
