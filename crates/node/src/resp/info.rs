//! The command `INFO` of the Redis protocol: the state of the node and of the client's tenant, without information
//! about other tenants.

use super::clients::{Counts, command_lines};
use super::host::{Client, REDIS_VERSION};
use farpool_kv::resp::Replies;
use farpool_kv::{Args, UsageCounters};
use farpool_model::limits::RESP_CONNECTIONS_MAX;

/// The sections that the arguments of `INFO` request.
struct RequestedSections {
    names: Vec<Vec<u8>>,
    /// Whether the default sections are requested.
    is_default: bool,
    /// Whether all sections are requested.
    is_all: bool,
}

impl RequestedSections {
    fn of(args: &Args<'_>) -> RequestedSections {
        let names: Vec<_> = args[1..].iter().map(|name| name.to_ascii_lowercase()).collect();
        let is_all = names.iter().any(|name| matches!(name.as_slice(), b"all" | b"everything"));
        let is_default = is_all || names.is_empty() || names.iter().any(|name| name == b"default");
        RequestedSections { names, is_default, is_all }
    }

    fn has(&self, section: &str) -> bool {
        let is_told = if section == "commandstats" { self.is_all } else { self.is_default };
        is_told || self.names.iter().any(|name| name == section.as_bytes())
    }
}

/// Writer of the reply to `INFO`: appends the sections that were requested, and skips the others.
struct Sections {
    wanted: RequestedSections,
    text: String,
}

impl Sections {
    fn add(&mut self, name: &str, heading: &str, lines: impl FnOnce() -> String) {
        if !self.wanted.has(name) {
            return;
        }
        let gap = if self.text.is_empty() { "" } else { "\r\n" };
        self.text += &format!("{gap}# {heading}\r\n{}", lines());
    }
}

fn lines<const N: usize>(pairs: [(&str, String); N]) -> String {
    pairs.into_iter().map(|(key, value)| format!("{key}:{value}\r\n")).collect()
}

impl Client {
    pub(super) fn info(&mut self, args: &Args<'_>, replies: &mut Replies<'_>) {
        self.settle_now();
        let mut sections = Sections { wanted: RequestedSections::of(args), text: String::new() };
        let counts = self.clients().map(|clients| clients.counts());
        sections.add("server", "Server", || self.server());
        sections.add("clients", "Clients", || self.connected());
        sections.add("memory", "Memory", || self.memory());
        sections.add("persistence", "Persistence", || self.persistence());
        sections
            .add("stats", "Stats", || counts.as_ref().map_or_else(String::new, |counts| self.stats(counts)));
        sections.add("replication", "Replication", || {
            lines([
                ("role", "master".into()),
                ("connected_slaves", "0".into()),
                ("master_repl_offset", "0".into()),
            ])
        });
        sections.add("cpu", "CPU", || counts.as_ref().map_or_else(String::new, cpu));
        sections
            .add("commandstats", "Commandstats", || counts.as_ref().map_or_else(String::new, command_lines));
        sections.add("keyspace", "Keyspace", || self.keyspace());
        // The reply depends on the last log record, because the counts of keys may include changes that are not durable
        // yet.
        let last = self.keys().and_then(|keys| keys.last_record());
        self.note_recorded(last);
        replies.verbatim(*b"txt", sections.text.as_bytes());
    }

    fn server(&self) -> String {
        let up_s = self.up_ns() / 1_000_000_000;
        lines([
            ("redis_version", REDIS_VERSION.into()),
            ("farpool_version", env!("CARGO_PKG_VERSION").into()),
            ("redis_mode", "standalone".into()),
            ("os", std::env::consts::OS.into()),
            ("process_id", std::process::id().to_string()),
            ("uptime_in_seconds", up_s.to_string()),
            ("farpool_clock_ahead_ms", self.clock_ahead_ms().to_string()),
            ("uptime_in_days", (up_s / 86_400).to_string()),
        ])
    }

    fn connected(&self) -> String {
        let clients = self.clients();
        let count = |of: fn(&super::clients::Clients) -> usize| clients.map_or(0, |clients| of(clients));
        lines([
            ("connected_clients", count(super::clients::Clients::len).to_string()),
            ("maxclients", RESP_CONNECTIONS_MAX.to_string()),
            ("blocked_clients", count(super::clients::Clients::waiting).to_string()),
        ])
    }

    fn memory(&self) -> String {
        let counts = self.keys().map(|keys| keys.counts()).unwrap_or_default();
        let bytes: usize = counts.iter().map(|(_, count)| count.bytes).sum();
        let limits = self.keys().map(|keys| keys.limits()).unwrap_or_default();
        lines([
            ("used_memory", bytes.to_string()),
            ("maxmemory", limits.maxmemory.to_string()),
            ("maxmemory_policy", limits.policy.name().into()),
        ])
    }

    fn stats(&self, counts: &Counts) -> String {
        let uses = self.keys().map(|keys| keys.uses()).unwrap_or_default();
        let since = |of: fn(&UsageCounters) -> u64| of(&uses).saturating_sub(of(&counts.uses)).to_string();
        let commands: u64 = counts.by_name.values().map(|tally| tally.calls).sum();
        lines([
            ("total_connections_received", counts.received.to_string()),
            ("total_commands_processed", commands.to_string()),
            ("instantaneous_ops_per_sec", counts.per_second.to_string()),
            ("expired_keys", since(|uses| uses.expired)),
            ("evicted_keys", since(|uses| uses.evicted)),
            ("keyspace_hits", since(|uses| uses.hits)),
            ("keyspace_misses", since(|uses| uses.misses)),
        ])
    }

    fn keyspace(&self) -> String {
        let counts = self.keys().map(|keys| keys.counts()).unwrap_or_default();
        let line = |(space, count): &(u32, farpool_kv::KeyCount)| {
            format!("db{space}:keys={},expires={},avg_ttl=0\r\n", count.keys, count.expiring)
        };
        counts.iter().map(line).collect()
    }

    /// Returns the lines about the log of keys, under the names that Redis uses.
    fn persistence(&self) -> String {
        let loading = ("loading", "0".into());
        let Some(log) = self.key_log() else { return lines([loading, ("aof_enabled", "0".into())]) };
        let status = |is_ok: bool| if is_ok { "ok" } else { "err" }.to_string();
        let snapshots = log.snapshots();
        lines([
            loading,
            ("aof_enabled", "1".into()),
            ("aof_last_write_status", status(log.is_writing())),
            ("aof_current_size", log.bytes().to_string()),
            ("aof_base_size", snapshots.latest.bytes.to_string()),
            ("rdb_bgsave_in_progress", u8::from(snapshots.is_under_way).to_string()),
            ("rdb_last_save_time", snapshots.latest.unix_s.to_string()),
            ("rdb_last_bgsave_status", status(!snapshots.has_failed)),
            ("farpool_fsync", log.fsync().name().into()),
        ])
    }
}

/// Returns the lines about CPU time: the time that commands of the tenant have taken, because the CPU time of the
/// process would include other tenants.
fn cpu(counts: &Counts) -> String {
    let ns: u64 = counts.by_name.values().map(|tally| tally.ns).sum();
    let zero = || "0.000000".to_string();
    lines([
        ("used_cpu_sys", zero()),
        ("used_cpu_user", format!("{:.6}", ns as f64 / 1e9)),
        ("used_cpu_sys_children", zero()),
        ("used_cpu_user_children", zero()),
    ])
}
