//! The extension module `farpool._farpool`: pools, statements and rows for the Python package around it
//! (`bindings/python/python/farpool`), which has the public API.
//!
//! Invariant: a Python thread that waits for the pool releases the interpreter lock (GIL), and waits only in
//! `runtime::wait`, which reacts to Ctrl-C and to the exit of the interpreter.

#![expect(clippy::disallowed_methods, reason = "waits for signals by the clock")]

mod arrow_stream;
mod batch;
mod errors;
mod load;
mod parameters;
mod pool;
mod process;
mod query;
mod runtime;
mod statements;
mod texts;
mod values;

/// As in the program: mimalloc reuses buffers of results instead of returning them to the system.
#[global_allocator]
static ALLOCATOR: farpool::node::Wiping<mimalloc::MiMalloc> = farpool::node::Wiping(mimalloc::MiMalloc);

#[pyo3::pymodule]
mod _farpool {
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name that Python packages have")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
    #[pymodule_export]
    use crate::batch::NativeBatch;
    #[pymodule_export]
    use crate::pool::NativePool;
    #[pymodule_export]
    use crate::query::{NativeBatches, NativeQuery, NativeRows};
    #[pymodule_export]
    use crate::runtime::{forked, leave};
    #[pymodule_export]
    use crate::statements::{split, table_in_sql};
}
