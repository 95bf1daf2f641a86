//! One life of the simulated node's key-value store: from recovery (reading the keys from the disk) to the crash.

use crate::checks::Checked;
use crate::clock::SimClock;
use crate::random::Random;
use farpool_disk::{Directory, SimulatedDirectory};
use farpool_kv::evict::Policy;
use farpool_kv::{Keyspace, TimeAndRandom};
use farpool_memory::WorkMemory;
use farpool_model::{Clock, TenantName, limits};
use farpool_node::{Access, Caller, Environment, Fsync, Node, NodeConfig, SteppedKeys};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a file of the log: more than its largest record takes.
const FILE_BYTES: u64 = 4 << 20;

/// A clock whose time of day can be set, even backwards.
#[derive(Debug)]
pub struct DayClock {
    /// The clock of processor time.
    steps: SimClock,
    unix_ms: AtomicU64,
    steady_ms: AtomicU64,
}

impl DayClock {
    /// Creates a clock whose steps derive from `seed`.
    pub fn new(seed: u64, unix_ms: u64) -> Self {
        let (unix_ms, steady_ms) = (AtomicU64::new(unix_ms), AtomicU64::new(seed % 1_000_000));
        DayClock { steps: SimClock::new(seed), unix_ms, steady_ms }
    }

    /// Advances all clocks.
    pub fn pass(&self, ms: u64) {
        self.unix_ms.fetch_add(ms, Ordering::Relaxed);
        self.steady_ms.fetch_add(ms, Ordering::Relaxed);
    }

    /// Sets the time of day, possibly backwards.
    pub fn set(&self, unix_ms: u64) {
        self.unix_ms.store(unix_ms, Ordering::Relaxed);
    }
}

impl Clock for DayClock {
    fn now_ns(&self) -> u64 {
        self.steps.now_ns()
    }

    fn thread_cpu_ns(&self) -> u64 {
        self.steps.thread_cpu_ns()
    }

    fn steady_ns(&self) -> u64 {
        self.steady_ms.load(Ordering::Relaxed) * 1_000_000
    }

    fn unix_ms(&self) -> u64 {
        self.unix_ms.load(Ordering::Relaxed)
    }
}

/// The settings of the keys of a world.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The condition for sending replies.
    pub fsync: Fsync,
    /// The eviction policy.
    pub policy: Policy,
    /// Bytes of the pool that the keys may take, 0 for enough.
    pub maxmemory: u64,
}

impl Setting {
    /// Returns random settings.
    pub fn random(random: &mut Random) -> Self {
        let fsync = random.pick(&[Fsync::Always, Fsync::EverySecond, Fsync::No]);
        let policy = random.pick(&Policy::ALL);
        let maxmemory = if random.chance(40) { (60 + random.below(340) as u64) << 10 } else { 0 };
        Setting { fsync, policy, maxmemory }
    }
}

/// A running node with its key-value store and the store's log.
pub struct Life {
    /// The log of keys.
    pub log: SteppedKeys,
    /// The keys.
    pub keys: Arc<Keyspace>,
    /// The caller that reads the keys by SQL.
    pub caller: Caller,
}

impl Life {
    /// Starts a new node with the keys that it reads from the directory.
    pub fn begin(
        random: &mut Random,
        clock: &Arc<DayClock>,
        directory: &Arc<SimulatedDirectory>,
        setting: &Setting,
    ) -> Checked<Life> {
        let work = WorkMemory::new(limits::WORK_BYTES_MIN * 128);
        let (access, memory_bytes) = (Access::of_everybody(), 64 << 20);
        let config = NodeConfig { memory_bytes, work, access, ..NodeConfig::default() };
        let environment = Environment {
            clock: clock.clone(),
            hash_seed: random.next(),
            instance: 1,
            processors: 1,
            background_threads: 0,
            disk_threads: false,
            ..Environment::of_system()
        };
        let node = Node::assemble(config, environment).map_err(|error| error.to_string())?;
        let data = directory.clone() as Arc<dyn Directory>;
        let log = SteppedKeys::open(node.keyspaces(), data, setting.fsync, FILE_BYTES);
        let log = log.map_err(|error| format!("the keys cannot be read: {error}"))?;
        let tenant = TenantName::default();
        Ok(Life { keys: log.keys(&tenant), log, caller: node.owner(tenant) })
    }

    /// Sets the limits of the keys.
    pub fn limit(&self, moment: TimeAndRandom, setting: &Setting) -> Checked {
        let change = |limits: &mut farpool_kv::Limits| {
            (limits.maxmemory, limits.policy) = (setting.maxmemory, setting.policy);
        };
        self.keys.set_limits(moment, change).map(drop).map_err(|error| error.to_string())
    }

    /// Returns the latest time that the keys have seen.
    pub fn latest(&self) -> u64 {
        self.keys.cut(15, 0).now()
    }
}
