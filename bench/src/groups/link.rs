//! The network between client and node: loopback of a namespace of its own, whose bandwidth can be capped.

use anyhow::{Context, Result, bail};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Set in a process that has such a namespace.
const INSIDE: &str = "FARPOOL_BENCH_NETWORK";

/// Bytes that leave a capped link at once; the largest packet of loopback has 64 KiB.
const BURST: &str = "256kb";

/// Runs this program again in a network namespace of its own, unless it is in one. Returns where that is not possible, with
/// the reason.
pub fn enter() -> Option<String> {
    if std::env::var_os(INSIDE).is_some() {
        return run(&["ip", "link", "set", "lo", "up"]).err().map(|error| format!("{error:#}"));
    }
    // Without these, there would be no link at all inside.
    if let Err(error) = run(&["unshare", "--net", "sh", "-c", "ip link set lo up && tc -V"]) {
        return Some(format!("no namespace: {error:#}"));
    }
    let program = std::env::current_exe().ok()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // It only returns when it fails.
    let error = Command::new("unshare").arg("--net").arg(program).args(arguments).env(INSIDE, "1").exec();
    Some(error.to_string())
}

/// Caps the link at so many megabits a second, or no longer.
pub fn cap(mbit: Option<u64>) -> Result<()> {
    if std::env::var_os(INSIDE).is_none() {
        bail!("not in a network namespace of its own");
    }
    match mbit {
        Some(mbit) => run(&[
            "tc",
            "qdisc",
            "replace",
            "dev",
            "lo",
            "root",
            "tbf",
            "rate",
            &format!("{mbit}mbit"),
            "burst",
            BURST,
            "latency",
            "100ms",
        ]),
        None => run(&["tc", "qdisc", "del", "dev", "lo", "root"]),
    }
}

fn run(command: &[&str]) -> Result<()> {
    let output = Command::new(command[0]).args(&command[1..]).output().context(command[0].to_string())?;
    if !output.status.success() {
        bail!("{}: {}", command.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
