//! Limits the memory of functions whose results, or whose work, can be much larger than their arguments: `repeat`,
//! `generate_series`, `lpad`, `regexp_replace`, …
//!
//! DataFusion 55.2 charges none of their results to its memory pool. Therefore a call is replaced by a call of a
//! function that wraps it ([`function`]). The wrapper derives an upper bound of the result from the arguments
//! ([`growth`]), and reserves that memory before it calls the function; it fails with the function's name if the memory
//! is not free. A batch is processed in slices of rows, so that the statement can be stopped in between and copies of
//! arguments stay small. All of this is obsolete once upstream charges the results of functions.
//!
//! Results stay charged until the operator for which they were computed polls its input again, or is polled again
//! itself ([`Charge`]). An operator that keeps rows for longer, such as a sort, charges them itself.
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

/// Maximum bytes that the functions of one operator may hold although no memory is free.
const OVERDRAFT: usize = 4 << 20;

/// The account of the memory reserved for results of functions: one for each operator, and one for the planning of a
/// statement.
#[derive(Default)]
pub struct Charge(Mutex<Option<MemoryReservation>>);

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Charge")
    }
}

impl Charge {
    /// Reserves `bytes` more in `memory`; returns false if that is not possible. Up to [`OVERDRAFT`] it succeeds even
    /// if the memory is not free: operators that can work with less, such as a sort, may have taken all free memory,
    /// and take less from then on.
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

    /// Releases `bytes` bytes of the reservation.
    fn shrink(&self, bytes: usize) {
        if let Some(reserved) = &*self.0.lock() {
            reserved.shrink(bytes.min(reserved.size()));
        }
    }

    /// Returns the reserved bytes.
    fn held(&self) -> usize {
        self.0.lock().as_ref().map_or(0, MemoryReservation::size)
    }

    /// Releases the whole reservation.
    pub fn release(&self) {
        if let Some(reserved) = &*self.0.lock() {
            reserved.free();
        }
    }
}
