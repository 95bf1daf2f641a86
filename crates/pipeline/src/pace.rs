//! How much of a row group one step takes: about as much as [`limits::STEP_NS`] allows, by the time that rows of
//! the run took so far.
//!
//! Nothing is known of the first rows of a run, so there are as few of them as operators take. From then on batches are
//! as large as fits the time that is left, so that a step is longer than it should be by at most such a batch, or
//! by what belongs to a row group's end. Wall time is what others wait for, and reading it costs a tenth of what
//! reading CPU time does; a thread that lost its core in between takes a few small batches to find back.

use farpool_model::{Clock, cast, limits};
use farpool_operators::Pace;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The part of a step by which it may be longer if that completes the row group.
const TAIL_PART: u64 = 4;

/// No row has been looked at yet.
const UNKNOWN: u64 = u64::MAX;

/// What rows of a run cost, as all its threads have seen it.
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
    /// `rows` rows took `ns`. What rows came to cost shows at once, what they no longer cost by and by.
    fn learn(&self, rows: usize, ns: u64) {
        let rows = cast::u64_from(rows.max(1));
        let now = ns.saturating_mul(cast::u64_from(limits::BLOCK_ROWS)) / rows;
        let before = self.block_ns.load(Relaxed);
        let block_ns = if before == UNKNOWN { now } else { now.max(before.midpoint(now)) };
        self.block_ns.store(block_ns.max(1), Relaxed);
    }

    /// Rows that take about `ns`.
    fn rows_in(&self, ns: u64) -> usize {
        let rows = ns.saturating_mul(cast::u64_from(limits::BLOCK_ROWS)) / self.block_ns.load(Relaxed);
        cast::usize_saturating(rows)
    }
}

/// The pace of one step. See the file's comment.
pub(crate) struct StepPace<'r> {
    clock: &'r dyn Clock,
    cost: &'r RowCost,
    is_stopped: &'r dyn Fn() -> bool,
    begun_ns: u64,
    /// When the first batch of the row group began.
    rows_begun_ns: Option<u64>,
    /// When the last batch was begun, and how many rows were left then.
    last: Option<(u64, usize)>,
}

impl<'r> StepPace<'r> {
    /// The step begins. It ends early once `is_stopped`.
    pub(crate) fn new(clock: &'r dyn Clock, cost: &'r RowCost, is_stopped: &'r dyn Fn() -> bool) -> Self {
        StepPace { clock, cost, is_stopped, begun_ns: clock.now_ns(), rows_begun_ns: None, last: None }
    }

    /// The step goes on with another row group.
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
        // What is done once for each part of a row group takes no longer than its rows do.
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
