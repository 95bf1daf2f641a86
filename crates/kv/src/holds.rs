//! The registry of shards that long commands hold (have locked for longer than a step), with a copy of each held
//! shard's counters.
//!
//! A thread that serves several tenants never blocks on a held shard: it defers the command until the shard is
//! released. Readers of counters get the copy that was made when the shard was locked.
//!
//! Invariant: a long command is announced for all its shards before it locks one, and so is a caller that blocks on a
//! held shard while it has locked others. A thread that finds a shard locked and not announced therefore waits for one
//! step at most. Example: a caller locks shard 1 and then blocks on shard 2, which a long command holds. If the caller
//! were not announced for shard 1, a thread could wait for shard 1 and so, indirectly, for the long command.

use crate::keyspace::{KeyCount, Keyspace};
use crate::shard::{Shard, SpaceId};
use crate::spaces::Spaces;
use parking_lot::{Mutex, MutexGuard};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Timeout of one attempt to lock a shard. Between attempts, the thread checks whether a long command was announced for
/// the shard, for which it must not wait.
const LOOK: Duration = Duration::from_micros(200);

/// The shards of a keyspace that long commands hold, and the waiters for them.
pub(crate) struct Holds {
    shards: Box<[HeldShard]>,
    /// Number of announcements of long commands that have ended so far; tells waiting tasks whether one has ended since
    /// they checked.
    released: AtomicU64,
    waiting: Mutex<Vec<Waker>>,
    have_waited: AtomicBool,
}

#[derive(Default)]
struct HeldShard {
    /// Number of long commands announced for the shard, which hold it or wait for it.
    announced: AtomicU32,
    /// Whether a long command holds the shard; if so, `known` is valid.
    is_held: AtomicBool,
    known: Mutex<HeldShardCounts>,
}

/// A copy of a shard's counters, for readers while a long command holds the shard.
#[derive(Clone, Default)]
pub(crate) struct HeldShardCounts {
    pub counts: Vec<(SpaceId, KeyCount)>,
    pub counted: (u64, u64, u64, u64),
    pub spaces: Arc<Spaces>,
    pub recorded: u64,
}

impl HeldShardCounts {
    fn of(shard: &Shard) -> HeldShardCounts {
        let counts = shard.tables().map(|(space, table)| (space, KeyCount::of(table))).collect();
        HeldShardCounts {
            counts,
            counted: shard.counted(),
            spaces: Arc::clone(shard.spaces()),
            recorded: shard.recorded(),
        }
    }
}

impl Holds {
    pub fn new(shards: usize) -> Self {
        let shards = (0..shards).map(|_| HeldShard::default()).collect();
        Holds {
            shards,
            released: AtomicU64::new(0),
            waiting: Mutex::default(),
            have_waited: AtomicBool::new(false),
        }
    }
}

/// An announcement of a long command for some shards. Dropping it ends the announcement and wakes the tasks that wait
/// in [`Keyspace::poll_released`].
pub(crate) struct HoldAnnouncement<'a> {
    holds: &'a Holds,
    shards: Vec<usize>,
}

impl Drop for HoldAnnouncement<'_> {
    fn drop(&mut self) {
        for shard in &self.shards {
            self.holds.shards[*shard].announced.fetch_sub(1, Ordering::AcqRel);
        }
        let waiting = {
            let mut waiting = self.holds.waiting.lock();
            self.holds.released.fetch_add(1, Ordering::AcqRel);
            std::mem::take(&mut *waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// The lock of a shard, for a step or for a long command; dereferences to the shard.
pub(crate) struct ShardGuard<'a> {
    // Dropped before the lock: clears the mark that the shard is held.
    _mark: Option<HeldMark<'a>>,
    shard: MutexGuard<'a, Shard>,
}

impl<'a> From<MutexGuard<'a, Shard>> for ShardGuard<'a> {
    fn from(shard: MutexGuard<'a, Shard>) -> Self {
        ShardGuard { _mark: None, shard }
    }
}

impl Deref for ShardGuard<'_> {
    type Target = Shard;

    #[inline]
    fn deref(&self) -> &Shard {
        &self.shard
    }
}

impl DerefMut for ShardGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }
}

struct HeldMark<'a>(&'a HeldShard);

impl Drop for HeldMark<'_> {
    fn drop(&mut self) {
        self.0.is_held.store(false, Ordering::Release);
    }
}

