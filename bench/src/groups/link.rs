//! The network between client and node: the loopback device of a separate Linux network namespace, so that its
//! bandwidth can be limited without an effect on other processes.

use anyhow::{Context, Result, bail};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Name of the environment variable that is set in a process within the separate namespace.
const INSIDE: &str = "FARPOOL_BENCH_NETWORK";

/// Burst size of the token bucket that limits the link, in the notation of `tc`. Reason: packets that are larger than
/// the burst are dropped, and the largest packet of loopback has 64 KiB.
const BURST: &str = "256kb";

/// Replaces this process by the same program in a separate network namespace. Returns `None` if the process is in the
/// namespace already, and the reason if it cannot enter one.
pub fn enter() -> Option<String> {
    if std::env::var_os(INSIDE).is_some() {
        return run(&["ip", "link", "set", "lo", "up"]).err().map(|error| format!("{error:#}"));
    }
    // Tries the commands first: a namespace without them would have no working loopback device at all.
    if let Err(error) = run(&["unshare", "--net", "sh", "-c", "ip link set lo up && tc -V"]) {
        return Some(format!("no namespace: {error:#}"));
    }
    let program = std::env::current_exe().ok()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `exec` returns only if it fails.
    let error = Command::new("unshare").arg("--net").arg(program).args(arguments).env(INSIDE, "1").exec();
    Some(error.to_string())
}

/// Limits the bandwidth of the link to `mbit` Mbit/s; `None` removes the limit.
///
/// # Errors
/// Fails outside of the separate namespace, because the limit would slow down every process of the machine.
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

/// Runs a command; its standard error becomes the error if it fails.
fn run(command: &[&str]) -> Result<()> {
    let output = Command::new(command[0]).args(&command[1..]).output().context(command[0].to_string())?;
    if !output.status.success() {
        bail!("{}: {}", command.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
