//! The network between client and node: loopback of a separate namespace, whose bandwidth can be limited.

use anyhow::{Context, Result, bail};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A variable that is set in a process within such a namespace.
const INSIDE: &str = "FARPOOL_BENCH_NETWORK";

/// Bytes that a limited link sends at a time; the largest packet of loopback has 64 KiB.
const BURST: &str = "256kb";

/// Runs this program again in a separate network namespace, unless it is in one already. Returns the reason if that is
/// not possible.
pub fn enter() -> Option<String> {
    if std::env::var_os(INSIDE).is_some() {
        return run(&["ip", "link", "set", "lo", "up"]).err().map(|error| format!("{error:#}"));
    }
    // Without these commands, there would be no link at all in the namespace.
    if let Err(error) = run(&["unshare", "--net", "sh", "-c", "ip link set lo up && tc -V"]) {
        return Some(format!("no namespace: {error:#}"));
    }
    let program = std::env::current_exe().ok()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `exec` returns only if it fails.
    let error = Command::new("unshare").arg("--net").arg(program).args(arguments).env(INSIDE, "1").exec();
    Some(error.to_string())
}

/// Limits the link to this many megabits per second, or removes the limit.
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
