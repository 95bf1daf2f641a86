//! The clocks of the LRU and LFU policies, which record recency or frequency of use in 12 bits of an entry's header,
//! its stamp.
//!
//! ```text
//! LRU   12 bits: the tick of the last use
//! LFU    8 bits: Redis' logarithmic counter; 4 bits: the period in which it last decayed
//! ```
//! Both stamps contain a time (tick or period) that wraps around. So a sweep regularly visits all entries and corrects
//! stamps before their time wraps around and looks recent: it decays LFU counters, and sets very old LRU entries to the
//! maximum age. Invariant: between two visits of an entry, fewer than half of all ticks pass, because the clock stands
//! still while a sweep is late. Ages are then less precise, but old entries never look more recent than recent ones.
//!
//! Example (LRU, 4,096 ticks): without sweeps, an entry with the stamp 10 would have the age 0 again at tick 10 +
//! 4,096, and would look like the most recently used entry. A sweep sets its stamp to "2,047 ticks ago" before that.
//!
//! An LRU tick is not a fixed time. It passes after a number of uses in proportion to the number of entries, so that
//! ages are equally precise in a cache whose entries are all used within a second and in one where that takes a day. An
//! LFU period is a minute, the default of Redis' `lfu-decay-time`.

/// A record of the use of an entry: 12 bits whose meaning depends on the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp(u16);

/// Number of bits of a stamp (record of the use of an entry).
pub const STAMP_BITS: u32 = 12;

const STAMP_MASK: u16 = (1 << STAMP_BITS) - 1;

/// Number of ticks per turn; a turn is the time in which as many uses happen as there are entries. Reason for 32: with
/// 64, the hit rate would be less than a thousandth higher (measured against an exact LRU, Zipf 0.99), and sweeps would
/// be twice as much work.
const TICKS_PER_TURN: usize = 32;

/// Maximum age in ticks that can be represented: 64 turns.
const OLDEST: u16 = STAMP_MASK / 2;

/// Number of ticks within which a sweep must visit all entries. Reason for a quarter of the maximum age: an entry that
/// moves in memory may be missed by two sweeps in a row.
const SWEEP_TICKS: u16 = OLDEST / 4;

/// Milliseconds after which a tick passes even without uses, so that idle times grow.
const TICK_MS_IDLE: u64 = 60_000;

/// Number of consecutive ticks for which one start time is stored. Reason for 4: all times together then take 4 KiB.
const TICKS_PER_TIME: usize = 4;

const PERIOD_MS: u64 = 60_000;
const PERIOD_BITS: u32 = 4;
const PERIOD_MASK: u16 = (1 << PERIOD_BITS) - 1;

/// Number of LFU periods within which a sweep must visit all entries.
const SWEEP_PERIODS: u16 = 4;

/// LFU counter of a new entry, as in Redis. Reason for 5: a new entry is not evicted before it can be used again.
const NEW_COUNTER: u8 = 5;

/// The default of Redis' `lfu-log-factor`, with which a counter reaches its maximum after about a million uses.
const LOG_FACTOR: u32 = 10;

impl Stamp {
    /// Returns the stamp whose [`Stamp::bits`] are `bits`.
    pub fn from_bits(bits: u16) -> Self {
        Stamp(bits & STAMP_MASK)
    }

    /// Returns the 12 bits of the stamp; the highest four bits of the result are 0.
    pub fn bits(self) -> u16 {
        self.0
    }

    fn counted(counter: u8, period: u16) -> Self {
        Stamp(u16::from(counter) << PERIOD_BITS | period)
    }
}

/// The progress of the current sweep.
#[derive(Clone, Debug, Default)]
pub(super) struct Sweep {
    /// Ticks or periods since the sweep began.
    elapsed: u16,
    /// Ticks or periods within which the sweep must end.
    limit: u16,
}

impl Sweep {
    /// Returns how many of `entries` entries the sweep should have visited by now, to end within half of its limit.
    pub fn due(&self, entries: usize) -> usize {
        (usize::from(self.elapsed) * entries).div_ceil(usize::from(self.limit / 2))
    }

    /// Begins the next sweep (visit of all entries), because the current one has visited all.
    pub fn done(&mut self) {
        self.elapsed = 0;
    }

    /// Advances by `ticks`, but at most to the limit of the sweep; returns by how many.
    fn pass(&mut self, ticks: u64) -> u16 {
        let passing = ticks.min(u64::from(self.limit - self.elapsed)) as u16;
        self.elapsed += passing;
        passing
    }
}