impl Keyspace {
    /// Announces a long command for these shards. Must be called before the command locks any of them, because other
    /// threads wait for a locked shard only if no long command is announced for it.
    fn announce(&self, shards: &[usize]) -> HoldAnnouncement<'_> {
        for shard in shards {
            self.holds().shards[*shard].announced.fetch_add(1, Ordering::AcqRel);
        }
        HoldAnnouncement { holds: self.holds(), shards: shards.to_vec() }
    }

    /// Locks a shard for an announced long command and marks it as held. Blocks.
    fn hold(&self, shard: usize) -> ShardGuard<'_> {
        let taken = self.lock(shard);
        let held = &self.holds().shards[shard];
        debug_assert!(held.announced.load(Ordering::Acquire) > 0, "a long command is announced before");
        *held.known.lock() = HeldShardCounts::of(&taken);
        held.is_held.store(true, Ordering::Release);
        ShardGuard { _mark: Some(HeldMark(held)), shard: taken }
    }

    /// Locks shards, given in ascending order, for a long command, and announces it. Blocks until all are locked.
    pub(crate) fn hold_all(&self, shards: &[usize]) -> (Vec<ShardGuard<'_>>, HoldAnnouncement<'_>) {
        let hold = self.announce(shards);
        (shards.iter().map(|shard| self.hold(*shard)).collect(), hold)
    }

    /// Locks shards, given in ascending order, for a step that cannot be deferred: blocks while long commands hold one
    /// of them.
    pub(crate) fn take_or_hold(
        &self,
        shards: &[usize],
    ) -> (Vec<ShardGuard<'_>>, Option<HoldAnnouncement<'_>>) {
        match self.take_all(shards) {
            Some(taken) => (taken, None),
            None => {
                let (taken, hold) = self.hold_all(shards);
                (taken, Some(hold))
            }
        }
    }

    /// Locks shards, given in ascending order, for a step; returns `None`, with none locked, if a long command holds
    /// one of them or waits for one. Blocks for other steps only.
    pub(crate) fn take_all(&self, shards: &[usize]) -> Option<Vec<ShardGuard<'_>>> {
        shards.iter().map(|shard| self.take(*shard)).collect()
    }

    /// Locks a shard for a step; returns `None` if a long command holds the shard or waits for it. Blocks for other
    /// steps only.
    pub(crate) fn take(&self, shard: usize) -> Option<ShardGuard<'_>> {
        if let Some(taken) = self.try_lock(shard) {
            return Some(taken.into());
        }
        self.take_soon(shard)
    }

    #[cold]
    fn take_soon(&self, shard: usize) -> Option<ShardGuard<'_>> {
        let held = &self.holds().shards[shard];
        while held.announced.load(Ordering::Acquire) == 0 {
            if let Some(taken) = self.try_lock_for(shard, LOOK) {
                return Some(taken.into());
            }
        }
        None
    }

    /// Returns the result of `f` for the locked shard, or of `of_known` for the copy of its counters if a long command
    /// holds the shard. Does not wait for long commands.
    pub(crate) fn look<T>(
        &self,
        shard: usize,
        f: impl Fn(&Shard) -> T,
        of_known: impl Fn(&HeldShardCounts) -> T,
    ) -> T {
        let held = &self.holds().shards[shard];
        loop {
            if held.is_held.load(Ordering::Acquire) {
                return of_known(&held.known.lock());
            }
            if let Some(taken) = self.try_lock_for(shard, LOOK) {
                return f(&taken);
            }
        }
    }

    /// Returns the number of long commands that have released their shards so far. Read it before executing a command
    /// that may be deferred; see [`Keyspace::poll_released`].
    pub fn releases(&self) -> u64 {
        self.holds().released.load(Ordering::Acquire)
    }

    /// Returns `Ready` if a long command has released its shards since [`Keyspace::releases`] returned `releases`, or
    /// if no long command is announced. Otherwise returns `Pending` and wakes the task at the next release.
    pub fn poll_released(&self, releases: u64, context: &mut Context<'_>) -> Poll<()> {
        let holds = self.holds();
        let mut waiting = holds.waiting.lock();
        let is_held = holds.shards.iter().any(|shard| shard.announced.load(Ordering::Acquire) > 0);
        if !is_held || holds.released.load(Ordering::Acquire) != releases {
            return Poll::Ready(());
        }
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
            holds.have_waited.store(true, Ordering::Release);
        }
        Poll::Pending
    }

    /// Returns whether any task has waited in [`Keyspace::poll_released`] since the last call of this function.
    pub fn take_waited(&self) -> bool {
        self.holds().have_waited.swap(false, Ordering::AcqRel)
    }
}
