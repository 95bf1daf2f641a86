//! LiquidCache as a rival of the benchmarks, with the protocol of `bench/rivals/driver.py`: one JSON request per input
//! line, one answer per output line.
//!
//! The program is the client, which starts itself again (`server`) as the server: two processes with loopback TCP
//! between them. Both use the allocator of LiquidCache's own benchmarks.

#![forbid(unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "a driver measures time")]

#[path = "../../../src/digest.rs"]
mod digest;

mod client;
mod counted;
mod protocol;
mod server;
mod tables;

use anyhow::{Result, bail};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => protocol::serve(),
        ["server", threads] => server::run(threads.parse()?),
        _ => bail!("the arguments are none, for the client, or `server THREADS`"),
    }
}

/// Creates the runtime of one side.
fn runtime(threads: usize) -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?)
}