/// The clock of the least-recently-used (LRU) policies.
#[derive(Clone, Debug)]
pub(super) struct UseClock {
    tick: u16,
    /// Start of the current tick, in milliseconds since the epoch.
    began: u64,
    /// Number of uses during the current tick.
    uses: usize,
    pub sweep: Sweep,
    /// Start of each group of [`TICKS_PER_TIME`] ticks, in seconds since the epoch.
    times: Box<[u32]>,
}

impl UseClock {
    pub fn new(now: u64) -> Self {
        let groups = (usize::from(STAMP_MASK) + 1) / TICKS_PER_TIME;
        let (sweep, times) = (Sweep { elapsed: 0, limit: SWEEP_TICKS }, vec![seconds(now); groups]);
        UseClock { tick: 0, began: now, uses: 0, sweep, times: times.into() }
    }

    /// Counts a use of one of `entries` entries, which may begin a new tick; returns the new stamp of the used entry.
    #[inline]
    pub fn used(&mut self, entries: usize, now: u64) -> Stamp {
        self.uses += 1;
        if self.uses * TICKS_PER_TURN >= entries {
            self.next(now);
        }
        Stamp(self.tick)
    }

    /// Begins a new tick if the current tick has lasted for [`TICK_MS_IDLE`].
    pub fn pass(&mut self, now: u64) {
        if now.saturating_sub(self.began) >= TICK_MS_IDLE {
            self.next(now);
        }
    }

    fn next(&mut self, now: u64) {
        if self.sweep.pass(1) == 0 {
            return;
        }
        (self.uses, self.began) = (0, now);
        self.tick = (self.tick + 1) & STAMP_MASK;
        if usize::from(self.tick) % TICKS_PER_TIME == 0 {
            self.times[usize::from(self.tick) / TICKS_PER_TIME] = seconds(now);
        }
    }

    /// Returns the number of ticks since the last use of an entry with this stamp.
    pub fn age(&self, stamp: Stamp) -> u16 {
        self.tick.wrapping_sub(stamp.0) & STAMP_MASK
    }

    pub fn swept(&self, stamp: Stamp) -> Stamp {
        if self.age(stamp) <= OLDEST { stamp } else { Stamp(self.tick.wrapping_sub(OLDEST) & STAMP_MASK) }
    }

    /// Returns the seconds since the end of the group of ticks that contains the last use. This is at most a few
    /// minutes less than the true idle time.
    pub fn idle_seconds(&self, stamp: Stamp, now: u64) -> u64 {
        let group = |tick: u16| usize::from(tick) / TICKS_PER_TIME;
        if group(stamp.0) == group(self.tick) {
            return 0;
        }
        let ended = self.times[(group(stamp.0) + 1) % self.times.len()];
        seconds(now).saturating_sub(ended).into()
    }
}

/// The clock of the least-frequently-used (LFU) policies.
#[derive(Clone, Debug)]
pub(super) struct CountClock {
    period: u16,
    /// Start of the current period, in milliseconds since the epoch.
    began: u64,
    pub sweep: Sweep,
}

impl CountClock {
    pub fn new(now: u64) -> Self {
        CountClock { period: 0, began: now, sweep: Sweep { elapsed: 0, limit: SWEEP_PERIODS } }
    }

    /// Begins a new period if the current period is over.
    pub fn pass(&mut self, now: u64) {
        if now.saturating_sub(self.began) < PERIOD_MS {
            return;
        }
        let elapsed = (now - self.began) / PERIOD_MS;
        self.period = (self.period + self.sweep.pass(elapsed)) & PERIOD_MASK;
        self.began += elapsed * PERIOD_MS;
    }

    pub fn new_stamp(&self) -> Stamp {
        Stamp::counted(NEW_COUNTER, self.period)
    }

    /// Returns the current counter: the stored counter minus the number of periods since it last decayed.
    pub fn counter(&self, stamp: Stamp) -> u8 {
        let elapsed = self.period.wrapping_sub(stamp.0) & PERIOD_MASK;
        ((stamp.0 >> PERIOD_BITS) as u8).saturating_sub(elapsed as u8)
    }

    /// Returns the stamp of an entry after a use. As in Redis, a counter that is `n` above that of a new entry grows
    /// with the probability 1 / (10 n + 1).
    pub fn used(&self, stamp: Stamp, random: u32) -> Stamp {
        let counter = self.counter(stamp);
        let above = u32::from(counter.saturating_sub(NEW_COUNTER));
        let grows = counter < u8::MAX && random <= u32::MAX / (above * LOG_FACTOR + 1);
        Stamp::counted(counter + u8::from(grows), self.period)
    }

    pub fn swept(&self, stamp: Stamp) -> Stamp {
        Stamp::counted(self.counter(stamp), self.period)
    }
}

fn seconds(now: u64) -> u32 {
    u32::try_from(now / 1000).unwrap_or(u32::MAX)
}
