//! Recency and frequency of use, in the 12 spare bits of an entry's header.
//!
//! ```text
//! LRU   12 bits: the tick of the last use
//! LFU    8 bits: Redis' logarithmic counter; 4 bits: the period in which it last decayed
//! ```
//! Both contain a time that wraps around. A sweep over all entries fixes stamps before they wrap and look recent: it
//! decays counters, and clamps very old entries to the greatest age that can be represented. Invariant: between two
//! visits of an entry, fewer than half of all ticks pass, because the clock stands still while a sweep is late. Ages
//! then lose precision, but never order old entries before recent ones.
//!
//! Example, LRU, 4,096 ticks: an entry stamped at tick 10 and never visited has the age 0 again at tick 10 + 4,096 and
//! would count as the most recently used one. A sweep sets its stamp to "2,047 ticks ago" before that.
//!
//! A tick of LRU is not a time but a number of uses in proportion to the number of entries, so that a cache that turns
//! over in a second and one that takes a day are resolved equally well. A period of LFU is a minute, Redis'
//! `lfu-decay-time`.

/// A record of an entry's use: 12 bits whose meaning depends on the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp(u16);

/// Number of bits of a stamp.
pub const STAMP_BITS: u32 = 12;

const STAMP_MASK: u16 = (1 << STAMP_BITS) - 1;

/// Ticks per turn, that is, while as many uses happen as there are entries. Doubling this gains less than a thousandth
/// in hit rate (test against a true LRU, Zipf 0.99) and doubles the work of sweeps.
const TICKS_PER_TURN: usize = 32;

/// Greatest age in ticks that can be represented: 64 turns.
const OLDEST: u16 = STAMP_MASK / 2;

/// Ticks within which a sweep must visit all entries. An entry that moves during a sweep may be missed by this sweep
/// and the next.
const SWEEP_TICKS: u16 = OLDEST / 4;

/// Milliseconds after which a tick passes even without uses, so that idle times keep growing.
const TICK_MS_IDLE: u64 = 60_000;

/// Ticks that share one remembered time; all times together take 4 KiB.
const TICKS_PER_TIME: usize = 4;

const PERIOD_MS: u64 = 60_000;
const PERIOD_BITS: u32 = 4;
const PERIOD_MASK: u16 = (1 << PERIOD_BITS) - 1;

/// Periods within which a sweep must visit all entries.
const SWEEP_PERIODS: u16 = 4;

/// Counter of a new entry, as in Redis: high enough that it is not evicted before it can be used again.
const NEW_COUNTER: u8 = 5;

/// Redis' `lfu-log-factor`; the counter saturates after about a million uses.
const LOG_FACTOR: u32 = 10;

impl Stamp {
    /// Builds a stamp from the result of [`Stamp::bits`].
    pub fn from_bits(bits: u16) -> Self {
        Stamp(bits & STAMP_MASK)
    }

    /// Returns the bits; the highest four are 0.
    pub fn bits(self) -> u16 {
        self.0
    }

    fn counted(counter: u8, period: u16) -> Self {
        Stamp(u16::from(counter) << PERIOD_BITS | period)
    }
}

/// The progress of the running sweep.
#[derive(Clone, Debug, Default)]
pub(super) struct Sweep {
    /// Ticks or periods since the sweep began.
    elapsed: u16,
    /// Ticks or periods within which the sweep must end.
    limit: u16,
}

impl Sweep {
    /// Returns how many of `entries` the sweep should have visited by now. It aims at half of its limit.
    pub fn due(&self, entries: usize) -> usize {
        (usize::from(self.elapsed) * entries).div_ceil(usize::from(self.limit / 2))
    }

    /// Begins the next sweep.
    pub fn done(&mut self) {
        self.elapsed = 0;
    }

    /// Advances by `ticks`, or by as many as the sweep's limit allows; returns the number.
    fn pass(&mut self, ticks: u64) -> u16 {
        let passing = ticks.min(u64::from(self.limit - self.elapsed)) as u16;
        self.elapsed += passing;
        passing
    }
}

/// The clock of least-recently-used policies.
#[derive(Clone, Debug)]
pub(super) struct UseClock {
    tick: u16,
    /// Start of the current tick, in milliseconds since the epoch.
    began: u64,
    /// Uses during the current tick.
    uses: usize,
    pub sweep: Sweep,
    /// Start of each group of ticks, in seconds since the epoch.
    times: Box<[u32]>,
}

impl UseClock {
    pub fn new(now: u64) -> Self {
        let groups = (usize::from(STAMP_MASK) + 1) / TICKS_PER_TIME;
        let (sweep, times) = (Sweep { elapsed: 0, limit: SWEEP_TICKS }, vec![seconds(now); groups]);
        UseClock { tick: 0, began: now, uses: 0, sweep, times: times.into() }
    }

    /// Counts a use of one of `entries` entries; returns the entry's new stamp.
    #[inline]
    pub fn used(&mut self, entries: usize, now: u64) -> Stamp {
        self.uses += 1;
        if self.uses * TICKS_PER_TURN >= entries {
            self.next(now);
        }
        Stamp(self.tick)
    }

    /// Begins a new tick if the current one has lasted for [`TICK_MS_IDLE`].
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

    /// Returns the ticks since the last use.
    pub fn age(&self, stamp: Stamp) -> u16 {
        self.tick.wrapping_sub(stamp.0) & STAMP_MASK
    }

    pub fn swept(&self, stamp: Stamp) -> Stamp {
        if self.age(stamp) <= OLDEST { stamp } else { Stamp(self.tick.wrapping_sub(OLDEST) & STAMP_MASK) }
    }

    /// Returns the seconds since the end of the group of ticks that contains the last use; at most a few minutes less
    /// than the true idle time.
    pub fn idle_seconds(&self, stamp: Stamp, now: u64) -> u64 {
        let group = |tick: u16| usize::from(tick) / TICKS_PER_TIME;
        if group(stamp.0) == group(self.tick) {
            return 0;
        }
        let ended = self.times[(group(stamp.0) + 1) % self.times.len()];
        seconds(now).saturating_sub(ended).into()
    }
}

/// The clock of least-frequently-used policies.
#[derive(Clone, Debug)]
pub(super) struct CountClock {
    period: u16,
    /// Start of the period, in milliseconds since the epoch.
    began: u64,
    pub sweep: Sweep,
}

impl CountClock {
    pub fn new(now: u64) -> Self {
        CountClock { period: 0, began: now, sweep: Sweep { elapsed: 0, limit: SWEEP_PERIODS } }
    }

    /// Begins a new period if the current one is over.
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

    /// Returns the counter, less one for each period since it last decayed.
    pub fn counter(&self, stamp: Stamp) -> u8 {
        let elapsed = self.period.wrapping_sub(stamp.0) & PERIOD_MASK;
        ((stamp.0 >> PERIOD_BITS) as u8).saturating_sub(elapsed as u8)
    }

    /// Returns the stamp after a use. A counter that is `n` above that of a new entry grows with probability 1 / (10 n
    /// + 1).
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
