//! The `farpool` program. What it can do is under [`cli`], a file for each command.

#![forbid(unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "the program is where clocks and threads come from")]

mod cli;

/// Queries allocate and free large result buffers all the time; mimalloc keeps the pages at hand, where the
/// system's allocator gives them back and faults them in again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cli::main()
}
