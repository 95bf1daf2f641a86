//! When, or how often, an entry was used, in the 12 bits that its header has left.
//!
//! ```text
//! LRU   12 bits: the tick of the last use
//! LFU    8 bits: Redis' logarithmic counter; 4 bits: the period in which it last decayed
//! ```
//! Both are times that wrap. A sweep over all entries puts those right that would be taken for young ones: it ages counters,
//! and makes very old entries as old as can be told. Invariant: between two visits of an entry fewer ticks pass than half of
//! them all, because time stands still while a sweep is late. Use is then told apart less finely, but never wrongly.
//!
//! A tick of LRU is not a time but a number of uses in proportion to the number of entries: a cache that is replaced in a second
//! and one that is in a day are told apart equally well. A period of LFU is a minute, Redis' `lfu-decay-time`.

/// What an entry has about its use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp(u16);

/// Bits of a stamp.
pub const STAMP_BITS: u32 = 12;

const STAMP_MASK: u16 = (1 << STAMP_BITS) - 1;

/// Ticks that pass while as many entries are used as there are. Twice as many gain less than a thousandth of hits (the test
/// against a true LRU, Zipf 0.99), and need twice the sweep.
const TICKS_PER_TURN: usize = 32;

/// The age of an entry that was not used for as long as can be told, in ticks: 64 turns.
const OLDEST: u16 = STAMP_MASK / 2;

/// Ticks in which a sweep must visit all entries. One that moves while a sweep passes may be missed by that and the next.
const SWEEP_TICKS: u16 = OLDEST / 4;

/// A tick passes after this time however little is used, so that it is known how long entries were not used.
const TICK_MS_IDLE: u64 = 60_000;

/// Ticks whose time is remembered together: 4 KiB for all.
const TICKS_PER_TIME: usize = 4;

const PERIOD_MS: u64 = 60_000;
const PERIOD_BITS: u32 = 4;
const PERIOD_MASK: u16 = (1 << PERIOD_BITS) - 1;

/// Periods in which a sweep must visit all entries.
const SWEEP_PERIODS: u16 = 4;

/// The counter of a new entry, so that it is not evicted before it can be used again, as Redis has it.
const NEW_COUNTER: u8 = 5;

/// Redis' `lfu-log-factor`: some million uses for the greatest counter.
const LOG_FACTOR: u32 = 10;

impl Stamp {
    /// Takes the bits that [`Stamp::bits`] gave.
    pub fn from_bits(bits: u16) -> Self {
        Stamp(bits & STAMP_MASK)
    }

    /// The bits, of which the highest four are 0.
    pub fn bits(self) -> u16 {
        self.0
    }

    fn counted(counter: u8, period: u16) -> Self {
        Stamp(u16::from(counter) << PERIOD_BITS | period)
    }
}

/// The sweep that is under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Sweep {
    /// Ticks or periods since it began.
    elapsed: u16,
    /// Those within which it has to end.
    limit: u16,
}

impl Sweep {
    /// How many of `entries` it should have visited by now. It should end in half the time that it has.
    pub fn due(&self, entries: usize) -> usize {
        (usize::from(self.elapsed) * entries).div_ceil(usize::from(self.limit / 2))
    }

    /// Begins the next one.
    pub fn done(&mut self) {
        self.elapsed = 0;
    }

    /// Lets so many ticks pass, or as many as the sweep allows; returns how many.
    fn pass(&mut self, ticks: u64) -> u16 {
        let passing = ticks.min(u64::from(self.limit - self.elapsed)) as u16;
        self.elapsed += passing;
        passing
    }
}

/// The clock of least recent use.
#[derive(Clone, Debug)]
pub(super) struct UseClock {
    tick: u16,
    /// When it began, in milliseconds since the epoch.
    began: u64,
    /// Uses since then.
    uses: usize,
    pub sweep: Sweep,
    /// Seconds since the epoch at which groups of ticks began.
    times: Box<[u32]>,
}

impl UseClock {
    pub fn new(now: u64) -> Self {
        let groups = (usize::from(STAMP_MASK) + 1) / TICKS_PER_TIME;
        let (sweep, times) = (Sweep { elapsed: 0, limit: SWEEP_TICKS }, vec![seconds(now); groups]);
        UseClock { tick: 0, began: now, uses: 0, sweep, times: times.into() }
    }

    /// Counts a use of one of so many entries, and returns its stamp.
    #[inline]
    pub fn used(&mut self, entries: usize, now: u64) -> Stamp {
        self.uses += 1;
        if self.uses * TICKS_PER_TURN >= entries {
            self.next(now);
        }
        Stamp(self.tick)
    }

    /// Lets a tick begin, if it is time.
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

    /// Ticks since the last use.
    pub fn age(&self, stamp: Stamp) -> u16 {
        self.tick.wrapping_sub(stamp.0) & STAMP_MASK
    }

    pub fn swept(&self, stamp: Stamp) -> Stamp {
        if self.age(stamp) <= OLDEST { stamp } else { Stamp(self.tick.wrapping_sub(OLDEST) & STAMP_MASK) }
    }

    /// Seconds since the end of the group of ticks in which the last use was, which is at most some minutes behind it.
    pub fn idle_seconds(&self, stamp: Stamp, now: u64) -> u64 {
        let group = |tick: u16| usize::from(tick) / TICKS_PER_TIME;
        if group(stamp.0) == group(self.tick) {
            return 0;
        }
        let ended = self.times[(group(stamp.0) + 1) % self.times.len()];
        seconds(now).saturating_sub(ended).into()
    }
}

/// The clock of least frequent use.
#[derive(Clone, Debug)]
pub(super) struct CountClock {
    period: u16,
    /// When the period began.
    began: u64,
    pub sweep: Sweep,
}

impl CountClock {
    pub fn new(now: u64) -> Self {
        CountClock { period: 0, began: now, sweep: Sweep { elapsed: 0, limit: SWEEP_PERIODS } }
    }

    /// Lets a period begin, if it is time.
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

    /// The counter, less one for each period since it last decayed.
    pub fn counter(&self, stamp: Stamp) -> u8 {
        let elapsed = self.period.wrapping_sub(stamp.0) & PERIOD_MASK;
        ((stamp.0 >> PERIOD_BITS) as u8).saturating_sub(elapsed as u8)
    }

    /// The stamp after a use: the counter grows with a probability of 1 in 10 n + 1 where it is n above that of a new entry.
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
