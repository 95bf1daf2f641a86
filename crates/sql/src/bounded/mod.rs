//! Functions whose results, or whose work, may be many times as large as what they are given: `repeat`, `generate_series`,
//! `lpad`, `regexp_replace`, … DataFusion charges none of their results to its memory pool.
//!
//! A call is replaced by one of a function that wraps it ([`function`]). It computes from the arguments how large the result
//! can become ([`growth`]), charges that before it is made, and refuses it with the function's name where there is no memory. A
//! batch is worked on in slices of rows, so that the statement can be stopped in between and copies of arguments stay small.
//!
//! Results are charged until the operator that they were computed for asks its input for more, or is asked for more itself
//! ([`Charge`]): who keeps rows for longer, such as a sort, charges them itself.
//!
//! Invariant: a call gives the result that the wrapped function gives, or an error.

mod concat;
mod function;
mod growth;
mod lambdas;
mod repeated;
mod rule;
mod windows;

pub use growth::{call_bytes_max, range_bytes};
pub use lambdas::register;
pub use repeated::{REPEATED_ROWS, Repeats, has_nested, repeats_rows, rows_of_constant_lists};
pub use rule::{BoundedFunctions, bounded};

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;

/// Bytes that functions of one operator may hold although no memory is free.
const OVERDRAFT: usize = 4 << 20;

/// What results of functions have been charged for one operator, or for the planning of a statement.
#[derive(Default)]
pub struct Charge(Mutex<Option<MemoryReservation>>);

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Charge")
    }
}

impl Charge {
    /// Charges so many bytes to `memory`; returns whether it may have them. Up to [`OVERDRAFT`] it may although they are not
    /// free: operators that can work with less, such as a sort, leave no memory free, and take less from then on.
    fn grow(&self, memory: &Arc<dyn MemoryPool>, bytes: usize) -> bool {
        let mut reserved = self.0.lock();
        let reserved = reserved.get_or_insert_with(|| MemoryConsumer::new("functions").register(memory));
        let is_free = reserved.try_grow(bytes).is_ok();
        let is_little = reserved.size().saturating_add(bytes) <= OVERDRAFT;
        if !is_free && is_little {
            reserved.grow(bytes);
        }
        is_free || is_little
    }

    /// Gives so many bytes back.
    fn shrink(&self, bytes: usize) {
        if let Some(reserved) = &*self.0.lock() {
            reserved.shrink(bytes.min(reserved.size()));
        }
    }

    /// Bytes that are charged.
    fn held(&self) -> usize {
        self.0.lock().as_ref().map_or(0, MemoryReservation::size)
    }

    /// Gives everything back.
    pub fn release(&self) {
        if let Some(reserved) = &*self.0.lock() {
            reserved.free();
        }
    }
}
