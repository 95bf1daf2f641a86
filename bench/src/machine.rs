//! Information about the machine, and the date, for a record.

use serde::Serialize;
use std::fmt::{Display, Formatter};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Clock ticks per second in `/proc`: Linux reports in hundredths on every architecture we build for.
const TICKS_PER_SECOND: f64 = 100.0;

/// The machine on which a result was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Machine {
    pub processor: String,
    pub processors: usize,
    pub memory_gib: f64,
    pub kernel: String,
}

impl Display for Machine {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        let Machine { processor, processors, memory_gib, kernel } = self;
        write!(out, "{processor} · {processors} processors · {memory_gib} GiB · Linux {kernel}")
    }
}

/// Returns information about this machine.
pub fn machine() -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| -> String {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map_or(String::new(), |(_, value)| value.trim().to_string())
    };
    let memory = field(&read("/proc/meminfo"), "MemTotal");
    let kib: f64 = memory.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0.0);
    Machine {
        processor: field(&read("/proc/cpuinfo"), "model name"),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        memory_gib: (kib / f64::from(1 << 20) * 10.0).round() / 10.0,
        kernel: read("/proc/sys/kernel/osrelease").trim().to_string(),
    }
}

/// Returns the CPU seconds that this process has used on all threads; `None` if `/proc` does not report them.
pub fn cpu_seconds() -> Option<f64> {
    cpu_seconds_of("self")
}

/// Returns the CPU seconds that a process, given by its id, has used.
pub fn cpu_seconds_of(process: &str) -> Option<f64> {
    let stat = ProcessStat::of(process)?;
    Some(stat.own_s)
}

/// Returns the CPU seconds that a process, given by its id, and its children have used, also those children that have
/// ended.
pub fn cpu_seconds_of_tree(parent: &str) -> Option<f64> {
    let stat = ProcessStat::of(parent)?;
    let names =
        std::fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let ids = names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    // A process that has ended in the meantime is counted with its parent the next time.
    let children = ids.filter_map(|id| ProcessStat::of(&id)).filter(|child| child.parent == parent);
    Some(stat.own_s + stat.of_ended_s + children.map(|child| child.own_s + child.of_ended_s).sum::<f64>())
}

/// CPU seconds in `/proc/PID/stat`.
struct ProcessStat {
    parent: String,
    own_s: f64,
    /// Times of children that have ended.
    of_ended_s: f64,
}

impl ProcessStat {
    fn of(process: &str) -> Option<ProcessStat> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The second field is the program's name in brackets, which may contain spaces.
        let (_, fields) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        let seconds = |user: usize| {
            let ticks = fields.get(user..user + 2)?.iter().map(|ticks| ticks.parse::<f64>().ok());
            Some(ticks.sum::<Option<f64>>()? / TICKS_PER_SECOND)
        };
        let parent = fields.get(1)?.to_string();
        Some(ProcessStat { parent, own_s: seconds(11)?, of_ended_s: seconds(13)? })
    }
}

/// Measures elapsed time, and the CPU time of this process in the meantime.
pub struct Stopwatch {
    start: Instant,
    cpu_s: f64,
}

impl Stopwatch {
    /// Starts measuring now.
    pub fn start() -> Stopwatch {
        Stopwatch { start: Instant::now(), cpu_s: cpu_seconds().unwrap_or(f64::NAN) }
    }

    /// Returns the elapsed seconds and the CPU seconds; the latter are NaN if `/proc` does not report them.
    pub fn seconds(&self) -> (f64, f64) {
        let elapsed_s = self.start.elapsed().as_secs_f64();
        (elapsed_s, cpu_seconds().unwrap_or(f64::NAN) - self.cpu_s)
    }
}

/// Returns the bytes of memory that a process, given by its id, has resident.
pub fn resident_bytes_of(process: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Returns the CPU nanoseconds that the live threads of this process have used; 0 if `/proc` does not report them.
/// Finer than [`cpu_seconds`], which also counts threads that have ended.
pub fn cpu_ns() -> u64 {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0 };
    let used = |task: std::io::Result<std::fs::DirEntry>| -> Option<u64> {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    tasks.filter_map(used).sum()
}

/// Returns the current date as YYYY-MM-DD in UTC (Howard Hinnant's days-to-civil algorithm).
pub fn today() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let days = now.as_secs() / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}
