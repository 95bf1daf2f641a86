//! The `farpool` program. The commands are under [`cli`], one file each.

#![forbid(unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "the program is where clocks and threads come from")]

mod cli;

/// Queries allocate and free large result buffers all the time; mimalloc keeps the pages for reuse, whereas the
/// system's allocator returns them to the system and faults them in again.
#[global_allocator]
static ALLOCATOR: farpool::node::Wiping<mimalloc::MiMalloc> = farpool::node::Wiping(mimalloc::MiMalloc);

fn main() -> std::process::ExitCode {
    cli::main()
}
